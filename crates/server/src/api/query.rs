//! Answers the queries of clients, for all APIs.

use std::time::Duration;

use tenure_core::request::LeaseRef;
use tenure_core::{Explanation, Machine};
use tenure_node::SessionBounds;
use tenure_types::{HolderState, RENEW_MAX, Revision, Verb};
use tenure_wire::{Failure, v1};

use super::{MESSAGE_BYTES_MAX, decode, encode, present};
use crate::dispatch::{Dispatch, Principal, ReadConsistency, ReadScope, WITHIN};

/// The most records in one page of a list, and the default.
const PAGE_MAX: usize = 1_000;
const PAGE: usize = 100;

/// The number of records in a page.
pub(crate) fn page(limit: u32) -> usize {
    match limit {
        0 => PAGE,
        limit => (limit as usize).min(PAGE_MAX),
    }
}

/// How fresh the answer has to be.
pub(crate) fn fresh(stale: bool) -> ReadConsistency {
    if stale { ReadConsistency::Stale } else { ReadConsistency::Linearizable }
}

/// The newest revision, if `from` lies beyond the next one. No client can know such a revision, so a watch must not
/// wait for it.
pub(crate) async fn beyond(
    dispatch: &Dispatch,
    who: &Principal,
    from: Revision,
) -> Result<Option<Revision>, Failure> {
    let (newest, ()) =
        dispatch.read(who, ReadScope::Known, ReadConsistency::Stale, WITHIN, |_| ()).await?;
    if from <= newest.next() {
        return Ok(None);
    }
    // This member may be behind: only a fresh read tells whether there is such a revision.
    let (newest, ()) =
        dispatch.read(who, ReadScope::Known, ReadConsistency::Linearizable, WITHIN, |_| ()).await?;
    Ok((from > newest.next()).then_some(newest))
}

/// Whether a session's request is a query and not a command.
pub(crate) fn is_question(request: &v1::Request) -> bool {
    use v1::request::Command::{Explain, GetKey, GetLease, GetLock};
    let command = &request.command;
    matches!(command, Some(GetLease(_) | GetLock(_) | GetKey(_) | Explain(_)))
}

/// Answers a question of a session.
pub(crate) async fn session(
    dispatch: &Dispatch,
    who: &Principal,
    request: &v1::Request,
    within: Duration,
) -> v1::Answer {
    use v1::answer::Result as Wire;
    use v1::request::Command;
    let answered = match &request.command {
        Some(Command::GetLease(it)) => {
            lease(dispatch, who, it, within).await.map(|it| (it.header, Wire::Lease(Box::new(it))))
        }
        Some(Command::GetLock(it)) => {
            lock(dispatch, who, it, within).await.map(|it| (it.header, Wire::Lock(it)))
        }
        Some(Command::GetKey(it)) => {
            key(dispatch, who, it, within).await.map(|it| (it.header, Wire::Key(it)))
        }
        Some(Command::Explain(it)) => explain(dispatch, who, it, within)
            .await
            .map(|it| (it.header, Wire::Explained(Box::new(it)))),
        _ => Err((&Failure::UnknownOperation).into()),
    };
    match answered {
        Ok((header, result)) => {
            let revision = header.map_or(0, |header| header.revision);
            v1::Answer { id: request.id, revision, result: Some(result) }
        }
        Err(error) => {
            v1::Answer { id: request.id, revision: 0, result: Some(Wire::Error(Box::new(error))) }
        }
    }
}

pub(crate) async fn lease(
    dispatch: &Dispatch,
    who: &Principal,
    it: &v1::GetLeaseRequest,
    within: Duration,
) -> Result<v1::GetLeaseResponse, v1::Error> {
    let lease =
        decode::lease_ref(it.lease_slot, it.lease_generation, it.lease).map_err(to_error)?;
    let principal = who.clone();
    let ask = move |machine: &Machine| {
        machine.lease_seen_by(principal.name(), lease).as_ref().map(encode::lease_view)
    };
    let read = dispatch.read(who, ReadScope::Known, fresh(it.stale), within, ask).await;
    let (revision, view) = read.map_err(failed)?;
    let lease = view.ok_or_else(|| encode::refused(&tenure_types::Refusal::LeaseNotFound))?;
    Ok(v1::GetLeaseResponse { header: Some(dispatch.header(revision)), lease: Some(lease) })
}

pub(crate) async fn lock(
    dispatch: &Dispatch,
    who: &Principal,
    it: &v1::GetLockRequest,
    within: Duration,
) -> Result<v1::GetLockResponse, v1::Error> {
    let lock = name(&it.lock, "lock")?;
    let scope = ReadScope::read(&lock);
    let ask = move |machine: &Machine| machine.lock(&lock).as_ref().map(encode::lock_view);
    let read = dispatch.read(who, scope, fresh(it.stale), within, ask).await;
    let (revision, mut lock) = read.map_err(failed)?;
    lock.iter_mut().for_each(|it| present::lock(it, present::clock_age_ms(dispatch)));
    Ok(v1::GetLockResponse { header: Some(dispatch.header(revision)), lock })
}

