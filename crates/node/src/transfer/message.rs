//! Encodes and decodes the messages of a transfer.

use bytes::{Buf, BufMut, Bytes};
use tenure_raft::{Message, Step};
use tenure_store::{LogId, SnapshotId};
use xxhash_rust::xxh3::xxh3_64;

pub(crate) const OFFER: u8 = 0xc5;
pub(crate) const HAVE: u8 = 0xc6;
pub(crate) const CHUNK: u8 = 0xc7;
pub(crate) const DONE: u8 = 0xc8;
pub(crate) const REFUSED: u8 = 0xc9;

/// A message between the two ends of a transfer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TransferMessage {
    /// The sender has this snapshot for the receiver. The sender repeats the offer as a new attempt whenever it needs
    /// the receiver's offset.
    Offer {
        /// The sender's number for the attempt. Later ones are larger.
        attempt: u64,
        /// The snapshot.
        id: SnapshotId,
        /// The step that announces it.
        step: Box<Step>,
    },
    /// The receiver has written the snapshot up to here.
    Have {
        /// The newest attempt that it knows of.
        attempt: u64,
        /// The snapshot.
        id: SnapshotId,
        /// The first byte that it lacks.
        offset: u64,
    },
    /// A part of the snapshot.
    Chunk {
        /// The snapshot.
        id: SnapshotId,
        /// The offset of the bytes.
        offset: u64,
        /// The bytes.
        bytes: Bytes,
        /// Their checksum.
        checksum: u64,
    },
    /// The receiver has the snapshot, or a newer state.
    Done {
        /// The snapshot.
        id: SnapshotId,
    },
    /// The receiver does not take the snapshot, or cannot use it.
    Refused {
        /// The newest attempt that it knows of.
        attempt: u64,
        /// The snapshot.
        id: SnapshotId,
        /// The reason.
        reason: TransferRefusal,
    },
}

/// Why a receiver refuses a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TransferRefusal {
    /// The sender no longer leads.
    #[error("a newer leader is known")]
    Stale,
    /// Another snapshot is arriving.
    #[error("another snapshot is arriving")]
    Busy,
    /// The offer contradicts itself.
    #[error("the offer is malformed")]
    Malformed,
    /// The receiver's disk failed or is full.
    #[error("its disk cannot take it")]
    Disk,
    /// The whole snapshot does not match its checksums.
    #[error("it is damaged")]
    Damaged,
    /// The state in it is of a level that the receiver does not know.
    #[error("its level is not known there")]
    Outgrown,
}

impl TransferMessage {
    /// A part of a snapshot, with its checksum.
    pub fn chunk(id: SnapshotId, offset: u64, bytes: Bytes) -> Self {
        let checksum = xxh3_64(&bytes);
        TransferMessage::Chunk { id, offset, bytes, checksum }
    }

    /// Whether the bytes match the checksum.
    pub(super) fn is_whole(bytes: &[u8], checksum: u64) -> bool {
        xxh3_64(bytes) == checksum
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        match self {
            TransferMessage::Offer { attempt, id, step } => {
                put(&mut out, OFFER, *id);
                out.put_u64_le(*attempt);
                out.extend_from_slice(&Message::Step(step.clone()).encode());
            }
            TransferMessage::Have { attempt, id, offset } => {
                put(&mut out, HAVE, *id);
                out.put_u64_le(*attempt);
                out.put_u64_le(*offset);
            }
            TransferMessage::Chunk { id, offset, bytes, checksum } => {
                out.reserve(bytes.len());
                put(&mut out, CHUNK, *id);
                out.put_u64_le(*offset);
                out.put_u64_le(*checksum);
                out.extend_from_slice(bytes);
            }
            TransferMessage::Done { id } => put(&mut out, DONE, *id),
            TransferMessage::Refused { attempt, id, reason } => {
                put(&mut out, REFUSED, *id);
                out.put_u64_le(*attempt);
                out.put_u8(number_of(*reason));
            }
        }
        out
    }

