//! Defines the JSON of `/v1/locks`, its paths, `/v1/semaphores` and `/v1/force`.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::event::Change;
use super::lease::{GrantLease, LeaseGranted};
use super::{
    Decimal, Header, Holding, LockMode, LockShown, WaiterShown, bytes_from, is_false, lease_number,
    signed,
};
use crate::{Failure, v1};

pub use super::drain::{Drain, DrainShown, Drained, Drains, Undrain, Undrained};
pub use super::patch::{Patch, Patched};

/// `POST /v1/locks/{lock}` and `POST /v1/locks`, and `acquire` on a session: locks to be acquired, all or none.
///
/// In a path the lock is not in the body, and `?wait=` says how long to wait; without it: not at all.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Acquire {
    /// The lock, if it is one; on a session only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lock: Option<String>,
    /// The locks, if they are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub locks: Vec<LockEntry>,
    /// The lease that will hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<Decimal>,
    /// A lease granted by the same command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_lease: Option<GrantLease>,
    /// How to hold the lock; absent means `exclusive`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<LockMode>,
    /// Of how many slots to hold one, or as many as `take` says. If an operator set the number of slots, this does not
    /// count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<u32>,
    /// How many slots to hold, all at once; absent means one. No request passes one that waits for more slots than
    /// are free. From feature level 11 on.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub take: Option<u32>,
    /// How long to wait, on a session: absent for no limit, 0 for not at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
    /// What the grants will carry, as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<String>,
    /// The same, as base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata_base64: Option<String>,
    /// Lock-delay: how long the lock is not granted after an involuntary end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lock_delay_ms: Option<u64>,
    /// How long it may be held at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_hold_ms: Option<u64>,
    /// The least time from the grant to the next grant, even if the lock is released earlier. From feature level 6 on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_hold_ms: Option<u64>,
    /// The group whose older waiters for the same lock this request replaces if it has to wait. A group is of one
    /// principal. From feature level 7 on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub supersede: Option<String>,
    /// Asks for nothing new: tells what became of an earlier request of the lease for the same locks. From feature
    /// level 7 on.
    #[serde(default, skip_serializing_if = "is_false")]
    pub resume: bool,
    /// How urgent it is, 0 to 9: the request stands in the queue as if it had come 30 seconds earlier for each step.
    /// Without a wait it passes no other request. More than 0 needs a role that permits it, or the verb `force`, for
    /// each lock. From feature level 8 on.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 9)]
    pub priority: Option<u32>,
    /// Within how much time after the grant, and after each report, the holder promises to report a larger number. A
    /// holder that does not is asked to stop, and loses the lock. From feature level 9 on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress_within_ms: Option<u64>,
    /// Turns the shared hold that the lease has of the lock into an exclusive one, once there is no other holder. The
    /// lease keeps its shared hold while it waits, before all others. With a wait and a lease only. From feature level
    /// 10 on.
    #[serde(default, skip_serializing_if = "is_false")]
    pub upgrade: bool,
    /// One of `locks` is enough: the first one, in the order of names, that is free. Until then the request waits in
    /// all their queues. The answer names the lock in `locks`. From feature level 13 on.
    #[serde(default, skip_serializing_if = "is_false")]
    pub any: bool,
    /// Instead of `lock` and `locks`: a prefix. The request is for any slot of the pool: of the semaphores below the
    /// prefix whose sizes an operator has set. It also waits for those that are added while it waits. The answer names
    /// the lock in `locks`. From feature level 13 on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// A candidacy rather than a lock.
    #[serde(default, skip_serializing_if = "is_false")]
    pub election: bool,
    /// The lease's other work goes on while it waits, so this wait closes no ring.
    #[serde(default, skip_serializing_if = "is_false")]
    pub independent: bool,
}

/// One lock of several: a name, or a name with how to hold it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum LockEntry {
    /// The name alone: an exclusive lock.
    Name(String),
    /// The name with the mode.
    Ask(LockAsk),
}

/// One lock of several, with how to hold it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LockAsk {
    /// The name of the lock.
    pub lock: String,
    /// The mode in which to hold it; `exclusive` if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<LockMode>,
    /// Of how many slots to hold one, or as many as `take` says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<u32>,
    /// How many slots to hold, all at once; absent means one. From feature level 11 on.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub take: Option<u32>,
}

