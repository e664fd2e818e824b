//! Defines the inputs and outputs of a replica.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use tenure_core::event::WallClock;
use tenure_core::outcome::{Notice, Outcome};
use tenure_core::{Frozen, Machine};
use tenure_store::{HardState, LogBatch, LogEntry, LogId};
use tenure_types::{Revision, Term};

use crate::member::{MemberId, Membership, MembershipChange};
use crate::message::{Message, Step};

/// The proposal id by which the caller recognises a submission, read or change. Only the caller gives it a meaning.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ProposalId(pub u64);

/// An event outside the replica.
pub enum ReplicaInput {
    /// A message from another member. The link it came over authenticates the sender.
    Message {
        /// The sender.
        from: MemberId,
        /// The message.
        message: Message,
    },
    /// Encoded commands, to be applied in this order. The replica answers with [`ReplicaOutput::Answer`], perhaps in
    /// several parts, which come in order and together cover all commands.
    Submit {
        /// The proposal id.
        proposal: ProposalId,
        /// The commands. Shared with the caller, which may have to submit them again.
        requests: Arc<[Bytes]>,
        /// How long they may wait to share an entry with others: 0 for all but renewals, for which it is
        /// min([`BATCH_US`](crate::BATCH_US), ttl / 60).
        linger_us: u64,
        /// When their caller gives up, by the clock of the turns. Commands that wait longer are not proposed.
        deadline_us: u64,
    },
    /// A read of a state not older than now. The replica answers with [`ReplicaOutput::ReadReady`] or
    /// [`ReplicaOutput::ReadFailed`].
    Read {
        /// The proposal id.
        proposal: ProposalId,
    },
    /// Everything up to this [`Persist`] is durable.
    Persisted {
        /// The number of the write.
        number: u64,
    },
    /// A requested snapshot is durable, or its write failed.
    SnapshotSaved {
        /// The point of the snapshot.
        point: LogId,
        /// Whether it was saved.
        saved: SnapshotDelivery,
    },
    /// A snapshot from another member is complete and durable on this disk.
    SnapshotReceived {
        /// The sender.
        from: MemberId,
        /// The step that announced the snapshot.
        step: Box<Step>,
        /// The state in the snapshot.
        machine: Box<Machine>,
        /// The members in the snapshot.
        members: Box<Membership>,
    },
    /// A snapshot has reached another member, or could not be sent. Required for every [`ReplicaOutput::SendSnapshot`].
    SnapshotSent {
        /// The receiver.
        to: MemberId,
        /// Whether the receiver has it on its disk.
        saved: SnapshotDelivery,
    },
    /// Another member declares the newest level that it knows. The latest declaration counts.
    Knows {
        /// The member.
        member: MemberId,
        /// The level.
        level: u16,
    },
    /// Messages reach this member from now on. It may remember what this one has forgotten.
    Linked {
        /// The member.
        member: MemberId,
    },
    /// The connection to a member has ended. If that member leads, its process has probably ended too.
    Unlinked {
        /// The member.
        member: MemberId,
    },
    /// The members that the caller vouches for, unless they are retired: the operator has named them, or their links
    /// have authenticated them. Replaces the previous set.
    Known {
        /// The members.
        ids: BTreeSet<MemberId>,
    },
    /// Messages to this member are lost for now.
    Unreachable {
        /// The member.
        member: MemberId,
    },
    /// The free space of this member's disk. While the leader is short of space, or so many others that no quorum is
    /// left, commands that make the state grow are not applied.
    Space(Space),
    /// What this member's wall clock shows now. The leader copies it into the entries that it proposes, as a label of
    /// their events. It takes part in no decision.
    WallClock(WallClock),
    /// An admin request. The replica answers with [`ReplicaOutput::Changed`].
    Admin {
        /// The proposal id.
        proposal: ProposalId,
        /// The request.
        request: AdminRequest,
    },
}

