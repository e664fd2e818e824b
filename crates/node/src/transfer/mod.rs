//! Carries snapshots between members in chunks, over their links.
//!
//! ```text
//! sender                                   receiver
//!   Offer { attempt, id, step }       ->     opens what it has of this snapshot
//!                                     <-     Have { attempt, offset }
//!   Chunk { offset, bytes } ...       ->     writes them in order
//!                                     <-     Have after every write
//!                                            verifies the whole, hands it to its replica
//!                                     <-     Done, or Refused
//! ```
//!
//! Offers also resynchronise the two ends: the sender repeats its offer, as a new attempt, after a reconnect and when
//! nothing has moved for a while. The receiver answers each offer with the offset that it has on its disk. So messages
//! may be lost, duplicated or reordered, and either end may restart.
//!
//! Every transfer ends in exactly one report to the sender's replica. A newer request for the same receiver takes
//! the place of the older one, and the report is that of the newer.
//!
//! [`OutgoingTransfers`] and [`IncomingTransfer`] are machines without clock or disk: they say what has to be read,
//! written and sent.

pub(crate) mod drive;
mod incoming;
mod message;
mod outgoing;

use bytes::Bytes;
use tenure_raft::{MemberId, SnapshotDelivery, Step};
use tenure_store::{LogId, SnapshotId};

pub use incoming::{IncomingTransfer, ReplicaView};
pub use message::{TransferMessage, TransferRefusal};
pub use outgoing::OutgoingTransfers;

/// The part of a snapshot in one message. Small, so that it does not keep a link busy for long.
pub const CHUNK_BYTES: u64 = 256 * 1024;
/// The most parts that may be on their way and not yet written.
const WINDOW_CHUNKS: u64 = 8;
/// The most bytes that may be on their way and not yet written.
pub const WINDOW_BYTES: u64 = WINDOW_CHUNKS * CHUNK_BYTES;

/// What has to happen outside of the two machines.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TransferAction {
    /// Send a message. It may be lost, delayed or doubled.
    Send {
        /// The receiver.
        to: MemberId,
        /// The message.
        message: TransferMessage,
    },
    /// Look for the complete snapshot at this point. Report with [`OutgoingTransfers::found`].
    Find {
        /// The member that needs it.
        to: MemberId,
        /// Its last entry.
        point: LogId,
    },
    /// Read a part of a snapshot. Report with [`OutgoingTransfers::read`].
    Read {
        /// The member that needs it.
        to: MemberId,
        /// The snapshot.
        id: SnapshotId,
        /// The first byte.
        offset: u64,
        /// The number of bytes.
        len: u64,
    },
    /// Tell the replica how a transfer ended.
    Report {
        /// The member that needed the snapshot.
        to: MemberId,
        /// The snapshot's last entry.
        point: LogId,
        /// The end of the transfer: arrived, or the reason why not.
        ending: TransferEnd,
    },
    /// Open what there is of a snapshot, or begin with nothing. Report with [`IncomingTransfer::written`].
    Open {
        /// The transfer.
        number: u64,
        /// The snapshot.
        id: SnapshotId,
    },
    /// Append to it. Report with [`IncomingTransfer::written`].
    Write {
        /// The transfer.
        number: u64,
        /// The snapshot.
        id: SnapshotId,
        /// The offset of the bytes: after those already written.
        offset: u64,
        /// The bytes.
        bytes: Bytes,
    },
    /// Verify the whole and hand it to the replica. Report with [`IncomingTransfer::received`] or
    /// [`IncomingTransfer::failed`].
    Finish {
        /// The transfer.
        number: u64,
        /// The sender.
        from: MemberId,
        /// The snapshot.
        id: SnapshotId,
        /// The step that announces it.
        step: Box<Step>,
    },
}

/// How a transfer ended at its sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TransferEnd {
    /// The receiver has the snapshot.
    #[error("it arrived")]
    Arrived,
    /// The receiver refused it.
    #[error("the receiver refused it: {0}")]
    Refused(TransferRefusal),
    /// This member's disk does not have it whole.
    #[error("the snapshot is damaged or gone")]
    Damaged,
    /// This member's disk failed to read it.
    #[error("the snapshot cannot be read")]
    Unreadable,
    /// The receiver has sent nothing for too long.
    #[error("the receiver does not answer")]
    Silent,
    /// The receiver answers, but the transfer does not move.
    #[error("the transfer makes no progress")]
    Stalled,
    /// There is no link to the receiver.
    #[error("there is no link to the receiver")]
    NoLink,
    /// This member does not lead in the term of the transfer any more.
    #[error("this member does not lead any more")]
    NotLeading,
}

impl TransferEnd {
    /// The result for the replica.
    pub fn saved(self) -> SnapshotDelivery {
        match self {
            TransferEnd::Arrived => SnapshotDelivery::Delivered,
            _ => SnapshotDelivery::Failed,
        }
    }

    /// Whether a new snapshot must replace the one on this member's disk.
    pub fn is_damage(self) -> bool {
        matches!(self, TransferEnd::Damaged | TransferEnd::Refused(TransferRefusal::Damaged))
    }
}

/// Why a part of a snapshot could not be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SnapshotUnreadable {
    /// The bytes on the disk differ from what was written, or the file is gone.
    Damaged,
    /// The disk failed this time; a later read may succeed.
    Failed,
}

#[cfg(test)]
mod tests;
