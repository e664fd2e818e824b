//! Decodes client requests into commands.
//!
//! Nothing is adjusted: a request with an invalid field is refused, and the error names the field. Whatever only the
//! machine knows (limits, leases, holders) is left to the machine to refuse.

use tenure_core::request::{
    Acquire, Ask, AskLease, AskWait, Asks, Command, Expect, Hold, LeaseRef, NewLease, PRIORITY_MAX,
    Purpose, Put, RequestId, Revoker, Upgrade, Urgency, WriteGuard,
};
use tenure_raft::MemberId;
use tenure_types::{LeaseId, Mode, Token};
use tenure_wire::{Failure, convert, v1};

use crate::os;

/// Derives the number of a new lease without one from the request's idempotency key, if it has one.
pub(crate) fn number_leases(request: &mut v1::Request, principal: &str) {
    use v1::request::Command as Wire;
    if request.idempotency_key.is_empty() {
        return;
    }
    let new = match &mut request.command {
        Some(Wire::GrantLease(new)) => Some(new),
        Some(Wire::Acquire(ask)) => ask.new_lease.as_deref_mut(),
        _ => None,
    };
    if let Some(new) = new {
        number_lease(new, principal, &request.idempotency_key);
    }
}

/// The command of a request.
pub(crate) fn command<'a>(
    request: &'a v1::Request,
    client: &'a str,
) -> Result<Command<'a>, Failure> {
    use v1::request::Command as Wire;
    Ok(match &request.command {
        Some(Wire::Acquire(it)) => ask(it, client)?,
        Some(Wire::Release(it)) => Command::Release(release(it)?),
        Some(Wire::Renew(it)) => Command::Renew(renew(it)?),
        Some(Wire::GrantLease(new)) => Command::GrantLease(new_lease(new, client)?),
        Some(Wire::Revoke(it)) => revoke(it)?,
        Some(Wire::Leave(it)) => leave(it)?,
        Some(Wire::Stopped(it)) => stopped(it)?,
        Some(Wire::Downgrade(it)) => Command::Downgrade(downgrade(it)?),
        Some(Wire::Update(it)) => update(it)?,
        Some(Wire::Progress(it)) => progress(it)?,
        Some(Wire::HandOn(it)) => hand_on(it)?,
        Some(Wire::Force(it)) => force(it)?,
        Some(Wire::Drain(it)) => drain(it)?,
        Some(Wire::Undrain(it)) => undrain(it)?,
        Some(Wire::Resize(it)) => resize(it),
        Some(Wire::Put(it)) => Command::Put(put(it)?),
        Some(Wire::Delete(it)) => delete(it)?,
        Some(Wire::GetLease(_) | Wire::GetLock(_) | Wire::GetKey(_) | Wire::Explain(_)) | None => {
            return Err(Failure::UnknownOperation);
        }
    })
}

/// A lease by handle or, if the request has no handle, by id.
pub(crate) fn lease_ref(slot: u32, generation: u64, id: i64) -> Result<LeaseRef, Failure> {
    if let Some(handle) = convert::handle_from(slot, generation) {
        return Ok(LeaseRef::Handle(handle));
    }
    convert::lease_from(id).map(LeaseRef::Id).ok_or_else(|| invalid("lease", "is missing"))
}

/// An optional lease.
fn lease_if_any(slot: u32, generation: u64, id: i64) -> Result<Option<LeaseRef>, Failure> {
    if generation == 0 && id == 0 {
        return Ok(None);
    }
    lease_ref(slot, generation, id).map(Some)
}

pub(crate) fn token(number: u64) -> Result<Token, Failure> {
    Token::from_u64(number).ok_or_else(|| invalid("token", "is missing or no token"))
}

/// A lease to be granted; without a number of its own it gets a random one that cannot be guessed.
pub(crate) fn new_lease<'a>(
    new: &'a v1::NewLease,
    client: &'a str,
) -> Result<NewLease<'a>, Failure> {
    let id = match new.lease {
        0 => random_lease(),
        number => convert::lease_from(number).ok_or_else(|| invalid("lease", "is negative"))?,
    };
    let client = if new.client.is_empty() { client } else { &new.client };
    Ok(NewLease { id, ttl_ms: new.ttl_ms, client, metadata: &new.metadata })
}

/// Gives a lease without a number the one derived from the request's idempotency key: a repeated request names the same
/// lease, at any member.
pub(crate) fn number_lease(new: &mut v1::NewLease, principal: &str, key: &str) {
    if new.lease == 0 {
        let hash = xxhash_rust::xxh3::xxh3_64(format!("{principal}\0{key}").as_bytes());
        new.lease = i64::try_from(hash >> 1).unwrap_or(1).max(1);
    }
}

