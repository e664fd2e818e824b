//! Numbers the sources of requests, and keeps what is counted for each: principals, and the addresses of callers
//! without one.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tenure_node::{ConnectionShare, Principal, SourceShare};

use super::memory::PrincipalMemory;
use super::quota::QuotaUse;
use crate::identity::AuthThrottle;

/// The most principals that are kept although they have no connection: more than a cluster knows.
const IDLE_MAX: usize = 16_384;

/// The number that was drawn last. Zero is the member itself.
static NEWEST: AtomicU64 = AtomicU64::new(0);

/// A number that nothing else in this process has.
fn number() -> u64 {
    NEWEST.fetch_add(1, Ordering::Relaxed) + 1
}

/// A principal or an address, as far as its requests are counted.
#[derive(Debug)]
pub(crate) struct RequestSource {
    share: SourceShare,
    quotas: QuotaUse,
    /// What waits for the connections of a principal; none for an address, behind which there may be many clients.
    memory: Option<PrincipalMemory>,
    /// The failed authentication of an address.
    throttle: AuthThrottle,
    /// How many requests it has made.
    requests: AtomicU64,
}

impl RequestSource {
    /// A new address.
    pub(crate) fn of_address() -> Arc<Self> {
        Self::new(None)
    }

    /// A new principal.
    pub(super) fn of_principal(principal: Principal) -> Arc<Self> {
        Self::new(Some(principal))
    }

    fn new(principal: Option<Principal>) -> Arc<Self> {
        let memory = principal.as_ref().map(|_| PrincipalMemory::default());
        let (quotas, throttle) = (QuotaUse::new(principal), AuthThrottle::default());
        let (share, requests) = (SourceShare::new(number()), AtomicU64::new(0));
        Arc::new(Self { share, quotas, memory, throttle, requests })
    }

    /// What waits for its connections.
    pub(super) fn memory(&self) -> Option<&PrincipalMemory> {
        self.memory.as_ref()
    }

    /// Its failed authentication.
    pub(super) fn throttle(&self) -> &AuthThrottle {
        &self.throttle
    }

    /// What it has in use of its quotas.
    pub(super) fn quotas(&self) -> &QuotaUse {
        &self.quotas
    }

    /// Whether it can be forgotten: a new source would be in the same state.
    pub(crate) fn is_new(&self, now_us: u64) -> bool {
        self.share.bytes() == 0 && self.quotas.is_new(now_us) && self.throttle.is_new(now_us)
    }

    /// The bytes that it has in flight.
    pub(super) fn bytes_in_flight(&self) -> u64 {
        self.share.bytes()
    }
}

/// The principals that have or had connections. Cheap to clone.
#[derive(Clone, Default, Debug)]
pub(crate) struct PrincipalSources(Arc<KnownPrincipals>);

#[derive(Default, Debug)]
struct KnownPrincipals {
    by_name: Mutex<BTreeMap<String, Arc<RequestSource>>>,
    /// How many requests came without a principal.
    unnamed_requests: AtomicU64,
}

impl PrincipalSources {
    /// The principals with the most requests, at most `most`, and how many these are. The empty name stands for all
    /// callers without a principal and is always there.
    pub(crate) fn busiest(&self, most: usize) -> Vec<(String, u64)> {
        let known = self.known();
        let requests = |(name, source): (&String, &Arc<RequestSource>)| {
            (name.clone(), source.requests.load(Ordering::Relaxed))
        };
        let mut all: Vec<_> = known.iter().map(requests).collect();
        drop(known);
        all.sort_unstable_by_key(|(_, requests)| std::cmp::Reverse(*requests));
        all.truncate(most);
        all.push((String::new(), self.0.unnamed_requests.load(Ordering::Relaxed)));
        all
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, Arc<RequestSource>>> {
        self.0.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of(&self, principal: &Principal) -> Arc<RequestSource> {
        let mut known = self.known();
        if let Some(source) = known.get(principal.name()) {
            return source.clone();
        }
        if known.len() >= IDLE_MAX {
            known.retain(|_, source| Arc::strong_count(source) > 1);
        }
        let new = || RequestSource::of_principal(principal.clone());
        known.entry(principal.name().to_owned()).or_insert_with(new).clone()
    }
}

/// The source of the requests of a connection, and what the connection has of its share. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionSource {
    source: Arc<RequestSource>,
    share: ConnectionShare,
}

impl ConnectionSource {
    fn new(connection: u64, source: Arc<RequestSource>) -> Self {
        let share = ConnectionShare::new(connection, source.share.clone());
        Self { source, share }
    }

