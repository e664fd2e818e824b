//! Defines the messages that a member sends on a WebSocket session.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::convert::cause_word;
use crate::json::error::{Error, Leader};
use crate::json::key::{KeyDeleted, KeyPut, KeyShown};
use crate::json::lease::{LeaseGranted, LeaseRenewed, LeaseShown};
use crate::json::lock::{Acquired, Explained, Forced};
use crate::json::{Decimal, Header, Holding, LockShown, signed, some};
use crate::v1;

/// What a member says, several things per message.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ServerMessage {
    /// In the first message only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub welcome: Option<Welcome>,
    /// The newest revision the member had applied when it wrote this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<Decimal>,
    /// Answers, in no particular order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<Answer>,
    /// Waits that ended in a grant.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<Granted>,
    /// Locks lost without having been asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub losses: Vec<Lost>,
    /// Waits that ended without a grant.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits_ended: Vec<WaitEnded>,
    /// Leases that expired or that another caller revoked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leases_ended: Vec<LeaseEnded>,
    /// The leader has changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leader: Option<Leader>,
    /// The session ends after this message, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closing: Option<Error>,
}

/// The member introduces itself.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Welcome {
    /// Cluster, member, revision, term.
    pub header: Header,
    /// The member's name.
    pub member: String,
    /// The epoch, which leads every token and revision.
    pub epoch: u32,
    /// Drawn anew when the cluster is restored from a backup.
    pub incarnation: Decimal,
    /// The leader, if the member knows one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leader: Option<Leader>,
    /// How many requests may be unanswered on this session.
    pub in_flight_max: u32,
    /// How many requests may stand in one message.
    pub requests_per_message_max: u32,
    /// How long a message may be.
    pub message_bytes_max: u32,
    /// Of the leases named in `resume`, those that live.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leases: Vec<LeaseGranted>,
}

impl From<v1::Welcome> for Welcome {
    fn from(welcome: v1::Welcome) -> Self {
        Self {
            header: welcome.header.unwrap_or_default().into(),
            member: welcome.member,
            epoch: welcome.epoch,
            incarnation: Decimal(welcome.incarnation),
            leader: welcome.leader.map(Into::into),
            in_flight_max: welcome.in_flight_max,
            requests_per_message_max: welcome.requests_per_message_max,
            message_bytes_max: welcome.message_bytes_max,
            leases: welcome.leases.into_iter().map(Into::into).collect(),
        }
    }
}

/// The answer to one request: its id, and exactly one of the results.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Answer {
    /// The id of the request.
    pub id: u64,
    /// The newest revision when the answer was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<Decimal>,
    /// It was not done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Error>,
    /// The locks are held.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acquired: Option<Acquired>,
    /// The lock was given back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub released: Option<Ended>,
    /// The ask waits in the queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queued: Option<Queued>,
    /// The leases, in the order asked; a ttl of 0 for one that is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renewed: Option<Vec<LeaseRenewed>>,
    /// The lease exists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_granted: Option<LeaseGranted>,
    /// The lease has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revoked: Option<Ended>,
    /// The place is given up, or it was too late.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left: Option<Left>,
    /// The wait for the former holder is over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped: Option<Ended>,
    /// The lock is held shared, under a new token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub downgraded: Option<NewToken>,
    /// The report of progress has arrived.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progressed: Option<Progressed>,
    /// The other lease holds the lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handed_on: Option<HandedOn>,
    /// The metadata was replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub updated: Option<Version>,
    /// An earlier ask of this request id is over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<Ended>,
    /// The lock was taken away.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forced: Option<Forced>,
    /// The key was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub put: Option<KeyPut>,
    /// The key does not exist any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deleted: Option<KeyDeleted>,
    /// The lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseAnswer>,
    /// The lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lock: Option<LockState>,
    /// The key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<KeyAnswer>,
    /// The explanation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub explained: Option<Explained>,
    /// The prefix is closed to new grants.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drained: Option<Ended>,
    /// The prefix is open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undrained: Option<PrefixOpened>,
    /// The number of slots is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resized: Option<Ended>,
}

/// Nothing more to say.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Ended {}

/// A place in the queue.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Queued {
    /// How many are before it.
    pub ahead: u64,
    /// Its place.
    pub place: Decimal,
    /// The revision that created the lease.
    pub lease_created: Decimal,
    /// The lease, if the same command granted it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseGranted>,
}

