//! How does the machine show its state to those who ask?
//!
//! Views are copies made for one answer. Times in them are durations by the machine's clock, never
//! moments: no two members' clocks need agree for them to be right.

use alloc::boxed::Box;
use alloc::vec::Vec;
use tenure_types::{Handle, HolderState, LeaseId, Mode, Name, PlaceNumber, Revision, Token};

use crate::request::Purpose;

/// A lock, its holders and its queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LockView {
    /// Which.
    pub lock: Name,
    /// How many slots it has; `None` for a plain lock.
    pub slots: Option<u32>,
    /// The revision since which it exists.
    pub created: Revision,
    /// The revision at which its holders or metadata last changed.
    pub modified: Revision,
    /// How often they changed.
    pub version: u64,
    /// The grants in force, in the order of their slots or, without slots, of their tokens.
    pub holders: Vec<HolderView>,
    /// How many wait.
    pub waiting: u64,
}

/// One grant in force.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HolderView {
    /// The lease that has it, or had it before it was taken away.
    pub lease: LeaseId,
    /// The revision that created the lease.
    pub lease_created: Revision,
    /// The client of the lease.
    pub client: Name,
    /// The fencing token.
    pub token: Token,
    /// How it is held.
    pub mode: Mode,
    /// Which slot of a semaphore.
    pub slot: Option<u32>,
    /// Which place it was granted to.
    pub place: PlaceNumber,
    /// For how long it is held.
    pub held_ms: u64,
    /// Whether it still is the holder's.
    pub state: HolderState,
    /// What it is for.
    pub purpose: Purpose,
    /// Its metadata.
    pub metadata: Box<[u8]>,
    /// The pause that follows an end the holder did not ask for.
    pub lock_delay_ms: u64,
    /// How long it may be held at most.
    pub max_hold_ms: Option<u64>,
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
    /// How it asks.
    pub mode: Mode,
    /// The revision at which it came.
    pub created: Revision,
    /// How many are before it.
    pub ahead: u64,
    /// The place directly before it.
    pub behind: Option<PlaceNumber>,
    /// For how long it waits.
    pub waiting_ms: u64,
    /// For how much longer it will.
    pub left_ms: Option<u64>,
    /// What it is for.
    pub purpose: Purpose,
    /// Every lock of the ask, in the order of their names.
    pub locks: Vec<Name>,
}

/// A lease and what is bound to it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeaseView {
    /// Its number.
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

/// A key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyView {
    /// Which.
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
