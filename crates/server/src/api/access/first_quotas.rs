//! Defines the default quotas that a cluster gets when identity is enabled, if its administrators have set none.
//!
//! They keep one principal from filling the cluster, and are far above what one team uses.

use tenure_core::request::LEVEL_RECORDS;
use tenure_types::{Quota, Quotas};

/// A tenth of the default limit `leases`. Locks and keys get the same number.
const OBJECTS: u64 = 100_000;
/// Half of the default limit `waiters_per_lock`: one principal cannot fill a queue.
const PLACES: u64 = 5_000;
/// An eighth of the state's bytes by default.
const BYTES: u64 = 128 << 20;
/// Half of the connections of a member.
const SESSIONS: u64 = 10_000;
/// A quarter of the watches of a member.
const WATCHES: u64 = 16_384;
/// Above what three members on two cores answered together.
const REQUESTS_PER_SECOND: u64 = 50_000;
/// Half of what a member has in flight.
const BYTES_IN_FLIGHT: u64 = 4 << 20;

/// The quotas, as far as a cluster of this level knows them.
pub(super) fn at(level: u16) -> Quotas {
    let mut quotas = Quotas::default();
    let is_known = |quota: &Quota| level >= LEVEL_RECORDS || Quota::OF_STATE.contains(quota);
    for quota in Quota::ALL.into_iter().filter(is_known) {
        quotas.set(quota, Some(value(quota)));
    }
    quotas
}

fn value(quota: Quota) -> u64 {
    match quota {
        Quota::Leases | Quota::Locks | Quota::Keys => OBJECTS,
        Quota::Places => PLACES,
        Quota::Bytes => BYTES,
        Quota::Sessions => SESSIONS,
        Quota::Watches => WATCHES,
        Quota::RequestsPerSecond => REQUESTS_PER_SECOND,
        Quota::BytesInFlight => BYTES_IN_FLIGHT,
    }
}

#[cfg(test)]
mod tests {
    use tenure_types::{Limit, Limits};

    use super::*;

    #[test]
    fn one_principal_cannot_fill_a_queue() {
        let places = at(LEVEL_RECORDS).get(Quota::Places).unwrap();
        assert!(places < Limits::default().get(Limit::WaitersPerLock));
    }
}
