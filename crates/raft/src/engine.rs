//! Converts between our types and those of the Raft engine.
//!
//! The payload of an entry that changes members has our own encoding. The engine's encoding exists only between
//! proposing and appending, so its parser never reads external bytes.

use raft::eraftpb::{
    ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2, ConfState,
    Entry as EngineEntry, EntryType, HardState as EngineHardState, Message as EngineMessage,
    MessageType, Snapshot,
};
use tenure_store::{HardState, LogEntry, LogId};

use crate::member::{MemberId, Membership, MembershipChange};
use crate::message::{AnnouncedSnapshot, Step, StepKind};

/// An entry whose payload is for the machine; empty if the leader appended it for itself.
pub(crate) const NORMAL: u8 = 0;
/// An entry whose payload changes the members.
pub(crate) const MEMBERS: u8 = 1;

pub(crate) fn entry_from(entry: EngineEntry) -> LogEntry {
    let members = entry.entry_type != EntryType::EntryNormal;
    let (kind, payload) = if members { (MEMBERS, entry.context) } else { (NORMAL, entry.data) };
    LogEntry { index: entry.index, term: entry.term, kind, payload }
}

pub(crate) fn entry_to(entry: &LogEntry) -> EngineEntry {
    let mut to = EngineEntry { index: entry.index, term: entry.term, ..EngineEntry::default() };
    if entry.kind == MEMBERS {
        to.set_entry_type(EntryType::EntryConfChangeV2);
        to.context = entry.payload.clone();
    } else {
        to.data = entry.payload.clone();
    }
    to
}

pub(crate) fn hard_state_from(state: &EngineHardState) -> HardState {
    let vote = (state.vote != 0).then_some(state.vote);
    HardState { term: state.term, vote, commit: state.commit }
}

pub(crate) fn hard_state_to(state: HardState) -> EngineHardState {
    let HardState { term, vote, commit } = state;
    EngineHardState { term, vote: vote.unwrap_or(0), commit, ..EngineHardState::default() }
}

pub(crate) fn members_to(members: &Membership) -> ConfState {
    let ids = |set: &std::collections::BTreeSet<MemberId>| {
        set.iter().map(|id| id.get()).collect::<Vec<_>>()
    };
    ConfState {
        voters: ids(&members.voters),
        learners: ids(&members.learners),
        voters_outgoing: ids(&members.outgoing),
        learners_next: ids(&members.learners_next),
        auto_leave: members.auto_leave,
        ..ConfState::default()
    }
}

/// The members that the engine names, together with the ids retired before and since.
pub(crate) fn members_from(state: &ConfState, before: &Membership) -> Membership {
    let ids = |list: &[u64]| list.iter().copied().filter_map(MemberId::new).collect();
    let mut members = Membership {
        voters: ids(&state.voters),
        learners: ids(&state.learners),
        outgoing: ids(&state.voters_outgoing),
        learners_next: ids(&state.learners_next),
        auto_leave: state.auto_leave,
        retired: before.retired.clone(),
    };
    let gone: Vec<_> = before.all().into_iter().filter(|id| !members.contains(*id)).collect();
    members.retired.extend(gone);
    if mutant!("removed_id_added_again") {
        let again = members.all();
        members.retired.retain(|id| !again.contains(id));
    }
    members
}

pub(crate) fn changes_to(changes: &[MembershipChange]) -> ConfChangeV2 {
    let mut to = ConfChangeV2::default();
    to.set_transition(ConfChangeTransition::Auto);
    to.changes = changes
        .iter()
        .map(|change| {
            let mut single =
                ConfChangeSingle { node_id: change.member().get(), ..ConfChangeSingle::default() };
            single.set_change_type(match change {
                MembershipChange::AddLearner(_) => ConfChangeType::AddLearnerNode,
                MembershipChange::Promote(_) => ConfChangeType::AddNode,
                MembershipChange::Remove(_) => ConfChangeType::RemoveNode,
            });
            single
        })
        .collect();
    to
}

