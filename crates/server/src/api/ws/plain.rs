//! Implements the plain lock protocol.
//!
//! `{commandType: 0, key, clientID, ttl}` requests a lock and is answered when it is granted; `commandType: 1` releases
//! it and is not answered. The member keeps one lease for each client and key, under a number that any member can
//! derive. It renews that lease while the client waits on an open connection, and once at the grant: from then on the
//! client has `ttl` seconds. A client that reconnects within its ttl and repeats its request gets back its place in the
//! queue, or its grant. A client whose credentials end loses its places.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure_core::Machine;
use tenure_core::outcome::{Answer, Outcome};
use tenure_core::request::{
    Acquire, Ask, AskLease, AskWait, Asks, Command, LeaseRef, NewLease, Purpose, RequestId, Revoker,
};
use tenure_types::{LeaseId, Mode, Refusal};
use tenure_wire::json::plain::{PlainCommand, PlainReply, PlainRequest, PlainToken};
use tenure_wire::json::strict;
use tenure_wire::{Failure, convert, v1};
use tokio::task::{AbortHandle, JoinSet};
use xxhash_rust::xxh3::xxh3_64;

use super::{IdentifiedSocket, LiveSocket, Unidentified};
use crate::api::ConnectionPermit;
use crate::dispatch::{
    AcquireTerms, Caller, Dispatch, PlaceFate, Principal, ReadConsistency, ReadScope,
    SessionMessage, WITHIN,
};
use crate::metrics::{Api, RequestClass};
use crate::os;

/// The most locks that one connection may wait for.
const LOCKS_MAX: usize = 1_024;
/// The pause between two attempts while the cluster has no leader.
const PAUSE: Duration = Duration::from_millis(200);
/// The longest wait, a year: a client ends it earlier by going away.
const ALWAYS: Duration = Duration::from_secs(365 * 24 * 3_600);

/// A request that waits for its lock.
struct WaitingAcquire {
    lease: LeaseId,
    lock: String,
    task: AbortHandle,
}

/// Serves one client until it goes away.
pub(super) async fn serve(socket: LiveSocket, dispatch: Dispatch, mut permit: ConnectionPermit) {
    match super::identify(socket, &dispatch, &mut permit, authorization).await {
        Ok(mut client) => {
            let caller = permit.caller().identified(Some(client.identity.clone()));
            client.socket.belongs_to(&caller);
            caller.run(serve_identified(client, dispatch, permit)).await;
        }
        Err(Unidentified::Gone) => {}
        Err(Unidentified::Refused(mut socket, failure)) => {
            let error = to_error(failure);
            if socket.send_text(text(&refused(&dispatch, &error))).await.is_some() {
                (*socket).close(&error).await;
            }
        }
    }
}

/// The credentials in a message.
fn authorization(heard: &str) -> Option<String> {
    read(heard).ok()?.authorization
}

async fn serve_identified(
    client: IdentifiedSocket,
    dispatch: Dispatch,
    mut permit: ConnectionPermit,
) {
    let IdentifiedSocket { mut socket, identity, first } = client;
    let mut credentials = identity.watch();
    let mut first = first.map(Ok);
    let mut may_identify = first.is_some();
    // No request uses this session: it reports when the member ends by itself, and counts against the quota.
    let session = match dispatch.session_of_client() {
        Ok(session) => session,
        Err(failure) => return socket.close(&to_error(failure)).await,
    };
    let mut asks: JoinSet<PlainReply> = JoinSet::new();
    let mut waiting: BTreeMap<(String, String), WaitingAcquire> = BTreeMap::new();
    loop {
        let heard = async {
            match first.take() {
                Some(first) => Some(first),
                None => socket.next().await,
            }
        };
        let said = tokio::select! {
            failure = credentials.ended() => {
                asks.shutdown().await;
                let queues = waiting.into_values().map(|it| (LeaseRef::Id(it.lease), it.lock));
                dispatch.leave_queues(identity.principal().clone(), queues.collect());
                return socket.close(&to_error(failure)).await;
            }
            text = heard => match text {
                None => return,
                Some(Ok(text)) => {
                    let may_identify = std::mem::take(&mut may_identify);
                    let who = identity.principal();
                    take(&text, &dispatch, who, may_identify, &mut asks, &mut waiting).await
                }
                Some(Err(failure)) => return socket.close(&to_error(failure)).await,
            },
            Some(answered) = asks.join_next(), if !asks.is_empty() => {
                answered.ok()
            }
            () = permit.closing() => {
                return socket.close(&to_error(dispatch.farewell())).await;
            }
            mail = session.mail() => {
                if mail.iter().any(|it| matches!(it, SessionMessage::Closed)) {
                    return socket.close(&to_error(dispatch.farewell())).await;
                }
                None
            }
        };
        waiting.retain(|_, ask| !ask.task.is_finished());
        if let Some(said) = said
            && socket.send_text(text(&said)).await.is_none()
        {
            return;
        }
    }
}

