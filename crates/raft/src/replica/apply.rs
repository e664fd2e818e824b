//! Applies committed entries to the machine and the membership.

use raft::eraftpb::Entry as EngineEntry;
use tenure_store::LogId;
use tenure_types::Term;

use super::{Replica, to_all};
use crate::engine::{self, MEMBERS};
use crate::io::{RejectReason, ReplicaOutput, Stop};
use crate::member::{MemberId, decode_changes};
use crate::message::Message;

impl Replica {
    pub(super) fn apply(&mut self, committed: Vec<EngineEntry>, out: &mut Vec<ReplicaOutput>) {
        if committed.is_empty() {
            return;
        }
        for entry in committed {
            self.apply_one(entry, out);
            if self.stopped {
                return;
            }
        }
        let revision = self.machine.revision();
        out.push(ReplicaOutput::Applied { point: self.applied, revision });
    }

    fn apply_one(&mut self, entry: EngineEntry, out: &mut Vec<ReplicaOutput>) {
        let entry = engine::entry_from(entry);
        let at = LogId { index: entry.index, term: entry.term };
        assert_eq!(at.index, self.applied.index + 1, "entries are applied in order, each once");
        let mut effects = std::mem::take(&mut self.effects);
        let is_command = entry.kind != MEMBERS && !entry.payload.is_empty();
        let payload = is_command.then_some(&entry.payload[..]);
        self.machine.apply(Term(at.term), payload, &mut effects);
        if let Some(level) = self.machine.outgrown() {
            self.stop(Stop::Outgrown { level, known: self.config.level_known });
            return;
        }
        self.applied = at;
        self.applied_bytes += entry.payload.len() as u64;
        if entry.kind == MEMBERS {
            self.change_members(at, &entry.payload);
        } else {
            self.change_refused(at);
        }
        self.pending.applied(at, &mut effects.outcomes, out);
        if !effects.notices.is_empty() {
            out.push(ReplicaOutput::Notices(std::mem::take(&mut effects.notices)));
        }
        self.effects = effects;
        if self.leads() && self.node.raft.term == at.term {
            self.clock.lead(Term(at.term));
            self.clock.start(Term(at.term), self.machine.clock_ms(), self.now_us);
        }
        if at.index.is_multiple_of(self.config.hash_every) {
            let hash = self.state_hash();
            to_all(&self.members, self.config.id, &Message::Hash { index: at.index, hash }, out);
            self.on_hash(self.config.id, at.index, hash);
        }
    }

    /// The hash that members compare. It covers everything applied and answered, and the clock.
    fn state_hash(&self) -> u128 {
        let clock = u128::from(self.machine.clock_ms());
        let revision = u128::from(self.machine.revision().0);
        self.machine.rolling_hash() ^ clock << 64 ^ revision
    }

    pub(super) fn on_hash(&mut self, from: MemberId, index: u64, hash: u128) {
        if !self.members.contains(from) || !index.is_multiple_of(self.config.hash_every) {
            return;
        }
        self.hashes.note(index, from, hash);
        if self.hashes.differs(index, self.config.id, &self.members) {
            self.stop(Stop::Diverged { index });
        }
    }

    fn change_members(&mut self, at: LogId, payload: &[u8]) {
        let Ok(changes) = decode_changes(payload) else {
            self.stop(Stop::Malformed { index: at.index });
            return;
        };
        // A change that cannot be applied has no effect, on every member alike.
        let applied = self.node.apply_conf_change(&engine::changes_to(&changes));
        let result = match applied {
            Ok(state) => {
                self.members = engine::members_from(&state, &self.members);
                self.members_changed();
                Ok(())
            }
            Err(_) => Err(RejectReason::Impossible),
        };
        if let Some((proposal, expected)) = self.changing
            && expected.index <= at.index
        {
            let result = if expected == at { result } else { Err(RejectReason::Replaced) };
            self.refused.push(ReplicaOutput::Changed { proposal, result });
            self.changing = None;
        }
        if self.is_retired() && mutant!("removed_member_stops_at_once") {
            self.stop(Stop::Removed);
        }
        if self.is_retired() && self.leads() {
            // The engine panics if a leader that is not a member commits. As a follower this member still votes and
            // stores entries for those that do not know of its removal yet.
            let term = self.node.raft.term;
            self.node.raft.become_follower(term, raft::INVALID_ID);
        }
    }

    /// Handles a changed membership: tells all members which ids belong to the cluster.
    pub(super) fn members_changed(&mut self) {
        self.settle_known();
        self.promises.observed.retain(&self.members);
        let message = Message::Members(self.members.all());
        to_all(&self.members, self.config.id, &message, &mut self.first);
    }

    /// Handles an ordinary entry at the position of a proposed membership change: the engine refused the change.
    fn change_refused(&mut self, at: LogId) {
        if let Some((proposal, expected)) = self.changing
            && expected.index <= at.index
        {
            let why =
                if expected == at { RejectReason::ChangeUnderWay } else { RejectReason::Replaced };
            self.refused.push(ReplicaOutput::Changed { proposal, result: Err(why) });
            self.changing = None;
        }
    }
}
