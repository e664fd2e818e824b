//! Counts what each source has in flight, so that none takes the whole budget of a member.
//!
//! A source is a principal, or the address of callers without one; each has one or more connections. A source may have
//! as much in flight as it likes while the budget is free, and the less the fuller the budget is: at most twice what is
//! left. So one source can take two thirds of the budget, and ten take nearly all of it in equal parts. An eighth of
//! the budget is left to sources that have little in flight. The connections of a source share its part in the same
//! way.
//!
//! The reserve for commands that keep something has fixed parts in addition.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::admission::{BYTES_MAX, COMMANDS_MAX, KEPT};
use crate::fair_queue::Source;
use crate::window::WindowPart;

/// How many times as much as is left a source may have in flight.
const TIMES_LEFT: u64 = 2;
/// What a source may have in flight as long as the budget has any room: one command of any size, and a few small ones.
const FLOOR: Part = Part { commands: 16, bytes: 16 * 1024 };
/// The part of the budget that sources with more in flight leave to those with less: room for 96 of them.
const FOR_SMALL: Part = Part { commands: COMMANDS_MAX / 8, bytes: BYTES_MAX / 8 };
/// The commands of the reserve that one connection and one source may have in flight, and their bytes. Whether a lease
/// or a hold exists is known only when the command is applied, so a client could fill the reserve with renewals and
/// releases of nothing. It gets this far and leaves the rest to others.
pub(crate) const RESERVED_BY_CONNECTION: Part =
    Part { commands: COMMANDS_MAX / KEPT / 16, bytes: BYTES_MAX / KEPT / 8 };
pub(crate) const RESERVED_BY_SOURCE: Part =
    Part { commands: COMMANDS_MAX / KEPT / 4, bytes: BYTES_MAX / KEPT / 4 };

/// The bits of a packed part that count bytes. The others count commands.
const BYTES_BITS: u32 = 40;

/// A number of commands, and of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) commands: u64,
    pub(crate) bytes: u64,
}

impl Part {
    /// Both numbers in one. A member never has so much in flight that they overflow.
    fn packed(self) -> u64 {
        (self.commands << BYTES_BITS) + self.bytes
    }

    fn unpacked(packed: u64) -> Self {
        Self { commands: packed >> BYTES_BITS, bytes: packed & ((1 << BYTES_BITS) - 1) }
    }

    /// Whether this is less than a bound in both numbers.
    fn is_below(self, bound: Part) -> bool {
        self.commands < bound.commands && self.bytes < bound.bytes
    }

    /// What is left of this after so much is in use.
    pub(crate) fn left(self, used: Part) -> Part {
        Part {
            commands: self.commands.saturating_sub(used.commands),
            bytes: self.bytes.saturating_sub(used.bytes),
        }
    }

    /// What one of many may have in flight while this much is left for all.
    fn for_one(self) -> Part {
        Part {
            commands: (self.commands * TIMES_LEFT).max(FLOOR.commands),
            bytes: (self.bytes * TIMES_LEFT).max(FLOOR.bytes),
        }
    }
}

/// What is in use of a budget.
#[derive(Debug, Default)]
pub(crate) struct BudgetUsed(AtomicU64);

impl BudgetUsed {
    /// Adds to what is in use, and returns what was in use before.
    pub(crate) fn add(&self, part: Part) -> Part {
        Part::unpacked(self.0.fetch_add(part.packed(), Ordering::Relaxed))
    }