/// Converts a message of the engine and returns its receiver; `None` for kinds that are never sent between members.
pub(crate) fn step_from(mut message: EngineMessage) -> Option<(MemberId, Step)> {
    let kind = match message.msg_type {
        MessageType::MsgAppend => StepKind::Append,
        MessageType::MsgAppendResponse => StepKind::AppendAnswer,
        MessageType::MsgRequestVote => StepKind::Vote,
        MessageType::MsgRequestVoteResponse => StepKind::VoteAnswer,
        MessageType::MsgSnapshot => StepKind::Snapshot,
        MessageType::MsgHeartbeat => StepKind::Heartbeat,
        MessageType::MsgHeartbeatResponse => StepKind::HeartbeatAnswer,
        MessageType::MsgTimeoutNow => StepKind::TimeoutNow,
        MessageType::MsgReadIndex => StepKind::ReadIndex,
        MessageType::MsgReadIndexResp => StepKind::ReadIndexAnswer,
        MessageType::MsgRequestPreVote => StepKind::PreVote,
        MessageType::MsgRequestPreVoteResponse => StepKind::PreVoteAnswer,
        MessageType::MsgPropose
        | MessageType::MsgTransferLeader
        | MessageType::MsgHup
        | MessageType::MsgBeat
        | MessageType::MsgUnreachable
        | MessageType::MsgSnapStatus
        | MessageType::MsgCheckQuorum => return None,
    };
    let to = MemberId::new(message.to)?;
    let snapshot = (kind == StepKind::Snapshot).then(|| {
        let meta = message.get_snapshot().get_metadata();
        let members = members_from(meta.get_conf_state(), &Membership::default());
        Box::new(AnnouncedSnapshot { point: LogId { index: meta.index, term: meta.term }, members })
    });
    let mut context = message.take_context();
    let mut entries = message.take_entries().into_vec();
    if matches!(kind, StepKind::ReadIndex | StepKind::ReadIndexAnswer) {
        // The engine keeps the context of a read in an entry.
        context = entries.pop().map(|entry| entry.data).unwrap_or_default();
        entries.clear();
    }
    let step = Step {
        kind,
        term: message.term,
        log_term: message.log_term,
        index: message.index,
        commit: message.commit,
        commit_term: message.commit_term,
        reject: message.reject,
        reject_hint: message.reject_hint,
        context,
        durable: LogId::default(),
        entries: entries.into_iter().map(entry_from).collect(),
        snapshot,
    };
    Some((to, step))
}

pub(crate) fn step_to(from: MemberId, to: MemberId, step: Step) -> EngineMessage {
    let mut message = EngineMessage {
        from: from.get(),
        to: to.get(),
        term: step.term,
        log_term: step.log_term,
        index: step.index,
        commit: step.commit,
        commit_term: step.commit_term,
        reject: step.reject,
        reject_hint: step.reject_hint,
        ..EngineMessage::default()
    };
    message.set_msg_type(match step.kind {
        StepKind::Append => MessageType::MsgAppend,
        StepKind::AppendAnswer => MessageType::MsgAppendResponse,
        StepKind::Vote => MessageType::MsgRequestVote,
        StepKind::VoteAnswer => MessageType::MsgRequestVoteResponse,
        StepKind::Snapshot => MessageType::MsgSnapshot,
        StepKind::Heartbeat => MessageType::MsgHeartbeat,
        StepKind::HeartbeatAnswer => MessageType::MsgHeartbeatResponse,
        StepKind::TimeoutNow => MessageType::MsgTimeoutNow,
        StepKind::ReadIndex => MessageType::MsgReadIndex,
        StepKind::ReadIndexAnswer => MessageType::MsgReadIndexResp,
        StepKind::PreVote => MessageType::MsgRequestPreVote,
        StepKind::PreVoteAnswer => MessageType::MsgRequestPreVoteResponse,
    });
    if matches!(step.kind, StepKind::ReadIndex | StepKind::ReadIndexAnswer) {
        let entry = EngineEntry { data: step.context, ..EngineEntry::default() };
        message.set_entries(vec![entry].into());
    } else {
        message.context = step.context;
        message.set_entries(step.entries.iter().map(entry_to).collect());
    }
    if let Some(head) = step.snapshot {
        message.set_snapshot(snapshot_to(head.point, &head.members));
    }
    message
}

pub(crate) fn snapshot_to(point: LogId, members: &Membership) -> Snapshot {
    let mut snapshot = Snapshot::default();
    let meta = snapshot.mut_metadata();
    meta.index = point.index;
    meta.term = point.term;
    meta.set_conf_state(members_to(members));
    snapshot
}