impl TryFrom<LockEntry> for v1::LockAsk {
    type Error = Failure;

    fn try_from(entry: LockEntry) -> Result<Self, Failure> {
        let (lock, mode, slots, take) = match entry {
            LockEntry::Name(lock) => (lock, None, None, None),
            LockEntry::Ask(ask) => (ask.lock, ask.mode, ask.slots, ask.take),
        };
        let (mode, slots) = LockMode::to_wire(mode, slots)?;
        Ok(Self { lock, mode, slots, take: take_to_wire(slots, take)? })
    }
}

impl TryFrom<Acquire> for v1::AcquireRequest {
    type Error = Failure;

    fn try_from(ask: Acquire) -> Result<Self, Failure> {
        let (mode, slots) = LockMode::to_wire(ask.mode, ask.slots)?;
        // The slots of a pool have their own sizes.
        let take = take_to_wire(if ask.pool.is_some() { 1 } else { slots }, ask.take)?;
        let named = ask.lock.is_some();
        let ways = [named, !ask.locks.is_empty(), ask.pool.is_some()];
        if ways.into_iter().filter(|way| *way).count() != 1 {
            let problem = "names one lock; or `locks` several, or `pool` a pool, and then not this";
            let problem = problem.to_owned();
            return Err(Failure::InvalidField { field: "lock", problem });
        }
        if !named && (mode, slots) != (0, 0) {
            let problem = "stands with each of several locks, and not with a pool".to_owned();
            return Err(Failure::InvalidField { field: "mode", problem });
        }
        if ask.lease.is_some() == ask.new_lease.is_some() {
            let problem = "must be there; or `new_lease`, and then not this".to_owned();
            return Err(Failure::InvalidField { field: "lease", problem });
        }
        let several = ask.locks.into_iter().map(TryInto::try_into);
        let several: Vec<v1::LockAsk> = several.collect::<Result<_, _>>()?;
        let (locks, any_of) = match ask.any && several.len() > 1 {
            true => (Vec::new(), several),
            false => (several, Vec::new()),
        };
        Ok(Self {
            lock: ask.lock.unwrap_or_default(),
            lease: lease_number(ask.lease, "lease")?,
            mode,
            slots,
            take,
            wait_ms: ask.wait_ms,
            metadata: bytes_from("metadata", ask.metadata, ask.metadata_base64)?,
            lock_delay_ms: ask.lock_delay_ms.unwrap_or(0),
            max_hold_ms: ask.max_hold_ms,
            min_hold_ms: ask.min_hold_ms.unwrap_or(0),
            supersede: ask.supersede.unwrap_or_default(),
            resume: ask.resume,
            priority: ask.priority.unwrap_or(0),
            progress_within_ms: ask.progress_within_ms.unwrap_or(0),
            upgrade: ask.upgrade,
            any_of,
            pool: ask.pool.unwrap_or_default(),
            election: ask.election,
            independent: ask.independent,
            locks,
            new_lease: ask.new_lease.map(TryInto::try_into).transpose()?.map(Box::new),
            ..Self::default()
        })
    }
}

/// The answer to an acquire request: acquired, or (202, with `keep=true`) still waiting.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Acquired {
    /// The lock, if it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lock: Option<String>,
    /// The locks, if they are several and acquired; or the one that was granted of several, if any was enough.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub locks: Vec<Holding>,
    /// Whether they are held now.
    pub acquired: bool,
    /// The fencing token, if it is one lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<Decimal>,
    /// Which slot of a semaphore, if it is one lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slot: Option<u32>,
    /// The place.
    pub place: Decimal,
    /// If not acquired: how many are before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ahead: Option<u64>,
    /// The revision that created the lease.
    pub lease_created: Decimal,
    /// The lease, if the same command granted it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseGranted>,
    /// The member that answers, and its revision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<Header>,
}

impl Acquired {
    /// Builds the response for held locks. `lock` is the requested lock, unless there are several.
    pub fn held(lock: Option<String>, response: v1::AcquireResponse) -> Self {
        Self {
            token: lock.is_some().then_some(Decimal(response.token)),
            lock,
            locks: response.locks.into_iter().map(Into::into).collect(),
            acquired: true,
            slot: response.slot,
            place: Decimal(response.place),
            ahead: None,
            lease_created: signed(response.lease_created),
            lease: response.lease.map(Into::into),
            header: response.header.map(Into::into),
        }
    }