/// Draws a random number for a lease.
pub(crate) fn random_lease() -> LeaseId {
    loop {
        if let Some(id) = i64::try_from(os::random() >> 1).ok().and_then(convert::lease_from) {
            return id;
        }
    }
}

/// The command of a request for locks: an acquire, or an upgrade of a hold.
pub(crate) fn ask<'a>(it: &'a v1::AcquireRequest, client: &'a str) -> Result<Command<'a>, Failure> {
    if it.upgrade {
        upgrade(it).map(Command::Upgrade)
    } else {
        acquire(it, client).map(Command::Acquire)
    }
}

/// An upgrade. What the hold has stays as it is, so a request that asks for more is a mistake.
fn upgrade(it: &v1::AcquireRequest) -> Result<Upgrade<'_>, Failure> {
    if it.lock.is_empty() {
        return Err(invalid("lock", "is missing; an upgrade names one lock"));
    }
    if mode(it.mode, it.slots, it.take)? != Mode::Exclusive {
        return Err(invalid("mode", "is exclusive after an upgrade"));
    }
    let plain = v1::AcquireRequest {
        lock: it.lock.clone(),
        lease: it.lease,
        lease_slot: it.lease_slot,
        lease_generation: it.lease_generation,
        mode: it.mode,
        wait_ms: it.wait_ms,
        independent: it.independent,
        resume: it.resume,
        upgrade: true,
        ..Default::default()
    };
    if plain != *it {
        return Err(invalid(
            "upgrade",
            "goes with `lease`, `wait`, `independent` and `resume` only",
        ));
    }
    Ok(Upgrade {
        lease: lease_ref(it.lease_slot, it.lease_generation, it.lease)?,
        lock: &it.lock,
        wait: wait(it.wait_ms),
        resume: it.resume,
        independent: it.independent,
    })
}

pub(crate) fn acquire<'a>(
    ask: &'a v1::AcquireRequest,
    client: &'a str,
) -> Result<Acquire<'a>, Failure> {
    let lease = match &ask.new_lease {
        Some(new) => AskLease::New(new_lease(new, client)?),
        None => AskLease::Existing(lease_ref(ask.lease_slot, ask.lease_generation, ask.lease)?),
    };
    let any = !ask.any_of.is_empty();
    if any && !ask.locks.is_empty() {
        return Err(invalid("any_of", "excludes `locks`"));
    }
    let several = if any { &ask.any_of[..] } else { &ask.locks[..] };
    let locks = match (ask.lock.is_empty(), several) {
        (true, []) if !ask.pool.is_empty() => Asks::Pool(pool(ask)?),
        _ if !ask.pool.is_empty() => {
            return Err(invalid("pool", "excludes `lock` and `locks`"));
        }
        (false, []) => {
            Asks::One(Ask { lock: &ask.lock, mode: mode(ask.mode, ask.slots, ask.take)? })
        }
        (true, []) => return Err(invalid("lock", "is missing")),
        (true, several) => Asks::Many(
            several
                .iter()
                .map(|ask| Ok(Ask { lock: &ask.lock, mode: mode(ask.mode, ask.slots, ask.take)? }))
                .collect::<Result<_, Failure>>()?,
        ),
        (false, _) => return Err(invalid("locks", "and `lock` exclude each other")),
    };
    Ok(Acquire {
        lease,
        locks,
        any,
        wait: wait(ask.wait_ms),
        metadata: &ask.metadata,
        lock_delay_ms: ask.lock_delay_ms,
        max_hold_ms: ask.max_hold_ms,
        min_hold_ms: ask.min_hold_ms,
        progress_within_ms: ask.progress_within_ms,
        supersede: (!ask.supersede.is_empty()).then_some(&*ask.supersede),
        resume: ask.resume,
        priority: priority(ask.priority)?,
        purpose: if ask.election { Purpose::Election } else { Purpose::Lock },
        independent: ask.independent,
    })
}

/// A pool. Its slots are semaphores, so only how many slots to take can be asked for.
fn pool(ask: &v1::AcquireRequest) -> Result<Ask<'_>, Failure> {
    let plain = ask.mode() == v1::Mode::Exclusive && ask.slots == 0;
    if !plain {
        return Err(invalid("pool", "goes without `mode` and `slots`: its slots have their own"));
    }
    Ok(Ask { lock: &ask.pool, mode: Mode::Slot { of: 1, take: ask.take.max(1) } })
}