async fn take(
    text: &str,
    dispatch: &Dispatch,
    who: &Principal,
    may_identify: bool,
    asks: &mut JoinSet<PlainReply>,
    waiting: &mut BTreeMap<(String, String), WaitingAcquire>,
) -> Option<PlainReply> {
    let line = match read(text) {
        Ok(line) => line,
        Err(failure) => return Some(refused(dispatch, &(&failure).into())),
    };
    if line.authorization.is_some() && !may_identify {
        let problem = "belongs into the first message, if the upgrade had no credentials";
        let failure = crate::api::decode::invalid("authorization", problem);
        return Some(refused(dispatch, &(&failure).into()));
    }
    let began_us = dispatch.now_us();
    let served = move |dispatch: &Dispatch, class| {
        let took_us = dispatch.now_us().saturating_sub(began_us);
        dispatch.request_metrics().served(Api::LockSocket, class, took_us);
    };
    let whose = (line.client_id.clone(), line.key.clone());
    // A new message replaces the pending request of this connection with the same client and key.
    if let Some(ask) = waiting.remove(&whose) {
        ask.task.abort();
    }
    if line.command() == Some(PlainCommand::Release) {
        let command =
            Command::Revoke { lease: LeaseRef::Id(lease_id(who, &line)), by: Revoker::Holder };
        // A release has no answer. If it fails, the ttl ends the hold.
        let _ = dispatch.call(who, RequestId::None, command, WITHIN).await;
        served(dispatch, RequestClass::Release);
        return None;
    }
    if waiting.len() >= LOCKS_MAX {
        let failure = Failure::Overloaded { retry_after_ms: 1_000 };
        return Some(refused(dispatch, &(&failure).into()));
    }
    let (dispatch, who) = (dispatch.clone(), who.clone());
    let (lease, lock) = (lease_id(&who, &line), line.key.clone());
    let ask = async move {
        let acquired = acquire(&dispatch, &who, &line).await;
        served(&dispatch, RequestClass::Acquire);
        match acquired {
            Ok(token) => PlainReply { success: true, fencing_token: Some(token), reason: None },
            Err(error) => refused(&dispatch, &error),
        }
    };
    let task = match Caller::current() {
        Some(caller) => asks.spawn(caller.run(ask)),
        None => asks.spawn(ask),
    };
    waiting.insert(whose, WaitingAcquire { lease, lock, task });
    None
}

