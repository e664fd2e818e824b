//! Limits how many denied calls of one source are recorded.
//!
//! A call without credentials costs its sender nothing, and its record would stay in the file. A source is an address
//! and a principal, so callers without credentials do not displace the records of a known caller behind the same
//! address. What is left out is counted: the next record of the source has the number.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use tenure_node::RateLimit;

/// How many records a source may have at once; it gets as many again in each [`PERIOD_S`].
const AT_ONCE: u64 = 200;
/// The same for all sources together.
const ALL_AT_ONCE: u64 = 2_000;
/// With records of 500 bytes, all sources together write less than 100 MB in a day.
const PERIOD_S: u64 = 1_000;
/// The most sources that are remembered. Beyond that the one that was denied the longest time ago is forgotten.
const SOURCES_MAX: usize = 1_000;

/// Decides which denied calls are recorded.
#[derive(Debug, Default)]
pub(super) struct DeniedLimit(Mutex<DeniedSources>);

#[derive(Debug, Default)]
struct DeniedSources {
    sources: BTreeMap<(Option<IpAddr>, String), DeniedSource>,
    all: RateLimit,
    /// Calls of forgotten sources that were left out and are in no record.
    forgotten: u64,
}

#[derive(Debug, Default)]
struct DeniedSource {
    rate: RateLimit,
    denied_at_us: u64,
    left_out: u64,
}

impl DeniedLimit {
    /// Whether to record a denied call. Returns how many were left out since the last record.
    pub(super) fn pass(&self, now_us: u64, from: Option<IpAddr>, principal: &str) -> Option<u64> {
        let mut denied = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (from.map(network), principal.to_owned());
        if !denied.sources.contains_key(&key) {
            denied.make_room();
        }
        let DeniedSources { sources, all, forgotten } = &mut *denied;
        let source = sources.entry(key).or_default();
        source.denied_at_us = now_us;
        // The rates are for a second of a clock that is slower by the period.
        let slow_us = now_us / PERIOD_S;
        let is_over = source.rate.take(slow_us, AT_ONCE).is_err();
        if is_over || all.take(slow_us, ALL_AT_ONCE).is_err() {
            source.left_out += 1;
            return None;
        }
        Some(std::mem::take(&mut source.left_out) + std::mem::take(forgotten))
    }
}

impl DeniedSources {
    fn make_room(&mut self) {
        if self.sources.len() < SOURCES_MAX {
            return;
        }
        let oldest = self.sources.iter().min_by_key(|(_, source)| source.denied_at_us);
        if let Some(key) = oldest.map(|(key, _)| key.clone())
            && let Some(source) = self.sources.remove(&key)
        {
            self.forgotten += source.left_out;
        }
    }
}

/// The network of an address that one client has: of version 6 the first 64 bits.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() & !u128::from(u64::MAX)).into()),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    const NOW_US: u64 = 1_000_000_000_000;
    const HERE: Option<IpAddr> = Some(IpAddr::V4(Ipv4Addr::LOCALHOST));

    fn recorded(limit: &DeniedLimit, calls: u64, from: Option<IpAddr>, principal: &str) -> u64 {
        (0..calls).filter(|_| limit.pass(NOW_US, from, principal).is_some()).count() as u64
    }

    #[test]
    fn a_flood_from_one_source_is_recorded_in_part_and_the_rest_is_counted() {
        let limit = DeniedLimit::default();
        assert_eq!(recorded(&limit, 10_000, HERE, ""), AT_ONCE);
        assert_eq!(recorded(&limit, 1, HERE, "ana"), 1, "a known caller behind the address");
        let each_us = 1_000_000 * PERIOD_S / AT_ONCE;
        assert_eq!(limit.pass(NOW_US + each_us, HERE, ""), Some(10_000 - AT_ONCE));
        assert_eq!(limit.pass(NOW_US + each_us, HERE, ""), None);
    }

    #[test]
    fn sources_that_a_client_invents_fill_neither_the_file_nor_the_memory() {
        let limit = DeniedLimit::default();
        let inside = |host: u64| Some(IpAddr::V6(Ipv6Addr::from(u128::from(host) | 1 << 120)));
        let one = (0..1_000).filter(|host| limit.pass(NOW_US, inside(*host), "").is_some());
        assert_eq!(one.count() as u64, AT_ONCE, "one client has all hosts of a network");
        let address = |at: u32| Some(IpAddr::V4(Ipv4Addr::from(at)));
        let many: u64 = (1..20_000).map(|at| recorded(&limit, 1, address(at), "")).sum();
        assert_eq!(many, ALL_AT_ONCE - AT_ONCE);
        assert_eq!(limit.0.lock().unwrap().sources.len(), SOURCES_MAX);
        let later_us = NOW_US + 1_000_000 * PERIOD_S;
        let left_out = limit.pass(later_us, HERE, "").unwrap();
        assert!(left_out > 15_000, "{left_out}");
    }
}
