//! Defines the JSON of locks, holders and waiters.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::content::text_or_base64;
use super::{Decimal, LockMode, Standing, is_false, is_zero, signed};
use crate::v1;

/// The member that answers, and the revision that its answer is based on. In every answer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Header {
    /// The cluster.
    pub cluster_id: Decimal,
    /// The member that answers.
    pub member_id: Decimal,
    /// The newest revision the answer is based on.
    pub revision: Decimal,
    /// The Raft term, for display.
    pub raft_term: Decimal,
}

impl From<v1::Header> for Header {
    fn from(header: v1::Header) -> Self {
        Self {
            cluster_id: Decimal(header.cluster_id),
            member_id: Decimal(header.member_id),
            revision: signed(header.revision),
            raft_term: Decimal(header.raft_term),
        }
    }
}

/// Who has a lock, as shown to one who does not.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Holder {
    /// The client.
    pub client: String,
    /// The token of the grant.
    pub token: Decimal,
    /// For how long it is held.
    pub held_ms: u64,
    /// The lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<Decimal>,
    /// Whether it still holds; absent means `held`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<Standing>,
    /// While revoking (`cooling`) or delayed: for how much longer at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_ms: Option<u64>,
}

impl From<v1::Holder> for Holder {
    fn from(holder: v1::Holder) -> Self {
        let state = Standing::from_wire(holder.state);
        let over = state != Standing::Held;
        Self {
            client: holder.client,
            token: Decimal(holder.token),
            held_ms: holder.held_ms,
            lease: super::some(holder.lease),
            state: over.then_some(state),
            left_ms: over.then_some(holder.left_ms),
        }
    }
}

/// One lock that is held.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Holding {
    /// The name of the lock.
    pub lock: String,
    /// The fencing token.
    pub token: Decimal,
    /// Which slot of a semaphore, counted from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slot: Option<u32>,
}

impl From<v1::LockGrant> for Holding {
    fn from(grant: v1::LockGrant) -> Self {
        Self { lock: grant.lock, token: Decimal(grant.token), slot: grant.slot }
    }
}

/// A lock, its holders and how many wait.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LockShown {
    /// The name of the lock.
    pub lock: String,
    /// How many slots it has; absent for a plain lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<u32>,
    /// Whether an operator set that number. It holds then, whatever number a request names.
    #[serde(default, skip_serializing_if = "is_false")]
    pub sized: bool,
    /// The revision since which it exists.
    pub created: Decimal,
    /// The revision at which its holders or metadata last changed.
    pub modified: Decimal,
    /// How often its holders or metadata changed.
    pub version: u64,
    /// The grants in force. At most 1,024, and fewer if they are large.
    pub holders: Vec<HolderShown>,
    /// How many grants in force are left out of the holders.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more_holders: u64,
    /// The number of waiters.
    pub waiting: u64,
}

impl From<v1::LockView> for LockShown {
    fn from(lock: v1::LockView) -> Self {
        Self {
            lock: lock.lock,
            slots: lock.slots,
            sized: lock.sized,
            created: signed(lock.created),
            modified: signed(lock.modified),
            version: lock.version,
            holders: lock.holders.into_iter().map(Into::into).collect(),
            more_holders: lock.more_holders,
            waiting: lock.waiting,
        }
    }
}

/// One grant in force.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct HolderShown {
    /// The client of the lease.
    pub client: String,
    /// The fencing token.
    pub token: Decimal,
    /// The mode in which the lock is held.
    pub mode: LockMode,
    /// The slot of a semaphore.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slot: Option<u32>,
    /// For how long it is held.
    pub held_ms: u64,
    /// Whether it still is the holder's.
    pub state: Standing,
    /// While revoking (`cooling`) or delayed: for how much longer at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_ms: Option<u64>,
    /// How long ago its lease was renewed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renewed_ms: Option<u64>,
    /// The lease.
    pub lease: Decimal,
    /// The revision that created the lease.
    pub lease_created: Decimal,
    /// The queue position it was granted to.
    pub place: Decimal,
    /// Whether it is leadership rather than a lock.
    #[serde(default, skip_serializing_if = "is_false")]
    pub election: bool,
    /// Its metadata, if it is text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<String>,
    /// Its metadata, if it is not text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata_base64: Option<String>,
    /// The lock-delay that follows an involuntary end.
    pub lock_delay_ms: u64,
    /// How long it may be held at most; absent for no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_hold_ms: Option<u64>,
    /// The least time from the grant to the next grant; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_hold_ms: Option<u64>,
    /// The progress that the holder promised; absent if it promised none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<ProgressShown>,
}

