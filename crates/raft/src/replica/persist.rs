//! Holds messages back until the writes that they depend on are durable.

use std::collections::VecDeque;

use super::Replica;
use crate::io::ReplicaOutput;
use crate::member::MemberId;
use crate::message::{Message, Step, StepKind};

/// Messages that wait for the disk, in the order in which they must leave.
#[derive(Debug, Default)]
pub(super) struct DeferredMessages {
    waiting: VecDeque<Deferred>,
    /// The number of the newest write.
    written: u64,
    /// For each `Ready` of the engine, the write that makes it durable: numbers of the write and of the `Ready`.
    readies: VecDeque<(u64, u64)>,
    /// Each `Ready` that is written and not reported as durable: its number and the bytes of its entries.
    unsynced: VecDeque<(u64, usize)>,
    unsynced_bytes: usize,
    /// Messages that may leave with the next turn.
    free: Vec<(MemberId, Step)>,
    /// The number of the `Ready` that contains the term or the vote, while it is not durable.
    voting: Option<u64>,
    /// The number of the `Ready` that installs a snapshot, while it is not durable.
    pub(super) installing: Option<u64>,
}

#[derive(Debug)]
struct Deferred {
    number: u64,
    steps: Vec<(MemberId, Step)>,
}

impl DeferredMessages {
    /// The number of the next write. `ready` is the `Ready` of the engine that this write makes durable.
    pub(super) fn next_number(&mut self, ready: Option<u64>) -> u64 {
        self.written += 1;
        self.readies.extend(ready.map(|ready| (self.written, ready)));
        self.written
    }

    /// Records that everything up to this write is durable. Returns the newest `Ready` of the engine that is
    /// durable with it.
    fn durable(&mut self, written: u64) -> Option<u64> {
        let mut newest = None;
        while let Some(&(_, ready)) = self.readies.front().filter(|front| front.0 <= written) {
            self.readies.pop_front();
            newest = Some(ready);
        }
        newest
    }

    pub(super) fn unsynced(&self) -> usize {
        self.unsynced.len()
    }

    /// Bytes of entries that are written and not reported as durable.
    pub(super) fn unsynced_bytes(&self) -> usize {
        self.unsynced_bytes
    }

    /// Whether even a leader must wait. Its entries may leave before they are durable here, but its term may not: a
    /// sole voter leads before its vote is durable, and after a crash could lead the same term again.
    pub(super) fn is_voting(&self) -> bool {
        self.voting.is_some() && !mutant!("leads_before_its_vote_is_durable")
    }

    /// Records that this `Ready` contains the term or the vote.
    pub(super) fn vote(&mut self, number: u64) {
        self.voting = Some(number);
    }

    /// Holds steps until this `Ready` and all before it are durable. Returns `true` if they are durable already.
    /// `writes` is the number of bytes of entries that the `Ready` writes, or `None` if it writes nothing.
    pub(super) fn hold(
        &mut self,
        number: u64,
        writes: Option<usize>,
        steps: Vec<(MemberId, Step)>,
    ) -> bool {
        if let Some(bytes) = writes {
            self.unsynced.push_back((number, bytes));
            self.unsynced_bytes += bytes;
        }
        if self.unsynced.is_empty() || mutant!("acknowledge_before_fsync") {
            self.free.extend(steps);
            return self.unsynced.is_empty();
        }
        self.waiting.push_back(Deferred { number, steps });
        false
    }

    /// Releases what waited for this `Ready`. Returns the newest `Ready` that the engine may treat as durable.
    fn release(&mut self, number: u64) -> u64 {
        while let Some(&(_, bytes)) = self.unsynced.front().filter(|front| front.0 <= number) {
            self.unsynced.pop_front();
            self.unsynced_bytes -= bytes;
        }
        let mut through = number;
        // A `Ready` that wrote nothing waits only for the writes before it.
        let next_write = self.unsynced.front().map_or(u64::MAX, |(number, _)| *number);
        while let Some(waiting) = self.waiting.front()
            && waiting.number < next_write
        {
            through = through.max(waiting.number);
            let waiting = self.waiting.pop_front();
            self.free.extend(waiting.into_iter().flat_map(|waiting| waiting.steps));
        }
        if self.voting.is_some_and(|voting| voting <= number) {
            self.voting = None;
        }
        if self.installing.is_some_and(|installing| installing <= number) {
            self.installing = None;
        }
        through
    }
}

impl Replica {
    pub(super) fn persisted(&mut self, number: u64) {
        let Some(number) = self.held.durable(number) else { return };
        let through = self.held.release(number);
        self.node.on_persist_ready(through);
        self.tell_engine_applied();
        #[cfg(mutants)]
        self.forge_acknowledgement();
    }

    /// Reports to the engine what was applied, as soon as the engine knows that it is durable. After a snapshot that is
    /// later.
    pub(super) fn tell_engine_applied(&mut self) {
        let log = &self.node.raft.raft_log;
        let applied = self.applied.index.min(log.persisted).min(log.committed);
        if applied > log.applied {
            self.node.advance_apply_to(applied);
        }
    }

    pub(super) fn send_free(&mut self, out: &mut Vec<ReplicaOutput>) {
        for (to, step) in std::mem::take(&mut self.held.free) {
            self.send(to, step, out);
        }
    }

    pub(super) fn send(&mut self, to: MemberId, mut step: Step, out: &mut Vec<ReplicaOutput>) {
        self.complete(&mut step);
        out.push(match step.kind {
            StepKind::Snapshot => ReplicaOutput::SendSnapshot { to, step: Box::new(step) },
            _ => ReplicaOutput::Send { to, message: Message::Step(Box::new(step)) },
        });
    }

    /// Planted bug: counts an acknowledgement of a follower that never answered.
    #[cfg(mutants)]
    fn forge_acknowledgement(&mut self) {
        if !mutant!("commit_on_minority") || !self.leads() {
            return;
        }
        let last = self.node.raft.raft_log.persisted;
        let liar = self.members.voters.iter().find(|id| **id != self.config.id).copied();
        let Some(liar) = liar else { return };
        let mut message = raft::eraftpb::Message {
            from: liar.get(),
            to: self.config.id.get(),
            term: self.node.raft.term,
            index: last,
            ..Default::default()
        };
        message.set_msg_type(raft::eraftpb::MessageType::MsgAppendResponse);
        let _ = self.node.step(message);
    }
}
