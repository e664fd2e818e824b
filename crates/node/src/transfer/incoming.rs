//! Receives snapshots: one at a time, and only from the newest leader.

use bytes::Bytes;
use tenure_raft::{MemberId, Step, StepKind};
use tenure_store::SnapshotId;

use super::message::{TransferMessage, TransferRefusal};
use super::{TransferAction, WINDOW_BYTES};

/// How long the replica may take to install a snapshot before an offer of the same one counts as new.
const INSTALL_US: u64 = 1_000_000;

/// The state of the replica, as the receiver needs it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplicaView {
    /// The replica's term.
    pub term: u64,
    /// The last entry that it has applied.
    pub applied: u64,
}

/// The transfer that this member receives.
#[derive(Debug, Default)]
pub struct IncomingTransfer {
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
    phase: ReceivePhase,
    /// The offset before which everything was handed to the disk.
    taken: u64,
    /// The offset before which everything is written.
    written: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ReceivePhase {
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

impl IncomingTransfer {
    /// Takes a message of a sender.
    pub fn handle(
        &mut self,
        from: MemberId,
        message: TransferMessage,
        view: ReplicaView,
        now_us: u64,
        out: &mut Vec<TransferAction>,
    ) {
        match message {
            TransferMessage::Offer { attempt, id, step } => {
                self.offered(Offer { from, attempt, id, step }, view, now_us, out);
            }
            TransferMessage::Chunk { id, offset, bytes, checksum }
                if TransferMessage::is_whole(&bytes, checksum) =>
            {
                self.chunk(from, id, offset, bytes, out);
            }
            _ => {}
        }
    }

    fn offered(
        &mut self,
        offer: Offer,
        view: ReplicaView,
        now_us: u64,
        out: &mut Vec<TransferAction>,
    ) {
        let Offer { from, attempt, id, ref step } = offer;
        let refuse = |reason| {
            let message = TransferMessage::Refused { attempt, id, reason };
            TransferAction::Send { to: from, message }
        };
        let announced = step.snapshot.as_ref().map(|head| head.point);
        if step.kind != StepKind::Snapshot || announced != Some(id.point) || id.bytes == 0 {
            return out.push(refuse(TransferRefusal::Malformed));
        }
        if step.term < view.term {
            return out.push(refuse(TransferRefusal::Stale));
        }
        if id.point.index <= view.applied {
            return out
                .push(TransferAction::Send { to: from, message: TransferMessage::Done { id } });
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
            return out.push(refuse(TransferRefusal::Stale));
        }
        let newer_leader = step.term > current.step.term;
        if !newer_leader && from == current.from && attempt < current.attempt {
            return;
        }
        if id == current.id {
            current.from = from;
            current.attempt = attempt;
            if current.phase != ReceivePhase::Finishing {
                current.step = offer.step;
            }
            return current.tell(out);
        }
        if current.phase == ReceivePhase::Finishing || !newer_leader && from != current.from {
            return out.push(refuse(TransferRefusal::Busy));
        }
        if current.from != from {
            let (attempt, id, reason) = (current.attempt, current.id, TransferRefusal::Stale);
            let message = TransferMessage::Refused { attempt, id, reason };
            out.push(TransferAction::Send { to: current.from, message });
        }
        self.begin(offer, out);
    }

    fn begin(&mut self, offer: Offer, out: &mut Vec<TransferAction>) {
        let Offer { from, attempt, id, step } = offer;
        self.numbers += 1;
        let number = self.numbers;
        let phase = ReceivePhase::Opening;
        let receiving = Receiving { number, from, id, step, attempt, phase, taken: 0, written: 0 };
        self.receiving = Some(receiving);
        out.push(TransferAction::Open { number, id });
    }

    /// Takes a chunk if it is the next one: any other is a duplicate, or will be sent again.
    fn chunk(
        &mut self,
        from: MemberId,
        id: SnapshotId,
        offset: u64,
        bytes: Bytes,
        out: &mut Vec<TransferAction>,
    ) {
        let Some(current) = &mut self.receiving else { return };
        if current.phase != ReceivePhase::Taking || current.id != id || current.from != from {
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
        out.push(TransferAction::Write { number, id, offset, bytes });
    }

    /// Takes the disk's report, after the file was opened and after every write: everything before `have` is written.
    pub fn written(&mut self, number: u64, have: u64, out: &mut Vec<TransferAction>) {
        let Some(current) = self.receiving.as_mut().filter(|it| it.number == number) else {
            return;
        };
        match current.phase {
            ReceivePhase::Opening if have <= current.id.bytes => {
                current.phase = ReceivePhase::Taking;
                current.taken = have;
            }
            ReceivePhase::Taking if have <= current.taken && have >= current.written => {}
            ReceivePhase::Opening | ReceivePhase::Taking => {
                return self.failed(number, TransferRefusal::Disk, out);
            }
            ReceivePhase::Finishing => return,
        }
        current.written = have;
        current.tell(out);
        if have == current.id.bytes {
            current.phase = ReceivePhase::Finishing;
            let Receiving { from, id, ref step, .. } = *current;
            out.push(TransferAction::Finish { number, from, id, step: step.clone() });
        }
    }

    /// Ends the transfer: the disk cannot take it, or the whole snapshot cannot be used.
    pub fn failed(&mut self, number: u64, reason: TransferRefusal, out: &mut Vec<TransferAction>) {
        if let Some(current) = self.receiving.take_if(|it| it.number == number) {
            let Receiving { from, attempt, id, .. } = current;
            let message = TransferMessage::Refused { attempt, id, reason };
            out.push(TransferAction::Send { to: from, message });
        }
    }

    /// Completes the transfer: the whole was verified and handed to the replica.
    pub fn received(&mut self, id: SnapshotId, now_us: u64, out: &mut Vec<TransferAction>) {
        let finishing = |it: &mut Receiving| it.id == id && it.phase == ReceivePhase::Finishing;
        if let Some(current) = self.receiving.take_if(finishing) {
            self.finished = Some((id, now_us));
            out.push(TransferAction::Send {
                to: current.from,
                message: TransferMessage::Done { id },
            });
        }
    }

    /// The snapshot that is being verified.
    pub fn finishing(&self) -> Option<SnapshotId> {
        self.receiving.as_ref().filter(|it| it.phase == ReceivePhase::Finishing).map(|it| it.id)
    }
}

impl Receiving {
    /// Sends the offset before which everything is written to the sender.
    fn tell(&self, out: &mut Vec<TransferAction>) {
        let offset = match self.phase {
            // It is sent once the file is open.
            ReceivePhase::Opening => return,
            ReceivePhase::Taking => self.written,
            ReceivePhase::Finishing => self.id.bytes,
        };
        let message = TransferMessage::Have { attempt: self.attempt, id: self.id, offset };
        out.push(TransferAction::Send { to: self.from, message });
    }
}
