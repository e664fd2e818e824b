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
/// The commands of the reserve that one connection and one address may have in flight, and their bytes. Whether a lease
/// or a hold exists is known only when the command is applied, so a client could fill the reserve with renewals and
/// releases of nothing. It gets this far and leaves the rest to others.
const RESERVED_BY_CONNECTION: Part =
    Part { commands: COMMANDS_MAX / KEPT / 16, bytes: BYTES_MAX / KEPT / 8 };
const RESERVED_BY_ADDRESS: Part =
    Part { commands: COMMANDS_MAX / KEPT / 4, bytes: BYTES_MAX / KEPT / 4 };

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

/// A number of commands, and of bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    commands: u64,
    bytes: u64,
}

impl BudgetUsed {
    /// Adds to what is in use, and returns what was in use before.
    fn add(&self, part: Part) -> Part {
        Part {
            commands: self.commands.fetch_add(part.commands, Ordering::Relaxed),
            bytes: self.bytes.fetch_add(part.bytes, Ordering::Relaxed),
        }
    }

    fn subtract(&self, part: Part) {
        self.commands.fetch_sub(part.commands, Ordering::Relaxed);
        self.bytes.fetch_sub(part.bytes, Ordering::Relaxed);
    }
}

/// What the connections of one address have in use of the reserve. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct AddressShare(Arc<BudgetUsed>);

/// What one connection has in use of the reserve. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ReserveShare(Arc<ShareUsed>);

#[derive(Debug)]
struct ShareUsed {
    connection: BudgetUsed,
    address: AddressShare,
}

impl ReserveShare {
    /// The share of a new connection from an address.
    pub fn new(address: AddressShare) -> Self {
        Self(Arc::new(ShareUsed { connection: BudgetUsed::default(), address }))
    }

    /// Counts a command of this connection in the reserve; returns whether the connection may have it there.
    fn take(&self, bytes: u64) -> bool {
        let part = Part { commands: 1, bytes };
        let fits = |used: Part, max: Part| used.commands < max.commands && used.bytes < max.bytes;
        let by_connection = self.0.connection.add(part);
        let by_address = self.0.address.0.add(part);
        let taken =
            fits(by_connection, RESERVED_BY_CONNECTION) && fits(by_address, RESERVED_BY_ADDRESS);
        if !taken {
            self.give_back(part);
        }
        taken
    }

    fn give_back(&self, part: Part) {
        self.0.connection.subtract(part);
        self.0.address.0.subtract(part);
    }
}

/// A part of the budget, given back when this is dropped.
#[derive(Debug, Default)]
pub struct Permit {
    used: Option<Arc<BudgetUsed>>,
    commands: u64,
    bytes: u64,
    /// How many of the commands keep or give back what a client has.
    keeps: u64,
    /// The commands of it that are in the reserve, and whose share of it they use.
    reserved: Part,
    share: Option<ReserveShare>,
}

impl Admission {
    /// Counts one command of this size against the budget; `None` if there is no room for it.
    pub fn admit(&self, weight: Weight, bytes: u64) -> Option<Permit> {
        self.admit_from(weight, bytes, None)
    }

    /// Counts one command of a connection. In the reserve it also counts against the connection's share of it.
    pub fn admit_from(
        &self,
        weight: Weight,
        bytes: u64,
        share: Option<&ReserveShare>,
    ) -> Option<Permit> {
        let before = self.used.add(Part { commands: 1, bytes });
        let used = Some(self.used.clone());
        let keeps = u64::from(weight == Weight::Keeps);
        let mut permit =
            Permit { used, commands: 1, bytes, keeps, reserved: Part::default(), share: None };
        // The last command may take the bytes over the bound, so that one of any size can pass.
        let within = |parts: u64| {
            before.commands < COMMANDS_MAX / KEPT * parts && before.bytes < BYTES_MAX / KEPT * parts
        };
        let mut fits = within(KEPT - 1);
        if !fits && weight == Weight::Keeps && within(KEPT) {
            fits = share.is_none_or(|share| share.take(bytes));
            if let Some(share) = share.filter(|_| fits) {
                permit.reserved = Part { commands: 1, bytes };
                permit.share = Some(share.clone());
            }
        }
        if mutant!("admission_counted_after_the_fact") {
            std::mem::forget(permit);
            self.used.subtract(Part { commands: 1, bytes });
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
        let reserved = std::mem::take(&mut other.reserved);
        self.reserved.commands += reserved.commands;
        self.reserved.bytes += reserved.bytes;
        if self.share.is_none() {
            self.share = other.share.take();
        }
        if self.used.is_none() {
            self.used = other.used.take();
        }
    }

    /// Whether it covers commands that keep or give back what a client has, and no others.
    pub fn keeps_all(&self) -> bool {
        self.commands > 0 && self.keeps == self.commands
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
        if let Some(share) = &self.share {
            share.give_back(self.reserved);
        }
    }
}

/// How much a command matters to clients that already have something.
pub fn weight(command: &Command<'_>) -> Weight {
    // A delete asks: a key that is deleted late blocks no client, and the end of its lease deletes it.
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
    fn one_connection_cannot_fill_the_reserve() {
        let admission = Admission::default();
        let _asks = take(&admission, COMMANDS_MAX / 4 * 3);
        let address = AddressShare::default();
        let share = ReserveShare::new(address.clone());
        let keep = |share: &ReserveShare| admission.admit_from(Weight::Keeps, 1, Some(share));
        let mut mine = Permit::default();
        while let Some(permit) = keep(&share) {
            mine.join(permit);
        }
        assert_eq!(mine.commands(), RESERVED_BY_CONNECTION.commands);
        // Other connections of the same address get as far as the address may, and other addresses are not affected.
        let mut theirs: Vec<Permit> = Vec::new();
        for _ in 0..8 {
            let share = ReserveShare::new(address.clone());
            theirs.extend(std::iter::from_fn(|| keep(&share)));
        }
        let all = mine.commands() + theirs.len() as u64;
        assert_eq!(all, RESERVED_BY_ADDRESS.commands);
        let other = ReserveShare::new(AddressShare::default());
        assert!(keep(&other).is_some());
        drop(mine);
        assert!(keep(&share).is_some(), "what is answered counts no more");
    }

    #[test]
    fn a_share_counts_only_in_the_reserve() {
        let admission = Admission::default();
        let share = ReserveShare::new(AddressShare::default());
        let many =
            (0..COMMANDS_MAX / 2).map(|_| admission.admit_from(Weight::Keeps, 1, Some(&share)));
        let many: Option<Vec<Permit>> = many.collect();
        assert!(many.is_some());
    }

    #[test]
    fn only_what_keeps_or_gives_back_is_served_from_the_reserve() {
        use tenure_core::request::Expect;
        let delete = Command::Delete { key: "k", expect: Expect::Any, guard: None };
        assert_eq!(weight(&delete), Weight::Asks);
        assert_eq!(weight(&Command::Renew(Vec::new())), Weight::Keeps);
    }
}
