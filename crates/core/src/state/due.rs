//! Orders everything that has a deadline by deadline, kind and id.

use alloc::collections::BTreeMap;

use super::slab::SlabIndex;

/// The clock and every deadline stay at or below this, so that a deadline and a kind fit into one number.
pub(crate) const CLOCK_MAX: u64 = (1 << 60) - 1;

/// How many bits of that number the kind has.
const KIND_BITS: u32 = 4;

/// The kind of a deadline. Kinds due at the same instant end in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum DueKind {
    WaitLimit = 0,
    Lease = 1,
    MaxHold = 2,
    Cooling = 3,
    LockDelay = 4,
    Quiet = 5,
    /// The leases of a revoked principal.
    Revoked = 6,
    MinHold = 7,
    /// A promise of progress.
    Progress = 8,
    /// Queues that have not been served since a prefix was opened or the quiet period ended.
    Reopening = 9,
}

/// Everything with a deadline, ordered by (deadline, kind, id). The set is derived: it is not part of a snapshot, and
/// is rebuilt when one is read.
#[derive(Clone, Default)]
pub(crate) struct DueSet(BTreeMap<(u64, u64), Option<SlabIndex>>);

/// One item that is due: its kind, its id and, except for the quiet period, revoked principals and queues to
/// serve, the slot of its record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Due {
    pub(crate) kind: DueKind,
    pub(crate) id: u64,
    pub(crate) slot: Option<SlabIndex>,
}

impl DueSet {
    #[inline(never)]
    pub(crate) fn insert(
        &mut self,
        deadline_ms: u64,
        kind: DueKind,
        id: u64,
        slot: Option<SlabIndex>,
    ) {
        let replaced = self.0.insert(key(deadline_ms, kind, id), slot);
        assert!(replaced.is_none(), "a thing is due once");
    }

    #[inline(never)]
    pub(crate) fn remove(&mut self, deadline_ms: u64, kind: DueKind, id: u64) {
        let removed = self.0.remove(&key(deadline_ms, kind, id));
        assert!(removed.is_some(), "a thing with a deadline is due");
    }

    /// The earliest deadline.
    pub(crate) fn next(&self) -> Option<u64> {
        self.0.first_key_value().map(|(&(when, _), _)| when >> KIND_BITS)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The items due at `clock_ms`, first to last.
    pub(crate) fn until(&self, clock_ms: u64) -> impl Iterator<Item = Due> {
        let last = key(clock_ms.min(CLOCK_MAX), DueKind::Reopening, u64::MAX);
        self.0.range(..=last).map(|(&(when, id), &slot)| Due { kind: kind_of(when), id, slot })
    }

    pub(crate) fn contains(
        &self,
        deadline_ms: u64,
        kind: DueKind,
        id: u64,
        slot: Option<SlabIndex>,
    ) -> bool {
        self.0.get(&key(deadline_ms, kind, id)) == Some(&slot)
    }
}

fn key(deadline_ms: u64, kind: DueKind, id: u64) -> (u64, u64) {
    assert!(deadline_ms <= CLOCK_MAX, "a deadline is within the clock's range");
    (deadline_ms << KIND_BITS | kind as u64, id)
}

fn kind_of(when: u64) -> DueKind {
    match when & ((1 << KIND_BITS) - 1) {
        0 => DueKind::WaitLimit,
        1 => DueKind::Lease,
        2 => DueKind::MaxHold,
        3 => DueKind::Cooling,
        4 => DueKind::LockDelay,
        5 => DueKind::Quiet,
        6 => DueKind::Revoked,
        7 => DueKind::MinHold,
        8 => DueKind::Progress,
        _ => DueKind::Reopening,
    }
}
