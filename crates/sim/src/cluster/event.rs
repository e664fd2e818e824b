//! Keeps the future events of the simulation in order.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use tenure_core::outcome::Outcome;
use tenure_node::{Control, Join, LinkId, NodeFailure, Output, SessionId};
use tenure_raft::{MemberId, SnapshotDelivery};
use tenure_types::Handle;

use super::call::CallInput;
use super::disks::Lie;
use super::packet::{ClientMessage, ClientStream, Packet};
use super::session_task::SessionReply;

/// Something that happens at a moment.
pub(super) enum SimEvent {
    /// A member's loop turns.
    Turn { member: usize, boot: u64 },
    /// A packet arrives.
    Arrive { from: usize, to: usize, packet: Packet },
    /// The disk has made the log durable after this time, and the loop waits for it or goes on.
    Sync { member: usize, boot: u64, took_us: u64, waits: bool },
    /// The event loop learns that the log is durable.
    Synced { member: usize, boot: u64 },
    /// A thread makes the next segment of the log.
    Prepare { member: usize, boot: u64 },
    /// A thread takes the reserve for a full disk again.
    Reserve { member: usize, boot: u64 },
    /// The thread that writes log lines runs.
    WriteLog { member: usize, boot: u64 },
    /// A snapshot is written.
    Save { member: usize, boot: u64 },
    /// The snapshot threads of a member do a step of a transfer that waited for them.
    Transfer { member: usize, boot: u64, step: Box<Output> },
    /// A member learns the result of sending a snapshot.
    Sent { member: usize, boot: u64, to: MemberId, saved: SnapshotDelivery },
    /// A member starts.
    Start { member: usize },
    /// Two members without a connection try to get one.
    Dial { one: usize, other: usize },
    /// Two members may notice that their connection carries nothing.
    Silent { one: usize, other: usize, link: u64 },
    /// A member learns that a connection is gone.
    Unlinked { member: usize, boot: u64, peer: MemberId, link: LinkId },
    /// A member's router takes what the loop has left for it.
    Route { member: usize, boot: u64 },
    /// A member's loop looks which of these leases are gone, for its router.
    Sweep { member: usize, boot: u64, leases: Vec<Handle> },
    /// A message of a client arrives.
    Said { stream: ClientStream, said: ClientMessage },
    /// The task of a session runs.
    Session { stream: ClientStream },
    /// A message to a client arrives.
    Mail { stream: ClientStream, replies: Vec<SessionReply> },
    /// A client learns that its session is gone.
    Cut { stream: ClientStream },
    /// A client does something.
    Client { client: usize },
    /// A caller without a session does something.
    Caller { caller: usize },
    /// Something reaches an acquire of such a caller at its member.
    Call { member: usize, boot: u64, call: SessionId, input: CallInput },
    /// A reply reaches such a caller.
    CallReply { caller: usize, call: SessionId, reply: Result<Outcome, NodeFailure> },
    /// An operator's request is woken.
    Operation { member: usize, boot: u64, operation: u64 },
    /// A watcher asks for what is new.
    Watch { watcher: usize },
    /// Something fails, or heals.
    Nemesis,
    /// A new member asks to be added.
    Enter { member: usize },
    /// It has an answer, or will have none.
    Answered { member: usize, number: u64, answer: Result<Control, String> },
    /// A question about a member's standing arrives at the address of another.
    AskStanding { member: usize, boot: u64, of: MemberId, address: String, question: Join },
    /// A disk has lied for long enough.
    Lied { member: usize, boot: u64, lie: Lie },
    /// An operator has a member backed up.
    BackUp { member: usize },
    /// The cluster is restored from a backup.
    Restore,
    /// A member of the cluster from before the restore asks to be added.
    SurvivorJoins { member: usize },
    /// A member starts again with a newer build, which knows this level.
    Upgrade { member: usize, level: u16 },
    /// An operator asks for this level.
    RaiseLevel { level: u16 },
    /// A disk is put back to what it was.
    RollBack { member: usize },
}

/// Events in the order of their moments, and of their making at the same moment.
pub(super) struct EventQueue<E> {
    order: BinaryHeap<Reverse<(u64, u64)>>,
    events: BTreeMap<u64, E>,
    made: u64,
}

impl<E> Default for EventQueue<E> {
    fn default() -> Self {
        Self { order: BinaryHeap::new(), events: BTreeMap::new(), made: 0 }
    }
}

impl<E> EventQueue<E> {
    pub(super) fn push(&mut self, at_us: u64, event: E) {
        self.made += 1;
        self.order.push(Reverse((at_us, self.made)));
        self.events.insert(self.made, event);
    }

    pub(super) fn pop(&mut self) -> Option<(u64, E)> {
        let Reverse((at_us, number)) = self.order.pop()?;
        self.events.remove(&number).map(|event| (at_us, event))
    }
}
