//! Receives snapshots: one at a time, and only from the newest leader.

use bytes::Bytes;
use tenure_raft::{Kind, MemberId, Step};
use tenure_store::SnapshotId;

use super::message::{Reason, Transfer};
use super::{Action, WINDOW_BYTES};

/// How long the replica may take to install a snapshot before an offer of the same one counts as new.
const INSTALL_US: u64 = 1_000_000;

/// The state of the replica, as the receiver needs it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct View {
    /// The replica's term.
    pub term: u64,
    /// The last entry that it has applied.
    pub applied: u64,
}

/// The transfer that this member receives.
#[derive(Debug, Default)]
pub struct Incoming {
    numbers: u64,
    receiving: Option<Receiving>,
    /// The last snapshot that was handed to the replica, and when.
    finished: Option<(SnapshotId, u64)>,
}

#[derive(Debug)]
struct Receiving {
    number: u64,
    from: MemberId,
    id: SnapshotId,
    step: Box<Step>,
    attempt: u64,
    phase: Phase,
    /// The offset before which everything was handed to the disk.
    taken: u64,
    /// The offset before which everything is written.
    written: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Opening,
    Taking,
    Finishing,
}

/// An offer as received.
struct Offer {
    from: MemberId,
    attempt: u64,
    id: SnapshotId,
    step: Box<Step>,
}

impl Incoming {
    /// Takes a message of a sender.
    pub fn handle(
        &mut self,
        from: MemberId,
        message: Transfer,
        view: View,
        now_us: u64,
        out: &mut Vec<Action>,
    ) {
        match message {
            Transfer::Offer { attempt, id, step } => {
                self.offered(Offer { from, attempt, id, step }, view, now_us, out);
            }
            Transfer::Chunk { id, offset, bytes, checksum }
                if Transfer::is_whole(&bytes, checksum) =>
            {
                self.chunk(from, id, offset, bytes, out);
            }
            _ => {}
        }
    }

    fn offered(&mut self, offer: Offer, view: View, now_us: u64, out: &mut Vec<Action>) {
        let Offer { from, attempt, id, ref step } = offer;
        let refuse = |reason| {
            let message = Transfer::Refused { attempt, id, reason };
            Action::Send { to: from, message }
        };
        let announced = step.snapshot.as_ref().map(|head| head.point);
        if step.kind != Kind::Snapshot || announced != Some(id.point) || id.bytes == 0 {
            return out.push(refuse(Reason::Malformed));
        }
        if step.term < view.term {
            return out.push(refuse(Reason::Stale));
        }
        if id.point.index <= view.applied {
            return out.push(Action::Send { to: from, message: Transfer::Done { id } });
        }
        let Some(current) = &mut self.receiving else {
            let installing = |(finished, at_us): (SnapshotId, u64)| {
                finished == id && now_us.saturating_sub(at_us) < INSTALL_US
            };
            if !self.finished.is_some_and(installing) {
                self.begin(offer, out);
            }
            return;
        };
        if step.term < current.step.term {
            return out.push(refuse(Reason::Stale));
        }
        let newer_leader = step.term > current.step.term;
        if !newer_leader && from == current.from && attempt < current.attempt {
            return;
        }
        if id == current.id {
            current.from = from;
            current.attempt = attempt;
            if current.phase != Phase::Finishing {
                current.step = offer.step;
            }
            return current.tell(out);
        }
        if current.phase == Phase::Finishing || !newer_leader && from != current.from {
            return out.push(refuse(Reason::Busy));
        }
        if current.from != from {
            let (attempt, id, reason) = (current.attempt, current.id, Reason::Stale);
            let message = Transfer::Refused { attempt, id, reason };
            out.push(Action::Send { to: current.from, message });
        }
        self.begin(offer, out);
    }

    fn begin(&mut self, offer: Offer, out: &mut Vec<Action>) {
        let Offer { from, attempt, id, step } = offer;
        self.numbers += 1;
        let number = self.numbers;
        let phase = Phase::Opening;
        let receiving = Receiving { number, from, id, step, attempt, phase, taken: 0, written: 0 };
        self.receiving = Some(receiving);
        out.push(Action::Open { number, id });
    }

    /// Takes a chunk if it is the next one: any other is a duplicate, or will be sent again.
    fn chunk(
        &mut self,
        from: MemberId,
        id: SnapshotId,
        offset: u64,
        bytes: Bytes,
        out: &mut Vec<Action>,
    ) {
        let Some(current) = &mut self.receiving else { return };
        if current.phase != Phase::Taking || current.id != id || current.from != from {
            return;
        }
        let Some(after) = current.taken.checked_add(bytes.len() as u64) else { return };
        let next =
            offset == current.taken || mutant!("chunk_accepted_twice") && offset < current.taken;
        let room = after - current.written <= 2 * WINDOW_BYTES;
        if !next || bytes.is_empty() || after > id.bytes || !room {
            return;
        }
        let (number, offset) = (current.number, current.taken);
        current.taken = after;
        out.push(Action::Write { number, id, offset, bytes });
    }

    /// Takes the disk's report, after the file was opened and after every write: everything before `have` is written.
    pub fn written(&mut self, number: u64, have: u64, out: &mut Vec<Action>) {
        let Some(current) = self.receiving.as_mut().filter(|it| it.number == number) else {
            return;
        };
        match current.phase {
            Phase::Opening if have <= current.id.bytes => {
                current.phase = Phase::Taking;
                current.taken = have;
            }
            Phase::Taking if have <= current.taken && have >= current.written => {}
            Phase::Opening | Phase::Taking => return self.failed(number, Reason::Disk, out),
            Phase::Finishing => return,
        }
        current.written = have;
        current.tell(out);
        if have == current.id.bytes {
            current.phase = Phase::Finishing;
            let Receiving { from, id, ref step, .. } = *current;
            out.push(Action::Finish { number, from, id, step: step.clone() });
        }
    }

    /// Ends the transfer: the disk cannot take it, or the whole snapshot cannot be used.
    pub fn failed(&mut self, number: u64, reason: Reason, out: &mut Vec<Action>) {
        if let Some(current) = self.receiving.take_if(|it| it.number == number) {
            let Receiving { from, attempt, id, .. } = current;
            let message = Transfer::Refused { attempt, id, reason };
            out.push(Action::Send { to: from, message });
        }
    }

    /// Completes the transfer: the whole was verified and handed to the replica.
    pub fn received(&mut self, id: SnapshotId, now_us: u64, out: &mut Vec<Action>) {
        let finishing = |it: &mut Receiving| it.id == id && it.phase == Phase::Finishing;
        if let Some(current) = self.receiving.take_if(finishing) {
            self.finished = Some((id, now_us));
            out.push(Action::Send { to: current.from, message: Transfer::Done { id } });
        }
    }

    /// The snapshot that is being verified.
    pub fn finishing(&self) -> Option<SnapshotId> {
        self.receiving.as_ref().filter(|it| it.phase == Phase::Finishing).map(|it| it.id)
    }
}

impl Receiving {
    /// Sends the offset before which everything is written to the sender.
    fn tell(&self, out: &mut Vec<Action>) {
        let offset = match self.phase {
            // It is sent once the file is open.
            Phase::Opening => return,
            Phase::Taking => self.written,
            Phase::Finishing => self.id.bytes,
        };
        let message = Transfer::Have { attempt: self.attempt, id: self.id, offset };
        out.push(Action::Send { to: self.from, message });
    }
}
