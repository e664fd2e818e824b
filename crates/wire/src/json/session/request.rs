//! Defines the messages that a client sends on a WebSocket session.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::json::lease::GrantLease;
use crate::json::lock::{Acquire, Drain, Force, Resize, Undrain};
use crate::json::{Decimal, bytes_from, lease_number};
use crate::v1::request::Command;
use crate::{Failure, v1};

/// What a client says, several things per message.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClientMessage {
    /// Introduces the client; in the first message only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hello: Option<Hello>,
    /// After reconnecting, in the first message: leases whose notices come here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resume: Option<Resume>,
    /// The client's requests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<Request>,
}

/// Introduces the client.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    /// The client's name, for leases that name none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// `Bearer` and an API key or a token, for browsers, which cannot set the header of the upgrade. Only in the first
    /// message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authorization: Option<String>,
    /// The cluster the client knew.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<Decimal>,
    /// The epoch it knew.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u32>,
    /// The incarnation it knew.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<Decimal>,
}

/// Leases whose notices come here from now on.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Resume {
    /// The ids of the leases.
    pub leases: Vec<Decimal>,
}

/// One thing asked for: an id, and exactly one of the commands.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Comes back with the answer.
    pub id: u64,
    /// Number of this request under the lease that the command names, counted up from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// Every seq up to this one is answered or given up for ever.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub done: Option<u64>,
    /// After so long without an outcome the answer is an error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u32>,
    /// Makes a request without a lease safe to repeat.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// The caller's span in the form of the W3C header `traceparent`, for the member's traces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// Acquire locks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acquire: Option<Acquire>,
    /// Give a lock back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release: Option<Hold>,
    /// Renew leases.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renew: Option<Renew>,
    /// Grant a lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grant_lease: Option<GrantLease>,
    /// End a lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revoke: Option<Revoke>,
    /// Leave the queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leave: Option<LockAndLease>,
    /// Say that the work under a lost lock has stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped: Option<Stopped>,
    /// Turn an exclusive hold into a shared one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub downgrade: Option<Hold>,
    /// Replace the metadata of a held lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub update: Option<HoldUpdate>,
    /// Take a lock away.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub force: Option<Force>,
    /// Write a key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub put: Option<Put>,
    /// Delete a key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delete: Option<Delete>,
    /// Show a lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub get_lease: Option<ReadTarget>,
    /// Show a lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub get_lock: Option<ReadTarget>,
    /// Show a key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub get_key: Option<ReadTarget>,
    /// Explain a lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub explain: Option<LockAndLease>,
    /// Close a prefix to new grants.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain: Option<Drain>,
    /// Open a prefix that was closed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undrain: Option<Undrain>,
    /// Report how far the work under a held lock has come.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<ProgressReport>,
    /// Give a hold to a lease that waits for the lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hand_on: Option<HandOn>,
    /// Set how many slots a semaphore has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resize: Option<Resize>,
}

/// A hold to be given to a lease that waits for the lock alone, in the same mode. The caller has stopped its work.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HandOn {
    /// The lock.
    pub lock: String,
    /// The lease that holds.
    pub lease: Decimal,
    /// The token of the grant.
    pub token: Decimal,
    /// The lease that gets it.
    pub to: Decimal,
}

/// How far the work under a held lock has come.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ProgressReport {
    /// The lock.
    pub lock: String,
    /// The lease that holds.
    pub lease: Decimal,
    /// The token of the grant.
    pub token: Decimal,
    /// The number. Only one that is larger than all before counts as progress.
    pub number: Decimal,
}

/// A held lock, named exactly.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Hold {
    /// The lock.
    pub lock: String,
    /// The lease that holds.
    pub lease: Decimal,
    /// The token of the grant.
    pub token: Decimal,
}

/// A held lock and its new metadata.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HoldUpdate {
    /// The lock.
    pub lock: String,
    /// The lease that holds.
    pub lease: Decimal,
    /// The token of the grant.
    pub token: Decimal,
    /// The new metadata, as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<String>,
    /// The same, as base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata_base64: Option<String>,
}

/// Leases to be renewed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Renew {
    /// The ids of the leases.
    pub leases: Vec<Decimal>,
}

/// A lease to be ended.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Revoke {
    /// The id of the lease.
    pub lease: Decimal,
    /// Revoked by another caller, and why: the locks are revoking first. Absent is the client's own word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// With a reason: who, for the record and for the holder.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub by: String,
    /// With a reason: at once. Only a fence protects the resource then.
    #[serde(default, skip_serializing_if = "crate::json::is_false")]
    pub now: bool,
}

/// A lock, and the lease that the request is about.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LockAndLease {
    /// The lock.
    pub lock: String,
    /// The lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<Decimal>,
}

