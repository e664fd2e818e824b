//! Counts what a principal, or an address without one, has at this member, and refuses what exceeds its quotas.
//!
//! The quotas are part of the replicated access rules; what is counted here is not. A caller without a principal counts
//! for its address, for which the default quotas hold. The members' own principal has no quotas.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tenure_node::{Principal, RateLimit, Weight};
use tenure_types::{Quota, QuotaSource};
use tenure_wire::{CountedFor, Failure};

use super::source::RequestSource;
use crate::identity::Identity;
use crate::os;

/// The first of the quotas that are counted here.
const FIRST: usize = Quota::OF_MEMBER[0] as usize;
/// The bound of a quota that is not set.
const NONE: u64 = u64::MAX;

/// What one source has in use, and its quotas as of one generation of the access rules.
#[derive(Debug)]
pub(super) struct QuotaUse {
    principal: Option<Principal>,
    /// The generation of the access rules from which the bounds were read.
    generation: AtomicU64,
    /// Held while bounds and generation are written, so that they belong together.
    refreshing: Mutex<()>,
    bounds: [AtomicU64; Quota::OF_MEMBER.len()],
    /// A bit for each bound that is the principal's own.
    own: AtomicU64,
    counts: [AtomicU64; Quota::OF_MEMBER.len()],
    requests: RateLimit,
    /// A separate allowance of the same rate for renewals and releases, which other requests do not use up.
    keeps: RateLimit,
}

impl QuotaUse {
    /// Nothing in use, for a principal or for an address.
    pub(super) fn new(principal: Option<Principal>) -> Self {
        let no_bounds = || AtomicU64::new(NONE);
        Self {
            principal,
            generation: AtomicU64::new(u64::MAX),
            refreshing: Mutex::default(),
            bounds: [no_bounds(), no_bounds(), no_bounds(), no_bounds()],
            own: AtomicU64::new(0),
            counts: Default::default(),
            requests: RateLimit::default(),
            keeps: RateLimit::default(),
        }
    }

    /// Whether a new source would be in the same state.
    pub(super) fn is_new(&self, now_us: u64) -> bool {
        let none = self.counts.iter().all(|count| count.load(Ordering::Relaxed) == 0);
        none && self.requests.is_full(now_us) && self.keeps.is_full(now_us)
    }

    /// The value of a quota, if one is set.
    fn bound(&self, identity: &Identity, quota: Quota) -> Option<u64> {
        let generation = identity.generation();
        if self.generation.load(Ordering::Acquire) != generation {
            self.refresh(identity, generation);
        }
        let bound = self.bounds[quota as usize - FIRST].load(Ordering::Relaxed);
        (bound != NONE).then_some(bound)
    }

    fn refresh(&self, identity: &Identity, generation: u64) {
        let _refreshing = self.refreshing.lock().unwrap_or_else(PoisonError::into_inner);
        let access = identity.access();
        let is_member = self.principal == Some(Principal::member());
        let name = self.principal.as_ref().map_or("", Principal::name);
        let mut own = 0;
        for (at, quota) in Quota::OF_MEMBER.into_iter().enumerate() {
            let found = access.quota(name, quota).filter(|_| !is_member);
            own |= u64::from(found.is_some_and(|(_, by)| by == QuotaSource::Principal)) << at;
            let bound = found.map_or(NONE, |(bound, _)| bound.min(NONE - 1));
            self.bounds[at].store(bound, Ordering::Relaxed);
        }
        self.own.store(own, Ordering::Relaxed);
        self.generation.store(generation, Ordering::Release);
    }

    fn refused(
        &self,
        identity: &Identity,
        quota: Quota,
        (bound, asked): (u64, u64),
        retry_after_ms: u64,
    ) -> Failure {
        let is_own = self.own.load(Ordering::Relaxed) >> (quota as usize - FIRST) & 1 == 1;
        let set_by = if is_own { QuotaSource::Principal } else { QuotaSource::Default };
        let counted_for = match &self.principal {
            Some(_) => CountedFor::Principal,
            None => CountedFor::Address,
        };
        let name = self.principal.as_ref().map_or("", Principal::name);
        let access = identity.access();
        let setter = access.quota_setter(name, quota, set_by).cloned().map(Box::new);
        Failure::MemberQuota { quota, counted_for, set_by, bound, asked, setter, retry_after_ms }
    }

    /// Counts one request.
    pub(super) fn count_request(
        &self,
        identity: &Identity,
        now_us: impl Fn() -> u64,
        weight: Weight,
    ) -> Result<(), Failure> {
        let quota = Quota::RequestsPerSecond;
        let Some(bound) = self.bound(identity, quota) else { return Ok(()) };
        let rate = match weight {
            Weight::Asks => &self.requests,
            Weight::Keeps => &self.keeps,
        };
        rate.take(now_us(), bound).map_err(|too_often| {
            let wait_ms = too_often.retry_after_us.div_ceil(1_000).max(1);
            // Callers that were refused together do not return together.
            let jitter_ms = os::random() % (wait_ms / 2 + 50);
            self.refused(identity, quota, (bound, too_often.asked), wait_ms + jitter_ms)
        })
    }