/// The place is given up.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Left {
    /// Not empty: too late to leave, these locks are held.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<Holding>,
}

/// A prefix is open.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct PrefixOpened {
    /// Whether it was closed before.
    pub existed: bool,
}

/// A new token.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct NewToken {
    /// The token.
    pub token: Decimal,
}

/// The grant to the lease that waited.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct HandedOn {
    /// The token of the new grant.
    pub token: Decimal,
}

/// When the next progress is due.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Progressed {
    /// In how much time a larger number is due; absent if none was promised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_ms: Option<u64>,
}

/// A new version.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Version {
    /// The version.
    pub version: u64,
}

/// A lease, if it lives.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LeaseAnswer {
    /// The lease; absent if it is unknown or has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseShown>,
}

/// A lock, if a client holds or awaits it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LockState {
    /// The lock; absent if no client holds or awaits it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lock: Option<LockShown>,
}

/// A key, if it exists.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct KeyAnswer {
    /// The key; absent if it does not exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<KeyShown>,
}

/// What a request was about, which its answer does not repeat.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Asked {
    /// The single lock or key that it named.
    pub name: Option<String>,
    /// The leases that it renewed, in order.
    pub leases: Vec<Decimal>,
}

impl Answer {
    /// The JSON form of an answer to this request.
    pub fn new(answer: v1::Answer, asked: &Asked) -> Self {
        use v1::answer::Result as R;
        let mut form =
            Self { id: answer.id, revision: Some(signed(answer.revision)), ..Self::default() };
        let name = || asked.name.clone().unwrap_or_default();
        match answer.result {
            None => {}
            Some(R::Error(error)) => form.error = Some((*error).into()),
            Some(R::Acquired(of)) => form.acquired = Some(Acquired::held(asked.name.clone(), of)),
            Some(R::Released(_)) => form.released = Some(Ended {}),
            Some(R::Queued(of)) => form.queued = Some(of.into()),
            Some(R::Renewed(of)) => form.renewed = Some(renewed(&of, &asked.leases)),
            Some(R::LeaseGranted(of)) => form.lease_granted = Some(of.into()),
            Some(R::Revoked(_)) => form.revoked = Some(Ended {}),
            Some(R::Left(of)) => {
                form.left = Some(Left { held: of.held.into_iter().map(Into::into).collect() });
            }
            Some(R::Stopped(_)) => form.stopped = Some(Ended {}),
            Some(R::Downgraded(of)) => {
                form.downgraded = Some(NewToken { token: Decimal(of.token) });
            }
            Some(R::Updated(of)) => form.updated = Some(Version { version: of.version }),
            Some(R::Ended(_)) => form.ended = Some(Ended {}),
            Some(R::Forced(of)) => {
                form.forced = Some(Forced { lock: name(), left_ms: of.left_ms, header: None });
            }
            Some(R::Put(of)) => {
                let (version, created) = (of.version, signed(of.created));
                form.put = Some(KeyPut { key: name(), version, created, header: None });
            }
            Some(R::Deleted(of)) => {
                let existed = of.existed;
                form.deleted = Some(KeyDeleted { key: name(), existed, header: None });
            }
            Some(R::Lease(of)) => {
                form.lease = Some(LeaseAnswer { lease: of.lease.map(Into::into) });
            }
            Some(R::Lock(of)) => form.lock = Some(LockState { lock: of.lock.map(Into::into) }),
            Some(R::Key(of)) => form.key = Some(KeyAnswer { key: of.kv.map(Into::into) }),
            Some(R::Explained(of)) => form.explained = Some((*of).into()),
            Some(R::Drained(_)) => form.drained = Some(Ended {}),
            Some(R::HandedOn(of)) => {
                form.handed_on = Some(HandedOn { token: Decimal(of.token) });
            }
            Some(R::Resized(_)) => form.resized = Some(Ended {}),
            Some(R::Progressed(of)) => form.progressed = Some(Progressed { left_ms: of.left_ms }),
            Some(R::Undrained(of)) => form.undrained = Some(PrefixOpened { existed: of.existed }),
        }
        form
    }
}

