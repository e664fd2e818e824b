//! Defines the views that queries return.
//!
//! A view is a copy made for one answer. Its times are durations by the machine's clock, never instants, so they are
//! right even if the clocks of the members disagree.

use alloc::boxed::Box;
use alloc::vec::Vec;
use tenure_types::{Handle, HolderState, LeaseId, Mode, Name, PlaceNumber, Revision, Token};

use crate::request::Purpose;

/// A lock, its holders and its queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LockView {
    /// The lock's name.
    pub lock: Name,
    /// How many slots it has; `None` for a plain lock.
    pub slots: Option<u32>,
    /// Whether an operator set that number, so that the numbers in requests do not count.
    pub sized: bool,
    /// The revision since which it exists.
    pub created: Revision,
    /// The revision at which its holders or metadata last changed.
    pub modified: Revision,
    /// How often its holders or metadata changed.
    pub version: u64,
    /// The grants in force, in the order of their slots or, without slots, of their tokens. At most 1,024, and fewer
    /// if they are large.
    pub holders: Vec<HolderView>,
    /// How many grants in force `holders` leaves out.
    pub more_holders: u64,
    /// How many places are in the queue.
    pub waiting: u64,
}

/// One grant in force.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HolderView {
    /// The lease that holds the lock, or held it before it was taken away.
    pub lease: LeaseId,
    /// The revision that created the lease.
    pub lease_created: Revision,
    /// The client of the lease.
    pub client: Name,
    /// The principal that owns the lease, if it has an owner.
    pub principal: Option<Name>,
    /// The fencing token.
    pub token: Token,
    /// The mode in which it is held.
    pub mode: Mode,
    /// The slot of a semaphore.
    pub slot: Option<u32>,
    /// The place that was granted.
    pub place: PlaceNumber,
    /// How long the lock has been held.
    pub held_ms: u64,
    /// Whether the lease holds the lock, or the grant is cooling, delayed or resting.
    pub state: HolderState,
    /// What the grant is for.
    pub purpose: Purpose,
    /// Its metadata.
    pub metadata: Box<[u8]>,
    /// How long the lock stays unavailable after an end that the holder did not ask for.
    pub lock_delay_ms: u64,
    /// The longest time that it may be held.
    pub max_hold_ms: Option<u64>,
    /// The least time from the grant to the next grant of the lock; 0 for none.
    pub min_hold_ms: u64,
    /// The progress that the holder promised; `None` if it promised none or the grant is over.
    pub progress: Option<ProgressView>,
}

/// How far the work under a grant has come, and when it must have come further.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProgressView {
    /// The largest number reported; 0 before the first.
    pub number: u64,
    /// Within how much time a larger one must follow.
    pub within_ms: u64,
    /// How long ago the number was reported; before the first one, how long ago the lock was granted.
    pub still_ms: u64,
    /// In how much time a larger number is due.
    pub left_ms: u64,
}

/// One place in a lock's queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WaiterView {
    /// The place.
    pub place: PlaceNumber,
    /// The lease that waits.
    pub lease: LeaseId,
    /// Its client.
    pub client: Name,
    /// The mode in which the lock is requested.
    pub mode: Mode,
    /// The revision at which it joined the queue.
    pub created: Revision,
    /// How many places are ahead of it.
    pub ahead: u64,
    /// The place directly ahead of it.
    pub behind: Option<PlaceNumber>,
    /// How long it has been waiting.
    pub waiting_ms: u64,
    /// How much longer it waits, if it has a limit.
    pub left_ms: Option<u64>,
    /// What the request is for.
    pub purpose: Purpose,
    /// Its priority.
    pub priority: u8,
    /// For how much longer new requests with a higher priority may pass it.
    pub passable_ms: u64,
    /// The group whose next request replaces it.
    pub group: Option<Name>,
    /// The principal that owns the lease, if it has an owner.
    pub principal: Option<Name>,
    /// Every lock of the acquire request, in the order of their names.
    pub locks: Vec<Name>,
    /// Whether one of these locks is enough.
    pub any: bool,
    /// The prefix of the pool whose slots these locks are.
    pub pool: Option<Name>,
}

/// A lease and what is bound to it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeaseView {
    /// The lease's number.
    pub id: LeaseId,
    /// The revision that created it.
    pub created: Revision,
    /// Its short name.
    pub handle: Handle,
    /// How long it lives after a renewal.
    pub ttl_ms: u64,
    /// How much longer it lives if it is not renewed.
    pub left_ms: u64,
    /// Its client.
    pub client: Name,
    /// Its metadata.
    pub metadata: Box<[u8]>,
    /// The revision of the newest loss that the holder did not ask for; 0 if none.
    pub changed: Revision,
    /// The locks it holds, in the order of their names.
    pub holds: Vec<(Name, Token)>,
    /// The locks it waits for, in the order of places and names.
    pub waits: Vec<(PlaceNumber, Name)>,
    /// The keys that end with it, in the order of their names.
    pub keys: Vec<Name>,
}

/// A prefix that is closed to new grants.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DrainView {
    /// The prefix; empty if it is that of every lock.
    pub prefix: Box<str>,
    /// The revision that closed it.
    pub created: Revision,
    /// How long ago that was.
    pub drained_ms: u64,
    /// The name that the operator gave.
    pub by: Option<Name>,
    /// The authenticated caller.
    pub principal: Option<Name>,
    /// The reason that the operator gave; may be empty.
    pub reason: Box<str>,
}

/// How far the machine has served the queues that may advance because a prefix was opened or the quiet period ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReopeningView {
    /// For how long the machine has done that.
    pub for_ms: u64,
    /// The last lease whose queues were served.
    pub after: Option<LeaseId>,
    /// Whether the queues of all leases are to be served once more.
    pub again: bool,
}

impl ReopeningView {
    /// Whether the queues of a lease are still to be served.
    pub fn is_ahead(&self, lease: LeaseId) -> bool {
        self.again || self.after < Some(lease)
    }
}

/// How many holders below a prefix may still be at work.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HoldersLeft {
    /// The grants that are held or cooling.
    pub holders: u64,
    /// The last lock that was counted, if there were too many for one read: the count continues after it.
    pub last: Option<Name>,
}

/// A key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyView {
    /// The key's name.
    pub key: Name,
    /// Its value.
    pub value: Box<[u8]>,
    /// The revision that created it.
    pub created: Revision,
    /// The revision that last wrote it.
    pub modified: Revision,
    /// How often it was written since it was created.
    pub version: u64,
    /// The lease it ends with.
    pub lease: Option<LeaseId>,
}
