//! Keeps timers in the order of the times at which they are due.

use std::collections::{BTreeSet, VecDeque};

/// The number of lanes: enough for the timeouts that most callers of a member share.
const LANES: usize = 4;
/// The most cancelled timers in a lane that are not worth a sweep.
const CANCELLED_MIN: usize = 64;

/// Numbers that are due at moments of the member's clock.
///
/// Nearly every timer is cancelled, and timers of one timeout are set and cancelled in the order in which they are due.
/// So a timer that is due after all those of a lane goes to the end of that lane, and costs no search. The others
/// are in an ordered set.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    lanes: [Lane; LANES],
    rest: BTreeSet<(u64, u64)>,
}

/// Timers in the order in which they are due. The first one is never cancelled.
#[derive(Debug, Default)]
struct Lane {
    due: VecDeque<LaneTimer>,
    cancelled: usize,
}

#[derive(Debug)]
struct LaneTimer {
    /// When it is due, and its number.
    key: (u64, u64),
    cancelled: bool,
}

impl Timers {
    /// Sets a timer. A number that is set twice must be cancelled in between.
    pub(crate) fn set(&mut self, at_us: u64, number: u64) {
        let key = (at_us, number);
        let fits = |lane: &&mut Lane| lane.due.back().is_none_or(|last| last.key < key);
        match self.lanes.iter_mut().find(fits) {
            Some(lane) => lane.due.push_back(LaneTimer { key, cancelled: false }),
            None => {
                self.rest.insert(key);
            }
        }
    }

    pub(crate) fn cancel(&mut self, at_us: u64, number: u64) {
        let key = (at_us, number);
        if !self.lanes.iter_mut().any(|lane| lane.cancel(key)) {
            self.rest.remove(&key);
        }
    }

    /// Takes the first that is due by now.
    pub(crate) fn pop(&mut self, now_us: u64) -> Option<u64> {
        let (at_us, number) = self.first().filter(|(at_us, _)| *at_us <= now_us)?;
        self.cancel(at_us, number);
        Some(number)
    }

    /// The time at which the next is due.
    pub(crate) fn next_us(&self) -> Option<u64> {
        self.first().map(|(at_us, _)| at_us)
    }

    fn first(&self) -> Option<(u64, u64)> {
        let fronts = self.lanes.iter().filter_map(|lane| lane.due.front());
        fronts.map(|timer| timer.key).chain(self.rest.first().copied()).min()
    }
}

impl Lane {
    /// Cancels a timer, and returns whether it was in this lane.
    fn cancel(&mut self, key: (u64, u64)) -> bool {
        let at = match self.due.front() {
            Some(first) if first.key == key => 0,
            _ => match self.due.binary_search_by_key(&key, |timer| timer.key) {
                Ok(at) if !self.due[at].cancelled => at,
                _ => return false,
            },
        };
        self.due[at].cancelled = true;
        self.cancelled += 1;
        while self.due.front().is_some_and(|first| first.cancelled) {
            self.due.pop_front();
            self.cancelled -= 1;
        }
        // Cancelled timers behind one that stays must not pile up.
        if self.cancelled > CANCELLED_MIN && self.cancelled > self.due.len() / 2 {
            self.due.retain(|timer| !timer.cancelled);
            self.cancelled = 0;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sets timers of several timeouts, cancels most of them in any order, and compares with an ordered set.
    #[test]
    fn they_come_in_the_order_of_an_ordered_set() {
        let (mut timers, mut set) = (Timers::default(), BTreeSet::new());
        let mut random = 11u64;
        for number in 1..50_000u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let draw = random >> 33;
            let timeouts = [30_000, 30_000, 30_000, 5_000, 100, draw % 9_000, u64::MAX];
            let at_us = number.saturating_add(timeouts[draw as usize % timeouts.len()]);
            timers.set(at_us, number);
            set.insert((at_us, number));
            while set.len() > 40 {
                let nth = if draw.is_multiple_of(3) { draw as usize % set.len() } else { 0 };
                let key = *set.iter().nth(nth).unwrap();
                set.remove(&key);
                timers.cancel(key.0, key.1);
                timers.cancel(key.0, key.1);
            }
            while let Some((at_us, due)) = set.first().copied().filter(|key| key.0 <= number) {
                assert_eq!(timers.pop(number), Some(due), "due at {at_us}");
                set.pop_first();
            }
            assert_eq!(timers.pop(number), None);
            assert_eq!(timers.next_us(), set.first().map(|key| key.0));
        }
    }

    #[test]
    fn cancelled_timers_behind_one_that_stays_are_dropped() {
        let mut timers = Timers::default();
        timers.set(1, 1);
        for number in 2..100_000 {
            timers.set(number, number);
            timers.cancel(number, number);
        }
        let kept: usize = timers.lanes.iter().map(|lane| lane.due.len()).sum();
        assert!(kept <= 2 * CANCELLED_MIN, "{kept} are kept");
        assert_eq!(timers.next_us(), Some(1));
    }
}
