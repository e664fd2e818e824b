//! Shows the drained prefixes, how many holders are left below them, and which queues are still to be served after one
//! was opened.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Bound;
use tenure_types::{Name, Verb};

use super::list::SortedLocks;
use crate::command::Reopening;
use crate::machine::Machine;
use crate::state::drain::Drain;
use crate::state::record::{GrantPhase, GrantState, IN_LOCK, Lock};
use crate::view::{DrainView, HoldersLeft, ReopeningView};

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

    /// Whether a principal may know how many holders are left below a drained prefix: it may read or operate all of it.
    pub fn counts_drain(&self, principal: &str, prefix: &str) -> bool {
        let whole = |verb| self.access.may(principal, verb, prefix);
        whole(Verb::Read) || whole(Verb::Operate)
    }

    /// How far the queues have been served since a prefix was opened or the quiet period ended; `None` if all have.
    pub fn reopening(&self) -> Option<ReopeningView> {
        let Reopening { since_ms, after, again } = self.reopening?;
        Some(ReopeningView { for_ms: self.clock_ms.saturating_sub(since_ms), after, again })
    }

    /// The drained prefix that a lock of this name is below; the longest, if there are several.
    pub fn drained(&self, lock: &str) -> Option<DrainView> {
        self.drains.covering(lock).map(|(prefix, drain)| self.drain_view(prefix, drain))
    }

    /// The grants of a lock that are held or cool.
    fn holders_of(&self, lock: &Lock) -> u64 {
        let grants = lock.grants.iter::<IN_LOCK, _>(&self.grants);
        let works = grants.filter(|(_, grant)| match &grant.state {
            GrantState::Held(_) => true,
            GrantState::Over(over) => over.phase == GrantPhase::Cooling,
        });
        works.count() as u64
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
    /// Counts the grants below a prefix whose holders may still be at work: held ones, and those that cool. Begins
    /// after the lock `after`, if one is given, and visits at most `max` locks and grants. A single lock with more
    /// grants than that counts with all of them.
    pub fn holders_left(&self, prefix: &str, after: Option<&Name>, max: usize) -> HoldersLeft {
        let machine = self.machine;
        let start = match after {
            Some(after) => Bound::Excluded(after.as_bytes()),
            None => Bound::Included(prefix.as_bytes()),
        };
        let locks = machine.names.list(start, prefix.as_bytes(), max);
        let is_end = locks.len() < max;
        let mut counted = HoldersLeft { holders: 0, last: None };
        let mut left = max;
        for lock in locks {
            let lock = machine.locks.at(lock);
            let grants = lock.grants.len as usize;
            if grants > left && counted.last.is_some() {
                return counted;
            }
            counted.holders += match grants > left {
                true => grants as u64,
                false => machine.holders_of(lock),
            };
            counted.last = Some(lock.name.clone());
            left = left.saturating_sub(grants);
        }
        if is_end {
            counted.last = None;
        }
        counted
    }
}
