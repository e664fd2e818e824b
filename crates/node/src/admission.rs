//! Admits commands against the member's budget for requests in flight.
//!
//! A command is counted at the moment it is admitted, and a [`Permit`] gives its part back when it is dropped.
//! So nothing can be admitted uncounted, and no path out of the member can leak a part of the budget.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tenure_core::request::Command;

/// The most commands in flight through one member.
const COMMANDS_MAX: u64 = 16_384;
/// Bytes of commands in flight through one member, at most.
const BYTES_MAX: u64 = 8 * 1024 * 1024;
/// One in this many parts of the budget is reserved for commands that keep or give back what a client has.
const KEPT: u64 = 4;

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

#[derive(Debug, Default)]
struct BudgetUsed {
    commands: AtomicU64,
    bytes: AtomicU64,
}

/// A part of the budget, given back when this is dropped.
#[derive(Debug, Default)]
pub struct Permit {
    used: Option<Arc<BudgetUsed>>,
    commands: u64,
    bytes: u64,
}

impl Admission {
    /// Counts one command of this size against the budget; `None` if there is no room for it.
    pub fn admit(&self, weight: Weight, bytes: u64) -> Option<Permit> {
        let part = match weight {
            Weight::Asks => KEPT - 1,
            Weight::Keeps => KEPT,
        };
        let commands = self.used.commands.fetch_add(1, Ordering::Relaxed) + 1;
        let used = self.used.bytes.fetch_add(bytes, Ordering::Relaxed);
        let permit = Permit { used: Some(self.used.clone()), commands: 1, bytes };
        // The last command may take the bytes over the bound, so that one of any size can pass.
        let fits = commands <= COMMANDS_MAX / KEPT * part && used < BYTES_MAX / KEPT * part;
        if mutant!("admission_counted_after_the_fact") {
            std::mem::forget(permit);
            self.used.commands.fetch_sub(1, Ordering::Relaxed);
            self.used.bytes.fetch_sub(bytes, Ordering::Relaxed);
            return fits.then(Permit::default);
        }
        fits.then_some(permit)
    }

    /// The number of commands in flight.
    pub fn commands(&self) -> u64 {
        self.used.commands.load(Ordering::Relaxed)
    }

    /// The most commands and the most bytes that may be in flight.
    pub fn limits(&self) -> (u64, u64) {
        (COMMANDS_MAX, BYTES_MAX)
    }

    /// The number of bytes in flight.
    pub fn bytes(&self) -> u64 {
        self.used.bytes.load(Ordering::Relaxed)
    }
}

impl Permit {
    /// Adds another part of the same budget to this one.
    pub fn join(&mut self, mut other: Permit) {
        self.commands += std::mem::take(&mut other.commands);
        self.bytes += std::mem::take(&mut other.bytes);
        if self.used.is_none() {
            self.used = other.used.take();
        }
    }

    /// The number of commands that this permit covers.
    pub fn commands(&self) -> u64 {
        self.commands
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(used) = &self.used {
            used.commands.fetch_sub(self.commands, Ordering::Relaxed);
            used.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

/// How much a command matters to clients that already have something.
pub fn weight(command: &Command<'_>) -> Weight {
    match command {
        Command::Renew(_)
        | Command::Revoke { .. }
        | Command::Release(_)
        | Command::Leave { .. }
        | Command::Downgrade(_)
        | Command::Stopped { .. }
        | Command::Abandon(_)
        | Command::Delete { .. } => Weight::Keeps,
        _ => Weight::Asks,
    }
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
}
