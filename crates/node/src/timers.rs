//! Keeps timers in the order of the times at which they are due.

use std::collections::BTreeSet;

/// Numbers that are due at moments of the member's clock.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    due: BTreeSet<(u64, u64)>,
}

impl Timers {
    pub(crate) fn set(&mut self, at_us: u64, number: u64) {
        self.due.insert((at_us, number));
    }

    pub(crate) fn cancel(&mut self, at_us: u64, number: u64) {
        self.due.remove(&(at_us, number));
    }

    /// Takes the first that is due by now.
    pub(crate) fn pop(&mut self, now_us: u64) -> Option<u64> {
        let first = self.due.first().copied().filter(|(at_us, _)| *at_us <= now_us)?;
        self.due.remove(&first);
        Some(first.1)
    }

    /// The time at which the next is due.
    pub(crate) fn next_us(&self) -> Option<u64> {
        self.due.first().map(|(at_us, _)| *at_us)
    }
}