    /// Builds the response for a request that still waits.
    pub fn queued(lock: Option<String>, queued: v1::Queued, header: Option<Header>) -> Self {
        Self {
            lock,
            locks: Vec::new(),
            acquired: false,
            token: None,
            slot: None,
            place: Decimal(queued.place),
            ahead: Some(queued.ahead),
            lease_created: signed(queued.lease_created),
            lease: queued.lease.map(Into::into),
            header,
        }
    }
}

/// `DELETE /v1/locks/{lock}?lease=&token=`: the lock was given back.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Released {
    /// The name of the lock.
    pub lock: String,
    /// The member that answers, and its revision.
    pub header: Header,
}

/// `POST /v1/force`, and `force` on a session: a lock to be taken away.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Force {
    /// The name of the lock.
    pub lock: String,
    /// The token that the caller was shown.
    pub token: Decimal,
    /// The name of the operator, for the history and for the holder.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub by: String,
    /// The reason, for the record.
    pub reason: String,
    /// At once, without letting the holder stop first. Only a fence protects the resource then.
    #[serde(default, skip_serializing_if = "is_false")]
    pub now: bool,
}

impl From<Force> for v1::ForceRequest {
    fn from(force: Force) -> Self {
        let Force { lock, token, by, reason, now } = force;
        Self { lock, token: token.0, reason, now, by }
    }
}

/// The lock was taken away.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Forced {
    /// The name of the lock.
    pub lock: String,
    /// How long it is revoking or delayed at most; 0 if the lock has gone on.
    pub left_ms: u64,
    /// The member that answers, and its revision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<Header>,
}

/// `PUT /v1/semaphores/{lock}`: how many slots a semaphore has from now on.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSize {
    /// The number of slots, whatever number a request names.
    #[schema(minimum = 1)]
    pub slots: u32,
    /// The name of the operator, for the history.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub by: String,
}

/// `resize` on a session: how many slots a semaphore has from now on.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Resize {
    /// The name of the semaphore.
    pub lock: String,
    /// The number of slots, whatever number a request names; 0 leaves it to the requests again.
    pub slots: u32,
    /// The name of the operator, for the history.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub by: String,
}

impl From<Resize> for v1::ResizeRequest {
    fn from(resize: Resize) -> Self {
        let Resize { lock, slots, by } = resize;
        Self { lock, slots, by }
    }
}

/// `PUT` and `DELETE /v1/semaphores/{lock}`: the number of slots is set, or left to the requests.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Resized {
    /// The name of the semaphore.
    pub lock: String,
    /// The number of slots that was set; absent if it is left to the requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<u32>,
    /// The member that answers, and its revision.
    pub header: Header,
}

/// How many slots to hold, for the wire messages. Only a semaphore has slots.
fn take_to_wire(slots: u32, take: Option<u32>) -> Result<u32, Failure> {
    match take {
        None => Ok(0),
        Some(take) if take > 0 && slots > 0 => Ok(take),
        Some(_) => {
            let problem = "is at least 1, and goes with `slots`".to_owned();
            Err(Failure::InvalidField { field: "take", problem })
        }
    }
}

/// `GET /v1/locks/{lock}`: a lock; one that no client holds or awaits has no holders.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LockAnswer {
    /// The lock; absent if no client holds or awaits it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lock: Option<LockShown>,
    /// The member that answers, and its revision.
    pub header: Header,
}

/// `GET /v1/locks?prefix=&limit=&after=`: a page of locks.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Locks {
    /// The locks, in the order of their names.
    pub locks: Vec<LockShown>,
    /// Go on after this name; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// The member that answers, and its revision.
    pub header: Header,
}

/// `GET /v1/locks/{lock}?view=queue`: a page of the queue.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Queue {
    /// The name of the lock.
    pub lock: String,
    /// The queue positions, in order.
    pub waiters: Vec<WaiterShown>,
    /// Go on after this queue position; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<Decimal>,
    /// The member that answers, and its revision.
    pub header: Header,
}

