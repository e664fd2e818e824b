//! What can be seen to happen?

use alloc::boxed::Box;
use tenure_types::{LeaseId, Mode, Name, PlaceNumber, Revision, Token};

/// Why something changed. The word is the same in events, notices, logs and metrics.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Cause {
    /// A lock was granted.
    Granted = 1,
    /// Its holder gave it back.
    Released = 2,
    /// The lease was not renewed in time.
    Expired = 3,
    /// The lease was revoked.
    Revoked = 4,
    /// The lock was taken away.
    Forced = 5,
    /// The lock was held as long as it may be.
    MaxHold = 6,
    /// The holder confirmed that it has stopped, or could not have gone on: the cooling is over.
    Cooled = 7,
    /// The lock-delay is over.
    DelayOver = 8,
    /// An exclusive hold became a shared one.
    Downgraded = 9,
    /// The holder replaced the metadata.
    Updated = 10,
    /// A place was taken in a queue.
    Queued = 11,
    /// A place was given up.
    Left = 12,
    /// A place was given up because its wait was over.
    WaitTimeout = 13,
    /// An election has no leader.
    Vacant = 14,
    /// A key was written.
    KeyPut = 15,
    /// A key was deleted.
    KeyDeleted = 16,
    /// A lease was granted.
    LeaseGranted = 17,
    /// Limits were set.
    LimitsSet = 18,
    /// The level was raised.
    LevelRaised = 19,
}

impl Cause {
    /// All causes.
    pub const ALL: [Cause; 19] = [
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
    ];

    /// The cause with this number.
    pub fn from_number(number: u8) -> Option<Cause> {
        Self::ALL.get(usize::from(number).checked_sub(1)?).copied()
    }

    /// The word for programs.
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
        }
    }
}

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

/// One change. Which fields are there depends on its cause.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// Why.
    pub cause: Cause,
    /// Of what.
    pub subject: Subject,
    /// The lease that holds, held, waits or owns.
    pub lease: Option<LeaseId>,
    /// Its client.
    pub client: Option<Name>,
    /// The token of the grant.
    pub token: Option<Token>,
    /// How it is held or asked for.
    pub mode: Option<Mode>,
    /// Which slot of a semaphore.
    pub slot: Option<u32>,
    /// Which place in the queue.
    pub place: Option<PlaceNumber>,
    /// For how much longer nobody may have the lock, by the machine's clock.
    pub left_ms: Option<u64>,
    /// Who took a lock away or revoked a lease, as they called themselves.
    pub by: Option<Name>,
    /// What the one who took a lock away gave as reason.
    pub reason: Option<Box<str>>,
    /// The new value of a key, or metadata of a lock.
    pub value: Option<Box<[u8]>>,
    /// What was there before.
    pub previous: Option<Previous>,
}

/// What was there before a key was written or deleted, or metadata replaced.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Previous {
    /// When it was last changed.
    pub modified: Revision,
    /// The value.
    pub value: Box<[u8]>,
}

/// All events of one revision.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Batch {
    /// Which revision.
    pub revision: Revision,
    /// Its events, in order.
    pub events: alloc::vec::Vec<Event>,
}
