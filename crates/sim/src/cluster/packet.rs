//! Says what travels between members, and between clients and the member that serves them.

use bytes::Bytes;
use tenure_node::{Fresh, SessionId};
use tenure_raft::Step;
use tenure_store::SnapshotId;
use tenure_types::Handle;

use super::client::Op;

/// One message from one member to another.
#[derive(Clone)]
pub(super) enum Packet {
    /// What a node said, as bytes, over the connection of this number.
    Frame { link: u64, bytes: Bytes },
    /// A whole snapshot, with the step that announces it.
    Snapshot { step: Box<Step>, id: SnapshotId, file: Bytes },
}

impl Packet {
    /// The bytes that take part in the trace.
    pub(super) fn trace(&self) -> &[u8] {
        match self {
            Packet::Frame { bytes, .. } => bytes,
            Packet::Snapshot { file, .. } => file,
        }
    }
}

/// What a client sends over its session.
pub(super) enum Said {
    /// The first word.
    Open,
    /// It wants to hear of a lease.
    Attach(Handle),
    /// Commands, to be answered within so long.
    Submit { batch: u64, ops: Vec<Op>, patience_us: u64, within_us: u64 },
    /// It wants to read.
    Read { read: u64, fresh: Fresh, within_us: u64 },
    /// The last word.
    Close,
}

/// One client's stream at one member, as both ends know it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stream {
    pub(super) id: SessionId,
    pub(super) client: usize,
    pub(super) node: usize,
    /// The process that serves it.
    pub(super) boot: u64,
}
