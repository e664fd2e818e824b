//! Connects the two ends of transfers with the replica, the links and the disk of a member.

use bytes::Bytes;
use tenure_raft::{MemberId, ReplicaInput as RaftInput, Step};
use tenure_store::{LogId, SnapshotId};

use super::{
    IncomingTransfer, OutgoingTransfers, ReplicaView, SnapshotUnreadable, TransferAction,
    TransferEnd, TransferMessage, TransferRefusal,
};
use crate::io::Output;
use crate::node::Node;
use crate::peer::{PeerMessage, WITHIN_LEVEL};

/// Both ends of a member's transfers.
pub(crate) struct Transfers {
    pub(crate) outgoing: OutgoingTransfers,
    incoming: IncomingTransfer,
}

impl Transfers {
    /// Transfers that send this many bytes in one message.
    pub(crate) fn new(chunk_bytes: u64) -> Self {
        Self {
            outgoing: OutgoingTransfers::new(chunk_bytes),
            incoming: IncomingTransfer::default(),
        }
    }
}

impl Node {
    /// Sends a snapshot for the replica. A member of an older version gets it over a separate connection.
    pub(crate) fn send_snapshot(&mut self, to: MemberId, step: Box<Step>) {
        let mut actions = Vec::new();
        match self.links.get(&to) {
            Some(linked) if linked.level < WITHIN_LEVEL => {
                self.staged.push(Output::SendSnapshot { to, step });
            }
            Some(_) => self.transfers.outgoing.start(to, *step, self.now_us, &mut actions),
            None => {
                let point = step.snapshot.as_ref().map_or(LogId::default(), |head| head.point);
                actions.push(TransferAction::Report { to, point, ending: TransferEnd::NoLink });
            }
        }
        self.act(actions);
    }

    pub(crate) fn snapshot_found(&mut self, to: MemberId, point: LogId, id: Option<SnapshotId>) {
        let mut actions = Vec::new();
        self.transfers.outgoing.found(to, point, id, self.now_us, &mut actions);
        self.act(actions);
    }

    pub(crate) fn chunk_read(
        &mut self,
        to: MemberId,
        id: SnapshotId,
        offset: u64,
        bytes: Result<Bytes, SnapshotUnreadable>,
    ) {
        let mut actions = Vec::new();
        self.transfers.outgoing.read(to, id, offset, bytes, &mut actions);
        self.act(actions);
    }

    pub(crate) fn chunk_written(&mut self, number: u64, have: u64) {
        let mut actions = Vec::new();
        self.transfers.incoming.written(number, have, &mut actions);
        self.act(actions);
    }

    pub(crate) fn transfer_failed(&mut self, number: u64, reason: TransferRefusal) {
        let mut actions = Vec::new();
        self.transfers.incoming.failed(number, reason, &mut actions);
        self.act(actions);
    }

    /// The snapshot at this point was verified and goes to the replica.
    pub(crate) fn transfer_received(&mut self, point: LogId) {
        let mut actions = Vec::new();
        let incoming = &mut self.transfers.incoming;
        if let Some(id) = incoming.finishing().filter(|id| id.point == point) {
            incoming.received(id, self.now_us, &mut actions);
        }
        self.act(actions);
    }

    /// Takes a message of a transfer from another member.
    pub(crate) fn on_transfer(&mut self, from: MemberId, message: TransferMessage) {
        let mut actions = Vec::new();
        match message {
            TransferMessage::Offer { .. } | TransferMessage::Chunk { .. } => {
                let status = self.replica.status();
                let view = ReplicaView { term: status.term.0, applied: status.applied.index };
                let Transfers { incoming, .. } = &mut self.transfers;
                incoming.handle(from, message, view, self.now_us, &mut actions);
            }
            TransferMessage::Have { .. }
            | TransferMessage::Done { .. }
            | TransferMessage::Refused { .. } => {
                self.transfers.outgoing.handle(from, &message, self.now_us, &mut actions);
            }
        }
        self.act(actions);
    }

    pub(crate) fn transfers_linked(&mut self, member: MemberId, level: u16) {
        if level < WITHIN_LEVEL {
            // It was started in an older version, which would not understand the rest.
            return self.transfers.outgoing.unlinked(member);
        }
        let mut actions = Vec::new();
        self.transfers.outgoing.linked(member, self.now_us, &mut actions);
        self.act(actions);
    }

    /// Ends transfers that have timed out, and every transfer of a term in which this member does not lead.
    pub(crate) fn turn_transfers(&mut self) {
        if self.transfers.outgoing.is_idle() {
            return;
        }
        let mut actions = Vec::new();
        let status = self.replica.status();
        let term = Some(status.term.0).filter(|_| status.leading);
        self.transfers.outgoing.end_others(term, &mut actions);
        self.transfers.outgoing.turn(self.now_us, &mut actions);
        self.act(actions);
    }

    fn act(&mut self, actions: Vec<TransferAction>) {
        for action in actions {
            let output = match action {
                TransferAction::Send { to, message } => {
                    Output::Send { to, message: PeerMessage::Transfer(Box::new(message)) }
                }
                TransferAction::Find { to, point } => Output::FindSnapshot { to, point },
                TransferAction::Read { to, id, offset, len } => {
                    Output::ReadChunk { to, id, offset, len }
                }
                TransferAction::Open { number, id } => Output::OpenTransfer { number, id },
                TransferAction::Write { number, id, offset, bytes } => {
                    Output::WriteChunk { number, id, offset, bytes }
                }
                TransferAction::Finish { number, from, id, step } => {
                    Output::FinishTransfer { number, from, id, step }
                }
                TransferAction::Report { to, point, ending } => {
                    let saved = ending.saved();
                    self.replica.handle(RaftInput::SnapshotSent { to, saved });
                    if ending.is_damage() {
                        self.replica.snapshot_damaged(point);
                    }
                    self.again = true;
                    Output::TransferEnded { to, point, ending }
                }
            };
            self.staged.push(output);
        }
    }
}
