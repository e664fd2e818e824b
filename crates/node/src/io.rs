//! Defines what goes into a [`Node`](crate::Node) and what comes out of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use tenure_core::event::WallClock;
use tenure_core::outcome::{Notice, Outcome};
use tenure_core::{Frozen, Machine};
use tenure_raft::{MemberId, Membership, Persist, SnapshotDelivery, Space, Step, Stop};
use tenure_store::{LogId, SnapshotId};
use tenure_types::{Revision, Term};

use crate::admission::Permit;
use crate::control::{Control, Join};
use crate::directory::{Address, MemberNames, MemberRecord};
use crate::failure::NodeFailure;
use crate::join::admit::PeerName;
use crate::peer::PeerMessage;
use crate::principal::Principal;
use crate::transfer::{SnapshotUnreadable, TransferEnd, TransferRefusal};

pub use tenure_raft::AdminRequest;

/// One client's stream of commands, answers and notices at this member.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SessionId(pub u64);

/// One call that waits for its answer and has no session.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct CallId(pub u64);

/// One read that waits until the machine may be queried.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ReadId(pub u64);

/// One admin request that waits for its result.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct AdminId(pub u64);

/// One request to join that waits for its answer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct JoinId(pub u64);

/// One connection to another member. A newer connection has a larger number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct LinkId(pub u64);

/// What became of each command of a batch, in order.
pub type Outcomes = Vec<Result<Outcome, NodeFailure>>;

/// The receiver of a batch's results.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplyTo {
    /// A session, which numbers its batches.
    Session {
        /// The session.
        session: SessionId,
        /// Its number for the batch.
        batch: u64,
    },
    /// A call.
    Call(CallId),
}

/// Commands that were authorised and admitted, to be applied in this order. A batch of a session that is not submitted
/// yet has `()` in place of the receiver.
pub struct CommandBatch<R = ReplyTo> {
    /// The commands, in the form of the log. Shared with the replica while it has them.
    pub requests: Arc<[Bytes]>,
    /// How long they may wait for others before they are proposed: 0 for all but renewals.
    pub linger_us: u64,
    /// When they reached this member, by its clock.
    pub asked_at_us: u64,
    /// The time at which the caller gives up, by the member's clock. The member does not propose a command after it.
    pub deadline_us: u64,
    /// The receiver of the results.
    pub reply: R,
    /// The part of the member's budget that the batch takes. It is given back with the answer.
    pub permit: Permit,
}

impl<R> CommandBatch<R> {
    /// Whether its commands only keep or give up what their callers have. A batch that may linger has only renewals.
    pub fn keeps(&self) -> bool {
        self.linger_us > 0 || self.permit.keeps_all()
    }

    /// The results if the batch was not tried: this failure for each command. Returns the permit to the budget.
    pub fn failed(self, failure: NodeFailure) -> Outcomes {
        vec![Err(failure); self.requests.len()]
    }
}

impl CommandBatch<()> {
    /// The batch with the receiver of its results.
    pub fn reply_to(self, reply: ReplyTo) -> CommandBatch {
        let Self { requests, linger_us, asked_at_us, deadline_us, reply: (), permit } = self;
        CommandBatch { requests, linger_us, asked_at_us, deadline_us, reply, permit }
    }
}

/// How fresh the state must be that a read sees.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadConsistency {
    /// Not older than the read.
    Linearizable,
    /// The state of this member, which may be old.
    Stale,
    /// Not older than this revision.
    AtLeast(Revision),
}