pub(crate) async fn key(
    dispatch: &Dispatch,
    who: &Principal,
    it: &v1::GetKeyRequest,
    within: Duration,
) -> Result<v1::GetKeyResponse, v1::Error> {
    let key = name(&it.key, "key")?;
    let scope = ReadScope::read(&key);
    let ask = move |machine: &Machine| machine.key(&key).as_ref().map(encode::key_value);
    let read = dispatch.read(who, scope, fresh(it.stale), within, ask).await;
    let (revision, kv) = read.map_err(failed)?;
    Ok(v1::GetKeyResponse { header: Some(dispatch.header(revision)), kv })
}

pub(crate) async fn explain(
    dispatch: &Dispatch,
    who: &Principal,
    it: &v1::ExplainRequest,
    within: Duration,
) -> Result<v1::ExplainResponse, v1::Error> {
    let lock = name(&it.lock, "lock")?;
    let asker = match (it.lease_generation, it.lease) {
        (0, 0) => None,
        _ => Some(
            decode::lease_ref(it.lease_slot, it.lease_generation, it.lease).map_err(to_error)?,
        ),
    };
    let max = page(it.limit);
    let usually = dispatch.member().lock_metrics().usually(&lock);
    let principal = who.clone();
    let ask = move |machine: &Machine| {
        let explained = match machine.explain_to(principal.name(), asker, &lock, max)? {
            Some(Explanation::Whole(explained)) => explained,
            Some(Explanation::Own { lock, holders, own, quiet_ms, drained }) => {
                let (own, drained) = (own.as_ref(), drained.as_ref());
                let own = encode::explained_own(&lock, &holders, own, quiet_ms, drained);
                return Ok((own, false));
            }
            // A lock without holders or waiters is free: there is nothing else to explain.
            None => {
                let drained = machine.drained(&lock);
                return Ok((encode::free(machine.quiet_ms(), drained.as_ref()), true));
            }
        };
        let mut response = encode::explained(&explained);
        let holders = response.lock.iter_mut().flat_map(|lock| &mut lock.holders);
        for (shown, holder) in holders.zip(&explained.lock.holders).take(max) {
            if holder.state == HolderState::Held {
                shown.renewed_ms = machine.renewed_ms(LeaseRef::Id(holder.lease));
            }
        }
        Ok((response, true))
    };
    let read = dispatch.read(who, ReadScope::Known, fresh(it.stale), within, ask).await;
    let (revision, explained) = read.map_err(failed)?;
    let denied = |verb: Verb| Failure::PermissionDenied { verb: verb.name() };
    let (mut response, whole) = explained.map_err(denied)?;
    response.header = Some(dispatch.header(revision));
    present::explained(&mut response, present::clock_age_ms(dispatch));
    if let Some((held_ms, of)) = usually.filter(|_| whole) {
        (response.usually_held_ms, response.usually_of) = (Some(held_ms), of);
    }
    Ok(response)
}

/// What a session begins with.
pub(crate) async fn welcome(
    dispatch: &Dispatch,
    who: &Principal,
    hello: &v1::Hello,
) -> Result<v1::Welcome, Failure> {
    let named: Vec<LeaseRef> = hello
        .leases
        .iter()
        .filter_map(|it| decode::lease_ref(it.lease_slot, it.lease_generation, it.lease).ok())
        .collect();
    let (me, principal) = (dispatch.member().id(), who.clone());
    let ask = move |machine: &Machine| {
        let seen = named.iter().filter(|lease| machine.sees_lease(principal.name(), **lease));
        // A client names thousands of leases, and each may hold thousands of locks.
        let leases = seen.filter_map(|lease| machine.grant_of_lease(*lease));
        let leases: Vec<_> = leases.map(|grant| encode::lease(&grant)).collect();
        let name = tenure_node::directory::read(machine).remove(&me).map(|names| names.name);
        (leases, name, machine.epoch().get(), machine.level())
    };
    let (revision, (leases, name, epoch, level)) = dispatch.read_welcome(who, ask).await?;
    let bounds = SessionBounds::default();
    Ok(v1::Welcome {
        header: Some(dispatch.header(revision)),
        member: name.unwrap_or_default(),
        epoch: epoch.into(),
        incarnation: dispatch.member().lineage().incarnation.0,
        leader: Some(dispatch.leader_hint().await),
        in_flight_max: number(bounds.in_flight),
        requests_per_message_max: number(bounds.requests),
        message_bytes_max: number(MESSAGE_BYTES_MAX),
        renew_max: number(RENEW_MAX),
        seq_window: 256,
        level: level.into(),
        software: concat!("tenure ", env!("CARGO_PKG_VERSION")).to_owned(),
        leases,
    })
}

fn number(bound: usize) -> u32 {
    u32::try_from(bound).unwrap_or(u32::MAX)
}

/// A name that is not empty; the machine's limits decide whether it is valid.
pub(crate) fn name(text: &str, field: &'static str) -> Result<String, Failure> {
    if text.is_empty() {
        return Err(decode::invalid(field, "is missing"));
    }
    Ok(text.to_owned())
}

/// A failure of an API, as it is sent.
pub(crate) fn to_error(failure: Failure) -> v1::Error {
    (&failure).into()
}

/// A failure of dispatch, as it is sent.
pub(crate) fn failed(failure: Failure) -> v1::Error {
    to_error(failure)
}
