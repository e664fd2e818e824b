//! Keeps the newest known promises of each other member, so that a rolled-back disk is detected.
//!
//! By what it sends, a member promises not to forget a term, a vote, or an entry. Only its own disk keeps that, unless
//! the others keep it too. So each member remembers the newest promise of every other member, durably, and reports it
//! when that member starts.

use std::collections::BTreeMap;

use tenure_store::{LogId, NOTES_BYTES_MAX};

use crate::codec::{Malformed, Reader, Writer};
use crate::member::{MemberId, Membership};

/// The version of the encoding.
const VERSION: u8 = 1;

/// The newest known promises of one member.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Observed {
    /// The newest term in which it acknowledged, voted or led.
    pub term: u64,
    /// The member that it voted for in that term, if that is known.
    pub vote: Option<MemberId>,
    /// The term of the leader to which `held` was acknowledged.
    pub held_in: u64,
    /// The newest entry that it acknowledged in that term, or had durable while it led that term.
    pub held: LogId,
    /// The newest committed entry that it is known to have had.
    pub committed: LogId,
}

impl Observed {
    /// Records that the member was active in this term.
    pub(crate) fn note_term(&mut self, term: u64) {
        if term > self.term {
            (self.term, self.vote) = (term, None);
        }
    }

    /// Records that the member voted in this term.
    pub(crate) fn note_vote(&mut self, term: u64, vote: MemberId) {
        self.note_term(term);
        if term == self.term {
            self.vote = Some(vote);
        }
    }

    /// Records that the member had this entry durable under the leader of this term.
    pub(crate) fn note_held(&mut self, term: u64, held: LogId) {
        if (term, held.index) > (self.held_in, self.held.index) {
            (self.held_in, self.held) = (term, held);
        }
    }

    /// Records that the member had this committed entry durable.
    pub(crate) fn note_committed(&mut self, committed: LogId) {
        if committed.index > self.committed.index {
            self.committed = committed;
        }
    }

    /// Merges what another member has observed.
    pub(crate) fn merge(&mut self, other: &Self) {
        match other.vote {
            Some(vote) => self.note_vote(other.term, vote),
            None => self.note_term(other.term),
        }
        self.note_held(other.held_in, other.held);
        self.note_committed(other.committed);
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        let Self { term, vote, held_in, held, committed } = *self;
        let vote = vote.map_or(0, MemberId::get);
        let (held, committed) = ([held.index, held.term], [committed.index, committed.term]);
        let numbers = [term, vote, held_in].into_iter().chain(held).chain(committed);
        numbers.for_each(|number| out.put(number));
    }

    pub(crate) fn get(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (term, vote, held_in) = (reader.number()?, reader.number()?, reader.number()?);
        let held = LogId { index: reader.number()?, term: reader.number()? };
        let committed = LogId { index: reader.number()?, term: reader.number()? };
        Ok(Self { term, vote: MemberId::new(vote), held_in, held, committed })
    }
}

/// The known promises of all other members, and which of them are not yet written or passed on.
#[derive(Debug, Default)]
pub(crate) struct Observations {
    of: BTreeMap<MemberId, Observed>,
    /// Whether they have changed since the notes were written.
    unwritten: bool,
    /// The promises that have changed since they were passed on.
    unpassed: BTreeMap<MemberId, Observed>,
}

impl Observations {
    /// Decodes the notes from the log.
    pub(crate) fn decode(notes: &[u8]) -> Result<Self, Malformed> {
        let mut observations = Self::default();
        if notes.is_empty() {
            return Ok(observations);
        }
        let mut reader = Reader::new(notes);
        if reader.u8()? != VERSION {
            return Err(Malformed);
        }
        while !reader.is_empty() {
            let member = MemberId::new(reader.number()?).ok_or(Malformed)?;
            observations.of.insert(member, Observed::get(&mut reader)?);
        }
        Ok(observations)
    }

    /// Encodes the notes. Voters come first: what does not fit is about members that do not vote.
    pub(crate) fn encode(&mut self, members: &Membership) -> Vec<u8> {
        self.unwritten = false;
        let mut out = vec![VERSION];
        let decides = |id: &MemberId| members.voters.contains(id) || members.outgoing.contains(id);
        let (voters, others): (Vec<_>, Vec<_>) = self.of.iter().partition(|(id, _)| decides(id));
        for (member, observed) in voters.into_iter().chain(others) {
            let len = out.len();
            out.put(member.get());
            observed.put(&mut out);
            if out.len() > NOTES_BYTES_MAX {
                out.truncate(len);
                break;
            }
        }
        out
    }

    pub(crate) fn of(&self, member: MemberId) -> Observed {
        self.of.get(&member).copied().unwrap_or_default()
    }

    pub(crate) fn note(&mut self, member: MemberId, note: impl FnOnce(&mut Observed)) {
        let observed = self.of.entry(member).or_default();
        let before = *observed;
        note(observed);
        if *observed != before {
            self.unwritten = true;
            self.unpassed.insert(member, *observed);
        }
    }

    /// Removes ids that are not members any more.
    pub(crate) fn retain(&mut self, members: &Membership) {
        self.of.retain(|id, _| members.contains(*id));
        self.unpassed.retain(|id, _| members.contains(*id));
    }

    /// Whether something is not in the notes written last.
    pub(crate) fn are_unwritten(&self) -> bool {
        self.unwritten
    }

    /// The changes since the last call.
    pub(crate) fn take_unpassed(&mut self) -> Vec<(MemberId, Observed)> {
        std::mem::take(&mut self.unpassed).into_iter().collect()
    }

    pub(crate) fn all(&self) -> Vec<(MemberId, Observed)> {
        self.of.iter().map(|(id, observed)| (*id, *observed)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> MemberId {
        MemberId::new(number).unwrap()
    }

    fn point(index: u64, term: u64) -> LogId {
        LogId { index, term }
    }

    #[test]
    fn the_newest_promise_counts_and_a_later_term_replaces_a_longer_log() {
        let mut observed = Observed::default();
        observed.note_vote(5, id(2));
        observed.note_held(5, point(120, 5));
        observed.note_committed(point(89, 4));
        observed.note_term(6);
        assert_eq!((observed.term, observed.vote), (6, None));
        observed.note_held(6, point(101, 6));
        assert_eq!((observed.held_in, observed.held), (6, point(101, 6)));
        observed.note_held(5, point(130, 5));
        assert_eq!(observed.held, point(101, 6), "what an older leader was told came before");
        observed.note_vote(5, id(3));
        assert_eq!((observed.term, observed.vote), (6, None));
    }

    #[test]
    fn notes_read_back_and_keep_voters_when_room_is_short() {
        let members = Membership {
            learners: (100..200).map(id).collect(),
            ..Membership::of_voters([id(7), id(8), id(9_000_000_000_000)])
        };
        let mut observations = Observations::default();
        let seen = Observed {
            term: u64::MAX / 2,
            vote: Some(id(u64::MAX)),
            held_in: u64::MAX / 2,
            held: point(u64::MAX / 2, u64::MAX / 2),
            committed: point(u64::MAX / 2, 3),
        };
        for member in members.all() {
            observations.note(member, |observed| *observed = seen);
        }
        let notes = observations.encode(&members);
        assert!(notes.len() <= NOTES_BYTES_MAX);
        let read = Observations::decode(&notes).unwrap();
        assert!(members.voters.iter().all(|voter| read.of(*voter) == seen));
        assert!(Observations::decode(&notes[..notes.len() - 1]).is_err());
        assert!(Observations::decode(&[9]).is_err());
    }
}
