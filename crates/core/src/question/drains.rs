//! Shows the drained prefixes, and how many holders are left below them.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Bound;
use tenure_types::Verb;

use super::list::SortedLocks;
use crate::machine::Machine;
use crate::state::drain::Drain;
use crate::state::record::{GrantPhase, GrantState, IN_LOCK};
use crate::view::{DrainView, HoldersLeft};

impl Machine {
    /// The drained prefixes, in order.
    pub fn drains(&self) -> Vec<DrainView> {
        self.drains.iter().map(|(prefix, drain)| self.drain_view(prefix, drain)).collect()
    }

    /// The drained prefixes that concern a principal, in order: those with some lock below them that it may read or
    /// operate.
    pub fn drains_seen_by(&self, principal: &str) -> Vec<DrainView> {
        self.drains
            .iter()
            .filter(|(prefix, _)| self.sees_drain(principal, prefix))
            .map(|(prefix, drain)| self.drain_view(prefix, drain))
            .collect()
    }

    /// Whether a principal may know that a prefix is drained: it may read or operate some lock below it.
    pub fn sees_drain(&self, principal: &str, prefix: &str) -> bool {
        let below = |verb| self.access.may_below(principal, verb, prefix);
        below(Verb::Read) || below(Verb::Operate)
    }

    /// The drained prefix that a lock of this name is below; the longest, if there are several.
    pub fn drained(&self, lock: &str) -> Option<DrainView> {
        self.drains.covering(lock).map(|(prefix, drain)| self.drain_view(prefix, drain))
    }

    fn drain_view(&self, prefix: &str, drain: &Drain) -> DrainView {
        DrainView {
            prefix: Box::from(prefix),
            created: drain.created,
            drained_ms: self.clock_ms.saturating_sub(drain.since_ms),
            by: drain.by.clone(),
            principal: drain.principal.clone(),
            reason: drain.reason.clone(),
        }
    }
}

impl SortedLocks<'_> {
    /// Counts the grants below a prefix whose holders may still be at work: held ones, and those that cool. Visits at
    /// most `max` locks and grants.
    pub fn holders_left(&self, prefix: &str, max: usize) -> HoldersLeft {
        let machine = self.machine;
        let start = Bound::Included(prefix.as_bytes());
        let locks = machine.names.list(start, prefix.as_bytes(), max);
        let mut left = max;
        let mut counted = HoldersLeft { holders: 0, complete: locks.len() < max };
        for lock in locks {
            for (_, grant) in machine.locks.at(lock).grants.iter::<IN_LOCK, _>(&machine.grants) {
                let Some(fewer) = left.checked_sub(1) else {
                    counted.complete = false;
                    return counted;
                };
                left = fewer;
                let works = match &grant.state {
                    GrantState::Held(_) => true,
                    GrantState::Over(over) => over.phase == GrantPhase::Cooling,
                };
                counted.holders += u64::from(works);
            }
        }
        counted
    }
}