/// Something that happened outside. An input that is *due* for an output must be reported once for each such output.
///
/// An input is moved from queue to queue, so its large parts are in boxes.
pub enum Input {
    /// A message of another member. The link names the sender.
    Peer {
        /// The member at the other end of the link.
        from: MemberId,
        /// The connection over which it came.
        link: LinkId,
        /// The message.
        message: PeerMessage,
    },
    /// From now on a new connection carries the messages to another member.
    Linked {
        /// The member.
        member: MemberId,
        /// The connection.
        link: LinkId,
        /// The newest level of the machine's rules that the other member knows.
        level: u16,
    },
    /// A connection to another member is gone. Unanswered requests that were sent over it will get no answer.
    Unlinked {
        /// The member.
        member: MemberId,
        /// The connection.
        link: LinkId,
    },
    /// Messages to another member were dropped: there is no connection to it, or they did not fit into its link.
    Unreachable {
        /// The member.
        member: MemberId,
    },
    /// Commands of a client. Answered by one [`Output::Answer`].
    Submit(Box<CommandBatch>),
    /// A client wants to read. Answered by [`Output::ReadReady`] or [`Output::ReadFailed`].
    Read {
        /// The read.
        read: ReadId,
        /// The caller.
        principal: Principal,
        /// How fresh the state must be.
        fresh: ReadConsistency,
        /// When the caller gives up, by the member's clock.
        deadline_us: u64,
    },
    /// An operator wants to change the members or transfer leadership. Answered by [`Output::AdminDone`].
    Admin {
        /// The request.
        admin: AdminId,
        /// The caller.
        principal: Principal,
        /// The change that the operator wants.
        request: AdminRequest,
        /// When the caller gives up, by the member's clock.
        deadline_us: u64,
    },
    /// Everything up to this [`Persist`] is durable.
    Persisted {
        /// The number of the [`Persist`].
        number: u64,
    },
    /// A requested snapshot is durable, or never will be.
    SnapshotSaved {
        /// The last entry that it includes.
        point: LogId,
        /// Whether it is durable.
        saved: SnapshotDelivery,
    },
    /// A snapshot from another member is complete and durable on this disk.
    SnapshotReceived {
        /// The sender.
        from: MemberId,
        /// The step that announced it.
        step: Box<Step>,
        /// The state in it.
        machine: Box<Machine>,
        /// The members in it.
        members: Box<Membership>,
    },
    /// A snapshot has reached another member, or never will.
    SnapshotSent {
        /// The receiver.
        to: MemberId,
        /// Whether the receiver has it on its disk.
        saved: SnapshotDelivery,
    },
    /// A member wants to be added, or its record has changed. Answered by one [`Output::JoinAnswer`].
    Join {
        /// The request.
        join: JoinId,
        /// The content of the request.
        request: Box<Join>,
        /// The name that the connection proves for its other end, if any.
        peer_name: PeerName,
    },
    /// A member that wants to be added was called back. Due for every [`Output::CallBack`].
    CalledBack {
        /// The request to join.
        join: JoinId,
        /// What it answered to [`Control::Who`], or why there is no answer.
        answer: Result<Box<Control>, String>,
    },
    /// Another member has answered [`Output::AskStanding`]. Due only if there was an answer.
    StandingAnswer {
        /// The member that was asked.
        from: MemberId,
        /// The answer.
        answer: Box<Control>,
    },
    /// The disk has looked for a snapshot. Due for every [`Output::FindSnapshot`].
    SnapshotFound {
        /// The member that needs it.
        to: MemberId,
        /// Its last entry.
        point: LogId,
        /// The complete snapshot at that point; none if it is damaged or gone.
        id: Option<SnapshotId>,
    },
    /// The disk has read a part of a snapshot. Due for every [`Output::ReadChunk`].
    ChunkRead {
        /// The member that needs it.
        to: MemberId,
        /// The snapshot.
        id: SnapshotId,
        /// The first byte.
        offset: u64,
        /// The bytes, or why there are none.
        bytes: Result<Bytes, SnapshotUnreadable>,
    },
    /// The disk has all bytes of an incoming snapshot before `have`. Due for every [`Output::OpenTransfer`] and
    /// [`Output::WriteChunk`], unless they failed.
    ChunkWritten {
        /// The transfer.
        number: u64,
        /// The first byte that is missing.
        have: u64,
    },
    /// The disk cannot store an incoming snapshot, or the complete snapshot cannot be used.
    TransferFailed {
        /// The transfer.
        number: u64,
        /// The reason.
        reason: TransferRefusal,
    },
    /// The space left on this member's disk.
    Space(Space),
    /// What this member's wall clock shows now. The leader copies it into the entries that it proposes, as a label of
    /// their events. It takes part in no decision.
    WallClock(WallClock),
    /// The member must hand leadership over and end. Answered by [`Output::MayEnd`].
    Leave,
}