/// The former holder of a lost lock has stopped.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Stopped {
    /// The lock.
    pub lock: String,
    /// The lease that held.
    pub lease: Decimal,
    /// The revision that created it.
    pub lease_created: Decimal,
    /// The token that was lost.
    pub token: Decimal,
}

/// A key to be written.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Put {
    /// The name of the key.
    pub key: String,
    /// The new value, as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The same, as base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value_base64: Option<String>,
    /// The lease the key ends with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<Decimal>,
    /// Only if the key is so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expect: Option<Expect>,
    /// Only while this lock is held.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guard: Option<Guard>,
}

/// A key to be deleted.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Delete {
    /// The name of the key.
    pub key: String,
    /// Only if it is so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expect: Option<Expect>,
    /// Only while this lock is held.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guard: Option<Guard>,
}

/// How a key must be for a write to happen: exactly one of these.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    /// Not there.
    #[serde(default, skip_serializing_if = "crate::json::is_false")]
    pub absent: bool,
    /// Last changed at this revision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modified: Option<Decimal>,
    /// Of this value, as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Of this value, as base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value_base64: Option<String>,
}

/// A lock that must be held, under this token.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Guard {
    /// The lock.
    pub lock: String,
    /// The token.
    pub token: Decimal,
}

/// Something to be shown.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadTarget {
    /// The name of a lock or key, or the id of a lease.
    pub name: String,
    /// `true`: the member may answer from its own state, which can be old.
    #[serde(default, skip_serializing_if = "crate::json::is_false")]
    pub stale: bool,
}

impl TryFrom<Request> for v1::Request {
    type Error = Failure;

    fn try_from(request: Request) -> Result<Self, Failure> {
        let id = request.id;
        let (seq, done) = (request.seq.unwrap_or(0), request.done.unwrap_or(0));
        let deadline_ms = request.deadline_ms.unwrap_or(0);
        let idempotency_key = request.idempotency_key.clone().unwrap_or_default();
        let traceparent = request.traceparent.clone().unwrap_or_default();
        let command = Some(command(request)?);
        Ok(Self { id, seq, done, deadline_ms, idempotency_key, traceparent, command })
    }
}

/// Returns the one command of a request.
fn command(request: Request) -> Result<Command, Failure> {
    let stale = |of: &ReadTarget| of.stale;
    let commands = [
        request.acquire.map(|of| of.try_into().map(Command::Acquire)),
        request.release.map(|of| release(of).map(Command::Release)),
        request.renew.map(|of| renew(of).map(Command::Renew)),
        request.grant_lease.map(|of| of.try_into().map(Command::GrantLease)),
        request.revoke.map(|of| revoke(of).map(Command::Revoke)),
        request.leave.map(|of| leave(of).map(Command::Leave)),
        request.stopped.map(|of| stopped(of).map(Command::Stopped)),
        request.downgrade.map(|of| downgrade(of).map(Command::Downgrade)),
        request.update.map(|of| update(of).map(Command::Update)),
        request.force.map(|of| Ok(Command::Force(of.into()))),
        request.put.map(|of| put(of).map(Command::Put)),
        request.delete.map(|of| delete(of).map(Command::Delete)),
        request.get_lease.map(|of| get_lease(&of).map(Command::GetLease)),
        request.get_lock.map(|of| {
            Ok(Command::GetLock(v1::GetLockRequest { stale: stale(&of), lock: of.name }))
        }),
        request
            .get_key
            .map(|of| Ok(Command::GetKey(v1::GetKeyRequest { stale: stale(&of), key: of.name }))),
        request.explain.map(|of| explain(of).map(Command::Explain)),
        request.drain.map(|of| Ok(Command::Drain(of.into()))),
        request.undrain.map(|of| Ok(Command::Undrain(of.into()))),
        request.progress.map(|of| progress(of).map(Command::Progress)),
        request.hand_on.map(|of| hand_on(of).map(Command::HandOn)),
        request.resize.map(|of| Ok(Command::Resize(of.into()))),
    ];
    let mut given = commands.into_iter().flatten();
    match (given.next(), given.next()) {
        (Some(command), None) => command,
        _ => Err(Failure::Malformed { what: "a request has exactly one command".to_owned() }),
    }
}

fn release(hold: Hold) -> Result<v1::ReleaseRequest, Failure> {
    let lease = lease_number(Some(hold.lease), "lease")?;
    Ok(v1::ReleaseRequest { lock: hold.lock, lease, token: hold.token.0, ..Default::default() })
}

fn downgrade(hold: Hold) -> Result<v1::DowngradeRequest, Failure> {
    let lease = lease_number(Some(hold.lease), "lease")?;
    Ok(v1::DowngradeRequest { lock: hold.lock, lease, token: hold.token.0, ..Default::default() })
}

