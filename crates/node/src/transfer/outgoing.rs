//! Sends snapshots: one at a time to each member.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use tenure_raft::{MemberId, Step};
use tenure_store::{LogId, SnapshotId};

use super::message::TransferMessage;
use super::{CHUNK_BYTES, SnapshotUnreadable, TransferAction, TransferEnd, WINDOW_CHUNKS};

/// How long nothing moves before the sender asks again where the receiver is. It doubles with every fruitless
/// question, so that a link slower than expected is not filled with repetitions.
const RESYNC_MIN_US: u64 = 1_000_000;
const RESYNC_MAX_US: u64 = 8_000_000;
/// How long a receiver may say nothing, also while its link is down.
const SILENCE_US: u64 = 30_000_000;
/// How long a transfer may stand still although the receiver answers. It verifies the whole in that time.
const STALL_US: u64 = 120_000_000;

/// The transfers that this member sends.
#[derive(Debug)]
pub struct OutgoingTransfers {
    chunk_bytes: u64,
    attempts: u64,
    sends: BTreeMap<MemberId, Sending>,
}

#[derive(Debug)]
struct Sending {
    step: Box<Step>,
    point: LogId,
    phase: SendPhase,
    linked: bool,
    attempt: u64,
    /// The offset before which the receiver has everything.
    acked: u64,
    /// The offset before which everything was read or is being read.
    next: u64,
    reading: BTreeSet<u64>,
    heard_us: u64,
    moved_us: u64,
    resync_us: u64,
    pause_us: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SendPhase {
    /// The disk is looking for the snapshot.
    Finding,
    /// The receiver was asked where it is.
    Offered(SnapshotId),
    /// The receiver has answered.
    Sending(SnapshotId),
}

impl SendPhase {
    fn id(self) -> Option<SnapshotId> {
        match self {
            SendPhase::Finding => None,
            SendPhase::Offered(id) | SendPhase::Sending(id) => Some(id),
        }
    }
}

impl Default for OutgoingTransfers {
    fn default() -> Self {
        Self::new(CHUNK_BYTES)
    }
}

impl OutgoingTransfers {
    /// Sends this many bytes in one message, [`CHUNK_BYTES`] at most, as receivers bound what is on its way.
    pub fn new(chunk_bytes: u64) -> Self {
        let chunk_bytes = chunk_bytes.clamp(1, CHUNK_BYTES);
        Self { chunk_bytes, attempts: 0, sends: BTreeMap::new() }
    }

    /// Begins to send the snapshot that the step announces. There must be a link to the receiver.
    pub fn start(&mut self, to: MemberId, step: Step, now_us: u64, out: &mut Vec<TransferAction>) {
        let Some(point) = step.snapshot.as_ref().map(|head| head.point) else { return };
        if let Some(sending) = self.sends.get_mut(&to)
            && sending.point == point
        {
            *sending.step = step;
            return self.offer(to, now_us, out);
        }
        let sending = Sending {
            step: Box::new(step),
            point,
            phase: SendPhase::Finding,
            linked: true,
            attempt: 0,
            acked: 0,
            next: 0,
            reading: BTreeSet::new(),
            heard_us: now_us,
            moved_us: now_us,
            resync_us: u64::MAX,
            pause_us: RESYNC_MIN_US,
        };
        self.sends.insert(to, sending);
        out.push(TransferAction::Find { to, point });
    }

    /// Takes the disk's answer to [`TransferAction::Find`].
    pub fn found(
        &mut self,
        to: MemberId,
        point: LogId,
        id: Option<SnapshotId>,
        now_us: u64,
        out: &mut Vec<TransferAction>,
    ) {
        let Some(sending) = self.sends.get_mut(&to) else { return };
        if sending.phase != SendPhase::Finding || sending.point != point {
            return;
        }
        match id.filter(|id| id.point == point && id.bytes > 0) {
            Some(id) => {
                sending.phase = SendPhase::Offered(id);
                self.offer(to, now_us, out);
            }
            None => self.end(to, TransferEnd::Damaged, out),
        }
    }

    /// Takes a part that the disk has read, or the reason why it could not.
    pub fn read(
        &mut self,
        to: MemberId,
        id: SnapshotId,
        offset: u64,
        bytes: Result<Bytes, SnapshotUnreadable>,
        out: &mut Vec<TransferAction>,
    ) {
        let Some(sending) = self.sends.get_mut(&to) else { return };
        if sending.phase != SendPhase::Sending(id) || !sending.reading.remove(&offset) {
            return;
        }
        let expected = self.chunk_bytes.min(id.bytes.saturating_sub(offset));
        match bytes {
            Ok(bytes) if bytes.len() as u64 == expected => {
                let message = TransferMessage::chunk(id, offset, bytes);
                out.push(TransferAction::Send { to, message });
            }
            Ok(_) | Err(SnapshotUnreadable::Damaged) => self.end(to, TransferEnd::Damaged, out),
            Err(SnapshotUnreadable::Failed) => self.end(to, TransferEnd::Unreadable, out),
        }
    }

    /// Takes a message of a receiver.
    pub fn handle(
        &mut self,
        from: MemberId,
        message: &TransferMessage,
        now_us: u64,
        out: &mut Vec<TransferAction>,
    ) {
        let Some(sending) = self.sends.get_mut(&from) else { return };
        let Some(ours) = sending.phase.id() else { return };
        match *message {
            TransferMessage::Done { id } if id == ours => self.end(from, TransferEnd::Arrived, out),
            TransferMessage::Refused { attempt, id, reason }
                if id == ours && attempt == sending.attempt =>
            {
                self.end(from, TransferEnd::Refused(reason), out);
            }
            TransferMessage::Have { attempt, id, offset }
                if id == ours && attempt == sending.attempt && offset <= id.bytes =>
            {
                sending.has(id, offset, now_us);
                sending.fill(from, id, self.chunk_bytes, out);
            }
            _ => {}
        }
    }

