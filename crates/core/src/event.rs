//! Defines the events that watches receive.

use alloc::boxed::Box;
use tenure_types::{LeaseId, Mode, Name, PlaceNumber, Revision, Token};

/// Why something changed. Events, notices, logs and metrics use the same word.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Cause {
    /// A lock was granted.
    Granted = 1,
    /// The holder released the lock.
    Released = 2,
    /// The lease was not renewed in time.
    Expired = 3,
    /// The lease was revoked.
    Revoked = 4,
    /// The lock was taken away.
    Forced = 5,
    /// The lock was held for its longest allowed time.
    MaxHold = 6,
    /// The cooling is over: the holder confirmed that it has stopped, or its lease would have ended.
    Cooled = 7,
    /// The lock-delay is over.
    DelayOver = 8,
    /// An exclusive hold became a shared one.
    Downgraded = 9,
    /// The holder replaced the metadata.
    Updated = 10,
    /// A request joined a queue.
    Queued = 11,
    /// A waiter left the queue.
    Left = 12,
    /// A waiter left the queue because its wait limit passed.
    WaitTimeout = 13,
    /// An election has no leader any more.
    Vacant = 14,
    /// A key was written.
    KeyPut = 15,
    /// A key was deleted.
    KeyDeleted = 16,
    /// A lease was granted.
    LeaseGranted = 17,
    /// Limits were set. From level 14 on the value tells which, as `name=value` separated by spaces.
    LimitsSet = 18,
    /// The level was raised. From level 14 on the value is the new level.
    LevelRaised = 19,
    /// The access rules were changed. The reason says what was done, the value names what it was done to.
    AccessChanged = 20,
    /// An acquire request was refused because it would have waited for ever. Recorded from level 4 on.
    Deadlock = 21,
    /// The min hold since the grant is over, and no lease holds the lock any more. From level 6 on.
    MinHoldOver = 22,
    /// An operator closed a prefix to new grants. The value is the prefix. From level 7 on.
    Drained = 23,
    /// An operator opened a prefix again. The value is the prefix. From level 7 on.
    Undrained = 24,
    /// A newer request of the same group has replaced a waiter: `by` is its client, the reason the group. From level 7
    /// on.
    Superseded = 25,
    /// The holder did not report a larger number in the time that it promised. The reason tells the number. From
    /// level 9 on.
    NoProgress = 26,
    /// A shared hold became an exclusive one. From level 10 on.
    Upgraded = 27,
    /// The holder gave its hold to the lease that waited in this place. The grant to that lease follows. From level 10
    /// on.
    HandedOn = 28,
    /// An operator set the number of slots of a semaphore, which is in the mode, or left it to the requests, without a
    /// mode. From level 11 on.
    Resized = 29,
    /// A waiter left the queue because it requested more slots than its semaphore has since it was resized. From level
    /// 11 on.
    TooManySlots = 30,
    /// A waiter left the queue because another of its locks was granted, and it had asked for any of them. From level
    /// 13 on.
    GrantedElsewhere = 31,
    /// The history was compacted by command. The value is the oldest revision that is left. From level 14 on.
    HistoryCompacted = 32,
}

impl Cause {
    /// All causes.
    pub const ALL: [Cause; 32] = [
        Cause::Granted,
        Cause::Released,
        Cause::Expired,
        Cause::Revoked,
        Cause::Forced,
        Cause::MaxHold,
        Cause::Cooled,
        Cause::DelayOver,
        Cause::Downgraded,
        Cause::Updated,
        Cause::Queued,
        Cause::Left,
        Cause::WaitTimeout,
        Cause::Vacant,
        Cause::KeyPut,
        Cause::KeyDeleted,
        Cause::LeaseGranted,
        Cause::LimitsSet,
        Cause::LevelRaised,
        Cause::AccessChanged,
        Cause::Deadlock,
        Cause::MinHoldOver,
        Cause::Drained,
        Cause::Undrained,
        Cause::Superseded,
        Cause::NoProgress,
        Cause::Upgraded,
        Cause::HandedOn,
        Cause::Resized,
        Cause::TooManySlots,
        Cause::GrantedElsewhere,
        Cause::HistoryCompacted,
    ];

    /// Returns the cause with this number.
    pub fn from_number(number: u8) -> Option<Cause> {
        Self::ALL.get(usize::from(number).checked_sub(1)?).copied()
    }