fn hand_on(of: HandOn) -> Result<v1::HandOnRequest, Failure> {
    Ok(v1::HandOnRequest {
        lock: of.lock,
        lease: lease_number(Some(of.lease), "lease")?,
        token: of.token.0,
        to: lease_number(Some(of.to), "to")?,
        ..Default::default()
    })
}

fn progress(of: ProgressReport) -> Result<v1::ProgressRequest, Failure> {
    Ok(v1::ProgressRequest {
        lock: of.lock,
        lease: lease_number(Some(of.lease), "lease")?,
        token: of.token.0,
        number: of.number.0,
        ..Default::default()
    })
}

fn update(of: HoldUpdate) -> Result<v1::UpdateRequest, Failure> {
    Ok(v1::UpdateRequest {
        lock: of.lock,
        lease: lease_number(Some(of.lease), "lease")?,
        token: of.token.0,
        metadata: bytes_from("metadata", of.metadata, of.metadata_base64)?,
        ..Default::default()
    })
}

fn renew(of: Renew) -> Result<v1::RenewRequest, Failure> {
    let leases = of.leases.into_iter().map(|lease| lease_number(Some(lease), "leases"));
    Ok(v1::RenewRequest { leases: leases.collect::<Result<_, _>>()?, ..Default::default() })
}

fn revoke(of: Revoke) -> Result<v1::RevokeRequest, Failure> {
    let given = [("by", !of.by.is_empty()), ("now", of.now)];
    if let Some((field, _)) = given.into_iter().find(|(_, given)| *given)
        && of.reason.is_none()
    {
        let problem = "needs a reason: it is for another client's lease".to_owned();
        return Err(Failure::InvalidField { field, problem });
    }
    Ok(v1::RevokeRequest {
        lease: lease_number(Some(of.lease), "lease")?,
        by_other: of.reason.is_some(),
        reason: of.reason.unwrap_or_default(),
        now: of.now,
        by: of.by,
        ..Default::default()
    })
}

fn leave(of: LockAndLease) -> Result<v1::LeaveRequest, Failure> {
    let lease = lease_number(of.lease, "lease")?;
    Ok(v1::LeaveRequest { lock: of.lock, lease, ..Default::default() })
}

fn explain(of: LockAndLease) -> Result<v1::ExplainRequest, Failure> {
    let lease = lease_number(of.lease, "lease")?;
    Ok(v1::ExplainRequest { lock: of.lock, lease, ..Default::default() })
}

fn stopped(of: Stopped) -> Result<v1::StoppedRequest, Failure> {
    Ok(v1::StoppedRequest {
        lock: of.lock,
        lease: lease_number(Some(of.lease), "lease")?,
        lease_created: revision(of.lease_created, "lease_created")?,
        token: of.token.0,
    })
}

fn get_lease(of: &ReadTarget) -> Result<v1::GetLeaseRequest, Failure> {
    let problem = || "is no lease id".to_owned();
    let id = Decimal::parse(&of.name)
        .ok_or_else(|| Failure::InvalidField { field: "name", problem: problem() })?;
    let lease = lease_number(Some(id), "name")?;
    Ok(v1::GetLeaseRequest { lease, stale: of.stale, ..Default::default() })
}

fn put(of: Put) -> Result<v1::PutRequest, Failure> {
    Ok(v1::PutRequest {
        key: of.key,
        value: bytes_from("value", of.value, of.value_base64)?,
        lease: lease_number(of.lease, "lease")?,
        expect: of.expect.map(expect).transpose()?,
        guard: of.guard.map(|guard| v1::Guard { lock: guard.lock, token: guard.token.0 }),
        ..Default::default()
    })
}

fn delete(of: Delete) -> Result<v1::DeleteRequest, Failure> {
    Ok(v1::DeleteRequest {
        key: of.key,
        expect: of.expect.map(expect).transpose()?,
        guard: of.guard.map(|guard| v1::Guard { lock: guard.lock, token: guard.token.0 }),
    })
}

fn expect(of: Expect) -> Result<v1::Expect, Failure> {
    use v1::expect::How;
    let valued = of.value.is_some() || of.value_base64.is_some();
    let how = match (of.absent, of.modified, valued) {
        (true, None, false) => How::Absent(true),
        (false, Some(modified), false) => How::Modified(revision(modified, "modified")?),
        (false, None, true) => How::Value(bytes_from("value", of.value, of.value_base64)?),
        _ => {
            let problem = "is exactly one of absent, modified, value".to_owned();
            return Err(Failure::InvalidField { field: "expect", problem });
        }
    };
    Ok(v1::Expect { how: Some(how) })
}

fn revision(number: Decimal, field: &'static str) -> Result<i64, Failure> {
    let problem = || "is no revision".to_owned();
    i64::try_from(number.0).map_err(|_| Failure::InvalidField { field, problem: problem() })
}
