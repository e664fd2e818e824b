//! Orders the queue of a lock: by the time of asking, with a more urgent request counted as if it had asked earlier.
//!
//! The order of two requests is fixed once both have asked. A more urgent request passes an earlier one only if it
//! asks within one step (`PRIORITY_STEP_MS`) after it for each priority that it has more.

use alloc::vec::Vec;

use crate::machine::Machine;
use crate::state::rank::{Rank, RankIndex};
use crate::state::record::IN_QUEUE;
use crate::state::slab::SlabIndex;

impl Machine {
    /// Puts a new wait into the queue of its lock.
    pub(super) fn enqueue(&mut self, wait: SlabIndex) {
        let record = self.waits.at(wait);
        let (lock, place) = (record.lock, self.places.at(record.place));
        if !place.is_ranked() && self.ranks.is_empty() && !place.stands_first() {
            return self.locks.at_mut(lock).queue.push::<IN_QUEUE, _>(&mut self.waits, wait);
        }
        self.enqueue_ranked(wait);
    }

    /// Puts a new wait into a queue that is not simply in the order of arrival, or may not be.
    #[inline(never)]
    fn enqueue_ranked(&mut self, wait: SlabIndex) {
        let record = self.waits.at(wait);
        let (lock, place) = (record.lock, self.places.at(record.place));
        let (rank, upgrade) = (place.rank(), place.stands_first());
        #[cfg(mutants)]
        let priority = place.priority;
        if place.is_ranked() {
            self.rank_queue(lock);
        }
        let last = self.locks.at(lock).queue.last.filter(|_| !upgrade);
        let before = match self.ranks.get_mut(&lock) {
            Some(index) => index.insert(rank, wait),
            None => last,
        };
        #[cfg(mutants)]
        let before = self.misplaced(lock, priority).unwrap_or(before);
        self.locks.at_mut(lock).queue.insert_after::<IN_QUEUE, _>(&mut self.waits, before, wait);
    }

    /// Takes a wait out of the queue of its lock.
    pub(super) fn dequeue(&mut self, wait: SlabIndex) {
        let lock = self.waits.at(wait).lock;
        self.locks.at_mut(lock).queue.remove::<IN_QUEUE, _>(&mut self.waits, wait);
        if self.ranks.is_empty() {
            return;
        }
        self.remove_rank(lock, wait);
    }

    #[inline(never)]
    fn remove_rank(&mut self, lock: SlabIndex, wait: SlabIndex) {
        let rank = self.places.at(self.waits.at(wait).place).rank();
        if let Some(index) = self.ranks.get_mut(&lock) {
            index.remove(rank);
            if self.locks.at(lock).queue.len == 0 {
                self.ranks.remove(&lock);
            }
        }
    }

    /// Enters the whole queue of a lock into the index of ranks. Every wait enters it at most once, so the cost of one
    /// long queue is paid by as many requests.
    pub(crate) fn rank_queue(&mut self, lock: SlabIndex) {
        if self.ranks.contains_key(&lock) {
            return;
        }
        let queue = self.locks.at(lock).queue;
        let waits: Vec<(Rank, SlabIndex)> = queue
            .iter::<IN_QUEUE, _>(&self.waits)
            .map(|(slot, wait)| (self.places.at(wait.place).rank(), slot))
            .collect();
        self.ranks.insert(lock, RankIndex::from_sorted(&waits));
    }

    /// Whether a place that asked earlier stands behind this one.
    pub(super) fn passes(&self, place: SlabIndex) -> bool {
        let record = self.places.at(place);
        (record.priority > 0 || record.upgrade)
            && self.waits_of(place).any(|(_, wait)| wait.in_queue.after.is_some())
    }

    /// Planted bugs: behind all that are as urgent, however long the others have waited; or at the end.
    #[cfg(mutants)]
    fn misplaced(&self, lock: SlabIndex, priority: u8) -> Option<Option<SlabIndex>> {
        let queue = self.locks.at(lock).queue;
        if mutant!("priority_does_not_age") && priority > 0 {
            let waits = queue.iter::<IN_QUEUE, _>(&self.waits);
            let urgent = waits.filter(|(_, wait)| self.places.at(wait.place).priority >= priority);
            return Some(urgent.last().map(|(slot, _)| slot));
        }
        mutant!("priority_forgotten_in_queue").then_some(queue.last)
    }
}