    /// The machine-readable word.
    pub fn word(self) -> &'static str {
        match self {
            Cause::Granted => "granted",
            Cause::Released => "released",
            Cause::Expired => "expired",
            Cause::Revoked => "revoked",
            Cause::Forced => "forced",
            Cause::MaxHold => "max_hold",
            Cause::Cooled => "cooled",
            Cause::DelayOver => "delay_over",
            Cause::Downgraded => "downgraded",
            Cause::Updated => "updated",
            Cause::Queued => "queued",
            Cause::Left => "left",
            Cause::WaitTimeout => "wait_timeout",
            Cause::Vacant => "vacant",
            Cause::KeyPut => "key_put",
            Cause::KeyDeleted => "key_deleted",
            Cause::LeaseGranted => "lease_granted",
            Cause::LimitsSet => "limits_set",
            Cause::LevelRaised => "level_raised",
            Cause::AccessChanged => "access_changed",
            Cause::Deadlock => "deadlock",
            Cause::MinHoldOver => "min_hold_over",
            Cause::Drained => "drained",
            Cause::Undrained => "undrained",
            Cause::Superseded => "superseded",
            Cause::NoProgress => "no_progress",
            Cause::Upgraded => "upgraded",
            Cause::HandedOn => "handed_on",
            Cause::Resized => "resized",
            Cause::TooManySlots => "too_many_slots",
            Cause::GrantedElsewhere => "granted_elsewhere",
            Cause::HistoryCompacted => "history_compacted",
        }
    }
}

/// The reason in the event [`Cause::Cooled`] if the cooling ended because the holder confirmed that it has stopped.
/// From level 4 on.
pub const HOLDER_STOPPED: &str = "the holder has stopped";

/// The reason in the event [`Cause::Cooled`] if an operator ended the cooling and gave no reason. From level 4 on.
pub const FORCED_NOW: &str = "forced without waiting";

/// The reason in the event [`Cause::Queued`] of a place whose lease holds the lock and waits for an upgrade.
pub const UPGRADE: &str = "upgrade";

/// The reason in the event [`Cause::Queued`] of a request for any of several locks.
pub const ANY: &str = "any";

/// What an event is about.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Subject {
    /// A lock.
    Lock(Name),
    /// A key.
    Key(Name),
    /// A lease.
    Lease(LeaseId),
    /// The cluster's settings.
    Settings,
}

/// One change. Its cause determines which fields are present.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// The cause of the change.
    pub cause: Cause,
    /// What the change is about.
    pub subject: Subject,
    /// The lease that holds, held, waits for or owns the subject.
    pub lease: Option<LeaseId>,
    /// Its client.
    pub client: Option<Name>,
    /// The token of the grant.
    pub token: Option<Token>,
    /// The mode in which the lock is held or requested.
    pub mode: Option<Mode>,
    /// The slot of a semaphore.
    pub slot: Option<u32>,
    /// The place in the queue.
    pub place: Option<PlaceNumber>,
    /// For how much longer the lock stays unavailable, by the machine's clock.
    pub left_ms: Option<u64>,
    /// The name that the operator who took a lock away or revoked a lease gave.
    pub by: Option<Name>,
    /// The reason that the operator gave for taking a lock away.
    pub reason: Option<Box<str>>,
    /// The authenticated caller that took a lock away, revoked a lease, set limits, raised the level, drained or opened
    /// a prefix or had a key of the cluster itself changed. Recorded from level 4 on.
    pub principal: Option<Name>,
    /// The new value of a key, metadata of a lock, or what was done to the settings.
    pub value: Option<Box<[u8]>>,
    /// The previous value.
    pub previous: Option<Previous>,
    /// The ttl of the lease: in events that grant a lock or a lease, and in those that end a hold or a lease. From
    /// level 4 on.
    pub ttl_ms: Option<u64>,
    /// The machine's clock at the last renewal of the lease, or at its grant: in events that end a hold or a lease.
    /// From level 4 on.
    pub renewed_ms: Option<u64>,
    /// The priority of the request, unless it is 0: in events that queue one. From level 8 on.
    pub priority: Option<u8>,
}

/// The previous value of a key that was written or deleted, or of metadata that was replaced.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Previous {
    /// The revision that last changed it.
    pub modified: Revision,
    /// The value itself.
    pub value: Box<[u8]>,
}

/// All events of one revision.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Batch {
    /// The revision.
    pub revision: Revision,
    /// When it happened; `None` for entries without a label.
    pub label: Option<TimeLabel>,
    /// Its events, in order.
    pub events: alloc::vec::Vec<Event>,
}

/// The wall clock of a leader.
///
/// It may jump, run backwards and differ between members. It is a label for people: the machine copies it into events
/// and never reads it, so that no clock of any member can change a decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WallClock {
    /// Milliseconds since 1970.
    pub unix_ms: u64,
}

/// When a revision happened: by the leader's wall clock, for people, and by the machine's clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimeLabel {
    /// The wall clock of the leader that proposed the entry.
    pub wall: WallClock,
    /// The machine's clock, by which leases end.
    pub clock_ms: u64,
}
