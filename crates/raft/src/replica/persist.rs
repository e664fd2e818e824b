//! What must wait until something is durable?

use std::collections::VecDeque;

use super::Replica;
use crate::io::Output;
use crate::member::MemberId;
use crate::message::{Kind, Message, Step};

/// Messages that wait for the disk, in the order in which they must leave.
#[derive(Debug, Default)]
pub(super) struct Held {
    waiting: VecDeque<Waiting>,
    /// The number of the newest write.
    written: u64,
    /// Which write makes which ready of the engine durable.
    readies: VecDeque<(u64, u64)>,
    /// Written, not reported: number and bytes.
    unsynced: VecDeque<(u64, usize)>,
    unsynced_bytes: usize,
    /// Free to leave with the next turn.
    free: Vec<(MemberId, Step)>,
    /// The term or the vote is being written by the write of this number.
    voting: Option<u64>,
    /// A snapshot is being installed by the write of this number.
    pub(super) installing: Option<u64>,
}

#[derive(Debug)]
struct Waiting {
    number: u64,
    steps: Vec<(MemberId, Step)>,
}

impl Held {
    /// The number of the next write, after which this ready of the engine is durable.
    pub(super) fn next_number(&mut self, ready: Option<u64>) -> u64 {
        self.written += 1;
        self.readies.extend(ready.map(|ready| (self.written, ready)));
        self.written
    }

    /// Everything up to this write is durable: up to which ready of the engine that is.
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

    /// Bytes of entries written and not reported.
    pub(super) fn unsynced_bytes(&self) -> usize {
        self.unsynced_bytes
    }

    /// Whether even a leader must wait. Its entries may leave before they are durable here, its term
    /// may not: a member that votes for itself alone leads before its disk knows, and could lead the
    /// same term again.
    pub(super) fn is_voting(&self) -> bool {
        self.voting.is_some() && !mutant!("leads_before_its_vote_is_durable")
    }

    /// The term or the vote is written by this ready.
    pub(super) fn vote(&mut self, number: u64) {
        self.voting = Some(number);
    }

    /// What leaves after this ready and all before it are durable. `true` if that is so already.
    /// `writes` says how many bytes of entries it writes, if anything at all.
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
        self.waiting.push_back(Waiting { number, steps });
        false
    }

    /// Everything up to this write is durable: up to which ready the engine may be told so.
    fn release(&mut self, number: u64) -> u64 {
        while let Some(&(_, bytes)) = self.unsynced.front().filter(|front| front.0 <= number) {
            self.unsynced.pop_front();
            self.unsynced_bytes -= bytes;
        }
        let mut through = number;
        // What wrote nothing itself waits only for the writes before it.
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

    /// The engine is told what was applied as soon as it knows that this is durable; after a
    /// snapshot that is later.
    pub(super) fn tell_engine_applied(&mut self) {
        let log = &self.node.raft.raft_log;
        let applied = self.applied.index.min(log.persisted).min(log.committed);
        if applied > log.applied {
            self.node.advance_apply_to(applied);
        }
    }

    pub(super) fn send_free(&mut self, out: &mut Vec<Output>) {
        for (to, step) in std::mem::take(&mut self.held.free) {
            self.send(to, step, out);
        }
    }

    pub(super) fn send(&mut self, to: MemberId, mut step: Step, out: &mut Vec<Output>) {
        self.complete(&mut step);
        out.push(match step.kind {
            Kind::Snapshot => Output::SendSnapshot { to, step },
            _ => Output::Send { to, message: Message::Step(step) },
        });
    }

    /// The planted bug of counting one follower's disk that never answered.
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
