//! Restates which priorities the roles of a principal permit.

use tenure_core::access::AccessChange;
use tenure_core::request::{Command, Purpose};
use tenure_types::Verb;

use super::PRIORITY_MAX;
use super::access::{Rules, permits};

impl Rules {
    /// Whether the principal may ask for a lock with this priority. With the verb `force` it may always: who may take
    /// a lock away may pass those that wait for it, too.
    fn may_hurry(&self, principal: &str, verb: Verb, name: &str, priority: u8) -> bool {
        let rules = self.rules_of(principal);
        priority == 0
            || self.may(principal, Verb::Force, name)
            || rules.iter().any(|rule| permits(rule, verb, name) && rule.2 >= priority)
    }

    /// The priority of an ask and the highest that its principal may use for all of its locks, if that is lower.
    pub(super) fn too_urgent(&self, principal: &str, command: &Command<'_>) -> Option<(u8, u8)> {
        let Command::Acquire(ask) = command else { return None };
        let verb = match ask.purpose {
            Purpose::Lock => Verb::Acquire,
            Purpose::Election => Verb::Elect,
        };
        let may = |priority| {
            let mut asks = ask.locks.as_slice().iter();
            asks.all(|one| self.may_hurry(principal, verb, one.lock, priority))
        };
        let highest = (0..=PRIORITY_MAX).rev().find(|priority| may(*priority))?;
        (highest < ask.priority).then_some((ask.priority, highest))
    }
}

/// Whether a change gives a role a rule that permits priorities, or depends on such a role.
pub(super) fn permits_priorities(change: &AccessChange<'_>) -> bool {
    match change {
        AccessChange::PutRole { rules, .. } => rules.iter().any(|rule| rule.priority != 0),
        AccessChange::Replace(it) => permits_priorities(&it.seen) || permits_priorities(&it.change),
        _ => false,
    }
}
