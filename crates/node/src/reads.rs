//! Keeps reads until the machine may be queried, and gives them up in time.

use std::collections::BTreeMap;

use tenure_raft::{ProposalId, ReplicaInput as RaftInput};

use crate::failure::NodeFailure;
use crate::io::{Output, ReadConsistency, ReadId};
use crate::node::Node;
use crate::principal::{Principal, PrincipalAction, authorise};

/// Before a read that failed is tried again.
const PAUSE_US: u64 = 20_000;

/// Reads that wait.
#[derive(Default)]
pub(crate) struct WaitingReads {
    waiting: BTreeMap<ProposalId, Read>,
}

struct Read {
    read: ReadId,
    fresh: ReadConsistency,
    deadline_us: u64,
    /// The time at which the read is handled again.
    due_us: u64,
    /// Whether the replica was asked and has not answered.
    asked: bool,
}

impl WaitingReads {
    pub(crate) fn is_known(&self, proposal: ProposalId) -> bool {
        self.waiting.contains_key(&proposal)
    }
}

impl Node {
    /// Takes a read.
    pub(crate) fn read(
        &mut self,
        read: ReadId,
        principal: &Principal,
        fresh: ReadConsistency,
        deadline_us: u64,
    ) {
        let expired = self.now_us >= deadline_us;
        // What the read itself requires is decided by the state that it sees.
        let access = self.replica.machine().access();
        let refused = authorise(access, principal.name(), PrincipalAction::Enter).err();
        if let Some(failure) = refused.or(expired.then_some(NodeFailure::Expired)) {
            return self.staged.push(Output::ReadFailed { read, failure });
        }
        match fresh {
            ReadConsistency::Stale => return self.staged.push(Output::ReadReady { read }),
            ReadConsistency::Linearizable if self.is_abandoned() => {
                return self
                    .staged
                    .push(Output::ReadFailed { read, failure: NodeFailure::NoLeader });
            }
            ReadConsistency::Linearizable | ReadConsistency::AtLeast(_) => {}
        }
        self.ask(Read { read, fresh, deadline_us, due_us: 0, asked: false });
    }

    fn ask(&mut self, mut read: Read) {
        let proposal = self.in_flight.number();
        read.due_us = match read.fresh {
            ReadConsistency::Linearizable => self.give_up_us(read.deadline_us),
            ReadConsistency::Stale | ReadConsistency::AtLeast(_) => read.deadline_us,
        };
        if read.fresh == ReadConsistency::Linearizable {
            read.asked = true;
            self.replica.handle(RaftInput::Read { proposal });
            self.again = true;
            if mutant!("read_answered_before_its_index") {
                self.staged.push(Output::ReadReady { read: read.read });
                return;
            }
        }
        self.timers.set(read.due_us, proposal.0);
        self.reads.waiting.insert(proposal, read);
    }

    fn take_read(&mut self, proposal: ProposalId) -> Option<Read> {
        let read = self.reads.waiting.remove(&proposal)?;
        self.timers.cancel(read.due_us, proposal.0);
        Some(read)
    }

    /// A quorum has confirmed the leader, and everything acknowledged before the read came is applied.
    pub(crate) fn read_confirmed(&mut self, proposal: ProposalId) {
        if let Some(Read { read, .. }) = self.take_read(proposal) {
            self.staged.push(Output::ReadReady { read });
        }
    }

    /// Schedules another attempt after a pause: no quorum has confirmed the leader.
    pub(crate) fn read_failed(&mut self, proposal: ProposalId) {
        let Some(mut read) = self.take_read(proposal) else { return };
        read.asked = false;
        read.due_us = self.now_us.saturating_add(PAUSE_US).min(read.deadline_us);
        let proposal = self.in_flight.number();
        self.timers.set(read.due_us, proposal.0);
        self.reads.waiting.insert(proposal, read);
    }

    /// Handles the timer of a read: tries again or gives up.
    pub(crate) fn read_due(&mut self, proposal: ProposalId) {
        let Some(read) = self.take_read(proposal) else { return };
        let late = self.now_us >= read.deadline_us;
        let failure = match read.fresh {
            ReadConsistency::Linearizable if late || self.is_abandoned() => self.no_leader(),
            ReadConsistency::Linearizable => return self.ask(read),
            // The state needs no other member; only this one was too slow.
            ReadConsistency::Stale | ReadConsistency::AtLeast(_) => NodeFailure::Expired,
        };
        self.staged.push(Output::ReadFailed { read: read.read, failure });
    }

    /// Serves reads that waited for a revision which is here now.
    pub(crate) fn serve_reads(&mut self, out: &mut Vec<Output>) {
        out.append(&mut self.staged);
        let revision = self.replica.machine().revision();
        let ready = |read: &Read| matches!(read.fresh, ReadConsistency::AtLeast(least) if least <= revision);
        let there = self.reads.waiting.iter().filter(|(_, read)| ready(read));
        let proposals: Vec<ProposalId> = there.map(|(proposal, _)| *proposal).collect();
        for proposal in proposals {
            if let Some(Read { read, .. }) = self.take_read(proposal) {
                out.push(Output::ReadReady { read });
            }
        }
    }

    /// Fails every read when the member ends.
    pub(crate) fn end_reads(&mut self) {
        for (proposal, read) in std::mem::take(&mut self.reads.waiting) {
            self.timers.cancel(read.due_us, proposal.0);
            let failure = NodeFailure::Stopping;
            self.staged.push(Output::ReadFailed { read: read.read, failure });
        }
    }
}
