//! Checks every field of a message before the engine sees it.
//!
//! The engine trusts its peers: a term, index or set of members that cannot be ends the process by an
//! assertion, at worst again at each start. So everything is checked here. Messages of ids that are
//! neither members nor vouched for are dropped, as are those of retired ids.

use std::collections::BTreeSet;

use super::{Replica, is_answer};
use crate::config::{CONTEXT_BYTES_MAX, INDEX_MAX, TERM_JUMP_MAX, TERM_MAX, VOUCHED_MAX};
use crate::engine::{MEMBERS, NORMAL};
use crate::member::{MemberId, Membership, decode_changes};
use crate::message::{Kind, Step};
use crate::observed::Observed;

/// How many messages were dropped unread, and why.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Dropped {
    /// Their sender is no member, and no member vouches for it.
    pub strangers: u64,
    /// Their sender was removed from the cluster.
    pub retired: u64,
    /// A field of theirs cannot be, or the receiver's role does not take them.
    pub invalid: u64,
    /// They came before the receiver knew whether its disk went back.
    pub early: u64,
}

/// The ids that count as known besides the members.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// The caller vouches for them.
    pub(super) given: BTreeSet<MemberId>,
    /// A known member vouches for them.
    pub(super) vouched: BTreeSet<MemberId>,
    pub(super) dropped: Dropped,
}

impl Replica {
    /// Whether this id is a member, or is vouched for, and is not retired.
    pub fn is_known(&self, id: MemberId) -> bool {
        let (known, members) = (&self.known, &self.members);
        !members.retired.contains(&id)
            && (members.contains(id) || known.given.contains(&id) || known.vouched.contains(&id))
    }

    /// Whether this sender is heard at all. What is dropped is counted.
    pub(super) fn hears(&mut self, from: MemberId) -> bool {
        let (known, members) = (&mut self.known, &self.members);
        if members.retired.contains(&from) {
            known.dropped.retired += 1;
            return mutant!("removed_member_heard");
        }
        let is_known = members.contains(from)
            || known.given.contains(&from)
            || known.vouched.contains(&from)
            || mutant!("stranger_heard");
        if !is_known || from == self.config.id {
            known.dropped.strangers += 1;
            // Members may vouch for it: asks them, within the usual pace.
            self.promises.greet_again();
        }
        is_known && from != self.config.id
    }

    /// Ids that are no members as far as this one knows, and that count as known because a member or the caller
    /// vouches for them.
    pub fn vouched(&self) -> BTreeSet<MemberId> {
        let known = &self.known;
        let open =
            |id: &&MemberId| !self.members.contains(**id) && !self.members.retired.contains(id);
        known.given.union(&known.vouched).filter(open).copied().collect()
    }

    /// A known member names the members that it knows: they count as known until they are retired.
    pub(super) fn hear_members(&mut self, ids: BTreeSet<MemberId>) {
        for id in ids {
            if self.known.vouched.len() < VOUCHED_MAX && !self.members.contains(id) {
                self.known.vouched.insert(id);
            }
        }
    }

    /// Forgets the vouching for ids that have become members, and for retired ones, which never get in again.
    pub(super) fn settle_known(&mut self) {
        let members = &self.members;
        let open = |id: &MemberId| !members.contains(*id) && !members.retired.contains(id);
        self.known.vouched.retain(open);
    }

    /// Whether what another member remembers can be.
    pub(super) fn admits_observed(&mut self, observed: &Observed) -> bool {
        let Observed { term, held_in, held, committed, .. } = *observed;
        let sound = self.admits_term(term)
            && held_in <= term
            && held.term <= held_in
            && committed.term <= term
            && held.index <= INDEX_MAX
            && committed.index <= INDEX_MAX;
        self.known.dropped.invalid += u64::from(!sound);
        sound
    }

    /// Whether the engine may see a step. What is dropped is counted.
    pub(super) fn admits(&mut self, from: MemberId, step: &Step) -> bool {
        let sound = self.is_sound(from, step) && self.suits_role(from, step);
        self.known.dropped.invalid += u64::from(!sound);
        sound
    }

