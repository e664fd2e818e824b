//! Serves the queues that may advance after a prefix was opened or the quiet period ended, a bounded number at a time.
//!
//! Either can make the first place of every queue grantable at once. The queues are found through the leases, in the
//! order of their numbers: a lease and its places are one step, and an entry takes as many steps as it may end objects.
//! The rest is due at once, so the leader ticks again.

use alloc::vec::Vec;
use core::ops::Bound;
use tenure_types::{LeaseId, Limit};

use crate::machine::Machine;
use crate::state::due::DueKind;
use crate::state::record::IN_LEASE;
use crate::state::slab::SlabIndex;

/// How far the queues have been served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Reopening {
    /// When the machine began. It is due since then.
    pub(crate) since_ms: u64,
    /// The last lease whose queues were served.
    pub(crate) after: Option<LeaseId>,
}

impl Machine {
    /// Begins to serve all queues. Begins again if it was doing that already.
    pub(super) fn begin_reopening(&mut self) {
        let old = self.reopening.map(|old| old.since_ms);
        let since_ms = old.unwrap_or(self.clock_ms);
        if old.is_none() {
            self.due.insert(since_ms, DueKind::Reopening, 0, None);
        }
        self.reopening = Some(Reopening { since_ms, after: None });
    }

    /// Serves the queues of further leases, up to a bounded number of objects.
    pub(super) fn reopen(&mut self) {
        let objects_max = self.limits.get(Limit::EndsPerEntry);
        let mut objects = 0;
        while let Some(Reopening { since_ms, after }) = self.reopening {
            if objects >= objects_max {
                if mutant!("reopening_forgets_the_rest") {
                    self.end_reopening(since_ms);
                }
                return;
            }
            let from = after.map_or(Bound::Unbounded, Bound::Excluded);
            let Some((&id, &lease)) = self.leases_by_id.range((from, Bound::Unbounded)).next()
            else {
                return self.end_reopening(since_ms);
            };
            self.reopening = Some(Reopening { since_ms, after: Some(id) });
            objects += 1 + u64::from(self.leases.at(lease).places.len);
            objects += self.serve_queues_of(lease);
        }
    }

    fn end_reopening(&mut self, since_ms: u64) {
        self.reopening = None;
        self.due.remove(since_ms, DueKind::Reopening, 0);
    }

    /// Serves every queue in which a lease waits. Returns how many grants that made.
    fn serve_queues_of(&mut self, lease: SlabIndex) -> u64 {
        let tokens = self.counter;
        let places = self.leases.at(lease).places;
        let locks: Vec<SlabIndex> = places
            .iter::<IN_LEASE, _>(&self.places)
            .flat_map(|(place, _)| self.waits_of(place).map(|(_, wait)| wait.lock))
            .collect();
        locks.into_iter().for_each(|lock| self.touch(lock));
        self.grant_pass();
        self.counter - tokens
    }
}
