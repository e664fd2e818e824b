//! Defines what an acquire request asks for.

use alloc::vec::Vec;
use tenure_types::Mode;

use super::{LeaseRef, NewLease};

/// Locks to be acquired.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Acquire<'a> {
    /// The lease that acquires.
    pub lease: AskLease<'a>,
    /// The locks and their modes, in any order.
    pub locks: Asks<'a>,
    /// Whether one of the locks is enough: the request is granted the first one, in the order of names, that is free
    /// for it, and leaves the queues of the others. Of a pool, one slot is always enough. Available from `LEVEL_ANY`
    /// on.
    pub any: bool,
    /// How long to wait in the queue.
    pub wait: AskWait,
    /// The metadata of the grants; in an election, the candidate's value. May be empty.
    pub metadata: &'a [u8],
    /// How long the lock stays unavailable after an end that the holder did not ask for.
    pub lock_delay_ms: u64,
    /// The longest time that the lock may be held.
    pub max_hold_ms: Option<u64>,
    /// Within how much time after the grant, and after each report, the holder promises to report a larger number
    /// with `Command::Progress`; 0 for no promise. Available from `LEVEL_PROGRESS` on.
    pub progress_within_ms: u64,
    /// The least time from the grant to the next grant of the lock, even if the holder releases it earlier; 0 for none.
    /// Available from `LEVEL_MIN_HOLD` on.
    pub min_hold_ms: u64,
    /// The group whose older waiters this request replaces if it has to wait. Available from `LEVEL_POLICY` on.
    pub supersede: Option<&'a str>,
    /// Whether this only repeats a request that was queued before: it asks for nothing new, and is answered `Ended` if
    /// the lease neither holds nor awaits the locks any more. Available from `LEVEL_POLICY` on.
    pub resume: bool,
    /// How urgent the request is, up to `PRIORITY_MAX`; 0 is the default. Available from `LEVEL_PRIORITY`
    /// on.
    pub priority: u8,
    /// Whether this acquires a lock or runs for leadership.
    pub purpose: Purpose,
    /// Whether the lease's other work continues while it waits, so that this wait cannot be part of a deadlock.
    pub independent: bool,
}

/// The lease that locks are acquired for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AskLease<'a> {
    /// A lease that exists.
    Existing(LeaseRef),
    /// A lease that the same command grants.
    New(NewLease<'a>),
}

/// The locks of one acquire request. One lock is the common case and needs no allocation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Asks<'a> {
    /// One lock.
    One(Ask<'a>),
    /// Any other number of them.
    Many(Vec<Ask<'a>>),
    /// Any slot of a pool: of the semaphores whose names begin with this prefix and whose numbers of slots an operator
    /// has set. Of the mode, only how many slots it takes counts. Available from `LEVEL_ANY` on.
    Pool(Ask<'a>),
}

impl<'a> Asks<'a> {
    /// Returns the locks as a slice; of a pool, its prefix.
    pub fn as_slice(&self) -> &[Ask<'a>] {
        match self {
            Asks::One(ask) | Asks::Pool(ask) => core::slice::from_ref(ask),
            Asks::Many(asks) => asks,
        }
    }
}

/// One lock of an acquire request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Ask<'a> {
    /// The lock's name.
    pub lock: &'a str,
    /// The mode in which to acquire it.
    pub mode: Mode,
}

/// How long an acquire request waits in the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AskWait {
    /// It does not wait.
    No,
    /// It waits until it is granted.
    Unlimited,
    /// It waits for at most this long by the machine's clock. Zero means [`AskWait::No`].
    Limit {
        /// The limit in milliseconds.
        ms: u64,
    },
}

/// What a grant is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// A lock.
    Lock,
    /// Leadership: watchers see when it becomes vacant.
    Election,
}

impl Acquire<'_> {
    /// Whether one of several locks is enough.
    pub(crate) fn is_choice(&self) -> bool {
        self.pool().is_some() || self.any && self.locks.as_slice().len() > 1
    }

    /// The prefix of the pool, if it asks for a slot of one.
    pub fn pool(&self) -> Option<&str> {
        match &self.locks {
            Asks::Pool(ask) => Some(ask.lock),
            Asks::One(_) | Asks::Many(_) => None,
        }
    }

    /// Whether it takes more than one slot of some semaphore.
    pub(super) fn takes_several(&self) -> bool {
        self.locks.as_slice().iter().any(|ask| ask.mode.grants() != 1)
    }
}
