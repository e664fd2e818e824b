//! Keeps reads until the machine may be asked, and gives them up in time.

use std::collections::BTreeMap;

use tenure_raft::{Input as RaftInput, Ticket};

use crate::failure::Failure;
use crate::io::{Fresh, Output, ReadId};
use crate::node::Node;
use crate::principal::{Action, Principal, authorise};

/// Before a read that failed is tried again.
const PAUSE_US: u64 = 20_000;

/// Reads that wait.
#[derive(Default)]
pub(crate) struct Reads {
    waiting: BTreeMap<Ticket, Read>,
}

struct Read {
    read: ReadId,
    fresh: Fresh,
    deadline_us: u64,
    /// When it is looked at again.
    due_us: u64,
    /// Whether the replica was asked and has not answered.
    asked: bool,
}

impl Reads {
    pub(crate) fn is_known(&self, ticket: Ticket) -> bool {
        self.waiting.contains_key(&ticket)
    }
}

impl Node {
    /// Takes a read.
    pub(crate) fn read(
        &mut self,
        read: ReadId,
        principal: &Principal,
        fresh: Fresh,
        deadline_us: u64,
    ) {
        let expired = self.now_us >= deadline_us;
        let refused = authorise(principal.name(), Action::Read).err();
        if let Some(failure) = refused.or(expired.then_some(Failure::Expired)) {
            return self.staged.push(Output::ReadFailed { read, failure });
        }
        match fresh {
            Fresh::Stale => return self.staged.push(Output::ReadReady { read }),
            Fresh::Now if self.is_abandoned() => {
                return self.staged.push(Output::ReadFailed { read, failure: Failure::NoLeader });
            }
            Fresh::Now | Fresh::AtLeast(_) => {}
        }
        self.ask(Read { read, fresh, deadline_us, due_us: 0, asked: false });
    }

    fn ask(&mut self, mut read: Read) {
        let ticket = self.in_flight.number();
        read.due_us = match read.fresh {
            Fresh::Now => self.give_up_us(read.deadline_us),
            Fresh::Stale | Fresh::AtLeast(_) => read.deadline_us,
        };
        if read.fresh == Fresh::Now {
            read.asked = true;
            self.replica.handle(RaftInput::Read { ticket });
            self.again = true;
            if mutant!("read_answered_before_its_index") {
                self.staged.push(Output::ReadReady { read: read.read });
                return;
            }
        }
        self.timers.set(read.due_us, ticket.0);
        self.reads.waiting.insert(ticket, read);
    }

    fn take_read(&mut self, ticket: Ticket) -> Option<Read> {
        let read = self.reads.waiting.remove(&ticket)?;
        self.timers.cancel(read.due_us, ticket.0);
        Some(read)
    }

    /// A quorum has confirmed the leader, and everything acknowledged before the read came is applied.
    pub(crate) fn read_confirmed(&mut self, ticket: Ticket) {
        if let Some(Read { read, .. }) = self.take_read(ticket) {
            self.staged.push(Output::ReadReady { read });
        }
    }

    /// No quorum has confirmed the leader: tries again after a pause.
    pub(crate) fn read_failed(&mut self, ticket: Ticket) {
        let Some(mut read) = self.take_read(ticket) else { return };
        read.asked = false;
        read.due_us = self.now_us.saturating_add(PAUSE_US).min(read.deadline_us);
        let ticket = self.in_flight.number();
        self.timers.set(read.due_us, ticket.0);
        self.reads.waiting.insert(ticket, read);
    }

    /// A read's moment has come: to try again, or to give up.
    pub(crate) fn read_due(&mut self, ticket: Ticket) {
        let Some(read) = self.take_read(ticket) else { return };
        let late = self.now_us >= read.deadline_us;
        let failure = match read.fresh {
            Fresh::Now if late || self.is_abandoned() => self.no_leader(),
            Fresh::Now => return self.ask(read),
            // The state needs no other member; only this one was too slow.
            Fresh::Stale | Fresh::AtLeast(_) => Failure::Expired,
        };
        self.staged.push(Output::ReadFailed { read: read.read, failure });
    }

    /// Serves reads that waited for a revision which is here now.
    pub(crate) fn serve_reads(&mut self, out: &mut Vec<Output>) {
        out.append(&mut self.staged);
        let revision = self.replica.machine().revision();
        let ready = |read: &Read| matches!(read.fresh, Fresh::AtLeast(least) if least <= revision);
        let there = self.reads.waiting.iter().filter(|(_, read)| ready(read));
        let tickets: Vec<Ticket> = there.map(|(ticket, _)| *ticket).collect();
        for ticket in tickets {
            if let Some(Read { read, .. }) = self.take_read(ticket) {
                out.push(Output::ReadReady { read });
            }
        }
    }

    /// The member ends: no read is served any more.
    pub(crate) fn end_reads(&mut self) {
        for (ticket, read) in std::mem::take(&mut self.reads.waiting) {
            self.timers.cancel(read.due_us, ticket.0);
            let failure = Failure::Stopping;
            self.staged.push(Output::ReadFailed { read: read.read, failure });
        }
    }
}