    /// Whether the engine may see a snapshot whose file says that these are the members.
    pub(super) fn admits_snapshot(
        &mut self,
        from: MemberId,
        step: &Step,
        members: &Membership,
    ) -> bool {
        let raft = &self.node.raft;
        let is_leader = MemberId::new(raft.leader_id).is_none_or(|id| id == from);
        let suits = step.kind == Kind::Snapshot && (step.term != raft.term || is_leader);
        let same = step.snapshot.as_ref().is_some_and(|head| {
            let bare = Membership { retired: BTreeSet::new(), ..members.clone() };
            head.members == bare
        });
        let sound = suits && same && members.is_sound() && self.is_sound(from, step);
        self.known.dropped.invalid += u64::from(!sound);
        sound
    }

    fn admits_term(&self, term: u64) -> bool {
        let most = self.node.raft.term.saturating_add(TERM_JUMP_MAX).min(TERM_MAX);
        term <= most || mutant!("unbounded_term")
    }

    fn is_sound(&self, from: MemberId, step: &Step) -> bool {
        // A follower's question about a read is the only step without a term: the engine takes
        // whatever has none for its own.
        let has_term = (step.term > 0) != (step.kind == Kind::ReadIndex);
        let last = step.index.checked_add(step.entries.len() as u64);
        has_term
            && self.admits_term(step.term)
            && step.log_term <= step.term
            // Every log begins after a snapshot: no entries are appended to nothing.
            && (step.kind != Kind::Append || step.index > 0 && step.log_term > 0)
            && step.commit_term <= step.term
            && step.durable.term <= step.term
            && last.is_some_and(|last| last <= INDEX_MAX)
            && [step.commit, step.reject_hint, step.durable.index].iter().all(|at| *at <= INDEX_MAX)
            && (!step.reject || is_answer(step.kind) || is_vote_answer(step.kind))
            && self.is_context_sound(from, step)
            && step.entries.iter().all(|entry| {
                let readable = match entry.kind {
                    NORMAL => true,
                    MEMBERS => decode_changes(&entry.payload).is_ok(),
                    _ => false,
                };
                readable && entry.term <= step.term
            })
            && step.snapshot.as_ref().is_none_or(|head| {
                let at = head.point;
                (1..=step.term).contains(&at.term)
                    && (1..=INDEX_MAX).contains(&at.index)
                    && head.members.is_sound()
            })
    }

    /// Contexts belong to reads, and name the member that reads.
    fn is_context_sound(&self, from: MemberId, step: &Step) -> bool {
        let context = &step.context[..];
        let reads = |member: MemberId| context.starts_with(&member.get().to_le_bytes());
        match step.kind {
            Kind::ReadIndex => context.len() == crate::reads::CONTEXT_BYTES && reads(from),
            Kind::ReadIndexAnswer => reads(self.config.id),
            Kind::Heartbeat | Kind::HeartbeatAnswer | Kind::Vote | Kind::PreVote => {
                context.len() <= CONTEXT_BYTES_MAX
            }
            _ => context.is_empty(),
        }
    }

    /// Whether a member in this role is sent such a step.
    fn suits_role(&self, from: MemberId, step: &Step) -> bool {
        let raft = &self.node.raft;
        let last = raft.raft_log.last_index();
        let leader = MemberId::new(raft.leader_id);
        let same_term = step.term == raft.term;
        match step.kind {
            // Beside it goes a file; the two come in together, by `Input::SnapshotReceived`.
            Kind::Snapshot => false,
            // A term has one leader.
            Kind::Append | Kind::Heartbeat => !same_term || leader.is_none_or(|id| id == from),
            Kind::TimeoutNow => {
                // Until the snapshot is durable, the engine is not ready to campaign.
                same_term && leader == Some(from) && self.held.installing.is_none()
            }
            Kind::ReadIndexAnswer => leader == Some(from),
            Kind::AppendAnswer => {
                let ends = step.index <= last && (!step.reject || step.reject_hint <= step.index);
                !same_term || self.leads() && ends
            }
            Kind::HeartbeatAnswer => !same_term || self.leads(),
            Kind::Vote
            | Kind::VoteAnswer
            | Kind::ReadIndex
            | Kind::PreVote
            | Kind::PreVoteAnswer => true,
        }
    }
}

fn is_vote_answer(kind: Kind) -> bool {
    matches!(kind, Kind::VoteAnswer | Kind::PreVoteAnswer)
}