/// How far the work under a grant has come, and when it must have come further.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ProgressShown {
    /// The largest number reported; 0 before the first.
    pub number: Decimal,
    /// Within how much time a larger one must follow.
    pub within_ms: u64,
    /// How long ago the number was reported; before the first one, how long ago the lock was granted.
    pub still_ms: u64,
    /// In how much time a larger number is due.
    pub left_ms: u64,
}

impl From<v1::ProgressView> for ProgressShown {
    fn from(progress: v1::ProgressView) -> Self {
        Self {
            number: Decimal(progress.number),
            within_ms: progress.within_ms,
            still_ms: progress.still_ms,
            left_ms: progress.left_ms,
        }
    }
}

impl From<v1::HolderView> for HolderShown {
    fn from(holder: v1::HolderView) -> Self {
        let (metadata, metadata_base64) = text_or_base64(&holder.metadata);
        let state = Standing::from_wire(holder.state);
        Self {
            client: holder.client,
            token: Decimal(holder.token),
            mode: LockMode::from_wire(holder.mode),
            slot: holder.slot,
            held_ms: holder.held_ms,
            state,
            left_ms: (state != Standing::Held).then_some(holder.left_ms),
            renewed_ms: holder.renewed_ms,
            lease: signed(holder.lease),
            lease_created: signed(holder.lease_created),
            place: Decimal(holder.place),
            election: holder.election,
            metadata,
            metadata_base64,
            lock_delay_ms: holder.lock_delay_ms,
            max_hold_ms: holder.max_hold_ms,
            min_hold_ms: (holder.min_hold_ms > 0).then_some(holder.min_hold_ms),
            progress: holder.progress.map(Into::into),
        }
    }
}

/// One position in a lock's queue.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct WaiterShown {
    /// The place.
    pub place: Decimal,
    /// The client that waits.
    pub client: String,
    /// Its lease.
    pub lease: Decimal,
    /// How it asks for the lock.
    pub mode: LockMode,
    /// With mode `slot`: of how many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<u32>,
    /// With mode `slot`: how many of them it asks for; absent for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub take: Option<u32>,
    /// The revision at which it came.
    pub created: Decimal,
    /// How many are before it.
    pub ahead: u64,
    /// The queue position directly before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub behind: Option<Decimal>,
    /// For how long it waits.
    pub waiting_ms: u64,
    /// For how much longer it will; absent for no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_ms: Option<u64>,
    /// Whether it is a candidacy.
    #[serde(default, skip_serializing_if = "is_false")]
    pub election: bool,
    /// Every lock of the acquire request.
    pub locks: Vec<String>,
    /// Whether one of these locks is enough.
    #[serde(default, skip_serializing_if = "is_false")]
    pub any: bool,
    /// The prefix of the pool whose slots these locks are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// The group whose next request replaces it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub supersede: Option<String>,
    /// Its priority; absent for 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
    /// For how much longer new requests with a higher priority may pass it; absent if none can any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passable_ms: Option<u64>,
}

impl From<v1::WaiterView> for WaiterShown {
    fn from(waiter: v1::WaiterView) -> Self {
        Self {
            place: Decimal(waiter.place),
            client: waiter.client,
            lease: signed(waiter.lease),
            mode: LockMode::from_wire(waiter.mode),
            slots: (waiter.slots > 0).then_some(waiter.slots),
            take: (waiter.take > 0).then_some(waiter.take),
            created: signed(waiter.created),
            ahead: waiter.ahead,
            behind: (waiter.behind > 0).then_some(Decimal(waiter.behind)),
            waiting_ms: waiter.waiting_ms,
            left_ms: waiter.left_ms,
            election: waiter.election,
            supersede: (!waiter.supersede.is_empty()).then_some(waiter.supersede),
            priority: (waiter.priority > 0).then_some(waiter.priority),
            passable_ms: (waiter.passable_ms > 0).then_some(waiter.passable_ms),
            locks: waiter.locks,
            any: waiter.any,
            pool: (!waiter.pool.is_empty()).then_some(waiter.pool),
        }
    }
}
