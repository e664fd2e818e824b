//! Forges messages from unknown ids, from removed members, and with impossible terms. None of them may have any effect.

use bytes::Bytes;
use tenure_core::codec::seal_entry;
use tenure_node::{Input, LinkId, PeerMessage};
use tenure_raft::{MemberId, Message, Persist, Step, StepKind};
use tenure_store::{LogEntry, LogId};
use tenure_types::Term;

use super::oracle::ensure;
use super::world::SimCluster;
use crate::invariant::CheckResult;

/// By how much one message may raise a member's term.
const TERM_JUMP_MAX: u64 = 1 << 24;

/// More elections than a run has. The term of the member may grow until a message reaches it.
const ELECTIONS_MAX: u64 = 1 << 16;

impl SimCluster {
    /// Hands a forged message to a member: an append of the next term, as a new leader would send it, or a heartbeat
    /// whose term is too far ahead, also when it arrives, or `u64::MAX - 1`, after which almost no term is left.
    pub(super) fn forge_step(&mut self, member: usize) {
        let Some(process) = &self.sim_members[member].process else { return };
        let status = process.replica().status();
        let (last, term) = (status.last, status.term.0);
        // Choose an id that this member knows to be removed. A member that joins accepts messages from the ids that it
        // was given until it learns that one of them was removed.
        let removed = process.replica().members().retired.iter().next_back().copied();
        let stranger = MemberId::new(u64::MAX - 7).expect("it is not zero");
        let (from, kind) = match self.rng.u8(0..3) {
            0 => (Some(stranger), "forged_by_stranger"),
            1 => (removed, "forged_by_removed"),
            _ => (status.leader.filter(|_| !status.leading), "forged_term"),
        };
        let Some(from) = from else { return };
        let ahead = term + TERM_JUMP_MAX + ELECTIONS_MAX;
        let too_far = if last.index % 2 == 0 { u64::MAX - 1 } else { ahead };
        let beat = step(StepKind::Heartbeat, too_far);
        let next = Term(term + 1);
        let payload = Bytes::from(seal_entry(next, 0, std::iter::empty::<&[u8]>()));
        let entry = LogEntry { index: last.index + 1, term: next.0, kind: 0, payload };
        let append = Step {
            index: last.index,
            log_term: last.term,
            commit: last.index + 1,
            entries: vec![entry],
            ..step(StepKind::Append, next.0)
        };
        self.faults.count(kind);
        let message = Message::Step(Box::new(if kind == "forged_term" { beat } else { append }));
        let boot = self.sim_members[member].boot;
        let (link, message) = (LinkId::default(), PeerMessage::Raft(message));
        self.give(member, boot, Input::Peer { from, link, message });
    }

    /// N17: no message raises a member's term too far. The elections of a run stay far below the bound, so a term above
    /// it was forged.
    pub(super) fn check_term(&self, member: usize, persist: &Persist) -> CheckResult {
        let term = persist.hard_state.map_or(0, |state| state.term);
        ensure(term <= TERM_JUMP_MAX, "N17", || {
            format!("{member} took the term {term} from a message")
        })
    }
}

fn step(kind: StepKind, term: u64) -> Step {
    Step {
        kind,
        term,
        log_term: 0,
        index: 0,
        commit: 0,
        commit_term: 0,
        reject: false,
        reject_hint: 0,
        context: Bytes::new(),
        durable: LogId::default(),
        entries: Vec::new(),
        snapshot: None,
    }
}
