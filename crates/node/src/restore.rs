//! Decides what a restored cluster begins with: its epoch, and its first state.
//!
//! A restore makes a cluster of one from a backup, or from the disk of the last member. Holders from before may still
//! be at work. Three things make that safe: the epoch is above every one that was used, so every new token is above
//! every old one; all leases are ended; and nothing is granted until the longest lease that a client can have, and the
//! longest lock-delay, would have run out. The driver reads the source, keeps the ledger of epochs and lays the state
//! down.

use tenure_core::codec::{encode_request, seal_entry};
use tenure_core::outcome::Effects;
use tenure_core::request::{Command, Expect, Request, RequestId};
use tenure_core::{Machine, StoppedFor};
use tenure_raft::MemberId;
use tenure_types::{Epoch, Term, Token};

use crate::directory::{self, MemberNames};

/// The epoch that an operator wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EpochRequest {
    /// This one; without it, the first one that was never used.
    pub epoch: Option<Epoch>,
    /// A token that every new token must be above.
    pub above: Option<Token>,
}

/// The ledger of epochs that were given to restores of the cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UsedEpochs<'a> {
    /// The epochs in it.
    pub epochs: &'a [Epoch],
    /// Whether the next one can be written down. If not, the operator must name one that was never used.
    pub writable: bool,
}

/// Why there is no epoch for a restore.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EpochRefusal {
    /// It was given to another restore.
    Used,
    /// Its tokens would not be above those already issued.
    TooLow {
        /// The lowest epoch that is allowed.
        least: u16,
    },
    /// It has no tokens above the given one.
    TokenAbove(Token),
    /// All epochs are used.
    NoneLeft,
    /// The ledger cannot be written, and no epoch was named.
    Unwritable,
}

/// Returns the requested epoch if it is allowed, or the first one that was never used. `before` is that of the source.
///
/// # Errors
///
/// If there is no epoch whose tokens are certainly new.
pub fn choose_epoch(
    request: EpochRequest,
    before: Epoch,
    used: UsedEpochs<'_>,
) -> Result<Epoch, EpochRefusal> {
    let above = match request.above {
        Some(token) => Some(token.epoch().ok_or(EpochRefusal::NoneLeft)?),
        None => None,
    };
    let given = used.epochs.iter().max().copied();
    let highest = [Some(before), above, given].into_iter().flatten().max().unwrap_or(before);
    let Some(epoch) = request.epoch else {
        if !used.writable {
            return Err(EpochRefusal::Unwritable);
        }
        if mutant!("epoch_of_another_restore") {
            return before.get().checked_add(1).and_then(Epoch::new).ok_or(EpochRefusal::NoneLeft);
        }
        return highest.get().checked_add(1).and_then(Epoch::new).ok_or(EpochRefusal::NoneLeft);
    };
    if used.epochs.contains(&epoch) {
        return Err(EpochRefusal::Used);
    }
    if let Some(token) = request.above.filter(|_| above.is_some_and(|above| above >= epoch)) {
        return Err(EpochRefusal::TokenAbove(token));
    }
    if epoch <= highest {
        return Err(EpochRefusal::TooLow { least: highest.get() + 1 });
    }
    Ok(epoch)
}

/// Turns the state of a source into the first state of a restored cluster, whose only member is `member`.
///
/// # Errors
///
/// If the epoch is not above that of the source. The state is unchanged then.
pub fn restore(
    machine: &mut Machine,
    epoch: Epoch,
    stopped: StoppedFor,
    member: MemberId,
    names: Option<&MemberNames>,
) -> Result<(), EpochRefusal> {
    let before = machine.epoch();
    if !machine.restore(epoch, stopped) {
        return Err(EpochRefusal::TooLow { least: before.get() + 1 });
    }
    rewrite_directory(machine, member, names);
    Ok(())
}

/// Removes the former members from the member directory and adds the new one.
fn rewrite_directory(machine: &mut Machine, member: MemberId, names: Option<&MemberNames>) {
    let keys = directory::read(machine).into_keys().map(directory::key);
    let mut requests: Vec<Vec<u8>> = keys.map(|key| delete(&key)).collect();
    // If the command is refused for lack of room, the member repeats it when it starts.
    requests.extend(names.map(|names| directory::put(&directory::key(member), &names.to_string())));
    let term = Term(tenure_raft::FIRST.term);
    let entry = seal_entry(term, 0, requests.iter().map(Vec::as_slice));
    machine.apply(term, Some(&entry), &mut Effects::default());
}

fn delete(key: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let command = Command::Delete { key, expect: Expect::Any, guard: None };
    encode_request(
        &Request { principal: tenure_core::access::MEMBER, id: RequestId::None, command },
        &mut bytes,
    );
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epoch(number: u16) -> Epoch {
        Epoch::new(number).unwrap()
    }

    fn choose(request: EpochRequest, used: &[Epoch]) -> Result<Epoch, EpochRefusal> {
        choose_epoch(request, epoch(2), UsedEpochs { epochs: used, writable: true })
    }

    #[test]
    fn the_next_epoch_is_above_the_source_the_ledger_and_the_token() {
        let none = EpochRequest::default();
        assert_eq!(choose(none, &[]), Ok(epoch(3)));
        assert_eq!(choose(none, &[epoch(7), epoch(3)]), Ok(epoch(8)));
        let above = Token::from_u64((9 << 48) + 5);
        assert_eq!(choose(EpochRequest { above, ..none }, &[epoch(7)]), Ok(epoch(10)));
    }

    #[test]
    fn a_named_epoch_must_be_new_and_above() {
        let named = |number| EpochRequest { epoch: Some(epoch(number)), above: None };
        assert_eq!(choose(named(3), &[epoch(3)]), Err(EpochRefusal::Used));
        assert_eq!(choose(named(4), &[epoch(5)]), Err(EpochRefusal::TooLow { least: 6 }));
        assert_eq!(choose(named(2), &[]), Err(EpochRefusal::TooLow { least: 3 }));
        assert_eq!(choose(named(6), &[epoch(5)]), Ok(epoch(6)));
    }

    #[test]
    fn a_ledger_that_cannot_be_written_needs_a_named_epoch() {
        let used = UsedEpochs { epochs: &[], writable: false };
        let chosen = choose_epoch(EpochRequest::default(), epoch(2), used);
        assert_eq!(chosen, Err(EpochRefusal::Unwritable));
        let named = EpochRequest { epoch: Some(epoch(3)), above: None };
        assert_eq!(choose_epoch(named, epoch(2), used), Ok(epoch(3)));
    }
}