/// Something that has to happen outside. The driver must take outputs in order. Its large parts are in boxes, as those
/// of an [`Input`].
pub enum Output {
    /// Send a message. It may be lost, delayed or doubled.
    Send {
        /// The receiver.
        to: MemberId,
        /// The message.
        message: PeerMessage,
    },
    /// Send the snapshot at the point that the step names, then the step, over a connection of its own: the
    /// receiver is of an older version, which knows no transfers. Report with [`Input::SnapshotSent`], in any case.
    SendSnapshot {
        /// The receiver.
        to: MemberId,
        /// The step that announces it.
        step: Box<Step>,
    },
    /// Write this to the log. Report with [`Input::Persisted`] once it is durable.
    Persist(Box<Persist>),
    /// The results of a batch.
    Answer {
        /// The receiver of the results.
        to: ReplyTo,
        /// Each command's outcome, in order.
        outcomes: Outcomes,
    },
    /// The machine's notices, for the sessions of their leases.
    Notices(Vec<Notice>),
    /// The machine has jumped to a snapshot, so notices of what happened in between are lost. End every session: each
    /// client reconnects and asks what became of its requests.
    Skipped,
    /// The driver may query the machine now, before it performs the next output.
    ReadReady {
        /// The read.
        read: ReadId,
    },
    /// The driver may not query the machine for this read.
    ReadFailed {
        /// The read.
        read: ReadId,
        /// The reason.
        failure: NodeFailure,
    },
    /// The result of an admin request.
    AdminDone {
        /// The request.
        admin: AdminId,
        /// Its result. A transfer of leadership counts as done once it has begun.
        result: Result<(), NodeFailure>,
    },
    /// The machine has applied everything up to here.
    Applied {
        /// The last entry.
        point: LogId,
        /// The newest revision, for watches.
        revision: Revision,
    },
    /// Write a snapshot. Report with [`Input::SnapshotSaved`].
    SaveSnapshot {
        /// The last entry that it includes.
        point: LogId,
        /// The members, encoded: the meta of the snapshot.
        meta: Vec<u8>,
        /// The state.
        frozen: Box<Frozen>,
    },
    /// Entries up to this index are not needed any more. Compact the log after every earlier output of this list is
    /// durable.
    CompactLog {
        /// The index.
        to: u64,
    },
    /// Look for the complete snapshot at this point. Report with [`Input::SnapshotFound`].
    FindSnapshot {
        /// The member that needs it.
        to: MemberId,
        /// Its last entry.
        point: LogId,
    },
    /// Read a part of a snapshot. Report with [`Input::ChunkRead`].
    ReadChunk {
        /// The member that needs it.
        to: MemberId,
        /// The snapshot.
        id: SnapshotId,
        /// The first byte.
        offset: u64,
        /// The number of bytes.
        len: u64,
    },
    /// Open what there is of an incoming snapshot, and drop every other incoming one. If the snapshot is already
    /// complete, report its whole length. Report with [`Input::ChunkWritten`] or [`Input::TransferFailed`]. Execute
    /// later outputs for the same transfer in order. Skip outputs for a transfer that has failed or is not the newest
    /// opened, without a report.
    OpenTransfer {
        /// The transfer.
        number: u64,
        /// The snapshot.
        id: SnapshotId,
    },
    /// Append to an incoming snapshot. Report with [`Input::ChunkWritten`] or [`Input::TransferFailed`].
    WriteChunk {
        /// The transfer.
        number: u64,
        /// The snapshot.
        id: SnapshotId,
        /// The offset of the bytes: after those already written.
        offset: u64,
        /// The bytes.
        bytes: Bytes,
    },
    /// Verify an incoming snapshot, make it complete and durable, and read the state in it. Report with
    /// [`Input::SnapshotReceived`] or [`Input::TransferFailed`].
    FinishTransfer {
        /// The transfer.
        number: u64,
        /// The sender.
        from: MemberId,
        /// The snapshot.
        id: SnapshotId,
        /// The step that announces it.
        step: Box<Step>,
    },
    /// The transfer of a snapshot to another member has ended, for the log. The replica already knows.
    TransferEnded {
        /// The member.
        to: MemberId,
        /// The snapshot's last entry.
        point: LogId,
        /// The end of the transfer: arrived, or the reason why not.
        ending: TransferEnd,
    },
    /// Ask the member that this record names, at the address in it, who it is. Report with [`Input::CalledBack`], in
    /// any case.
    CallBack {
        /// The request to join.
        join: JoinId,
        /// The record of the member. Its certificate must have the name in it.
        record: Box<MemberRecord>,
    },
    /// The answer to a request to join.
    JoinAnswer {
        /// The request.
        join: JoinId,
        /// The answer.
        answer: Box<Control>,
    },
    /// Ask the member at this address the question. Report an answer with [`Input::StandingAnswer`]; if there is
    /// none, nothing is due.
    AskStanding {
        /// The member.
        of: MemberId,
        /// The address at which it listens for members.
        address: Address,
        /// The name that its certificate must have.
        name: String,
        /// The question.
        question: Box<Control>,
    },
    /// The leader or the term has changed.
    Led(KnownLeader),
    /// The members or their addresses have changed: keep links to these.
    Directory {
        /// The names and addresses of all members.
        directory: BTreeMap<MemberId, MemberNames>,
        /// The members that belong to the cluster.
        members: Box<Membership>,
        /// Ids that another member vouches for. This member may have been away when they were added.
        vouched: BTreeSet<MemberId>,
    },
    /// Leadership was handed over, or cannot be: the member may end.
    MayEnd,
    /// Stop the member after the messages of this turn were sent. No other output that follows has to be performed.
    Stop(Stop),
}

/// Each of them is moved several times for every command.
const _: () = assert!(size_of::<Input>() <= 96 && size_of::<Output>() <= 96);

/// The leader as this member knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KnownLeader {
    /// The term.
    pub term: Term,
    /// The leader; `None` during an election.
    pub by: Option<MemberId>,
}

/// Receives what the node does, for metrics. It decides nothing.
pub trait NodeObserver {
    /// A leader has taken commands.
    fn took(&mut self, commands: usize);
    /// Commands were applied that reached this member at `asked_at_us`.
    fn applied(&mut self, now_us: u64, asked_at_us: u64, outcomes: &[Outcome]);
    /// Reports when commands reached this member, when they were proposed and when they were applied. `_reply` is the
    /// receiver of their answers; none for commands that another member forwarded.
    fn timed(
        &mut self,
        _reply: Option<ReplyTo>,
        _asked_at_us: u64,
        _proposed_at_us: u64,
        _applied_at_us: u64,
    ) {
    }
}

impl NodeObserver for () {
    fn took(&mut self, _: usize) {}
    fn applied(&mut self, _: u64, _: u64, _: &[Outcome]) {}
}