    /// The principal or the address.
    pub(super) fn source(&self) -> &Arc<RequestSource> {
        &self.source
    }

    /// What the connection has in flight.
    pub(crate) fn share(&self) -> &ConnectionShare {
        &self.share
    }
}

/// The sources that a connection sends requests for: its address, and the principal of its last request.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionSources(Arc<Sources>);

#[derive(Debug)]
struct Sources {
    connection: u64,
    address: ConnectionSource,
    principals: PrincipalSources,
    /// Most connections have one principal.
    last: Mutex<Option<(Principal, ConnectionSource)>>,
}

impl ConnectionSources {
    /// The sources of a new connection from an address.
    pub(crate) fn new(address: Arc<RequestSource>, principals: PrincipalSources) -> Self {
        let connection = number();
        let address = ConnectionSource::new(connection, address);
        Self(Arc::new(Sources { connection, address, principals, last: Mutex::default() }))
    }

    /// Counts a request of a source of this connection.
    pub(super) fn count_request(&self, of: &RequestSource) {
        let requests = match of.memory {
            Some(_) => &of.requests,
            None => &self.0.principals.0.unnamed_requests,
        };
        requests.fetch_add(1, Ordering::Relaxed);
    }

    /// The address.
    pub(super) fn address(&self) -> &Arc<RequestSource> {
        self.0.address.source()
    }

    /// The source of a request of this principal; that of the address if it has no name.
    pub(crate) fn of(&self, principal: Option<&Principal>) -> ConnectionSource {
        let Some(principal) = principal.filter(|it| !it.name().is_empty()) else {
            return self.0.address.clone();
        };
        let mut last = self.0.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, source)) = &*last
            && known == principal
        {
            return source.clone();
        }
        let source = self.0.principals.of(principal);
        let source = ConnectionSource::new(self.0.connection, source);
        *last = Some((principal.clone(), source.clone()));
        source
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_principals_are_found_and_callers_without_one_are_counted_together() {
        let principals = PrincipalSources::default();
        let connection = ConnectionSources::new(RequestSource::of_address(), principals.clone());
        for (name, requests) in [("ana", 2), ("ben", 5), ("eve", 1), ("", 7)] {
            let principal = (!name.is_empty()).then(|| Principal::named(name).unwrap());
            let source = connection.of(principal.as_ref());
            (0..requests).for_each(|_| connection.count_request(source.source()));
        }
        let busiest = principals.busiest(2);
        let shown: Vec<_> = busiest.iter().map(|(name, requests)| (&**name, *requests)).collect();
        assert_eq!(shown, [("ben", 5), ("ana", 2), ("", 7)]);
    }

    #[test]
    fn a_principal_is_one_source_from_everywhere_and_callers_without_one_are_their_address() {
        let (principals, address) = (PrincipalSources::default(), RequestSource::of_address());
        let connection = || ConnectionSources::new(address.clone(), principals.clone());
        let (one, two) = (connection(), connection());
        let ana = Principal::named("ana").unwrap();
        let source = |it: &ConnectionSources, who: Option<&Principal>| it.of(who).share().source();
        let (first, second) = (source(&one, Some(&ana)), source(&two, Some(&ana)));
        assert_eq!(first.share, second.share);
        assert_ne!(first.connection, second.connection);
        let ben = Principal::named("ben").unwrap();
        assert_ne!(source(&one, Some(&ben)).share, first.share);
        assert_eq!(source(&one, Some(&ana)), first);
        assert_eq!(source(&one, None), source(&one, Some(&Principal::anyone())));
        assert_eq!(source(&one, None).share, source(&two, None).share);
        assert_ne!(source(&one, None).share, first.share);
    }
}
