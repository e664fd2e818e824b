//! Defines what the client shows of locks, queues and the cluster, independent of the wire format.

use std::time::Duration;

use bytes::Bytes;
use tenure_types::{LeaseId, Revision, Token};
use tenure_wire::{convert, v1};

use crate::drain::DrainView;

/// How a lock is held or asked for.
///
/// ```
/// assert_ne!(tenure::Mode::Exclusive, tenure::Mode::Shared);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Mode {
    /// By one client at a time.
    Exclusive,
    /// Together with other shared holders.
    Shared,
    /// One of several slots.
    Slot {
        /// How many slots the semaphore has.
        of: u32,
    },
}

/// Whether a holder still has its lock.
///
/// ```
/// # use tenure::HolderState;
/// fn is_held(state: HolderState) -> bool { matches!(state, HolderState::Held) }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum HolderState {
    /// The holder has the lock.
    Held,
    /// The lock was taken away. The next client starts when the holder has confirmed that it stopped, or after this
    /// time.
    Revoking {
        /// The time that is left, at most.
        left: Duration,
    },
    /// The lock-delay after an end that the holder did not ask for.
    Delayed {
        /// The time that is left.
        left: Duration,
    },
    /// No client holds the lock, and its [`min_hold`](crate::LockAsk::min_hold) since the grant is not over.
    Resting {
        /// The time that is left.
        left: Duration,
    },
}

/// A lock, its holders, and how many wait for it.
///
/// ```no_run
/// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
/// for lock in client.locks("jobs/", None).await? {
///     println!("{}: {} holders, {} waiting", lock.name, lock.holders.len(), lock.waiting);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct LockView {
    /// The lock's name.
    pub name: String,
    /// How many slots a semaphore has; `None` for a plain lock.
    pub slots: Option<u32>,
    /// Whether an operator set that number, so that the numbers in requests do not count.
    pub sized: bool,
    /// The revision since which the lock exists.
    pub created: Revision,
    /// The revision at which its holders or metadata last changed.
    pub modified: Revision,
    /// The holders, by slot or by token. At most 1,024, and fewer if they are large.
    pub holders: Vec<HolderView>,
    /// How many holders are left out.
    pub more_holders: u64,
    /// How many clients wait.
    pub waiting: u64,
}

/// A holder of a lock.
///
/// ```no_run
/// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
/// if let Some(lock) = client.show("deploy").await? {
///     for holder in lock.holders { println!("{} for {:?}", holder.client, holder.held); }
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct HolderView {
    /// The client's name.
    pub client: String,
    /// The fencing token of the grant.
    pub token: Token,
    /// The holder's lease.
    pub lease: LeaseId,
    /// How the lock is held.
    pub mode: Mode,
    /// The slot of a semaphore.
    pub slot: Option<u32>,
    /// For how long the lock is held.
    pub held: Duration,
    /// Whether the holder still has the lock.
    pub state: HolderState,
    /// The metadata of the grant; of an election, the leader's value.
    pub metadata: Bytes,
    /// How long the lock may be held at most.
    pub max_hold: Option<Duration>,
    /// The progress that the holder promised; `None` if it promised none.
    pub progress: Option<ProgressView>,
    /// How long ago the lease was renewed; `None` once the lease has ended.
    pub renewed: Option<Duration>,
}

/// How far the work under a lock has come, and when it must have come further.
///
/// ```no_run
/// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
/// for holder in client.show("copy").await?.map(|lock| lock.holders).unwrap_or_default() {
///     if let Some(progress) = holder.progress { println!("{} since {:?}", progress.number, progress.still); }
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ProgressView {
    /// The largest number reported; 0 before the first.
    pub number: u64,
    /// Within how much time a larger one must follow.
    pub within: Duration,
    /// How long ago the number was reported; before the first one, how long ago the lock was granted.
    pub still: Duration,
    /// In how much time a larger number is due.
    pub left: Duration,
}

