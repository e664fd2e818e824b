//! Defines an operator's repair of a floor: what it changes, and what is recorded of it.

use serde::{Deserialize, Serialize};
use tenure_fence::{Floor, LockSlot, Mode, Token};

use crate::answer::shown;

/// A repair that an operator asks for.
#[derive(Clone, Copy, Debug)]
pub struct RepairRequest<'a> {
    /// The lock and slot.
    pub at: LockSlot<'a>,
    /// The smallest token that is accepted afterwards.
    pub token: Token,
    /// The principal or name of the caller.
    pub by: &'a str,
    /// The reason, as the caller gave it.
    pub reason: &'a str,
    /// The wall clock, in milliseconds since 1970. It is for readers of the record; nothing is decided by it.
    pub at_unix_ms: u64,
}

/// A repair that was made, as it is recorded.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FloorRepair {
    /// The wall clock of the machine, in milliseconds since 1970.
    pub at_unix_ms: u64,
    /// The operator that asked for the repair.
    pub by: String,
    /// The lock.
    pub lock: String,
    /// The slot, if the lock is a semaphore.
    pub slot: Option<u32>,
    /// The smallest token that was accepted before; 0 if there was no floor.
    pub from: String,
    /// The smallest token that is accepted since.
    pub to: String,
    /// The reason, as the caller gave it.
    pub reason: String,
}

impl RepairRequest<'_> {
    /// Returns the repaired floor, and the record of the repair.
    pub(crate) fn apply(&self, before: Floor) -> (Floor, FloorRepair) {
        let below = |kept: Option<Token>| kept.filter(|kept| *kept < self.token);
        let keeps = before.epoch() == self.token.epoch();
        let mut after = before;
        after.exclusive = Some(self.token);
        // As far as is known, tokens from the new floor on have not been here.
        after.shared = below(before.shared);
        after.used = below(before.used);
        after.incarnation = before.incarnation.filter(|_| keeps);
        let record = FloorRepair {
            at_unix_ms: self.at_unix_ms,
            by: self.by.to_owned(),
            lock: self.at.lock.to_owned(),
            slot: self.at.slot,
            from: shown(before.lowest(Mode::Exclusive)),
            to: self.token.get().to_string(),
            reason: self.reason.to_owned(),
        };
        (after, record)
    }
}

#[cfg(test)]
mod tests {
    use tenure_fence::{Claim, Touch};

    use super::*;

    #[test]
    fn the_named_token_is_the_lowest_that_is_accepted_afterwards() {
        let token = |number: u64| Token::from_u64(number).unwrap();
        for claim in [Claim::new(token(900)), Claim::new(token(900)).shared()] {
            let raised = Floor::default().admit(claim, Touch::Write).unwrap();
            let at = LockSlot::from("ledger");
            let ask =
                RepairRequest { at, token: token(7), by: "ana", reason: "typo", at_unix_ms: 1 };
            let (after, record) = ask.apply(raised);
            assert_eq!((record.from.as_str(), record.to.as_str()), ("900", "7"));
            assert!(after.admit(Claim::new(token(6)), Touch::Write).is_err());
            assert!(after.admit(Claim::new(token(7)).once(), Touch::Write).is_ok());
        }
    }
}