    /// Resumes a transfer over a new link to this member.
    pub fn linked(&mut self, member: MemberId, now_us: u64, out: &mut Vec<TransferAction>) {
        if let Some(sending) = self.sends.get_mut(&member) {
            sending.linked = true;
            sending.pause_us = RESYNC_MIN_US;
            self.offer(member, now_us, out);
        }
    }

    /// Suspends a transfer whose link is gone. It continues if there is a new link in time.
    pub fn unlinked(&mut self, member: MemberId) {
        if let Some(sending) = self.sends.get_mut(&member) {
            sending.linked = false;
        }
    }

    /// Ends the transfers of other terms than `term`, or all: this member does not lead in their terms.
    pub fn end_others(&mut self, term: Option<u64>, out: &mut Vec<TransferAction>) {
        let ended = |sending: &Sending| term != Some(sending.step.term);
        let others = self.sends.iter().filter(|(_, sending)| ended(sending));
        let others: Vec<MemberId> = others.map(|(to, _)| *to).collect();
        for to in others {
            self.end(to, TransferEnd::NotLeading, out);
        }
    }

    /// Executes what is due.
    pub fn turn(&mut self, now_us: u64, out: &mut Vec<TransferAction>) {
        let members: Vec<MemberId> = self.sends.keys().copied().collect();
        for to in members {
            let Some(sending) = self.sends.get_mut(&to) else { continue };
            if now_us >= sending.heard_us.saturating_add(SILENCE_US) {
                self.end(to, TransferEnd::Silent, out);
            } else if now_us >= sending.moved_us.saturating_add(STALL_US) {
                self.end(to, TransferEnd::Stalled, out);
            } else if sending.is_stuck(now_us) {
                sending.pause_us = sending.pause_us.saturating_mul(2).min(RESYNC_MAX_US);
                self.offer(to, now_us, out);
            }
        }
    }

    /// The latest time at which the next turn is due.
    pub fn wake_us(&self) -> u64 {
        let wake_us = |sending: &Sending| {
            let ends_us = (sending.heard_us.saturating_add(SILENCE_US))
                .min(sending.moved_us.saturating_add(STALL_US));
            if sending.may_resync() { ends_us.min(sending.resync_us) } else { ends_us }
        };
        self.sends.values().map(wake_us).min().unwrap_or(u64::MAX)
    }

    /// Whether no snapshot is on its way.
    pub fn is_idle(&self) -> bool {
        self.sends.is_empty()
    }

    /// Whether a snapshot is on its way to this member.
    pub fn is_sending(&self, to: MemberId) -> bool {
        self.sends.contains_key(&to)
    }

    /// Asks the receiver where it is. What is being read for the attempt before is not sent.
    fn offer(&mut self, to: MemberId, now_us: u64, out: &mut Vec<TransferAction>) {
        let Some(sending) = self.sends.get_mut(&to) else { return };
        let Some(id) = sending.phase.id().filter(|_| sending.linked) else { return };
        self.attempts += 1;
        sending.attempt = self.attempts;
        sending.phase = SendPhase::Offered(id);
        sending.reading.clear();
        sending.resync_us = now_us.saturating_add(sending.pause_us);
        let (attempt, step) = (sending.attempt, sending.step.clone());
        out.push(TransferAction::Send {
            to,
            message: TransferMessage::Offer { attempt, id, step },
        });
    }

    fn end(&mut self, to: MemberId, ending: TransferEnd, out: &mut Vec<TransferAction>) {
        if let Some(sending) = self.sends.remove(&to) {
            out.push(TransferAction::Report { to, point: sending.point, ending });
        }
    }
}

impl Sending {
    /// The receiver has everything before this offset.
    fn has(&mut self, id: SnapshotId, offset: u64, now_us: u64) {
        self.heard_us = now_us;
        match self.phase {
            SendPhase::Finding => return,
            // The first answer of an attempt counts as it is: a receiver that was started again may have less.
            SendPhase::Offered(_) => {
                self.phase = SendPhase::Sending(id);
                if offset != self.acked {
                    self.moved_us = now_us;
                }
                self.acked = offset;
                self.next = offset;
            }
            SendPhase::Sending(_) if offset > self.acked => {
                self.moved_us = now_us;
                self.acked = offset;
                self.next = self.next.max(offset);
            }
            SendPhase::Sending(_) => return,
        }
        self.resync_us = now_us.saturating_add(self.pause_us);
    }

    /// Reads as much as may be on its way.
    fn fill(
        &mut self,
        to: MemberId,
        id: SnapshotId,
        chunk_bytes: u64,
        out: &mut Vec<TransferAction>,
    ) {
        while self.next < id.bytes && self.next - self.acked < WINDOW_CHUNKS * chunk_bytes {
            let (offset, len) = (self.next, chunk_bytes.min(id.bytes - self.next));
            self.reading.insert(offset);
            self.next += len;
            out.push(TransferAction::Read { to, id, offset, len });
        }
    }

    /// While the disk reads, the transfer is not stuck, however long that takes.
    fn may_resync(&self) -> bool {
        self.linked && self.phase != SendPhase::Finding && self.reading.is_empty()
    }

    fn is_stuck(&self, now_us: u64) -> bool {
        self.may_resync() && now_us >= self.resync_us
    }
}
