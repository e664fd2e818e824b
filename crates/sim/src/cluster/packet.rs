//! Defines the messages between members, and between clients and the member that serves them.

use bytes::Bytes;
use tenure_node::{ReadConsistency, SessionId};
use tenure_raft::Step;
use tenure_store::SnapshotId;
use tenure_types::Handle;

use super::session_task::ClientRequest;

/// One message from one member to another.
#[derive(Clone)]
pub(super) enum Packet {
    /// What a member said, as bytes, over the connection of this number.
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

/// A message of a client over its session.
#[derive(Debug)]
pub(super) enum ClientMessage {
    /// Opens the session.
    Open,
    /// Says hello, and asks for the notices of these leases.
    Hello { leases: Vec<Handle> },
    /// Sends commands.
    Requests(Vec<ClientRequest>),
    /// Asks for a read.
    Read { read: u64, fresh: ReadConsistency, within_us: u64 },
    /// Closes the session.
    Close,
}

/// One client's stream at one member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ClientStream {
    pub(super) id: SessionId,
    pub(super) client: usize,
    pub(super) member: usize,
    /// The process that serves it.
    pub(super) boot: u64,
}