    /// Refuses a request with which the source has more bytes in flight than it may.
    pub(super) fn check_bytes(&self, identity: &Identity, in_flight: u64) -> Result<(), Failure> {
        let quota = Quota::BytesInFlight;
        match self.bound(identity, quota) {
            Some(bound) if in_flight > bound => {
                let retry_after_ms = 50 + os::random() % 100;
                Err(self.refused(identity, quota, (bound, in_flight), retry_after_ms))
            }
            _ => Ok(()),
        }
    }
}

/// A session or a watch that counts until this is dropped.
#[derive(Debug)]
pub(crate) struct QuotaCount {
    of: Arc<RequestSource>,
    quota: Quota,
}

impl QuotaCount {
    /// Counts a session or a watch of a source.
    pub(super) fn begin(
        of: &Arc<RequestSource>,
        identity: &Identity,
        quota: Quota,
    ) -> Result<Self, Failure> {
        let used = of.quotas();
        let before = used.counts[quota as usize - FIRST].fetch_add(1, Ordering::Relaxed);
        let count = Self { of: of.clone(), quota };
        match used.bound(identity, quota) {
            Some(bound) if before >= bound => {
                Err(used.refused(identity, quota, (bound, before + 1), 0))
            }
            _ => Ok(count),
        }
    }
}

impl Drop for QuotaCount {
    fn drop(&mut self) {
        let counts = &self.of.quotas().counts;
        counts[self.quota as usize - FIRST].fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::access::{Access, AccessChange, NewPrincipal};
    use tenure_types::Quotas;

    use super::*;

    fn identity(default: &[(Quota, u64)], anas: &[(Quota, u64)]) -> Identity {
        let quotas = |values: &[(Quota, u64)]| {
            let mut quotas = Quotas::default();
            values.iter().for_each(|(quota, value)| quotas.set(*quota, Some(*value)));
            quotas
        };
        let mut access = Access::default();
        let new = NewPrincipal { name: "ana", enabled: true, roles: vec![], quotas: quotas(anas) };
        access.change(&AccessChange::SetDefaultQuotas(quotas(default))).unwrap();
        access.change(&AccessChange::PutPrincipal(new)).unwrap();
        let identity = Identity::default();
        identity.publish(&Arc::new(access));
        identity
    }

    fn ana() -> Arc<RequestSource> {
        RequestSource::of_principal(Principal::named("ana").unwrap())
    }

    #[test]
    fn the_refusal_names_the_quota_and_who_set_it_and_how_far_over() {
        let identity = identity(&[(Quota::Sessions, 2)], &[(Quota::Watches, 1)]);
        let (ana, address) = (ana(), RequestSource::of_address());
        let begin = |of, quota| QuotaCount::begin(of, &identity, quota);
        let _two = [begin(&ana, Quota::Sessions).unwrap(), begin(&ana, Quota::Sessions).unwrap()];
        let text = begin(&ana, Quota::Sessions).unwrap_err().to_string();
        assert_eq!(text, "the quota `sessions` of the principal is 2 by default, asked for 3");
        let watch = begin(&ana, Quota::Watches).unwrap();
        let text = begin(&ana, Quota::Watches).unwrap_err().to_string();
        assert_eq!(text, "the quota `watches` of the principal is 1, set for it, asked for 2");
        drop(watch);
        assert!(begin(&ana, Quota::Watches).is_ok(), "what was given back counts no more");
        let _two =
            [begin(&address, Quota::Sessions).unwrap(), begin(&address, Quota::Sessions).unwrap()];
        let text = begin(&address, Quota::Sessions).unwrap_err().to_string();
        assert_eq!(text, "the quota `sessions` of the address is 2 by default, asked for 3");
        assert!(begin(&address, Quota::Watches).is_ok());
    }

    #[test]
    fn other_requests_do_not_use_up_the_rate_of_renewals() {
        let identity = identity(&[(Quota::RequestsPerSecond, 3)], &[]);
        let ana = ana();
        let ask = |weight, now_us| ana.quotas().count_request(&identity, || now_us, weight);
        (0..3).for_each(|_| assert!(ask(Weight::Asks, 1_000_000).is_ok()));
        let Err(Failure::MemberQuota { asked, retry_after_ms, .. }) = ask(Weight::Asks, 1_000_000)
        else {
            panic!("it was not refused")
        };
        assert!(asked == 4 && retry_after_ms >= 333, "{asked} {retry_after_ms}");
        (0..3).for_each(|_| assert!(ask(Weight::Keeps, 1_000_000).is_ok()));
        assert!(ask(Weight::Keeps, 1_000_000).is_err());
        assert!(!ana.quotas().is_new(1_000_000) && ana.quotas().is_new(3_000_000));
    }

    #[test]
    fn a_change_of_the_rules_holds_at_once_and_the_members_have_no_quotas() {
        let identity = identity(&[(Quota::BytesInFlight, 100)], &[]);
        let ana = ana();
        assert!(ana.quotas().check_bytes(&identity, 100).is_ok());
        assert!(ana.quotas().check_bytes(&identity, 101).is_err());
        let member = RequestSource::of_principal(Principal::member());
        assert!(member.quotas().check_bytes(&identity, 101).is_ok());
        identity.publish(&Arc::new(Access::default()));
        assert!(ana.quotas().check_bytes(&identity, 101).is_ok());
    }
}