    pub(crate) fn subtract(&self, part: Part) {
        self.0.fetch_sub(part.packed(), Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> Part {
        Part::unpacked(self.0.load(Ordering::Relaxed))
    }
}

/// What the connections of one principal or one address have in flight. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct SourceShare(Arc<SourceUsed>);

#[derive(Debug, Default)]
struct SourceUsed {
    number: u64,
    in_flight: BudgetUsed,
    reserved: BudgetUsed,
}

impl SourceShare {
    /// The share of a new source with this number. No other source of the member has the number.
    pub fn new(number: u64) -> Self {
        Self(Arc::new(SourceUsed { number, ..SourceUsed::default() }))
    }

    /// The bytes that the source has in flight.
    pub fn bytes(&self) -> u64 {
        self.0.in_flight.get().bytes
    }

    /// Whether nothing but this refers to the source.
    pub fn is_unused(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}

/// What one connection has in flight. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ConnectionShare(Arc<ConnectionUsed>);

#[derive(Debug)]
struct ConnectionUsed {
    number: u64,
    in_flight: BudgetUsed,
    reserved: BudgetUsed,
    source: SourceShare,
    is_member: bool,
    /// The cost of answers that the connection has not paid yet in the fair queue.
    owed: AtomicU64,
}

impl ConnectionShare {
    /// The share of a new connection with this number, of a source.
    pub fn new(number: u64, source: SourceShare) -> Self {
        Self::of(number, source, false)
    }

    /// The share of the commands that another member forwards. Its own clients have parts of its reserve, so here the
    /// reserve is not divided again.
    pub(crate) fn of_member(number: u64) -> Self {
        Self::of(number, SourceShare::new(number), true)
    }

    fn of(number: u64, source: SourceShare, is_member: bool) -> Self {
        let (in_flight, reserved) = (BudgetUsed::default(), BudgetUsed::default());
        let owed = AtomicU64::new(0);
        Self(Arc::new(ConnectionUsed { number, in_flight, reserved, source, is_member, owed }))
    }

    /// What the fair queue knows it by.
    pub fn source(&self) -> Source {
        Source { share: self.0.source.0.number, connection: self.0.number }
    }

    /// Adds the cost of an answer, which the next request of the connection pays in the fair queue.
    pub fn owe(&self, cost: u64) {
        self.0.owed.fetch_add(cost, Ordering::Relaxed);
    }

    /// Takes what is owed.
    pub fn take_owed(&self) -> u64 {
        // Most answers are small, and owe nothing.
        match self.0.owed.load(Ordering::Relaxed) {
            0 => 0,
            _ => self.0.owed.swap(0, Ordering::Relaxed),
        }
    }

    /// Counts a command in flight; returns whether the connection may have it while this much is left for all.
    pub(crate) fn take(&self, part: Part, left: Part) -> bool {
        let by_source = self.0.source.0.in_flight.add(part);
        let by_connection = self.0.in_flight.add(part);
        let for_source = left.left(FOR_SMALL).for_one();
        // A member forwards for many connections, which it has counted by themselves.
        let for_connection = match self.0.is_member {
            true => for_source,
            false => for_source.left(by_source).for_one(),
        };
        let taken = by_source.is_below(for_source) && by_connection.is_below(for_connection);
        if !taken {
            self.give_back(part);
        }
        taken
    }

    /// A command is no longer in flight.
    pub(crate) fn give_back(&self, part: Part) {
        self.0.source.0.in_flight.subtract(part);
        self.0.in_flight.subtract(part);
    }

    /// Counts a command of this connection in the reserve; returns whether the connection may have it there.
    pub(crate) fn take_reserved(&self, part: Part) -> bool {
        let by_connection = self.0.reserved.add(part);
        let by_source = self.0.source.0.reserved.add(part);
        let taken = self.0.is_member
            || by_connection.is_below(RESERVED_BY_CONNECTION)
                && by_source.is_below(RESERVED_BY_SOURCE);
        if !taken {
            self.give_back_reserved(part);
        }
        taken
    }

    pub(crate) fn give_back_reserved(&self, part: Part) {
        self.0.reserved.subtract(part);
        self.0.source.0.reserved.subtract(part);
    }
}

/// What a permit has of the shares of its connection, and of the window of the queue.
#[derive(Debug, Default)]
pub(crate) struct SharedParts {
    pub(crate) share: Option<ConnectionShare>,
    pub(crate) in_flight: Part,
    pub(crate) reserved: Part,
    pub(crate) window: Option<WindowPart>,
}

impl SharedParts {
    /// Adds the parts of another permit of the same connection.
    pub(crate) fn join(&mut self, mut other: SharedParts) {
        let add = |to: &mut Part, from: &mut Part| {
            let from = std::mem::take(from);
            to.commands += from.commands;
            to.bytes += from.bytes;
        };
        add(&mut self.in_flight, &mut other.in_flight);
        add(&mut self.reserved, &mut other.reserved);
        if self.share.is_none() {
            self.share = other.share.take();
        }
    }
}

impl Drop for SharedParts {
    fn drop(&mut self) {
        let Some(share) = &self.share else { return };
        if self.in_flight != Part::default() {
            share.give_back(self.in_flight);
        }
        if self.reserved != Part::default() {
            share.give_back_reserved(self.reserved);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::{Admission, Permit, Weight};

    /// As many commands as a connection gets in.
    fn fill(admission: &Admission, weight: Weight, bytes: u64, share: &ConnectionShare) -> Permit {
        let mut all = Permit::default();
        while let Some(permit) = admission.admit_from(weight, bytes, Some(share)) {
            all.join(permit);
        }
        all
    }

    #[test]
    fn one_source_cannot_fill_the_budget() {
        let admission = Admission::default();
        let greedy = SourceShare::new(1);
        let connections = || (0..50).map(|number| ConnectionShare::new(number, greedy.clone()));
        let mut all: Vec<Permit> =
            connections().map(|share| fill(&admission, Weight::Asks, 700, &share)).collect();
        let commands: u64 = all.iter().map(Permit::commands).sum();
        assert!(commands > 0);
        let part = (COMMANDS_MAX * 5 / 8).min(BYTES_MAX * 5 / 8 / 700) * 2 / 3;
        assert!((part * 9 / 10..=part + 16).contains(&commands), "{commands} of {part}");
        // Others have room, in equal parts, however many there are.
        for number in 100..150 {
            let share = ConnectionShare::new(number, SourceShare::new(number));
            let theirs = fill(&admission, Weight::Asks, 700, &share);
            assert!(theirs.commands() >= FLOOR.commands, "{number}: {}", theirs.commands());
            all.push(theirs);
        }
        drop(all);
        assert_eq!((admission.commands(), greedy.bytes()), (0, 0));
    }

    #[test]
    fn large_commands_of_one_source_leave_room_for_others() {
        let admission = Admission::default();
        let greedy = ConnectionShare::new(1, SourceShare::new(1));
        let all = fill(&admission, Weight::Asks, 30_000, &greedy);
        assert!(admission.bytes() < BYTES_MAX / 2, "{}", admission.bytes());
        let other = ConnectionShare::new(2, SourceShare::new(2));
        assert!(fill(&admission, Weight::Asks, 30_000, &other).commands() > 10);
        drop(all);
        assert_eq!(admission.bytes(), 0);
    }

    #[test]
    fn one_connection_leaves_room_for_others_of_its_source() {
        let admission = Admission::default();
        let source = SourceShare::new(1);
        let _greedy = fill(&admission, Weight::Asks, 1, &ConnectionShare::new(1, source.clone()));
        let other = fill(&admission, Weight::Asks, 1, &ConnectionShare::new(2, source));
        assert!(other.commands() > 500, "{}", other.commands());
    }

    #[test]
    fn one_connection_cannot_fill_the_reserve() {
        let admission = Admission::default();
        let mut others = Permit::default();
        while let Some(permit) = admission.admit(Weight::Asks, 1) {
            others.join(permit);
        }
        let source = SourceShare::new(1);
        let share = ConnectionShare::new(1, source.clone());
        let keep = |share: &ConnectionShare| admission.admit_from(Weight::Keeps, 1, Some(share));
        let mine = fill(&admission, Weight::Keeps, 1, &share);
        assert_eq!(mine.commands(), RESERVED_BY_CONNECTION.commands);
        // Other connections of the same source get as far as the source may, and other sources are not affected.
        let theirs: Vec<Permit> = (2..10)
            .map(|number| ConnectionShare::new(number, source.clone()))
            .map(|share| fill(&admission, Weight::Keeps, 1, &share))
            .collect();
        let all = mine.commands() + theirs.iter().map(Permit::commands).sum::<u64>();
        assert_eq!(all, RESERVED_BY_SOURCE.commands);
        assert!(keep(&ConnectionShare::new(20, SourceShare::new(2))).is_some());
        drop(mine);
        assert!(keep(&share).is_some(), "what is answered counts no more");
    }

    #[test]
    fn a_greedy_source_may_still_renew_from_the_reserve() {
        let admission = Admission::default();
        let share = ConnectionShare::new(1, SourceShare::new(1));
        let _greedy = fill(&admission, Weight::Asks, 1, &share);
        assert!(admission.admit_from(Weight::Keeps, 1, Some(&share)).is_some());
    }

    #[test]
    fn a_member_forwards_from_the_whole_reserve() {
        let admission = Admission::default();
        let member = ConnectionShare::of_member(3);
        let all = fill(&admission, Weight::Keeps, 1, &member);
        assert_eq!(all.commands(), COMMANDS_MAX);
        let member = ConnectionShare::of_member(3);
        drop(all);
        let asks = fill(&admission, Weight::Asks, 1, &member);
        assert!(asks.commands() <= COMMANDS_MAX / 2, "{}", asks.commands());
    }
}
