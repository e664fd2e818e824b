//! Defines member ids, the membership of the cluster and its changes.

use std::collections::BTreeSet;
use std::fmt;
use std::num::NonZeroU64;

use crate::codec::{Malformed, Reader, Writer};

/// A member's number, drawn at random at its first start and never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(NonZeroU64);

impl MemberId {
    /// Creates a member id from a number above zero.
    pub fn new(number: u64) -> Option<Self> {
        NonZeroU64::new(number).map(Self)
    }

    /// The number.
    pub fn get(self) -> u64 {
        self.0.get()
    }
}

impl fmt::Display for MemberId {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{:x}", self.get())
    }
}

impl fmt::Debug for MemberId {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "MemberId({self})")
    }
}

/// The members according to the log; part of every snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Membership {
    /// The members whose majority decides.
    pub voters: BTreeSet<MemberId>,
    /// The members that replicate without a vote.
    pub learners: BTreeSet<MemberId>,
    /// During a change: the members whose majority must agree as well.
    pub outgoing: BTreeSet<MemberId>,
    /// During a change: voters that will be learners after it.
    pub learners_next: BTreeSet<MemberId>,
    /// During a change: whether it completes by itself.
    pub auto_leave: bool,
    /// The ids that were removed. They never return.
    pub retired: BTreeSet<MemberId>,
}

/// One change to the members.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MembershipChange {
    /// Adds a member as a learner.
    AddLearner(MemberId),
    /// Gives a learner that has caught up a vote.
    Promote(MemberId),
    /// Removes a member for ever.
    Remove(MemberId),
}

impl MembershipChange {
    /// The member that the change is about.
    pub fn member(self) -> MemberId {
        match self {
            MembershipChange::AddLearner(id)
            | MembershipChange::Promote(id)
            | MembershipChange::Remove(id) => id,
        }
    }
}

impl Membership {
    /// The members of a new cluster.
    pub fn of_voters(voters: impl IntoIterator<Item = MemberId>) -> Self {
        Self { voters: voters.into_iter().collect(), ..Self::default() }
    }

    /// Whether the id is a member, in any role.
    pub fn contains(&self, id: MemberId) -> bool {
        self.voters.contains(&id) || self.learners.contains(&id) || self.outgoing.contains(&id)
    }

    /// All members, in order.
    pub fn all(&self) -> BTreeSet<MemberId> {
        self.voters.iter().chain(&self.learners).chain(&self.outgoing).copied().collect()
    }

    /// Whether a change has begun and not ended.
    pub fn is_joint(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// The only voter, if there is just one.
    pub fn sole_voter(&self) -> Option<MemberId> {
        let only = self.voters.first().filter(|_| self.voters.len() == 1)?;
        self.outgoing.iter().all(|id| id == only).then_some(*only)
    }

    /// Whether a log can contain this membership: each member has one role, and only a change in progress has outgoing
    /// members.
    pub(crate) fn is_sound(&self) -> bool {
        let is_voter = |id: &MemberId| self.voters.contains(id) || self.outgoing.contains(id);
        !self.voters.is_empty()
            && !self.learners.iter().any(is_voter)
            && self.learners_next.is_subset(&self.outgoing)
            && self.learners_next.is_disjoint(&self.voters)
            && (self.is_joint() || self.learners_next.is_empty() && !self.auto_leave)
            && !self.all().iter().any(|id| self.retired.contains(id))
    }

    /// Encodes the membership.
    pub fn encode(&self, out: &mut Vec<u8>) {
        for set in
            [&self.voters, &self.learners, &self.outgoing, &self.learners_next, &self.retired]
        {
            out.put(set.len() as u64);
            set.iter().for_each(|id| out.put(id.get()));
        }
        out.put_u8(u8::from(self.auto_leave));
    }

    /// Decodes a membership.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let membership = Self::read(&mut reader)?;
        reader.end()?;
        Ok(membership)
    }

    pub(crate) fn read_ids(reader: &mut Reader<'_>) -> Result<BTreeSet<MemberId>, Malformed> {
        let mut set = BTreeSet::new();
        for _ in 0..reader.number()? {
            // The loop ends with the bytes, whatever number was claimed.
            let id = MemberId::new(reader.number()?).ok_or(Malformed)?;
            if set.last().is_some_and(|last| *last >= id) {
                return Err(Malformed);
            }
            set.insert(id);
        }
        Ok(set)
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let mut sets: [BTreeSet<MemberId>; 5] = Default::default();
        for set in &mut sets {
            *set = Self::read_ids(reader)?;
        }
        let [voters, learners, outgoing, learners_next, retired] = sets;
        let auto_leave = reader.flag()?;
        Ok(Self { voters, learners, outgoing, learners_next, auto_leave, retired })
    }
}

/// Encodes the payload of an entry that changes the members.
pub(crate) fn encode_changes(changes: &[MembershipChange]) -> Vec<u8> {
    let mut out = Vec::new();
    for change in changes {
        let kind = match change {
            MembershipChange::AddLearner(_) => 1,
            MembershipChange::Promote(_) => 2,
            MembershipChange::Remove(_) => 3,
        };
        out.put_u8(kind);
        out.put(change.member().get());
    }
    out
}

/// Decodes the payload of an entry that changes the members. An empty list completes a change that has begun.
pub(crate) fn decode_changes(bytes: &[u8]) -> Result<Vec<MembershipChange>, Malformed> {
    let mut reader = Reader::new(bytes);
    let mut changes = Vec::new();
    while !reader.is_empty() {
        let kind = reader.u8()?;
        let id = MemberId::new(reader.number()?).ok_or(Malformed)?;
        changes.push(match kind {
            1 => MembershipChange::AddLearner(id),
            2 => MembershipChange::Promote(id),
            3 => MembershipChange::Remove(id),
            _ => return Err(Malformed),
        });
    }
    Ok(changes)
}
