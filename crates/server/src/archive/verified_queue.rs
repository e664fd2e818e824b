//! Follows the queue of a lock through its events, and tells who is first.

use std::collections::{BTreeMap, BTreeSet};

use tenure_types::PlaceNumber;

/// The highest priority of a request, and how much earlier each step of it counts as having asked. The rule is stated
/// here once more, so that a wrong constant of the machine is found.
const PRIORITY_MAX: u8 = 9;
const PRIORITY_STEP_MS: u64 = 30_000;

/// The requests that wait for a lock, as far as its events tell.
#[derive(Default)]
pub(super) struct VerifiedQueue {
    waits: BTreeMap<PlaceNumber, VerifiedWait>,
    /// Those whose time of asking is known, in the order in which they are served.
    ranks: BTreeSet<(u64, PlaceNumber)>,
    /// The others.
    undated: BTreeSet<PlaceNumber>,
    /// The one that is granted next, because the holder hands its hold on to it.
    chosen: Option<PlaceNumber>,
}

#[derive(Clone, Copy)]
struct VerifiedWait {
    priority: u8,
    /// When it asked, and a step more for each priority that it has less than the highest.
    rank_ms: Option<u64>,
}

impl VerifiedQueue {
    /// A request begins to wait. Its time is unknown in records of feature levels that had no times.
    pub(super) fn add(&mut self, place: PlaceNumber, clock_ms: Option<u64>, priority: u8) {
        let less = u64::from(PRIORITY_MAX.saturating_sub(priority));
        let rank_ms = clock_ms.map(|clock_ms| clock_ms.saturating_add(less * PRIORITY_STEP_MS));
        match rank_ms {
            Some(rank_ms) => self.ranks.insert((rank_ms, place)),
            None => self.undated.insert(place),
        };
        self.waits.insert(place, VerifiedWait { priority, rank_ms });
    }

    /// A holder waits for an upgrade, before all others.
    pub(super) fn add_first(&mut self, place: PlaceNumber) {
        self.ranks.insert((0, place));
        self.waits.insert(place, VerifiedWait { priority: PRIORITY_MAX, rank_ms: Some(0) });
    }

    /// The holder hands its hold on to this request.
    pub(super) fn choose(&mut self, place: PlaceNumber) {
        self.chosen = Some(place);
    }

    /// A request no longer waits.
    pub(super) fn remove(&mut self, place: PlaceNumber) {
        self.take(place);
    }

    /// A request is granted. Returns one that should have been granted before it.
    pub(super) fn grant(&mut self, place: PlaceNumber) -> Option<PlaceNumber> {
        let chosen = self.chosen.take() == Some(place);
        let Some(own) = self.take(place) else {
            // It never waited and so passes no request, or its `Queued` event is missing; then all later ones are
            // behind it.
            return self.waits.keys().next().copied().filter(|first| *first < place);
        };
        if chosen {
            return None;
        }
        let dated = match own.rank_ms {
            Some(rank_ms) => self.ranks.first().filter(|first| **first < (rank_ms, place)),
            None => self.ranks.iter().find(|(_, other)| self.is_earlier(*other, place, own)),
        };
        let undated = self.undated.first().filter(|other| self.is_earlier(**other, place, own));
        dated.map(|(_, first)| first).or(undated).copied()
    }

    /// Whether another request asked earlier and was no less urgent, which is enough to be first at any time.
    fn is_earlier(&self, other: PlaceNumber, place: PlaceNumber, own: VerifiedWait) -> bool {
        let priority = self.waits.get(&other).map_or(0, |wait| wait.priority);
        other < place && priority >= own.priority
    }

    fn take(&mut self, place: PlaceNumber) -> Option<VerifiedWait> {
        let wait = self.waits.remove(&place)?;
        match wait.rank_ms {
            Some(rank_ms) => self.ranks.remove(&(rank_ms, place)),
            None => self.undated.remove(&place),
        };
        Some(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(waits: &[(u64, Option<u64>, u8)]) -> VerifiedQueue {
        let mut queue = VerifiedQueue::default();
        for (place, clock_ms, priority) in waits {
            queue.add(PlaceNumber(*place), *clock_ms, *priority);
        }
        queue
    }

    fn passed(waits: &[(u64, Option<u64>, u8)], granted: u64) -> Option<u64> {
        queue(waits).grant(PlaceNumber(granted)).map(|it| it.0)
    }

    #[test]
    fn a_more_urgent_request_may_pass_until_the_bound_and_not_at_it() {
        assert_eq!(passed(&[(1, Some(0), 0), (2, Some(29_999), 1)], 2), None);
        assert_eq!(passed(&[(1, Some(0), 0), (2, Some(29_999), 1)], 1), Some(2));
        assert_eq!(passed(&[(1, Some(0), 0), (2, Some(30_000), 1)], 2), Some(1));
        assert_eq!(passed(&[(1, Some(0), 0), (2, Some(30_000), 1)], 1), None);
        assert_eq!(passed(&[(1, Some(0), 0), (2, Some(269_999), 9)], 2), None);
        assert_eq!(passed(&[(1, Some(0), 0), (2, Some(270_000), 9)], 2), Some(1));
    }

    #[test]
    fn of_equal_priorities_the_first_is_first() {
        assert_eq!(passed(&[(1, Some(5), 3), (2, Some(5), 3)], 2), Some(1));
        assert_eq!(passed(&[(1, Some(5), 3), (2, Some(5), 3)], 1), None);
    }

    #[test]
    fn who_never_waited_passes_nobody() {
        assert_eq!(passed(&[(1, Some(0), 0)], 2), Some(1));
        assert_eq!(passed(&[(3, Some(0), 9)], 2), None);
    }

    #[test]
    fn without_times_only_what_is_certain_is_said() {
        assert_eq!(passed(&[(1, None, 0), (2, None, 0)], 2), Some(1));
        assert_eq!(passed(&[(1, None, 0), (2, None, 1)], 2), None);
        assert_eq!(passed(&[(1, None, 0), (2, Some(7), 0)], 2), Some(1));
        assert_eq!(passed(&[(1, Some(7), 0), (2, None, 0)], 2), Some(1));
        assert_eq!(passed(&[(1, Some(7), 0), (2, None, 1)], 2), None);
    }
}
