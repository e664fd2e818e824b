//! What does the machine answer, and whom else does it tell?

use alloc::boxed::Box;
use alloc::vec::Vec;
use tenure_types::{Handle, LeaseId, Name, PlaceNumber, Refusal, Revision, Token};

use crate::event::Cause;

/// The answer to one command, dated.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// The newest revision when the answer was made; the command's own, if it changed anything. A repeated answer
    /// has the date of the first, except that an ask which was granted or queued is answered as it stands now.
    pub revision: Revision,
    /// What was done, or why not.
    pub result: Result<Answer, Refusal>,
}

/// What a command did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The lease exists.
    LeaseGranted(LeaseGrant),
    /// One for each lease named, in order.
    Renewed(Vec<Option<Renewal>>),
    /// The lease has ended.
    Revoked,
    /// The locks are held.
    Acquired(Acquired),
    /// The ask waits in the queue.
    Queued(Queued),
    /// An earlier ask of this request id is over: it was given up, or granted and has ended since.
    Ended,
    /// The lock was given back.
    Released,
    /// The place is given up.
    Left,
    /// Too late to leave: these locks are held.
    AlreadyHeld(Grants),
    /// The lock is held shared, under a new token.
    Downgraded {
        /// The new token.
        token: Token,
    },
    /// The metadata was replaced.
    Updated {
        /// The lock's version after it.
        version: u64,
    },
    /// The lock was taken away.
    Forced {
        /// How long the cooling, or the lock-delay that began at once, lasts at most, by the
        /// machine's clock; 0 if the lock has gone on. A lock-delay may follow a cooling.
        left_ms: u64,
    },
    /// Nobody waits for the former holder any more.
    Stopped,
    /// The key was written.
    Put(KeyWritten),
    /// The key does not exist any more.
    Deleted {
        /// Whether it did before.
        existed: bool,
    },
    /// The limits are set.
    LimitsSet,
    /// The history is forgotten.
    Compacted {
        /// The oldest revision that can still be asked for.
        floor: Revision,
    },
    /// The level is raised.
    LevelRaised,
    /// The ask is taken back.
    Abandoned {
        /// Whether it was the last one for its place, so that the place or the locks were given up.
        released: bool,
    },
}

impl Answer {
    /// How many bytes of names it carries: what remembering it weighs.
    pub fn name_bytes(&self) -> u64 {
        match self {
            Answer::AlreadyHeld(grants) => {
                grants.as_slice().iter().map(|grant| grant.lock.as_bytes().len() as u64).sum()
            }
            _ => 0,
        }
    }
}

/// A lease as its client needs to know it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeaseGrant {
    /// Its number.
    pub id: LeaseId,
    /// The revision that created it. Number and revision together are never used again.
    pub created: Revision,
    /// Its short name.
    pub handle: Handle,
    /// How long it lives after a renewal.
    pub ttl_ms: u64,
}

/// A renewed lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Renewal {
    /// How long it lives from now.
    pub ttl_ms: u64,
    /// The revision of the newest loss of a lock that the holder did not ask for; 0 if none.
    pub changed: Revision,
}

/// Locks that are held.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Acquired {
    /// The lease that holds.
    pub lease: LeaseGrant,
    /// The place the locks were granted to.
    pub place: PlaceNumber,
    /// The locks, in the order of their names.
    pub grants: Grants,
}

/// A place in the queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Queued {
    /// The lease that waits.
    pub lease: LeaseGrant,
    /// Its place.
    pub place: PlaceNumber,
    /// How many places are before it, in the longest of its queues.
    pub ahead: u64,
}

/// The grants of one ask.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Grants {
    /// One lock.
    One(Grant),
    /// Any other number of them.
    Many(Vec<Grant>),
}

impl Grants {
    /// The grants, as a slice.
    pub fn as_slice(&self) -> &[Grant] {
        match self {
            Grants::One(grant) => core::slice::from_ref(grant),
            Grants::Many(grants) => grants,
        }
    }
}

impl FromIterator<Grant> for Grants {
    fn from_iter<I: IntoIterator<Item = Grant>>(grants: I) -> Self {
        let mut grants = grants.into_iter();
        match (grants.next(), grants.next()) {
            (Some(only), None) => Grants::One(only),
            (None, _) => Grants::Many(Vec::new()),
            (Some(first), Some(second)) => {
                let mut all = Vec::from([first, second]);
                all.extend(grants);
                Grants::Many(all)
            }
        }
    }
}

/// One lock that is held.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Grant {
    /// Which.
    pub lock: Name,
    /// The fencing token.
    pub token: Token,
    /// Which slot of a semaphore, counted from 0.
    pub slot: Option<u32>,
}

/// A key that was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyWritten {
    /// How often it was written since it was created; 1 for the first time.
    pub version: u64,
    /// The revision that created it.
    pub created: Revision,
}

/// What an entry did beyond its answers, for those who were not asking.
///
/// A notice is a hint for the stream of a lease's session; the truth is in the state, so one that
/// finds no stream is dropped without loss.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notice {
    /// A waiting lease has its locks now.
    Granted {
        /// The lease.
        lease: Handle,
        /// Its place.
        place: PlaceNumber,
        /// When.
        revision: Revision,
        /// The locks.
        grants: Grants,
    },
    /// A lease lost a lock without having asked for it.
    Lost {
        /// The lease.
        lease: Handle,
        /// The lock.
        lock: Name,
        /// The token that is worth nothing now.
        token: Token,
        /// When.
        revision: Revision,
        /// Why.
        cause: Cause,
        /// On whose word, if it was somebody's. The reason of a revoked lease is told with its end.
        word: Option<Box<Word>>,
    },
    /// A place is gone because its wait was over.
    WaitEnded {
        /// The lease.
        lease: Handle,
        /// Its place.
        place: PlaceNumber,
        /// When.
        revision: Revision,
    },
    /// A lease has ended by clock or on somebody else's word. Follows the losses of its locks.
    LeaseEnded {
        /// The lease.
        lease: Handle,
        /// When.
        revision: Revision,
        /// Why.
        cause: Cause,
        /// On whose word, if it was somebody's.
        word: Option<Box<Word>>,
    },
}

/// Who took something away, and what they gave as reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Word {
    /// Who, as they called themselves.
    pub by: Option<Name>,
    /// Why.
    pub reason: Option<Box<str>>,
}

/// Everything one entry gave back. The caller keeps it and hands it in again, so that its buffers
/// are used for ever.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Effects {
    /// One outcome for each command, in order.
    pub outcomes: Vec<Outcome>,
    /// Notices, in order.
    pub notices: Vec<Notice>,
}

impl Effects {
    /// Forgets what the last entry gave back.
    pub fn clear(&mut self) {
        self.outcomes.clear();
        self.notices.clear();
    }
}
