//! What goes into a replica, and what comes out?

use std::collections::BTreeSet;

use bytes::Bytes;
use tenure_core::outcome::{Notice, Outcome};
use tenure_core::{Frozen, Machine};
use tenure_store::{Batch, Entry, HardState, Point};
use tenure_types::{Revision, Term};

use crate::member::{Change, MemberId, Membership};
use crate::message::{Message, Step};

/// What the caller knows a submission, read or change by. Its meaning is the caller's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ticket(pub u64);

/// Something that happened outside.
pub enum Input {
    /// Another member says this. The link it came over vouches for the sender.
    Message {
        /// Who.
        from: MemberId,
        /// What.
        message: Message,
    },
    /// Commands in log form, to be applied in this order. Answered by [`Output::Answer`], perhaps
    /// in several parts, which follow in order and together cover all commands.
    Submit {
        /// Whose.
        ticket: Ticket,
        /// The commands.
        requests: Vec<Bytes>,
        /// How long they may wait for others: 0 for all but renewals, for which it is
        /// min([`BATCH_US`](crate::BATCH_US), ttl / 60).
        patience_us: u64,
        /// When their caller gives up, by the clock of the turns. What waits longer is not proposed.
        deadline_us: u64,
    },
    /// Something shall be read that is not older than now. Answered by [`Output::ReadReady`] or
    /// [`Output::ReadFailed`].
    Read {
        /// Whose.
        ticket: Ticket,
    },
    /// Everything up to this [`Persist`] is durable.
    Persisted {
        /// Its number.
        number: u64,
    },
    /// A snapshot that was asked for is durable, or will never be.
    SnapshotSaved {
        /// Where.
        point: Point,
        /// Whether.
        saved: Saved,
    },
    /// A snapshot from another member is complete and durable on this disk.
    SnapshotReceived {
        /// From whom.
        from: MemberId,
        /// The step that announced it.
        step: Step,
        /// The state in it.
        machine: Box<Machine>,
        /// The members in it.
        members: Membership,
    },
    /// A snapshot has reached another member, or never will. Due for every
    /// [`Output::SendSnapshot`].
    SnapshotSent {
        /// To whom.
        to: MemberId,
        /// Whether.
        saved: Saved,
    },
    /// Another member says up to which level it knows the machine's rules. The newest word counts.
    Knows {
        /// Who.
        member: MemberId,
        /// The level.
        level: u16,
    },
    /// From now on messages reach this member. It may remember what this one has forgotten.
    Linked {
        /// Who.
        member: MemberId,
    },
    /// The caller vouches for these members, as far as they are not retired: the operator has named
    /// them, or their links have proved who they are. Replaces what it said before.
    Known {
        /// The members.
        ids: BTreeSet<MemberId>,
    },
    /// Messages to this member are lost for now.
    Unreachable {
        /// Who.
        member: MemberId,
    },
    /// How much this member's disk can still take. While a leader, or so many others that no
    /// quorum is left, are short of space, commands that make the state grow are not done.
    Space(Space),
    /// An operator's wish. Answered by [`Output::Changed`].
    Admin {
        /// Whose.
        ticket: Ticket,
        /// What.
        wish: Wish,
    },
}

/// Whether a snapshot arrived where it should.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Saved {
    /// It did.
    Yes,
    /// It did not.
    No,
}

/// How much room there is on a member's disk. A member starts with enough.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Space {
    /// The state may grow.
    Enough,
    /// What is left is for renewals, releases and whatever makes room.
    Short,
}

/// What an operator wants of a leader.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Wish {
    /// Other members. Several changes at once go through a joint configuration.
    Change(Vec<Change>),
    /// Another leader.
    Transfer(MemberId),
}

/// Something that has to happen outside. Outputs are to be taken in order.
pub enum Output {
    /// Send a message. It may be lost, delayed or doubled.
    Send {
        /// To whom.
        to: MemberId,
        /// What.
        message: Message,
    },
    /// Send the snapshot at the point that the step names, then the step. Report with
    /// [`Input::SnapshotSent`], in any case, also if it is not there any more.
    SendSnapshot {
        /// To whom.
        to: MemberId,
        /// The step that announces it.
        step: Step,
    },
    /// Write this to the log. Report with [`Input::Persisted`] once it is durable.
    Persist(Persist),
    /// What became of commands.
    Answer {
        /// Whose.
        ticket: Ticket,
        /// What.
        fate: Fate,
    },
    /// The machine may be asked now: it has everything that was acknowledged before the read came.
    ReadReady {
        /// Whose.
        ticket: Ticket,
    },
    /// There was no quorum, or another leader. A new read may succeed.
    ReadFailed {
        /// Whose.
        ticket: Ticket,
    },
    /// What became of an operator's wish. A transfer is answered when it has begun.
    Changed {
        /// Whose.
        ticket: Ticket,
        /// What.
        result: Result<(), Why>,
    },
    /// The machine's notices, for the sessions of their leases.
    Notices(Vec<Notice>),
    /// The machine has applied everything up to here.
    Applied {
        /// The last entry.
        point: Point,
        /// The newest revision, for watches.
        revision: Revision,
    },
    /// Write a snapshot. Report with [`Input::SnapshotSaved`].
    SaveSnapshot {
        /// The last entry that it includes.
        point: Point,
        /// What [`Membership::decode`] reads back: the meta of the snapshot.
        meta: Vec<u8>,
        /// The state.
        frozen: Box<Frozen>,
    },
    /// Entries up to this index are not needed any more. Do it after everything before it in this
    /// list is durable.
    CompactLog {
        /// The index.
        to: u64,
    },
    /// Another leader, or none.
    Led {
        /// In which term.
        term: Term,
        /// By whom.
        by: Option<MemberId>,
    },
    /// The member must stop. Nothing follows. What comes before it in the list is done first: messages
    /// leave, in particular those by which a removed leader tells the others that they go on without
    /// it.
    Stop(Stop),
}