/// Whether a snapshot arrived at its destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SnapshotDelivery {
    /// It arrived.
    Delivered,
    /// It did not arrive.
    Failed,
}

/// The free space on a member's disk. A member starts with `Enough`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Space {
    /// The state may grow.
    Enough,
    /// The remaining space is reserved for renewals, releases and commands that free space.
    Short,
}

/// An admin request to the leader.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AdminRequest {
    /// Change the members. Several changes at once go through a joint configuration.
    Change(Vec<MembershipChange>),
    /// Transfer leadership to this member.
    Transfer(MemberId),
}

/// An action for the caller to take. The caller must process outputs in order.
pub enum ReplicaOutput {
    /// Send a message. It may be lost, delayed or duplicated.
    Send {
        /// The receiver.
        to: MemberId,
        /// The message.
        message: Message,
    },
    /// Send the snapshot at the point that the step names, then the step. Always report with
    /// [`ReplicaInput::SnapshotSent`], even if the snapshot is gone.
    SendSnapshot {
        /// The receiver.
        to: MemberId,
        /// The step that announces the snapshot.
        step: Box<Step>,
    },
    /// Write this to the log. Report with [`ReplicaInput::Persisted`] once it is durable.
    Persist(Box<Persist>),
    /// The fate of commands.
    Answer {
        /// The proposal id.
        proposal: ProposalId,
        /// The fate.
        fate: ProposalFate,
    },
    /// The machine may be queried now: it has applied everything that was acknowledged before the read came.
    ReadReady {
        /// The proposal id.
        proposal: ProposalId,
    },
    /// There was no quorum, or the leader changed. A new read may succeed.
    ReadFailed {
        /// The proposal id.
        proposal: ProposalId,
    },
    /// The result of an admin request. A transfer is answered when it has begun.
    Changed {
        /// The proposal id.
        proposal: ProposalId,
        /// The result.
        result: Result<(), RejectReason>,
    },
    /// A membership change may have been applied; this member cannot know.
    ChangeUnknown {
        /// The proposal id.
        proposal: ProposalId,
    },
    /// The machine's notices, for the sessions of their leases.
    Notices(Vec<Notice>),
    /// The machine has applied everything up to this point.
    Applied {
        /// The last entry.
        point: LogId,
        /// The newest revision, for watches.
        revision: Revision,
    },
    /// Write a snapshot. Report with [`ReplicaInput::SnapshotSaved`].
    SaveSnapshot {
        /// The last entry that it includes.
        point: LogId,
        /// The membership that [`Membership::decode`] reads back; the metadata of the snapshot.
        meta: Vec<u8>,
        /// The state.
        frozen: Box<Frozen>,
    },
    /// Entries up to this index are no longer needed. Drop them after everything before this output is durable.
    CompactLog {
        /// The index.
        to: u64,
    },
    /// The leader has changed, or is unknown.
    Led {
        /// The term.
        term: Term,
        /// The leader, if any.
        by: Option<MemberId>,
    },
    /// The member must stop. No output follows. The caller processes the outputs before it first: messages leave, in
    /// particular those by which a removed leader tells the others that they continue without it.
    Stop(Stop),
}

/// Changes to the log that take effect together.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Persist {
    /// The number of the write; it never decreases. Reporting one write reports all before it.
    pub number: u64,
    /// Empty the log and continue after this point.
    pub snapshot: Option<LogId>,
    /// Entries to append.
    pub entries: Vec<LogEntry>,
    /// The hard state after them.
    pub hard_state: Option<HardState>,
    /// What this member has observed of the other members' promises.
    pub notes: Option<Vec<u8>>,
}

impl Persist {
    /// The batch to write.
    pub fn batch(&self) -> LogBatch<'_> {
        LogBatch {
            snapshot: self.snapshot,
            entries: &self.entries,
            hard_state: self.hard_state,
            notes: self.notes.as_deref(),
        }
    }
}