/// `GET /v1/locks/{lock}?view=history`: what happened to a lock.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct History {
    /// To which lock.
    pub lock: String,
    /// What happened, one element per revision.
    pub changes: Vec<Change>,
    /// The revision to go on from.
    pub next: Decimal,
    /// The oldest revision that is kept.
    pub floor: Decimal,
    /// With `archive=true`: there may be more before this revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Decimal>,
    /// With `archive=true`: what the archive of the member that answers has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archive: Option<ArchiveExtent>,
    /// The member that answers, and its revision.
    pub header: Header,
}

/// The part of the history that an archive has.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ArchiveExtent {
    /// The first revision from which on it has the events of these locks; absent if the member has no archive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub begins: Option<Decimal>,
    /// The time of the first event from there on, in UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub begins_at: Option<String>,
    /// What is missing in the part that was searched.
    pub holes: Vec<MissingRevisions>,
}

/// Revisions that a member could not record.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct MissingRevisions {
    /// The first.
    pub from: Decimal,
    /// The revision after the last.
    pub next: Decimal,
}

impl From<v1::ArchiveExtent> for ArchiveExtent {
    fn from(it: v1::ArchiveExtent) -> Self {
        let missing = |range: &v1::RevisionRange| MissingRevisions {
            from: signed(range.from),
            next: signed(range.next),
        };
        Self {
            begins: it.begins.map(signed),
            begins_at: it.begins_unix_ms.map(crate::wall::utc),
            holes: it.holes.iter().map(missing).collect(),
        }
    }
}

/// `GET /v1/locks/{lock}?view=explain`: who has it, who is before me, and when can it be mine?
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Explained {
    /// The lock and its holders; absent if no client holds or awaits it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lock: Option<LockShown>,
    /// The queue positions before the caller, or the whole queue; the first few.
    pub ahead: Vec<WaiterShown>,
    /// The caller's own queue position.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own: Option<WaiterShown>,
    /// Who waits for whom, from the lock's first holder on.
    pub chain: Vec<ChainStep>,
    /// The chain goes on beyond what is shown.
    #[serde(default, skip_serializing_if = "is_false")]
    pub chain_goes_on: bool,
    /// So long from now it is free if its holders stop renewing; earlier if they release.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free_if_silent_ms: Option<u64>,
    /// So long from now it is free at the latest, whatever its holders do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free_at_latest_ms: Option<u64>,
    /// Median of the last holds that this member has seen end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usually_held_ms: Option<u64>,
    /// Of how many holds that is the median.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usually_of: Option<u32>,
    /// The cluster was restored and grants no lock for so much longer: clients of the former cluster may still hold
    /// theirs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quiet_ms: Option<u64>,
    /// The drained prefix that the lock is below. While it is drained, the lock is not granted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drained: Option<DrainShown>,
    /// The lock can be granted to the first waiter, but its turn is still to come: the cluster serves the queues one
    /// after the other because a prefix was opened or the post-restore wait is over, for so long now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reopening_ms: Option<u64>,
    /// The member that answers, and its revision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<Header>,
}

/// One step of a chain: this client has this lock and waits for the lock of the next step.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ChainStep {
    /// The lock.
    pub lock: String,
    /// The lease that holds it.
    pub client: String,
    /// With which lease.
    pub lease: Decimal,
}

impl From<v1::ExplainResponse> for Explained {
    fn from(explained: v1::ExplainResponse) -> Self {
        let step = |step: v1::ChainStep| ChainStep {
            lock: step.lock,
            client: step.client,
            lease: signed(step.lease),
        };
        let freed = explained.freed;
        let usually = explained.usually_held_ms;
        Self {
            lock: explained.lock.map(Into::into),
            ahead: explained.ahead.into_iter().map(Into::into).collect(),
            own: explained.own.map(Into::into),
            chain: explained.chain.into_iter().map(step).collect(),
            chain_goes_on: explained.chain_goes_on,
            free_if_silent_ms: freed.filter(|freed| !freed.at_latest).map(|freed| freed.in_ms),
            free_at_latest_ms: freed.filter(|freed| freed.at_latest).map(|freed| freed.in_ms),
            usually_held_ms: usually,
            usually_of: usually.map(|_| explained.usually_of),
            quiet_ms: explained.quiet_ms,
            drained: explained.drained.map(DrainShown::of_explanation),
            reopening_ms: explained.reopening_ms,
            header: explained.header.map(Into::into),
        }
    }
}
