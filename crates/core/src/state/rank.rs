//! Finds and counts positions in a queue that is not in the order of arrival.

use alloc::vec::Vec;
use tenure_types::PlaceNumber;

use super::record::Place;
use super::slab::SlabIndex;
use crate::request::{PRIORITY_MAX, PRIORITY_STEP_MS};

/// Where a place stands in all its queues: lower ranks first, and of equal ones the older place. It never changes, so
/// two places that wait for the same locks stand in the same order everywhere.
pub(crate) type Rank = (u64, PlaceNumber);

/// When a request that asked at this time can no longer be passed: one step for each priority that it has less than the
/// highest. Requests are served in the order of these times.
pub(crate) fn ranked_ms(since_ms: u64, priority: u8) -> u64 {
    let less = u64::from(PRIORITY_MAX.saturating_sub(priority));
    since_ms.saturating_add(less * PRIORITY_STEP_MS)
}

impl Place {
    /// Whether it stands before all others in its queue.
    pub(crate) fn stands_first(&self) -> bool {
        self.upgrade && !mutant!("upgrade_behind_the_queue")
    }

    /// Whether the queues that it enters keep an index of ranks.
    pub(crate) fn is_ranked(&self) -> bool {
        // A place for any of several locks asks in many queues how many are ahead of it.
        self.priority > 0 || self.any
    }

    pub(crate) fn rank(&self) -> Rank {
        // An upgrade stands before all others. A queue has at most one.
        let ms = ranked_ms(self.since_ms, self.priority).saturating_add(1);
        (if self.stands_first() { 0 } else { ms }, self.number)
    }
}

/// The most waits of one chunk.
const CHUNK_MAX: usize = 512;

/// The waits of one queue in the order of their ranks. They are in chunks, none of them empty, so that a change moves
/// few of them, and counting those ahead adds few numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct RankIndex {
    chunks: Vec<Vec<(Rank, SlabIndex)>>,
}

impl RankIndex {
    /// Builds the index from waits in the order of their ranks.
    pub(crate) fn from_sorted(waits: &[(Rank, SlabIndex)]) -> Self {
        Self { chunks: waits.chunks(CHUNK_MAX / 2).map(Vec::from).collect() }
    }

    /// Adds a wait, and returns the one directly ahead of it.
    #[inline(never)]
    pub(crate) fn insert(&mut self, rank: Rank, wait: SlabIndex) -> Option<SlabIndex> {
        if self.chunks.is_empty() {
            self.chunks.push(Vec::new());
        }
        let chunk = self.chunk_of(rank).min(self.chunks.len() - 1);
        let at = self.chunks[chunk].partition_point(|(other, _)| *other < rank);
        let before = match at.checked_sub(1) {
            Some(before) => self.chunks[chunk].get(before),
            None => chunk.checked_sub(1).and_then(|before| self.chunks[before].last()),
        };
        let before = before.map(|(_, wait)| *wait);
        self.chunks[chunk].insert(at, (rank, wait));
        if self.chunks[chunk].len() > CHUNK_MAX {
            let rest = self.chunks[chunk].split_off(CHUNK_MAX / 2);
            self.chunks.insert(chunk + 1, rest);
        }
        before
    }

    /// Removes the wait of this rank.
    #[inline(never)]
    pub(crate) fn remove(&mut self, rank: Rank) {
        let chunk = self.chunk_of(rank);
        let Some(waits) = self.chunks.get_mut(chunk) else { return };
        if let Ok(at) = waits.binary_search_by_key(&rank, |(other, _)| *other) {
            waits.remove(at);
        }
        if waits.is_empty() {
            self.chunks.remove(chunk);
        }
    }

    /// How many waits are ahead of this rank.
    #[inline(never)]
    pub(crate) fn ahead(&self, rank: Rank) -> usize {
        let chunk = self.chunk_of(rank);
        let whole: usize = self.chunks[..chunk].iter().map(Vec::len).sum();
        let part = self.chunks.get(chunk);
        whole + part.map_or(0, |waits| waits.partition_point(|(other, _)| *other < rank))
    }

    /// How many waits there are.
    pub(crate) fn len(&self) -> usize {
        self.chunks.iter().map(Vec::len).sum()
    }

    /// The first chunk that does not end before this rank.
    fn chunk_of(&self, rank: Rank) -> usize {
        self.chunks.partition_point(|waits| waits.last().is_some_and(|(last, _)| *last < rank))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(number: u32) -> SlabIndex {
        SlabIndex::from_number(number).unwrap()
    }

    #[test]
    fn what_comes_before_and_how_many_is_as_in_a_sorted_list() {
        let mut index = RankIndex::default();
        let mut sorted: Vec<Rank> = Vec::new();
        let mut state = 7_u64;
        for number in 1..6_000_u32 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let rank = (state >> 52, PlaceNumber(u64::from(number)));
            let at = sorted.partition_point(|other| *other < rank);
            let before = at.checked_sub(1).map(|at| sorted[at].1);
            let found = index.insert(rank, slot(number));
            assert_eq!(found.map(|it| u64::from(it.number())), before.map(|it| it.0));
            sorted.insert(at, rank);
            if number % 3 == 0 {
                let gone = sorted.remove((state >> 20) as usize % sorted.len());
                index.remove(gone);
            }
            let asked = sorted[(state >> 30) as usize % sorted.len()];
            assert_eq!(index.ahead(asked), sorted.partition_point(|other| *other < asked));
            assert_eq!(index.len(), sorted.len());
        }
        for rank in sorted.drain(..) {
            assert_eq!(index.ahead(rank), 0);
            index.remove(rank);
        }
        assert_eq!((index.len(), index.chunks.len()), (0, 0));
    }

    #[test]
    fn an_index_of_a_whole_queue_is_like_one_built_wait_by_wait() {
        let waits: Vec<(Rank, SlabIndex)> = (1..2_000_u32)
            .map(|number| ((u64::from(number / 7), PlaceNumber(u64::from(number))), slot(number)))
            .collect();
        let index = RankIndex::from_sorted(&waits);
        assert_eq!(index.len(), waits.len());
        for (at, (rank, _)) in waits.iter().enumerate() {
            assert_eq!(index.ahead(*rank), at);
        }
    }
}