/// The fate of commands, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ProposalFate {
    /// They were applied.
    Applied(Vec<Outcome>),
    /// They were not applied and never will be.
    NotDone {
        /// The number of commands in the proposal that share this fate.
        commands: usize,
        /// The reason.
        why: RejectReason,
    },
    /// They may have been applied; this member cannot know.
    Unknown {
        /// The number of commands in the proposal that share this fate.
        commands: usize,
    },
}

/// Why a request was rejected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RejectReason {
    /// Another member leads, or none does.
    #[error("not the leader")]
    NotLeader {
        /// The leader, if one is known.
        leader: Option<MemberId>,
    },
    /// Leadership is being transferred.
    #[error("leadership is being handed over")]
    Transferring,
    /// Too much waits for a quorum.
    #[error("too much is waiting for a quorum")]
    Busy,
    /// The caller's deadline passed before the command was proposed.
    #[error("the deadline passed before it was proposed")]
    Expired,
    /// The command would make the state grow, and disks are nearly full.
    #[error("disk full")]
    DiskFull,
    /// Another leader put another entry in its place.
    #[error("replaced by another leader")]
    Replaced,
    /// A membership change is not finished, or the leader has just begun.
    #[error("another change is under way")]
    ChangeUnderWay,
    /// The change is not possible with the present members.
    #[error("not possible with these members")]
    Impossible,
    /// The id was removed, and a removed id is never reused.
    #[error("this member was removed and needs a new id")]
    Retired,
    /// The learner is too far behind to become a voter.
    #[error("the member is {behind} entries behind")]
    NotCaughtUp {
        /// How many entries it is behind.
        behind: u64,
    },
    /// The level cannot be raised: a member does not know it, or has not declared so since this member started.
    #[error("feature level {level} is not known by all: member {member} {}", knows(.known))]
    LevelNotKnown {
        /// The level.
        level: u16,
        /// The first member that does not know the level.
        member: MemberId,
        /// The newest level that it knows, if it has declared one.
        known: Option<u16>,
    },
}

/// Why a member must stop.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Stop {
    /// Its state differs from that of a majority.
    #[error("state differs from that of a majority at index {index}")]
    Diverged {
        /// The index of the entry.
        index: u64,
    },
    /// Its disk was rolled back: it has lost something that this member had promised to keep.
    #[error("the disk went back: member {by} remembers {lost}")]
    Forgot {
        /// The member that remembers the promise.
        by: MemberId,
        /// The promise that this disk does not have.
        lost: DiskLoss,
    },
    /// It was removed from the cluster.
    #[error("removed from the cluster")]
    Removed,
    /// The cluster's level was raised beyond what this build knows.
    #[error("the cluster is at feature level {level}, this version of tenure knows up to {known}")]
    Outgrown {
        /// The level of the cluster.
        level: u16,
        /// The newest level that this build knows.
        known: u16,
    },
    /// An entry of the log cannot be decoded.
    #[error("entry {index} is malformed")]
    Malformed {
        /// The index of the entry.
        index: u64,
    },
}

/// What a disk has lost that its member had promised to keep.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiskLoss {
    /// The member took part in a newer term than its disk knows.
    #[error("term {seen}, the disk knows term {durable}")]
    Term {
        /// The newest term in which it took part.
        seen: u64,
        /// The newest term on the disk.
        durable: u64,
    },
    /// The member voted for another member, or the disk has no vote.
    #[error("a vote for {vote} in term {term} that the disk does not have")]
    Vote {
        /// The term.
        term: u64,
        /// The member that it voted for.
        vote: MemberId,
    },
    /// An entry that the member had is missing, or another entry is in its place.
    #[error(
        "entry {} of term {} that the disk does not have, its log ends at {last}",
        .held.index, .held.term
    )]
    Entry {
        /// The entry.
        held: LogId,
        /// The last index of the log.
        last: u64,
    },
}

fn knows(known: &Option<u16>) -> String {
    known.map_or("has not said what it knows".into(), |known| format!("knows up to {known}"))
}