/// A priority from 0 to the highest one.
fn priority(number: u32) -> Result<u8, Failure> {
    let priority = u8::try_from(number).ok().filter(|priority| *priority <= PRIORITY_MAX);
    priority.ok_or_else(|| invalid("priority", "is more than 9"))
}

/// Absent means no limit, 0 means no wait.
pub(crate) fn wait(ms: Option<u64>) -> AskWait {
    match ms {
        None => AskWait::Unlimited,
        Some(0) => AskWait::No,
        Some(ms) => AskWait::Limit { ms },
    }
}

fn mode(mode: i32, slots: u32, take: u32) -> Result<Mode, Failure> {
    convert::mode_from(mode, slots, take)
        .ok_or_else(|| invalid("mode", "is unknown, or does not go with `slots` or `take`"))
}

pub(crate) fn expect(expect: Option<&v1::Expect>) -> Result<Expect<'_>, Failure> {
    use v1::expect::How;
    match expect.and_then(|expect| expect.how.as_ref()) {
        None | Some(How::Absent(false)) => Ok(Expect::Any),
        Some(How::Absent(true)) => Ok(Expect::Absent),
        Some(How::Modified(revision)) => convert::revision_from(*revision)
            .map(Expect::Modified)
            .ok_or_else(|| invalid("expect", "names a negative revision")),
        Some(How::Value(value)) => Ok(Expect::Value(value)),
    }
}

pub(crate) fn guard(guard: Option<&v1::Guard>) -> Result<Option<WriteGuard<'_>>, Failure> {
    guard.map(|guard| Ok(WriteGuard { lock: &guard.lock, token: token(guard.token)? })).transpose()
}

pub(crate) fn put(put: &v1::PutRequest) -> Result<Put<'_>, Failure> {
    Ok(Put {
        key: &put.key,
        value: &put.value,
        lease: lease_if_any(put.lease_slot, put.lease_generation, put.lease)?,
        expect: expect(put.expect.as_ref())?,
        guard: guard(put.guard.as_ref())?,
    })
}

pub(crate) fn delete(delete: &v1::DeleteRequest) -> Result<Command<'_>, Failure> {
    Ok(Command::Delete {
        key: &delete.key,
        expect: expect(delete.expect.as_ref())?,
        guard: guard(delete.guard.as_ref())?,
    })
}

pub(crate) fn renew(renew: &v1::RenewRequest) -> Result<Vec<LeaseRef>, Failure> {
    if renew.slots.len() != renew.generations.len() {
        return Err(invalid("slots", "are not as many as `generations`"));
    }
    let handles = renew.slots.iter().zip(&renew.generations);
    let handles = handles.map(|(slot, generation)| lease_ref(*slot, *generation, 0));
    handles.chain(renew.leases.iter().map(|id| lease_ref(0, 0, *id))).collect()
}

pub(crate) fn revoke(revoke: &v1::RevokeRequest) -> Result<Command<'_>, Failure> {
    let by = if revoke.by_other {
        let (name, reason) = (&revoke.by, &revoke.reason);
        Revoker::Other { name, reason, urgency: urgency(revoke.now) }
    } else {
        // Fields that would not be stored are refused: a holder that revokes its own lease needs none of them.
        let given = [
            ("by", !revoke.by.is_empty()),
            ("reason", !revoke.reason.is_empty()),
            ("now", revoke.now),
        ];
        if let Some((field, _)) = given.into_iter().find(|(_, given)| *given) {
            return Err(invalid(field, "needs `by_other`"));
        }
        Revoker::Holder
    };
    let lease = lease_ref(revoke.lease_slot, revoke.lease_generation, revoke.lease)?;
    Ok(Command::Revoke { lease, by })
}

pub(crate) fn drain(drain: &v1::DrainRequest) -> Result<Command<'_>, Failure> {
    let prefix = drain.prefix.as_deref().ok_or_else(|| invalid("prefix", "is missing"))?;
    Ok(Command::Drain { prefix, by: &drain.by, reason: &drain.reason })
}

/// Without a number, it is left to the requests.
pub(crate) fn resize(resize: &v1::ResizeRequest) -> Command<'_> {
    let slots = (resize.slots > 0).then_some(resize.slots);
    Command::Resize { lock: &resize.lock, slots, by: &resize.by }
}

pub(crate) fn undrain(undrain: &v1::UndrainRequest) -> Result<Command<'_>, Failure> {
    let prefix = undrain.prefix.as_deref().ok_or_else(|| invalid("prefix", "is missing"))?;
    Ok(Command::Undrain { prefix, by: &undrain.by })
}

pub(crate) fn force(force: &v1::ForceRequest) -> Result<Command<'_>, Failure> {
    Ok(Command::Force {
        lock: &force.lock,
        token: token(force.token)?,
        by: &force.by,
        reason: &force.reason,
        urgency: urgency(force.now),
    })
}