/// Changes to the log that take effect together.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Persist {
    /// Never goes back. Reporting one reports all before it.
    pub number: u64,
    /// Empty the log and go on after this point.
    pub snapshot: Option<Point>,
    /// Entries.
    pub entries: Vec<Entry>,
    /// The hard state after them.
    pub hard_state: Option<HardState>,
    /// What this member remembers of the others.
    pub notes: Option<Vec<u8>>,
}

impl Persist {
    /// The batch to write.
    pub fn batch(&self) -> Batch<'_> {
        Batch {
            snapshot: self.snapshot,
            entries: &self.entries,
            hard_state: self.hard_state,
            notes: self.notes.as_deref(),
        }
    }
}

/// What became of commands, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fate {
    /// They were applied.
    Applied(Vec<Outcome>),
    /// They had no effect and never will.
    NotDone {
        /// How many.
        commands: usize,
        /// Why.
        why: Why,
    },
    /// They may have had an effect; this member cannot know.
    Unknown {
        /// How many.
        commands: usize,
    },
}

/// Why something was not done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Why {
    /// Somebody else leads, or nobody.
    #[error("not the leader")]
    NotLeader {
        /// Who does.
        leader: Option<MemberId>,
    },
    /// Leadership is being handed over.
    #[error("leadership is being handed over")]
    Transferring,
    /// Too much waits for a quorum.
    #[error("too much is waiting for a quorum")]
    Busy,
    /// Its caller's deadline passed before it was proposed.
    #[error("the deadline passed before it was proposed")]
    Expired,
    /// It would make the state grow, and disks are nearly full.
    #[error("disk full")]
    DiskFull,
    /// Another leader put something else in its place.
    #[error("replaced by another leader")]
    Replaced,
    /// A change of members has not ended, or the leader has just begun.
    #[error("another change is under way")]
    ChangeUnderWay,
    /// The change makes no sense for these members.
    #[error("not possible with these members")]
    Impossible,
    /// An id that was removed is never used again.
    #[error("this member was removed and needs a new id")]
    Retired,
    /// The learner is too far behind to decide with the others.
    #[error("the member is {behind} entries behind")]
    NotCaughtUp {
        /// How far.
        behind: u64,
    },
    /// The level cannot be raised: a member does not know it, or has not said so since this one
    /// started.
    #[error("level {level} is not known by all: member {member} {}", knows(.known))]
    LevelNotKnown {
        /// The level.
        level: u16,
        /// The first member that is in the way.
        member: MemberId,
        /// Up to where it knows them, if it has said so.
        known: Option<u16>,
    },
}

/// Why a member must stop.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Stop {
    /// Its state is not that of a majority.
    #[error("state differs from that of a majority at index {index}")]
    Diverged {
        /// At which entry.
        index: u64,
    },
    /// Its disk went back: it has lost something that this member had promised to keep.
    #[error("the disk went back: member {by} remembers {lost}")]
    Forgot {
        /// The member that remembers.
        by: MemberId,
        /// What it remembers and this disk does not have.
        lost: Lost,
    },
    /// It was removed from the cluster.
    #[error("removed from the cluster")]
    Removed,
    /// The cluster's level was raised beyond what this build knows.
    #[error("the cluster is at level {level}, this version of tenure knows up to {known}")]
    Outgrown {
        /// The cluster's.
        level: u16,
        /// What is known here.
        known: u16,
    },
    /// An entry of the log cannot be read.
    #[error("entry {index} is malformed")]
    Malformed {
        /// Which.
        index: u64,
    },
}

/// What a disk has lost that its member had promised to keep.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Lost {
    /// The member took part in a newer term than its disk knows.
    #[error("term {seen}, the disk knows term {durable}")]
    Term {
        /// The newest term in which it took part.
        seen: u64,
        /// The newest that the disk knows.
        durable: u64,
    },
    /// The member voted for another one, or the disk knows of no vote.
    #[error("a vote for {vote} in term {term} that the disk does not have")]
    Vote {
        /// The term.
        term: u64,
        /// The member that it voted for.
        vote: MemberId,
    },
    /// The member had an entry that is missing, or another one stands in its place.
    #[error(
        "entry {} of term {} that the disk does not have, its log ends at {last}",
        .held.index, .held.term
    )]
    Entry {
        /// The entry.
        held: Point,
        /// The last index of the log.
        last: u64,
    },
}

fn knows(known: &Option<u16>) -> String {
    known.map_or("has not said what it knows".into(), |known| format!("knows up to {known}"))
}