/// A client that waits for a lock.
///
/// ```no_run
/// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
/// for waiter in client.explain("deploy").await?.ahead { println!("{}", waiter.client); }
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct WaiterView {
    /// The client's name.
    pub client: String,
    /// The waiter's lease.
    pub lease: LeaseId,
    /// How it asks for the lock.
    pub mode: Mode,
    /// How many slots of a semaphore it asks for; 1 for any other lock.
    pub take: u32,
    /// How many are ahead of it.
    pub ahead: u64,
    /// How long it has waited.
    pub waited: Duration,
    /// How much longer it will wait; `None` for no limit.
    pub left: Option<Duration>,
    /// Every lock of the request, ordered by name.
    pub locks: Vec<String>,
    /// Whether one of these locks is enough.
    pub any: bool,
    /// The prefix of the pool whose slots these locks are.
    pub pool: Option<String>,
    /// Its priority.
    pub priority: u8,
    /// For how much longer new requests with a higher priority can pass it.
    pub passable: Duration,
}

/// When a lock can be free.
///
/// ```no_run
/// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
/// if let Some(freed) = client.explain("deploy").await?.freed {
///     let condition = if freed.at_latest { "at the latest" } else { "if its holders stop renewing" };
///     println!("{:?} {condition}", freed.within);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Freed {
    /// The time from now.
    pub within: Duration,
    /// Whether that is so whatever the holders do. Otherwise it is so if they stop renewing.
    pub at_latest: bool,
}

/// One step of a chain of waits: this client has this lock.
///
/// ```no_run
/// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
/// for step in client.explain("deploy").await?.chain { println!("{} has {}", step.client, step.lock); }
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ChainStep {
    /// The lock.
    pub lock: String,
    /// The client that has it.
    pub client: String,
    /// The client's lease.
    pub lease: LeaseId,
}

/// Who holds a lock, who waits for it, and when it can be free.
///
/// ```no_run
/// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
/// let explained = client.explain("deploy").await?;
/// println!("{} in the queue", explained.ahead.len());
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Explanation {
    /// The revision that the answer is based on.
    pub revision: Revision,
    /// The lock and its holders; `None` if no client holds it or waits for it.
    pub lock: Option<LockView>,
    /// The first clients of the queue.
    pub ahead: Vec<WaiterView>,
    /// Which client waits for which, from the lock's first holder on.
    pub chain: Vec<ChainStep>,
    /// When the lock can be free, at once if it is; `None` while its prefix is drained, or if no client holds it or
    /// waits for it.
    pub freed: Option<Freed>,
    /// The median of the last holds that the answering member has seen end.
    pub usually_held: Option<Duration>,
    /// How long the cluster grants no locks, because it was restored.
    pub grants_after: Option<Duration>,
    /// The drained prefix that the lock is below. While it is drained, the lock is not granted.
    pub drained: Option<DrainView>,
    /// For how long the cluster has served the queues again, because a prefix was opened or the post-restore wait is
    /// over, if this lock can be granted and its turn is still to come.
    pub reopening: Option<Duration>,
}

/// The state of the cluster.
///
/// ```no_run
/// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
/// println!("survives {} failures", client.status().await?.survives);
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Status {
    /// The newest revision.
    pub revision: Revision,
    /// The cluster's name; empty if it has none.
    pub cluster: String,
    /// The name of the leader, if there is one.
    pub leader: Option<String>,
    /// The members, ordered by their ids.
    pub members: Vec<MemberView>,
    /// How many more members may fail before the cluster has no majority.
    pub survives: u32,
    /// The feature level in force.
    pub level: u32,
    /// The oldest revision that can be watched from.
    pub oldest: Revision,
    /// How long the cluster grants no locks, because it was restored.
    pub grants_after: Option<Duration>,
}

/// A member of the cluster.
///
/// ```no_run
/// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
/// for member in client.status().await?.members { println!("{} {}", member.name, member.state); }
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct MemberView {
    /// The member's name.
    pub name: String,
    /// The address of its APIs.
    pub address: String,
    /// Whether the answering member hears from it.
    pub up: bool,
    /// How many entries it is behind, if that is known.
    pub behind: Option<u64>,
    /// Its state, for people.
    pub state: String,
    /// The version of its software.
    pub software: String,
}

fn ms(time: u64) -> Duration {
    Duration::from_millis(time)
}