pub(crate) fn stopped(stopped: &v1::StoppedRequest) -> Result<Command<'_>, Failure> {
    Ok(Command::Stopped {
        lease: convert::lease_from(stopped.lease).ok_or_else(|| invalid("lease", "is missing"))?,
        created: convert::revision_from(stopped.lease_created)
            .ok_or_else(|| invalid("lease_created", "is negative"))?,
        lock: &stopped.lock,
        token: token(stopped.token)?,
    })
}

pub(crate) fn release(it: &v1::ReleaseRequest) -> Result<Hold<'_>, Failure> {
    let lease = lease_ref(it.lease_slot, it.lease_generation, it.lease)?;
    Ok(Hold { lease, lock: &it.lock, token: token(it.token)? })
}

pub(crate) fn downgrade(it: &v1::DowngradeRequest) -> Result<Hold<'_>, Failure> {
    let lease = lease_ref(it.lease_slot, it.lease_generation, it.lease)?;
    Ok(Hold { lease, lock: &it.lock, token: token(it.token)? })
}

pub(crate) fn update(it: &v1::UpdateRequest) -> Result<Command<'_>, Failure> {
    let lease = lease_ref(it.lease_slot, it.lease_generation, it.lease)?;
    let hold = Hold { lease, lock: &it.lock, token: token(it.token)? };
    Ok(Command::Update { hold, metadata: &it.metadata })
}

pub(crate) fn hand_on(it: &v1::HandOnRequest) -> Result<Command<'_>, Failure> {
    let lease = lease_ref(it.lease_slot, it.lease_generation, it.lease)?;
    let hold = Hold { lease, lock: &it.lock, token: token(it.token)? };
    let to = convert::lease_from(it.to).ok_or_else(|| invalid("to", "is missing"))?;
    Ok(Command::HandOn { hold, to })
}

pub(crate) fn progress(it: &v1::ProgressRequest) -> Result<Command<'_>, Failure> {
    let lease = lease_ref(it.lease_slot, it.lease_generation, it.lease)?;
    let hold = Hold { lease, lock: &it.lock, token: token(it.token)? };
    Ok(Command::Progress { hold, number: it.number })
}

pub(crate) fn leave(it: &v1::LeaveRequest) -> Result<Command<'_>, Failure> {
    let lease = lease_ref(it.lease_slot, it.lease_generation, it.lease)?;
    Ok(Command::Leave { lease, lock: &it.lock })
}

/// The id by which a repeated request of a session is recognised.
pub(crate) fn request_id<'a>(
    request: &'a v1::Request,
    command: &Command<'_>,
) -> Result<RequestId<'a>, Failure> {
    match (request.seq, request.idempotency_key.is_empty()) {
        (0, true) => Ok(RequestId::None),
        (0, false) => Ok(RequestId::Key(&request.idempotency_key)),
        (_, false) => Err(invalid("seq", "and `idempotency_key` exclude each other")),
        (seq, true) => {
            let lease = lease_of(command)
                .ok_or_else(|| invalid("seq", "counts under a lease, and this names none"))?;
            Ok(RequestId::Seq { lease, seq, done: request.done })
        }
    }
}

/// The existing lease that a command acts under, if any.
fn lease_of(command: &Command<'_>) -> Option<LeaseRef> {
    match command {
        Command::Acquire(Acquire { lease: AskLease::Existing(lease), .. })
        | Command::Leave { lease, .. }
        | Command::Revoke { lease, .. }
        | Command::Release(Hold { lease, .. })
        | Command::Downgrade(Hold { lease, .. })
        | Command::Update { hold: Hold { lease, .. }, .. }
        | Command::Progress { hold: Hold { lease, .. }, .. }
        | Command::HandOn { hold: Hold { lease, .. }, .. }
        | Command::Upgrade(Upgrade { lease, .. }) => Some(*lease),
        Command::Put(put) => put.lease,
        _ => None,
    }
}

fn urgency(now: bool) -> Urgency {
    if now { Urgency::Now } else { Urgency::Cooling }
}

/// The member that a request names, if it names one.
pub(crate) fn optional_member(id: Option<u64>) -> Result<Option<MemberId>, Failure> {
    let member = |id| MemberId::new(id).ok_or_else(|| invalid("member_id", "is no member id"));
    id.map(member).transpose()
}

/// The failure for an invalid field.
pub(crate) fn invalid(field: &'static str, problem: &str) -> Failure {
    Failure::InvalidField { field, problem: problem.to_owned() }
}
