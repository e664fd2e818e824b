//! Admits commands against the member's budget for requests in flight.
//!
//! A command is counted at the moment it is admitted, and a [`Permit`] gives its part back when it is dropped.
//! So nothing can be admitted uncounted, and no path out of the member can leak a part of the budget.

use std::sync::Arc;

use tenure_core::request::Command;

use crate::fair_queue::Source;
use crate::share::{BudgetUsed, ConnectionShare, Part, SharedParts};
use crate::window::WindowPart;

/// The most commands in flight through one member.
pub(crate) const COMMANDS_MAX: u64 = 16_384;
/// Bytes of commands in flight through one member, at most.
pub(crate) const BYTES_MAX: u64 = 8 * 1024 * 1024;
/// One in this many parts of the budget is reserved for commands that keep or give back what a client has.
pub(crate) const KEPT: u64 = 4;
/// How much a command matters to clients that already have something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Weight {
    /// The command asks for more.
    Asks,
    /// It renews, releases or gives up: refusing it would make things worse.
    Keeps,
}

/// The budget of one member. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Admission {
    used: Arc<BudgetUsed>,
}

/// A part of the budget, given back when this is dropped.
#[derive(Debug, Default)]
pub struct Permit {
    used: Option<Arc<BudgetUsed>>,
    commands: u64,
    bytes: u64,
    /// How many of the commands keep or give back what a client has.
    keeps: u64,
    /// What it has of the shares of its connection.
    shared: SharedParts,
}

impl Admission {
    /// Counts one command of this size against the budget; `None` if there is no room for it.
    pub fn admit(&self, weight: Weight, bytes: u64) -> Option<Permit> {
        self.admit_from(weight, bytes, None)
    }

    /// Counts one command of a connection, also against the connection's share of the budget or of the reserve.
    pub fn admit_from(
        &self,
        weight: Weight,
        bytes: u64,
        share: Option<&ConnectionShare>,
    ) -> Option<Permit> {
        let part = Part { commands: 1, bytes };
        let before = self.used.add(part);
        let used = Some(self.used.clone());
        let keeps = u64::from(weight == Weight::Keeps);
        let mut shared = SharedParts::default();
        shared.share = share.cloned();
        let mut permit = Permit { used, commands: 1, bytes, keeps, shared };
        // The last command may take the bytes over the bound, so that one of any size can pass.
        let bound = |parts: u64| Part {
            commands: COMMANDS_MAX / KEPT * parts,
            bytes: BYTES_MAX / KEPT * parts,
        };
        let left = bound(KEPT - 1).left(before);
        let has_room = left.commands > 0 && left.bytes > 0;
        let mut fits = has_room && share.is_none_or(|share| share.take(part, left));
        if fits && share.is_some() {
            permit.shared.in_flight = part;
        }
        let left = bound(KEPT).left(before);
        if !fits && weight == Weight::Keeps && left.commands > 0 && left.bytes > 0 {
            fits = share.is_none_or(|share| share.take_reserved(part));
            if fits && share.is_some() {
                permit.shared.reserved = part;
            }
        }
        if mutant!("admission_counted_after_the_fact") {
            std::mem::forget(permit);
            self.used.subtract(part);
            return fits.then(Permit::default);
        }
        fits.then_some(permit)
    }

    /// The number of commands in flight.
    pub fn commands(&self) -> u64 {
        self.used.get().commands
    }

    /// The most commands and the most bytes that may be in flight.
    pub fn limits(&self) -> (u64, u64) {
        (COMMANDS_MAX, BYTES_MAX)
    }

    /// The number of bytes in flight.
    pub fn bytes(&self) -> u64 {
        self.used.get().bytes
    }

    /// How much of the budget is in use, in hundredths.
    pub fn percent_used(&self) -> u64 {
        let commands = self.commands().saturating_mul(100) / COMMANDS_MAX;
        commands.max(self.bytes().saturating_mul(100) / BYTES_MAX)
    }
}

impl Permit {
    /// Adds another part of the same budget to this one. Both are of the same connection.
    pub fn join(&mut self, mut other: Permit) {
        self.commands += std::mem::take(&mut other.commands);
        self.bytes += std::mem::take(&mut other.bytes);
        self.keeps += std::mem::take(&mut other.keeps);
        self.shared.join(std::mem::take(&mut other.shared));
        if self.used.is_none() {
            self.used = other.used.take();
        }
    }

    /// Whether it covers commands that keep or give back what a client has, and no others.
    pub fn keeps_all(&self) -> bool {
        self.commands > 0 && self.keeps == self.commands
    }

    /// The source of the commands; the member itself if no connection counts for them.
    pub fn source(&self) -> Source {
        self.shared.share.as_ref().map_or_else(Source::default, ConnectionShare::source)
    }

    /// Takes the cost of earlier answers that the source has not paid yet.
    pub fn take_owed(&self) -> u64 {
        self.shared.share.as_ref().map_or(0, ConnectionShare::take_owed)
    }

    /// The bytes of the commands that this permit covers.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Counts the commands as under way until they are answered.
    pub fn begin(&mut self, part: WindowPart) {
        self.shared.window = Some(part);
    }

    /// The number of commands that this permit covers.
    pub fn commands(&self) -> u64 {
        self.commands
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(used) = &self.used {
            used.subtract(Part { commands: self.commands, bytes: self.bytes });
        }
    }
}

/// How much a command matters to clients that already have something.
pub fn weight(command: &Command<'_>) -> Weight {
    if tenure_raft::keeps(command) { Weight::Keeps } else { Weight::Asks }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(admission: &Admission, commands: u64) -> Permit {
        let mut all = Permit::default();
        for _ in 0..commands {
            all.join(admission.admit(Weight::Asks, 1).unwrap());
        }
        all
    }

    #[test]
    fn a_quarter_is_kept_for_clients_that_have_something() {
        let admission = Admission::default();
        let asks = take(&admission, COMMANDS_MAX / 4 * 3);
        assert!(admission.admit(Weight::Asks, 1).is_none());
        let keeps = admission.admit(Weight::Keeps, 1).unwrap();
        assert_eq!(admission.commands(), COMMANDS_MAX / 4 * 3 + 1);
        drop((asks, keeps));
        assert_eq!((admission.commands(), admission.bytes()), (0, 0));
        let large = admission.admit(Weight::Keeps, BYTES_MAX).unwrap();
        assert!(admission.admit(Weight::Keeps, 1).is_none());
        drop(large);
        assert!(admission.admit(Weight::Asks, 1).is_some());
    }

    #[test]
    fn a_refused_command_takes_nothing() {
        let admission = Admission::default();
        let all = take(&admission, COMMANDS_MAX / 4 * 3);
        for _ in 0..10 {
            assert!(admission.admit(Weight::Asks, 1_000).is_none());
        }
        drop(all);
        assert_eq!((admission.commands(), admission.bytes()), (0, 0));
    }

    #[test]
    fn only_what_keeps_or_gives_back_is_served_from_the_reserve() {
        use tenure_core::request::Expect;
        let delete = Command::Delete { key: "k", expect: Expect::Any, guard: None };
        assert_eq!(weight(&delete), Weight::Asks);
        assert_eq!(weight(&Command::Renew(Vec::new())), Weight::Keeps);
    }
}
