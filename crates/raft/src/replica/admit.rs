//! Checks every field of a message before the engine sees it.
//!
//! The engine trusts its peers: an impossible term, index or membership ends the process by an assertion, at worst
//! again at each start. So everything is checked here. Messages of ids that are neither members nor vouched for are
//! dropped, and so are messages of retired ids.

use std::collections::BTreeSet;

use super::{Replica, is_answer};
use crate::config::{CONTEXT_BYTES_MAX, INDEX_MAX, TERM_JUMP_MAX, TERM_MAX, VOUCHED_MAX};
use crate::engine::{MEMBERS, NORMAL};
use crate::member::{MemberId, Membership, decode_changes};
use crate::message::{Step, StepKind};
use crate::observed::Observed;

/// How many messages were dropped without processing, by cause.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DroppedMessages {
    /// The sender is not a member, and no member vouches for it.
    pub strangers: u64,
    /// The sender was removed from the cluster.
    pub retired: u64,
    /// A field has an impossible value, or the message does not fit the receiver's role.
    pub invalid: u64,
    /// The message came before the receiver knew whether its disk was rolled back.
    pub early: u64,
}

/// The ids that count as known besides the members.
#[derive(Debug, Default)]
pub(super) struct KnownIds {
    /// Ids that the caller vouches for.
    pub(super) given: BTreeSet<MemberId>,
    /// Ids that a known member vouches for.
    pub(super) vouched: BTreeSet<MemberId>,
    pub(super) dropped: DroppedMessages,
}

impl Replica {
    /// Whether this id is a member, or is vouched for, and is not retired.
    pub fn is_known(&self, id: MemberId) -> bool {
        let (known, members) = (&self.known, &self.members);
        !members.retired.contains(&id)
            && (members.contains(id) || known.given.contains(&id) || known.vouched.contains(&id))
    }

    /// Whether messages of this sender are processed. Counts those that are dropped.
    pub(super) fn counts(&mut self, from: MemberId) -> bool {
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
            // Members may vouch for it: ask them, at the usual rate.
            self.promises.greet_again();
        }
        is_known && from != self.config.id
    }

    /// The ids that are not members as far as this member knows, but count as known because a member or the caller
    /// vouches for them.
    pub fn vouched(&self) -> BTreeSet<MemberId> {
        self.vouched_ids().copied().collect()
    }

    fn vouched_ids(&self) -> impl Iterator<Item = &MemberId> {
        let open =
            |id: &&MemberId| !self.members.contains(**id) && !self.members.retired.contains(id);
        self.known.given.union(&self.known.vouched).filter(open)
    }

    /// Whether these are the ids that [`Replica::vouched`] returns.
    pub fn vouches_for_exactly(&self, ids: &BTreeSet<MemberId>) -> bool {
        self.vouched_ids().eq(ids)
    }

    /// Records the members that a known member names. They count as known until they are retired.
    pub(super) fn on_members(&mut self, ids: BTreeSet<MemberId>) {
        for id in ids {
            if self.known.vouched.len() < VOUCHED_MAX && !self.members.contains(id) {
                self.known.vouched.insert(id);
            }
        }
    }

    /// Removes from the vouched ids those that have become members, and retired ones, which can never rejoin.
    pub(super) fn settle_known(&mut self) {
        let members = &self.members;
        let open = |id: &MemberId| !members.contains(*id) && !members.retired.contains(id);
        self.known.vouched.retain(open);
    }

    /// Whether the reported promises are possible.
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

    /// Whether the engine may see a step. Counts those that are dropped.
    pub(super) fn admits(&mut self, from: MemberId, step: &Step) -> bool {
        let sound = self.is_sound(from, step) && self.suits_role(from, step);
        self.known.dropped.invalid += u64::from(!sound);
        sound
    }

    /// Whether the engine may see a snapshot whose file names these members.
    pub(super) fn admits_snapshot(
        &mut self,
        from: MemberId,
        step: &Step,
        members: &Membership,
    ) -> bool {
        let raft = &self.node.raft;
        let is_leader = MemberId::new(raft.leader_id).is_none_or(|id| id == from);
        let suits = step.kind == StepKind::Snapshot && (step.term != raft.term || is_leader);
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
        // A follower's read request is the only step without a term: the engine treats a message without a term as its
        // own.
        let has_term = (step.term > 0) != (step.kind == StepKind::ReadIndex);
        let last = step.index.checked_add(step.entries.len() as u64);
        has_term
            && self.admits_term(step.term)
            && step.log_term <= step.term
            // Every log begins after a snapshot, so entries always follow an existing entry.
            && (step.kind != StepKind::Append || step.index > 0 && step.log_term > 0)
            && step.commit_term <= step.term
            && step.durable.term <= step.term
            && last.is_some_and(|last| last <= INDEX_MAX)
            && [step.commit, step.reject_hint, step.durable.index].iter().all(|at| *at <= INDEX_MAX)
            && (!step.reject || is_answer(step.kind) || is_vote_answer(step.kind))
            && self.is_context_sound(from, step)
            && are_terms_sound(step)
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

    /// Whether the context is valid: contexts belong to reads, and name the member that reads.
    fn is_context_sound(&self, from: MemberId, step: &Step) -> bool {
        let context = &step.context[..];
        let reads = |member: MemberId| context.starts_with(&member.get().to_le_bytes());
        match step.kind {
            StepKind::ReadIndex => context.len() == crate::reads::CONTEXT_BYTES && reads(from),
            StepKind::ReadIndexAnswer => reads(self.config.id),
            StepKind::Heartbeat
            | StepKind::HeartbeatAnswer
            | StepKind::Vote
            | StepKind::PreVote => context.len() <= CONTEXT_BYTES_MAX,
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
            // A file comes with it. The two arrive together, as `ReplicaInput::SnapshotReceived`.
            StepKind::Snapshot => false,
            // A term has one leader.
            StepKind::Append | StepKind::Heartbeat => {
                !same_term || leader.is_none_or(|id| id == from)
            }
            StepKind::TimeoutNow => {
                // The engine cannot campaign until the snapshot is durable.
                same_term && leader == Some(from) && self.held.installing.is_none()
            }
            StepKind::ReadIndexAnswer => leader == Some(from),
            StepKind::AppendAnswer => {
                let ends = step.index <= last && (!step.reject || step.reject_hint <= step.index);
                !same_term || self.leads() && ends
            }
            StepKind::HeartbeatAnswer => !same_term || self.leads(),
            StepKind::Vote
            | StepKind::VoteAnswer
            | StepKind::ReadIndex
            | StepKind::PreVote
            | StepKind::PreVoteAnswer => true,
        }
    }
}

/// Whether the terms of the entries are those of a log: from 1, never falling, not below the term of the entry before.
fn are_terms_sound(step: &Step) -> bool {
    let terms = || step.entries.iter().map(|entry| entry.term);
    terms().all(|term| term > 0) && std::iter::once(step.log_term).chain(terms()).is_sorted()
}

fn is_vote_answer(kind: StepKind) -> bool {
    matches!(kind, StepKind::VoteAnswer | StepKind::PreVoteAnswer)
}
