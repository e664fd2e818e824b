//! Compares the hashes of the members' states, and decides whether this member must stop.
//!
//! Every member sends the others the hash of its state at the same indexes. A member that sees a majority agree on
//! another hash has diverged, and stops. One majority is enough: members that are behind have not reported yet. If all
//! voters have reported and no majority agrees, as with two voters, no member can be trusted: all voters stop. They
//! could not commit anything without each other, and none of them serves a state that may be wrong.

use std::collections::BTreeMap;

use crate::member::{MemberId, Membership};

/// How many indexes are remembered. Members that are further apart than this compare at a later one.
const KEPT: usize = 8;

/// The hash that each member reported for each index.
#[derive(Debug, Default)]
pub(crate) struct Hashes {
    said: BTreeMap<u64, BTreeMap<MemberId, u128>>,
}

impl Hashes {
    pub(crate) fn note(&mut self, index: u64, member: MemberId, hash: u128) {
        self.said.entry(index).or_default().insert(member, hash);
        while self.said.len() > KEPT {
            self.said.pop_first();
        }
    }

    /// Whether this member cannot be trusted at this index: a majority of the voters agrees on another hash, or all
    /// voters have reported and no majority agrees on any.
    pub(crate) fn differs(&self, index: u64, me: MemberId, members: &Membership) -> bool {
        let Some(said) = self.said.get(&index) else { return false };
        let Some(mine) = said.get(&me) else { return false };
        let others = |hash: &u128| {
            members.voters.iter().filter(|voter| said.get(voter) == Some(hash)).count()
        };
        let majority = members.voters.len() / 2 + 1;
        let all_spoke = members.voters.iter().all(|voter| said.contains_key(voter));
        let undecided = all_spoke && !said.values().any(|hash| others(hash) >= majority);
        undecided || said.values().any(|hash| hash != mine && others(hash) >= majority)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_that_differs_from_a_majority_is_wrong() {
        let id = |number| MemberId::new(number).unwrap();
        let members = Membership::of_voters((1..4).map(id));
        let mut hashes = Hashes::default();
        hashes.note(1000, id(1), 7);
        hashes.note(1000, id(2), 8);
        assert!(
            !hashes.differs(1000, id(1), &members),
            "it is not known yet which member is wrong"
        );
        hashes.note(1000, id(3), 8);
        assert!(hashes.differs(1000, id(1), &members));
        assert!(!hashes.differs(1000, id(2), &members));
        assert!(!hashes.differs(2000, id(1), &members));
    }

    #[test]
    fn two_voters_that_differ_both_stop() {
        let id = |number| MemberId::new(number).unwrap();
        let members = Membership::of_voters((1..3).map(id));
        let mut hashes = Hashes::default();
        hashes.note(1000, id(1), 7);
        assert!(!hashes.differs(1000, id(1), &members), "the other has not spoken");
        hashes.note(1000, id(2), 8);
        assert!(hashes.differs(1000, id(1), &members));
        assert!(hashes.differs(1000, id(2), &members));
        hashes.note(2000, id(1), 9);
        hashes.note(2000, id(2), 9);
        assert!(!hashes.differs(2000, id(1), &members));
    }
}