    pub(crate) fn decode(mut bytes: Bytes) -> Option<Self> {
        let kind = bytes.try_get_u8().ok()?;
        let id = get(&mut bytes)?;
        let message = match kind {
            OFFER => {
                let attempt = bytes.try_get_u64_le().ok()?;
                let Ok(Message::Step(step)) = Message::decode(&bytes) else { return None };
                return Some(TransferMessage::Offer { attempt, id, step });
            }
            CHUNK => {
                let offset = bytes.try_get_u64_le().ok()?;
                let checksum = bytes.try_get_u64_le().ok()?;
                // The length is not encoded, so the checksum must prevent a part of a chunk from passing for a shorter
                // one.
                let whole = Self::is_whole(&bytes, checksum);
                return whole.then_some(TransferMessage::Chunk { id, offset, bytes, checksum });
            }
            HAVE => {
                let attempt = bytes.try_get_u64_le().ok()?;
                TransferMessage::Have { attempt, id, offset: bytes.try_get_u64_le().ok()? }
            }
            DONE => TransferMessage::Done { id },
            REFUSED => {
                let attempt = bytes.try_get_u64_le().ok()?;
                TransferMessage::Refused {
                    attempt,
                    id,
                    reason: reason_of(bytes.try_get_u8().ok()?)?,
                }
            }
            _ => return None,
        };
        bytes.is_empty().then_some(message)
    }
}

fn put(out: &mut Vec<u8>, kind: u8, id: SnapshotId) {
    out.put_u8(kind);
    out.put_u64_le(id.point.index);
    out.put_u64_le(id.point.term);
    out.put_u64_le(id.bytes);
    out.put_u32_le(id.checksum);
}

fn get(bytes: &mut Bytes) -> Option<SnapshotId> {
    let index = bytes.try_get_u64_le().ok()?;
    let term = bytes.try_get_u64_le().ok()?;
    let length = bytes.try_get_u64_le().ok()?;
    let checksum = bytes.try_get_u32_le().ok()?;
    Some(SnapshotId { point: LogId { index, term }, bytes: length, checksum })
}

fn number_of(reason: TransferRefusal) -> u8 {
    match reason {
        TransferRefusal::Stale => 1,
        TransferRefusal::Busy => 2,
        TransferRefusal::Malformed => 3,
        TransferRefusal::Disk => 4,
        TransferRefusal::Damaged => 5,
        TransferRefusal::Outgrown => 6,
    }
}

fn reason_of(number: u8) -> Option<TransferRefusal> {
    Some(match number {
        1 => TransferRefusal::Stale,
        2 => TransferRefusal::Busy,
        3 => TransferRefusal::Malformed,
        4 => TransferRefusal::Disk,
        5 => TransferRefusal::Damaged,
        6 => TransferRefusal::Outgrown,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use tenure_raft::{AnnouncedSnapshot, Membership, StepKind};

    use super::*;

    #[test]
    fn every_message_reads_back_and_no_part_of_one_does() {
        let point = LogId { index: 9, term: 2 };
        let id = SnapshotId { point, bytes: 77, checksum: 5 };
        let head = AnnouncedSnapshot { point, members: Membership::default() };
        let step = Step {
            kind: StepKind::Snapshot,
            term: 3,
            log_term: 2,
            index: 9,
            commit: 9,
            commit_term: 2,
            durable: point,
            reject: false,
            reject_hint: 0,
            context: Bytes::new(),
            entries: vec![],
            snapshot: Some(Box::new(head)),
        };
        let mut messages = vec![
            TransferMessage::Offer { attempt: 4, id, step: Box::new(step) },
            TransferMessage::Have { attempt: 4, id, offset: 12 },
            TransferMessage::chunk(id, 12, Bytes::from_static(b"some bytes")),
            TransferMessage::Done { id },
        ];
        let reasons = (1..=u8::MAX).map_while(reason_of);
        messages.extend(reasons.map(|reason| TransferMessage::Refused { attempt: 4, id, reason }));
        assert_eq!(messages.len(), 10);
        for message in messages {
            let bytes = Bytes::from(message.encode());
            assert_eq!(TransferMessage::decode(bytes.clone()), Some(message));
            for cut in 0..bytes.len() {
                assert_eq!(TransferMessage::decode(bytes.slice(..cut)), None, "cut at {cut}");
            }
        }
    }
}
