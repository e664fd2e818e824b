//! Tells the code that serves a request which connection the request came over, and which principal made it.
//!
//! Limits per connection and per address are counted deep in the member: where a command is admitted, a watch buffers
//! events, or mail waits for a session. The API sets the caller around everything that it polls for a connection, so
//! that no call has to pass it on. A task that a request spawns takes the caller along.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tenure_node::{ConnectionShare, Principal, Source, Weight};
use tenure_types::Quota;
use tenure_wire::Failure;

use super::memory::{ConnectionMemory, MemberMemory};
use super::quota::QuotaCount;
use super::source::{ConnectionSource, ConnectionSources};
use crate::identity::{AuthThrottle, CallerIdentity, Identity};

/// The most watches of one connection. Each one that is behind buffers a part of the history.
pub(crate) const WATCHES_MAX: usize = 1_024;

tokio::task_local! {
    static CALLER: Caller;
}

/// One connection, as far as limits are concerned, and the principal of the request on it. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Caller(Arc<CallerShared>);

/// What the clones of a caller share. Each request has one of its own.
struct CallerShared {
    connection: Arc<ConnectionShared>,
    /// The source of the request.
    source: ConnectionSource,
    /// The memory of the connection, for this source.
    memory: ConnectionMemory,
    /// None until the caller has presented its credentials, and for what needs none.
    identity: Option<CallerIdentity>,
    /// Whether the present request has asked for a change of the access rules.
    changes_access: AtomicBool,
}

/// What the requests of a connection share.
struct ConnectionShared {
    sources: ConnectionSources,
    memory: ConnectionMemory,
    watches: AtomicUsize,
    from: Option<IpAddr>,
}

impl Caller {
    /// The caller for a new connection, from this address if it is known.
    pub(crate) fn new(
        sources: ConnectionSources,
        member: MemberMemory,
        from: Option<IpAddr>,
    ) -> Self {
        let (memory, watches) = (ConnectionMemory::new(member), AtomicUsize::new(0));
        Self::of(Arc::new(ConnectionShared { sources, memory, watches, from }), None)
    }

    /// The same caller, for a request with these credentials.
    pub(crate) fn identified(&self, identity: Option<CallerIdentity>) -> Self {
        Self::of(self.0.connection.clone(), identity)
    }

    fn of(connection: Arc<ConnectionShared>, identity: Option<CallerIdentity>) -> Self {
        let source = connection.sources.of(identity.as_ref().map(CallerIdentity::principal));
        let memory = connection.memory.of(source.source().memory());
        let changes_access = AtomicBool::new(false);
        Self(Arc::new(CallerShared { connection, source, memory, identity, changes_access }))
    }

    /// Notes that the present request changes the access rules. Its own change may end its credentials.
    pub(crate) fn changing_access() {
        let _ = CALLER.try_with(|caller| caller.0.changes_access.store(true, Ordering::Release));
    }

    /// Whether the request of this caller has asked for a change of the access rules.
    pub(crate) fn changes_access(&self) -> bool {
        self.0.changes_access.load(Ordering::Acquire)
    }

    /// The identity of this caller; none if it has not presented credentials, and need not.
    pub(crate) fn identity(&self) -> Option<&CallerIdentity> {
        self.0.identity.as_ref()
    }

    /// The principal of the present caller. A caller that was not identified is a caller without credentials, which
    /// may do nothing while identity is enabled.
    pub(crate) fn principal() -> Principal {
        let present = |caller: &Caller| Some(caller.0.identity.as_ref()?.principal().clone());
        CALLER.try_with(present).ok().flatten().unwrap_or_else(Principal::anyone)
    }

    /// The address that the present caller connects from, if it is known.
    pub(crate) fn address() -> Option<IpAddr> {
        CALLER.try_with(|caller| caller.0.connection.from).ok().flatten()
    }

    /// The present caller; none for what the member does for itself.
    pub(crate) fn current() -> Option<Self> {
        CALLER.try_with(Clone::clone).ok()
    }

    /// Runs a future as work for this caller.
    pub(crate) fn run<F: Future>(self, work: F) -> impl Future<Output = F::Output> {
        CALLER.scope(self, work)
    }

    /// Runs a function as work for this caller.
    pub(crate) fn enter<T>(&self, work: impl FnOnce() -> T) -> T {
        CALLER.sync_scope(self.clone(), work)
    }

