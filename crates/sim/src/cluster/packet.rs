//! What travels over the network?

use bytes::Bytes;
use tenure_core::outcome::Outcome;
use tenure_raft::Step;
use tenure_store::SnapshotId;

/// Who sends and receives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Address {
    Node(usize),
    Client(usize),
}

/// One message between members, or between a member and a client.
#[derive(Clone)]
pub(super) enum Packet {
    /// Between replicas, as bytes.
    Raft(Bytes),
    /// A whole snapshot, with the step that announces it.
    Snapshot { step: Box<Step>, id: SnapshotId, file: Bytes },
    /// A command; forwarded once at most.
    Ask { attempt: u64, request: Bytes, patience_us: u64, relay: Option<usize> },
    /// A question.
    Read { attempt: u64 },
    /// What became of it.
    Reply { attempt: u64, reply: Reply },
}

/// What a client is told.
#[derive(Clone, Debug)]
pub(super) enum Reply {
    /// The machine's answer.
    Outcome(Outcome),
    /// It had no effect.
    NotDone,
    /// Nobody knows.
    Unknown,
    /// A read was served.
    Read,
}

impl Packet {
    /// The bytes that take part in the trace.
    pub(super) fn trace(&self) -> &[u8] {
        match self {
            Packet::Raft(bytes) | Packet::Ask { request: bytes, .. } => bytes,
            Packet::Snapshot { file, .. } => file,
            Packet::Read { .. } | Packet::Reply { .. } => &[],
        }
    }
}