pub(crate) fn revision(number: i64) -> Revision {
    convert::revision_from(number).unwrap_or(Revision(0))
}

impl Mode {
    pub(crate) fn of(mode: v1::Mode, slots: u32) -> Self {
        match mode {
            v1::Mode::Exclusive => Self::Exclusive,
            v1::Mode::Shared => Self::Shared,
            v1::Mode::Slot => Self::Slot { of: slots },
        }
    }
}

impl LockView {
    pub(crate) fn of(it: v1::LockView) -> Self {
        let slots = it.slots.unwrap_or(0);
        Self {
            name: it.lock,
            slots: it.slots,
            sized: it.sized,
            created: revision(it.created),
            modified: revision(it.modified),
            holders: it.holders.into_iter().filter_map(|it| HolderView::of(it, slots)).collect(),
            more_holders: it.more_holders,
            waiting: it.waiting,
        }
    }
}

impl HolderView {
    fn of(it: v1::HolderView, slots: u32) -> Option<Self> {
        let left = ms(it.left_ms);
        Some(Self {
            token: Token::from_u64(it.token)?,
            lease: convert::lease_from(it.lease)?,
            mode: Mode::of(it.mode(), slots),
            slot: it.slot,
            held: ms(it.held_ms),
            state: match it.state() {
                v1::HolderState::Held => HolderState::Held,
                v1::HolderState::Cooling => HolderState::Revoking { left },
                v1::HolderState::Delayed => HolderState::Delayed { left },
                v1::HolderState::Resting => HolderState::Resting { left },
            },
            max_hold: it.max_hold_ms.map(ms),
            progress: it.progress.map(|it| ProgressView {
                number: it.number,
                within: ms(it.within_ms),
                still: ms(it.still_ms),
                left: ms(it.left_ms),
            }),
            renewed: it.renewed_ms.map(ms),
            client: it.client,
            metadata: it.metadata,
        })
    }
}

impl Explanation {
    pub(crate) fn of(it: v1::ExplainResponse) -> Self {
        let waiter = |it: v1::WaiterView| {
            Some(WaiterView {
                lease: convert::lease_from(it.lease)?,
                mode: Mode::of(it.mode(), it.slots),
                take: it.take.max(1),
                ahead: it.ahead,
                waited: ms(it.waiting_ms),
                left: it.left_ms.map(ms),
                client: it.client,
                locks: it.locks,
                any: it.any,
                pool: Some(it.pool).filter(|pool| !pool.is_empty()),
                priority: u8::try_from(it.priority).unwrap_or(u8::MAX),
                passable: ms(it.passable_ms),
            })
        };
        let step = |it: v1::ChainStep| {
            let lease = convert::lease_from(it.lease)?;
            Some(ChainStep { lock: it.lock, client: it.client, lease })
        };
        Self {
            revision: it.header.map_or(Revision(0), |header| revision(header.revision)),
            lock: it.lock.map(LockView::of),
            ahead: it.ahead.into_iter().filter_map(waiter).collect(),
            chain: it.chain.into_iter().filter_map(step).collect(),
            freed: it.freed.map(|it| Freed { within: ms(it.in_ms), at_latest: it.at_latest }),
            usually_held: it.usually_held_ms.map(ms),
            grants_after: it.quiet_ms.map(ms),
            drained: it.drained.map(DrainView::of),
            reopening: it.reopening_ms.map(ms),
        }
    }
}

impl Status {
    pub(crate) fn of(it: v1::StatusResponse) -> Self {
        let member = |it: v1::MemberStatus| {
            let member = it.member.unwrap_or_default();
            MemberView {
                name: member.name,
                address: member.client_address,
                up: it.up,
                behind: it.behind,
                state: it.state,
                software: it.software,
            }
        };
        Self {
            revision: it.header.map_or(Revision(0), |header| revision(header.revision)),
            cluster: it.cluster,
            leader: it.leader.filter(|it| it.member_id != 0).map(|it| it.name),
            members: it.members.into_iter().map(member).collect(),
            survives: it.survives,
            level: it.level,
            oldest: revision(it.floor),
            grants_after: it.quiet_ms.map(ms),
        }
    }
}