    /// The memory of the present caller, or that of the member itself, which nothing closes.
    pub(crate) fn present_memory() -> ConnectionMemory {
        CALLER.try_with(|caller| caller.memory().clone()).unwrap_or_default()
    }

    /// The memory of this caller.
    pub(crate) fn memory(&self) -> &ConnectionMemory {
        &self.0.memory
    }

    /// The failed authentication of this caller's address.
    pub(crate) fn throttle(&self) -> &AuthThrottle {
        self.0.connection.sources.address().throttle()
    }

    /// Calls a function with the present caller's share of the budget.
    pub(crate) fn with_share<T>(work: impl Fn(Option<&ConnectionShare>) -> T) -> T {
        CALLER.try_with(|caller| work(Some(caller.0.source.share()))).unwrap_or_else(|_| work(None))
    }

    /// Counts one request of the present caller against its rate.
    pub(super) fn count_request(
        identity: &Identity,
        now_us: impl Fn() -> u64,
        weight: Weight,
    ) -> Result<(), Failure> {
        let count = |caller: &Caller| {
            let source = caller.0.source.source();
            caller.0.connection.sources.count_request(source);
            let quotas = source.quotas();
            quotas.count_request(identity, now_us, weight)
        };
        CALLER.try_with(count).unwrap_or(Ok(()))
    }

    /// Refuses a request of the present caller that was admitted with too many bytes.
    pub(super) fn check_bytes(identity: &Identity) -> Result<(), Failure> {
        let check = |caller: &Caller| {
            let source = caller.0.source.source();
            source.quotas().check_bytes(identity, source.bytes_in_flight())
        };
        CALLER.try_with(check).unwrap_or(Ok(()))
    }

    /// Counts a session or a watch of the present caller against its quota.
    pub(super) fn count(identity: &Identity, quota: Quota) -> Result<Option<QuotaCount>, Failure> {
        let count = |caller: &Caller| QuotaCount::begin(caller.0.source.source(), identity, quota);
        CALLER.try_with(count).ok().transpose()
    }

    /// Has this caller pay for the bytes of an answer with its next request.
    pub(crate) fn owe(&self, bytes: usize) {
        self.0.source.share().owe(bytes as u64);
    }

    /// The source of the present request; the member itself if there is none.
    pub(crate) fn source() -> Source {
        CALLER.try_with(|caller| caller.0.source.share().source()).unwrap_or_default()
    }

    /// Counts a watch of the present caller's connection; `None` if it has too many.
    pub(crate) fn watch() -> Option<WatchCount> {
        let connection = CALLER.try_with(|caller| caller.0.connection.clone());
        let Ok(connection) = connection else { return Some(WatchCount::default()) };
        let before = connection.watches.fetch_add(1, Ordering::Relaxed);
        let count = WatchCount { connection: Some(connection), quota: None };
        (before < WATCHES_MAX).then_some(count)
    }
}

/// A watch that counts until this is dropped.
#[derive(Default)]
pub(crate) struct WatchCount {
    connection: Option<Arc<ConnectionShared>>,
    quota: Option<QuotaCount>,
}

impl WatchCount {
    /// The same watch, which counts against a quota too.
    pub(super) fn with(self, quota: Option<QuotaCount>) -> Self {
        let mut count = self;
        count.quota = quota;
        count
    }
}

impl Drop for WatchCount {
    fn drop(&mut self) {
        if let Some(connection) = &self.connection {
            connection.watches.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::source::{PrincipalSources, RequestSource};
    use super::*;

    fn caller() -> Caller {
        let sources =
            ConnectionSources::new(RequestSource::of_address(), PrincipalSources::default());
        Caller::new(sources, MemberMemory::default(), None)
    }

    #[test]
    fn watches_are_counted_for_each_connection_and_given_back() {
        let (caller, other) = (caller(), caller());
        let all: Vec<_> =
            caller.enter(|| (0..WATCHES_MAX).filter_map(|_| Caller::watch()).collect());
        assert_eq!(all.len(), WATCHES_MAX);
        assert!(caller.enter(Caller::watch).is_none());
        assert!(other.enter(Caller::watch).is_some());
        assert!(Caller::watch().is_some(), "the member itself is not limited");
        drop(all);
        assert!(caller.enter(Caller::watch).is_some());
    }
}
