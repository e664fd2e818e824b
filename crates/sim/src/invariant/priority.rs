//! Decides which of two asks is served first: in the order of asking (Q1), unless the later one is more urgent and not
//! too late (Q7).

use tenure_types::PlaceNumber;

/// How long a waiter can be passed by what is more urgent by one.
const STEP_MS: u64 = 30_000;

/// When a place asked, and how urgent it is.
#[derive(Clone, Copy, Debug)]
pub struct AskedAt {
    pub clock: u64,
    pub priority: u8,
    /// Whether its lease holds the lock and waits for an upgrade.
    pub upgrade: bool,
}

impl AskedAt {
    /// An ask without a priority.
    pub(super) fn plain(clock: u64) -> Self {
        Self { clock, priority: 0, upgrade: false }
    }

    /// How long this one can be passed by new asks of a priority.
    fn passable_ms(self, priority: u8) -> u64 {
        u64::from(priority.saturating_sub(self.priority)) * STEP_MS
    }
}

pub(super) trait Precedes {
    /// Whether this one is served before another one.
    fn precedes(self, other: Self) -> bool;
}

impl Precedes for (AskedAt, PlaceNumber) {
    fn precedes(self, other: Self) -> bool {
        if self.0.upgrade != other.0.upgrade {
            return self.0.upgrade;
        }
        if self.1 > other.1 {
            return !other.precedes(self);
        }
        // It asked first. The later one passes it only within the time for which that is allowed.
        let (first, later) = (self.0, other.0);
        later.clock.saturating_sub(first.clock) >= first.passable_ms(later.priority)
    }
}

/// The invariant that the order of two asks belongs to.
pub(super) fn of_order(a: AskedAt, b: AskedAt) -> &'static str {
    match a.priority == b.priority {
        _ if a.upgrade || b.upgrade => "Q8",
        true => "Q1",
        false => "Q7",
    }
}
