//! Serves the queues that may advance after a prefix was opened or the quiet period ended, a bounded number at a time.
//!
//! Either can make the first place of every queue grantable at once. The queues are found through the leases, in the
//! order of their numbers: a lease and its places are one step. An entry makes one slice of steps, with as many objects
//! as it may end, beside what it ends because it is due. The rest is due at once, so the leader ticks again.

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
    /// The last lease whose queues were served in this round.
    pub(crate) after: Option<LeaseId>,
    /// Whether another round follows, because a prefix was opened during this one.
    pub(crate) again: bool,
}

impl Machine {
    /// Begins to serve all queues. If the machine does that already, another round follows the present one: each round
    /// is finished, so that prefixes that are opened again and again do not keep the later leases waiting for ever.
    pub(super) fn begin_reopening(&mut self) {
        if let Some(reopening) = &mut self.reopening {
            reopening.again |= reopening.after.is_some();
            return;
        }
        let since_ms = self.clock_ms;
        self.due.insert(since_ms, DueKind::Reopening, 0, None);
        self.reopening = Some(Reopening { since_ms, after: None, again: false });
    }

    /// Serves the queues of further leases, up to a bounded number of objects, once in an entry.
    pub(super) fn reopen(&mut self) {
        if core::mem::replace(&mut self.now.reopened, true) && !mutant!("slice_for_each_undrain") {
            return;
        }
        let objects_max = self.limits.get(Limit::EndsPerEntry);
        let mut objects = 0;
        while let Some(reopening) = self.reopening {
            if objects >= objects_max {
                if mutant!("reopening_forgets_the_rest") {
                    self.end_reopening(reopening.since_ms);
                }
                return;
            }
            let from = reopening.after.map_or(Bound::Unbounded, Bound::Excluded);
            let next = self.leases_by_id.range((from, Bound::Unbounded)).next();
            let Some((&id, &lease)) = next else {
                self.end_round(reopening);
                continue;
            };
            self.reopening = Some(Reopening { after: Some(id), ..reopening });
            objects += 1 + u64::from(self.leases.at(lease).places.len);
            objects += self.serve_queues_of(lease);
        }
    }

    fn end_round(&mut self, reopening: Reopening) {
        if reopening.again && !mutant!("reopening_does_not_begin_again") {
            self.reopening = Some(Reopening { after: None, again: false, ..reopening });
        } else {
            self.end_reopening(reopening.since_ms);
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