/// Waits for the lock as long as the client does.
async fn acquire(
    dispatch: &Dispatch,
    who: &Principal,
    line: &PlainRequest,
) -> Result<PlainToken, v1::Error> {
    let lease = lease_id(who, line);
    loop {
        let outcome = match attempt(dispatch, who, line, lease).await {
            Ok(outcome) => outcome,
            Err(denied) if is_denied(&denied) => return Err(to_error(denied)),
            // There is no leader, or the response was lost: the next attempt finds the lease's place again.
            Err(_) => {
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let acquired = match outcome.result {
            Ok(Answer::Acquired(acquired)) => acquired,
            // The lease expired while no leader could renew it: the client waits on, from the end of the queue.
            Err(Refusal::LeaseNotFound) | Ok(_) => continue,
            Err(refusal) => return Err((&refusal).into()),
        };
        let Some(grant) = acquired.grants.as_slice().first() else { continue };
        let Some(token) = PlainToken::new(line.key.clone(), grant.token.get()) else {
            let command = Command::Revoke { lease: LeaseRef::Id(lease), by: Revoker::Holder };
            let _ = dispatch.call(who, RequestId::None, command, WITHIN).await;
            return Err(to_error(Failure::TokenTooLarge));
        };
        // From here on the ttl counts for the client.
        let renew = Command::Renew(vec![LeaseRef::Handle(acquired.lease.handle)]);
        match dispatch.call(who, RequestId::None, renew, WITHIN).await.map(|outcome| outcome.result)
        {
            Ok(Ok(Answer::Renewed(renewals))) if renewals.iter().all(Option::is_some) => {
                return Ok(token);
            }
            _ => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// Whether another attempt would be refused as well, until an administrator permits it.
fn is_denied(failure: &Failure) -> bool {
    matches!(
        failure,
        Failure::PermissionDenied { .. }
            | Failure::PriorityDenied { .. }
            | Failure::Unauthenticated
    )
}

/// Grants the lease, requests the lock, and renews the lease until the lock is granted.
async fn attempt(
    dispatch: &Dispatch,
    who: &Principal,
    line: &PlainRequest,
    lease: LeaseId,
) -> Result<Outcome, Failure> {
    let new = NewLease { id: lease, ttl_ms: ttl_ms(line), client: &line.client_id, metadata: &[] };
    let granted = dispatch.call(who, RequestId::None, Command::GrantLease(new), WITHIN).await?;
    match &granted.result {
        // It came back with another ttl: what it has, it has.
        Err(Refusal::LeaseExists { .. })
            if is_theirs(dispatch, who, lease, &line.client_id).await? => {}
        Err(_) => return Ok(granted),
        Ok(_) => {}
    }
    let ask = Acquire {
        lease: AskLease::Existing(LeaseRef::Id(lease)),
        locks: Asks::One(Ask { lock: &line.key, mode: Mode::Exclusive }),
        any: false,
        wait: AskWait::Unlimited,
        metadata: &[],
        lock_delay_ms: 0,
        max_hold_ms: None,
        min_hold_ms: 0,
        progress_within_ms: 0,
        supersede: None,
        resume: false,
        priority: 0,
        purpose: Purpose::Lock,
        independent: false,
    };
    // Kept when the client goes away: it may come back.
    let terms = AcquireTerms {
        within_us: os::micros(WITHIN),
        wait_us: os::micros(ALWAYS),
        place: PlaceFate::Kept,
    };
    let turn_comes = dispatch.acquire(who, RequestId::None, Command::Acquire(ask), terms);
    tokio::pin!(turn_comes);
    let mut beat = tokio::time::interval(Duration::from_millis((ttl_ms(line) / 3).max(1)));
    beat.tick().await;
    loop {
        tokio::select! {
            outcome = turn_comes.as_mut() => return outcome,
            _ = beat.tick() => {
                let renew = Command::Renew(vec![LeaseRef::Id(lease)]);
                // If this renewal fails, the next may succeed; if none does, the acquire reports it.
                let _ = dispatch.call(who, RequestId::None, renew, WITHIN).await;
            }
        }
    }
}

async fn is_theirs(
    dispatch: &Dispatch,
    who: &Principal,
    lease: LeaseId,
    client: &str,
) -> Result<bool, Failure> {
    let (client, principal) = (client.to_owned(), who.clone());
    let ask = move |machine: &Machine| {
        let view = machine.lease_seen_by(principal.name(), LeaseRef::Id(lease));
        view.is_some_and(|view| view.client.as_str() == client)
    };
    let read =
        dispatch.read(who, ReadScope::Known, ReadConsistency::Linearizable, WITHIN, ask).await;
    read.map(|(_, theirs)| theirs)
}

/// The id of the lease for this principal, client and key: the same on every member.
fn lease_id(who: &Principal, line: &PlainRequest) -> LeaseId {
    let mut names = format!("{}\0{}", line.client_id, line.key);
    // Clients of different principals may have the same name.
    if !who.name().is_empty() {
        names = format!("{}\0{names}", who.name());
    }
    let mut number = xxh3_64(names.as_bytes()) >> 1;
    loop {
        if let Some(id) = i64::try_from(number).ok().and_then(convert::lease_from) {
            return id;
        }
        number += 1;
    }
}

pub(crate) fn read(text: &str) -> Result<PlainRequest, Failure> {
    let malformed = |error: serde_json::Error| Failure::Malformed { what: error.to_string() };
    let invalid = |field, problem: &str| Failure::InvalidField { field, problem: problem.into() };
    let line: PlainRequest = strict::from_str(text).map_err(malformed)?;
    match line.command() {
        None => Err(invalid("commandType", "must be 0 to acquire or 1 to release")),
        _ if line.key.is_empty() => Err(invalid("key", "is missing")),
        _ if line.client_id.is_empty() => Err(invalid("clientID", "is missing")),
        Some(PlainCommand::Acquire) if line.ttl == 0 => Err(invalid("ttl", "is missing")),
        Some(_) => Ok(line),
    }
}

fn ttl_ms(line: &PlainRequest) -> u64 {
    line.ttl.saturating_mul(1_000)
}

fn refused(dispatch: &Dispatch, error: &v1::Error) -> PlainReply {
    dispatch.request_metrics().refused(Api::LockSocket, &error.reason);
    PlainReply { success: false, fencing_token: None, reason: Some(error.reason.clone()) }
}

fn text(reply: &PlainReply) -> String {
    serde_json::to_string(reply).expect("a reply has only what JSON can have")
}

fn to_error(failure: Failure) -> v1::Error {
    (&failure).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_and_what_is_wrong_is_named() {
        let line = read(r#"{"commandType":0,"key":"k","clientID":"c","ttl":15}"#).unwrap();
        assert_eq!(ttl_ms(&line), 15_000);
        assert!(read(r#"{"commandType":1,"key":"k","clientID":"c"}"#).is_ok());
        for (text, field) in [
            (r#"{"commandType":2,"key":"k","clientID":"c","ttl":1}"#, "commandType"),
            (r#"{"commandType":0,"key":"","clientID":"c","ttl":1}"#, "key"),
            (r#"{"commandType":0,"key":"k","clientID":"","ttl":1}"#, "clientID"),
            (r#"{"commandType":0,"key":"k","clientID":"c"}"#, "ttl"),
        ] {
            match read(text) {
                Err(Failure::InvalidField { field: named, .. }) => assert_eq!(named, field),
                other => panic!("{text}: {other:?}"),
            }
        }
        assert!(matches!(read("hello"), Err(Failure::Malformed { .. })));
        for array in ["[]", r#"[0,"k","c",15]"#] {
            assert!(matches!(read(array), Err(Failure::Malformed { .. })), "{array}");
        }
    }

    #[test]
    fn a_client_that_is_denied_is_told_and_one_without_a_leader_waits() {
        assert!(is_denied(&Failure::PermissionDenied { verb: "acquire" }));
        assert!(is_denied(&Failure::Unauthenticated));
        assert!(!is_denied(&Failure::NoQuorum));
        assert!(!is_denied(&Failure::Overloaded { retry_after_ms: 1 }));
    }

    #[test]
    fn every_client_and_key_has_a_lease_of_its_own() {
        let line = |client: &str, key: &str| PlainRequest {
            command_type: 0,
            key: key.into(),
            client_id: client.into(),
            ttl: 1,
            authorization: None,
        };
        let anyone = Principal::anyone();
        assert_eq!(lease_id(&anyone, &line("a", "k")), lease_id(&anyone, &line("a", "k")));
        assert_ne!(lease_id(&anyone, &line("a", "bk")), lease_id(&anyone, &line("ab", "k")));
        let [ana, bob] = ["ana", "bob"].map(|name| Principal::named(name).unwrap());
        assert_ne!(lease_id(&ana, &line("a", "k")), lease_id(&bob, &line("a", "k")));
    }
}
