//! Defines the outcomes of commands and the notices that apply produces.

use alloc::boxed::Box;
use alloc::vec::Vec;
use tenure_types::{Handle, LeaseId, Name, PlaceNumber, Refusal, Revision, Token};

use crate::event::Cause;

/// The outcome of one command, with its revision.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// The newest revision when the outcome was made; the command's own, if it changed anything. A repeated answer has
    /// the revision of the first one, except for an acquire request that was granted or queued: its answer is its
    /// present state.
    pub revision: Revision,
    /// What the command did, or why the machine refused it.
    pub result: Result<Answer, Refusal>,
}

/// What a command did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The lease exists.
    LeaseGranted(LeaseGrant),
    /// One result for each lease named, in order.
    Renewed(Vec<Option<Renewal>>),
    /// The lease has ended.
    Revoked,
    /// The locks are held.
    Acquired(Acquired),
    /// The acquire request waits in the queue.
    Queued(Queued),
    /// An earlier acquire request with this request id is over: it left the queue, or was granted and has ended since.
    Ended,
    /// The lock was released.
    Released,
    /// The waiter left the queue.
    Left,
    /// Too late to leave the queue: the lease holds these locks.
    AlreadyHeld(Grants),
    /// The lock is held shared, under a new token.
    Downgraded {
        /// The new token.
        token: Token,
    },
    /// The metadata was replaced.
    Updated {
        /// The lock's version after the update.
        version: u64,
    },
    /// The lock was taken away.
    Forced {
        /// The longest time that the cooling, or a lock-delay that began at once, lasts by the machine's clock; 0 if
        /// the lock was passed on. A lock-delay may follow a cooling.
        left_ms: u64,
    },
    /// The cooling of the former holder's grant is over.
    Stopped,
    /// The key was written.
    Put(KeyWritten),
    /// The key does not exist any more.
    Deleted {
        /// Whether the key existed before.
        existed: bool,
    },
    /// The limits are set.
    LimitsSet,
    /// The history before the floor is gone.
    Compacted {
        /// The oldest revision that a watch can still start from.
        floor: Revision,
    },
    /// The level is raised.
    LevelRaised,
    /// The acquire request is taken back.
    Abandoned {
        /// Whether it was the last one for its place, so that the place or the locks were given up.
        released: bool,
    },
    /// The access rules are as the command said.
    AccessSet,
    /// The prefix is closed to new grants.
    Drained,
    /// The prefix is open.
    Undrained {
        /// Whether it was closed before.
        existed: bool,
    },
    /// The report of progress has arrived.
    Progressed {
        /// In how many milliseconds of the machine's clock a larger number is due; `None` if none was promised.
        left_ms: Option<u64>,
    },
    /// The hold was given to the other lease.
    HandedOn {
        /// The token of the new grant.
        token: Token,
    },
    /// The number of slots is as the command said.
    Resized,
}

impl Answer {
    /// How many bytes of names the answer carries, which is what a record of it weighs.
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
    /// The lease's number.
    pub id: LeaseId,
    /// The revision that created it. No other lease ever has the same number and revision.
    pub created: Revision,
    /// Its short name.
    pub handle: Handle,
    /// How long it lives after a renewal.
    pub ttl_ms: u64,
}

/// A renewed lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Renewal {
    /// How long the lease lives from now.
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
    /// How many places are ahead of it in the longest of its queues; in the shortest, if one of its locks is enough.
    pub ahead: u64,
}

/// The grants of one acquire request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Grants {
    /// One lock.
    One(LockGrant),
    /// Any other number of them.
    Many(Vec<LockGrant>),
}

impl Grants {
    /// Returns the grants as a slice.
    pub fn as_slice(&self) -> &[LockGrant] {
        match self {
            Grants::One(grant) => core::slice::from_ref(grant),
            Grants::Many(grants) => grants,
        }
    }
}

impl FromIterator<LockGrant> for Grants {
    fn from_iter<I: IntoIterator<Item = LockGrant>>(grants: I) -> Self {
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
pub struct LockGrant {
    /// The lock's name.
    pub lock: Name,
    /// The fencing token.
    pub token: Token,
    /// The slot of a semaphore, counted from 0.
    pub slot: Option<u32>,
}

impl LockGrant {
    /// The order in which the grants of one request are shown: by names, and of one semaphore by slots, which were
    /// granted in the order of tokens.
    pub(crate) fn order(&self) -> (&[u8], Token) {
        (self.lock.as_bytes(), self.token)
    }
}

/// A key that was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyWritten {
    /// How often the key was written since it was created; 1 after the first write.
    pub version: u64,
    /// The revision that created it.
    pub created: Revision,
}

/// What an entry did to leases other than the one that sent the command.
///
/// A notice is a hint for the session of a lease. The state is authoritative, so a notice for a lease without a session
/// is dropped without loss.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notice {
    /// A waiting lease has its locks now.
    Granted {
        /// The lease.
        lease: Handle,
        /// Its place.
        place: PlaceNumber,
        /// The revision of the grant.
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
        /// The token, which is no longer valid.
        token: Token,
        /// The revision of the loss.
        revision: Revision,
        /// The cause of the loss. `apply` always knows it. `None` in a notice that a member repeats from its state, if
        /// its history does not tell the cause.
        cause: Option<Cause>,
        /// Who took the lock away and why, if a caller did. The reason for revoking a lease is only in the notice of
        /// its end.
        word: Option<Box<TakenBy>>,
    },
    /// A place is gone because its wait limit passed, a newer request of its group has replaced it, its semaphore has
    /// fewer slots now than it requested, or the hold that it was to upgrade has ended.
    WaitEnded {
        /// The lease.
        lease: Handle,
        /// Its place.
        place: PlaceNumber,
        /// The revision in which the place was removed.
        revision: Revision,
        /// Why it is gone; `None` if the wait limit passed.
        refusal: Option<Box<Refusal>>,
    },
    /// A lease has expired or was revoked by another caller. Follows the notices for its locks.
    LeaseEnded {
        /// The lease.
        lease: Handle,
        /// The revision of the end.
        revision: Revision,
        /// The cause of the end; `None` as in `Lost`.
        cause: Option<Cause>,
        /// Who revoked the lease and why, if a caller did.
        word: Option<Box<TakenBy>>,
    },
}

/// Who took something away, and the stated reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TakenBy {
    /// The name that the caller gave.
    pub by: Option<Name>,
    /// The reason that the caller gave.
    pub reason: Option<Box<str>>,
}

/// The outcomes and notices of one entry. The caller reuses one value for all entries, so that its buffers are
/// allocated once.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Effects {
    /// One outcome for each command, in order.
    pub outcomes: Vec<Outcome>,
    /// Notices, in order.
    pub notices: Vec<Notice>,
}

impl Effects {
    /// Removes the outcomes and notices of the previous entry.
    pub fn clear(&mut self) {
        self.outcomes.clear();
        self.notices.clear();
    }
}