fn renewed(of: &v1::Renewed, leases: &[Decimal]) -> Vec<LeaseRenewed> {
    let one = |(at, lease): (usize, &Decimal)| LeaseRenewed {
        lease: *lease,
        ttl_ms: of.ttl_ms.get(at).copied().unwrap_or(0),
        changed: signed(of.changed.get(at).copied().unwrap_or(0)),
        header: None,
    };
    leases.iter().enumerate().map(one).collect()
}

impl From<v1::Queued> for Queued {
    fn from(queued: v1::Queued) -> Self {
        Self {
            ahead: queued.ahead,
            place: Decimal(queued.place),
            lease_created: signed(queued.lease_created),
            lease: queued.lease.map(Into::into),
        }
    }
}

/// A wait ended in a grant.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Granted {
    /// The request that asked, if it was made on this session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    /// The lock, if it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lock: Option<String>,
    /// Its fencing token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<Decimal>,
    /// Its slot of a semaphore.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slot: Option<u32>,
    /// The locks, if they are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub locks: Vec<Holding>,
    /// The lease that holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<Decimal>,
    /// The queue position it was granted to.
    pub place: Decimal,
    /// The revision in which it happened.
    pub revision: Decimal,
}

impl Granted {
    /// The JSON form of a grant. The API supplies the id of the lease.
    pub fn new(granted: v1::Granted, lease: Option<Decimal>) -> Self {
        let one = granted.locks.is_empty();
        Self {
            id: (granted.id > 0).then_some(granted.id),
            lock: one.then_some(granted.lock),
            token: one.then_some(Decimal(granted.token)),
            slot: granted.slot,
            locks: granted.locks.into_iter().map(Into::into).collect(),
            lease,
            place: Decimal(granted.place),
            revision: signed(granted.revision),
        }
    }
}

/// A lock was lost without having been asked for. Stop the work, then say `stopped`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Lost {
    /// The name of the lock.
    pub lock: String,
    /// The token that is worth nothing now.
    pub token: Decimal,
    /// The lease that held.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<Decimal>,
    /// The revision in which it happened.
    pub revision: Decimal,
    /// The cause.
    #[schema(example = "forced")]
    pub cause: String,
    /// The name that the caller gave who took it away.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// What they gave as reason. Of a revoked lease it is told once, with its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Lost {
    /// The JSON form of a loss. The API supplies the id of the lease.
    pub fn new(lost: v1::Lost, lease: Option<Decimal>) -> Self {
        Self {
            cause: cause_word(lost.cause()).to_owned(),
            lock: lost.lock,
            token: Decimal(lost.token),
            lease,
            revision: signed(lost.revision),
            by: non_empty(lost.by),
            reason: non_empty(lost.reason),
        }
    }
}

/// A wait is over without a grant.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct WaitEnded {
    /// The request that asked, if it was made on this session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    /// The place that is gone.
    pub place: Decimal,
    /// The lease that waited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<Decimal>,
    /// The revision in which it happened.
    pub revision: Decimal,
    /// A newer request of the same group has replaced it: its client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub superseded_by: Option<String>,
    /// Its lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub superseded_by_lease: Option<Decimal>,
    /// Why it ended, if neither the wait limit passed nor a newer request has replaced it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Error>,
}

impl WaitEnded {
    /// The JSON form of the end of a wait. The API supplies the id of the lease.
    pub fn new(ended: &v1::WaitEnded, lease: Option<Decimal>) -> Self {
        Self {
            id: (ended.id > 0).then_some(ended.id),
            place: Decimal(ended.place),
            lease,
            revision: signed(ended.revision),
            superseded_by: (!ended.superseded_by.is_empty()).then(|| ended.superseded_by.clone()),
            superseded_by_lease: some(ended.superseded_by_lease),
            error: ended.error.clone().map(Into::into),
        }
    }
}

/// A lease has expired, or another caller has revoked it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LeaseEnded {
    /// The id of the lease.
    pub lease: Decimal,
    /// The revision in which it happened.
    pub revision: Decimal,
    /// The cause.
    pub cause: String,
    /// The name that the caller gave who revoked it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The reason that the caller gave.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl LeaseEnded {
    /// The JSON form of a lease's end. The API supplies the id of the lease.
    pub fn new(ended: v1::LeaseEnded, lease: Decimal) -> Self {
        let cause = cause_word(ended.cause()).to_owned();
        let (by, reason) = (non_empty(ended.by), non_empty(ended.reason));
        Self { lease, revision: signed(ended.revision), cause, by, reason }
    }
}

fn non_empty(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}
