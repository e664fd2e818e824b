//! Tests the JSON that members write and clients may write.

use serde::Serialize;
use serde::de::DeserializeOwned;
use tenure_wire::json::cluster::Status;
use tenure_wire::json::election::{Campaign, Election};
use tenure_wire::json::error::ErrorBody;
use tenure_wire::json::event::{Change, Compacted, Progress, SlowConsumer};
use tenure_wire::json::key::{KeyPut, KeyShown};
use tenure_wire::json::lease::{GrantLease, LeaseGranted, LeaseShown};
use tenure_wire::json::lock::{
    Acquire, Acquired, Drain, Drains, Explained, Force, History, Patch, Queue,
};
use tenure_wire::json::plain::{PlainReply, PlainRequest, PlainToken};
use tenure_wire::json::session::{
    Answer, Asked, ClientMessage, Granted, LeaseEnded, Lost, ServerMessage, WaitEnded,
};
use tenure_wire::json::{Decimal, LockShown, WaiterShown};
use tenure_wire::v1::answer::Result as R;
use tenure_wire::v1::request::Command;
use tenure_wire::v1::{self, Cause};

use super::answers::welcome;
use super::golden;
use super::messages::{
    LEASE, drain_view, error, event, explained, header, leader, lease, lease_view, lock_view,
    status, waiter,
};

/// Compares a form with its file, encoded and decoded.
pub(crate) fn check<F: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(
    name: &str,
    form: &F,
) {
    let text = serde_json::to_string_pretty(form).unwrap() + "\n";
    let name = format!("{name}.json");
    let file = golden(&name, &text, |_| false);
    let back: F = serde_json::from_str(&file).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(back, *form, "{name} reads as something else");
    assert!(file == text, "{name} would be written differently:\n{text}");
}

pub(crate) fn read<F: DeserializeOwned>(text: &str) -> F {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

pub(crate) fn refuses<F: DeserializeOwned>(text: &str) {
    assert!(serde_json::from_str::<F>(text).is_err(), "{text}");
}

const ID: Decimal = Decimal(LEASE.unsigned_abs());

#[test]
fn what_http_answers_stays() {
    check("http_error", &ErrorBody::new(error()).1);
    check("http_lease", &LeaseShown::from(lease_view()));
    let granted = LeaseGranted { header: Some(header().into()), ..lease().into() };
    check("http_lease_granted", &granted);
    check("http_lock", &LockShown::from(lock_view()));
    let response = v1::AcquireResponse {
        header: Some(header()),
        token: 1043,
        place: 78,
        lease_created: 8800,
        ..Default::default()
    };
    check("http_acquired", &Acquired::held(Some("deploy".into()), response));
    let queued = v1::Queued { place: 78, ahead: 1, lease_created: 8800, lease: None };
    let header = tenure_wire::json::Header::from(header());
    check("http_queued", &Acquired::queued(Some("deploy".into()), queued, Some(header.clone())));
    check("http_explain", &Explained::from(explained()));
    let superseded = v1::WaitEnded {
        id: 1,
        place: 78,
        revision: 8850,
        superseded_by: "ci-9/877".into(),
        superseded_by_lease: LEASE,
        ..Default::default()
    };
    check("session_superseded", &WaitEnded::new(&superseded, Some(ID)));
    let too_large = v1::WaitEnded { error: Some(error()), ..Default::default() };
    check("session_wait_refused", &WaitEnded::new(&too_large, Some(ID)));
    let sized = v1::LockView { sized: true, ..lock_view() };
    check("http_lock_sized", &LockShown::from(sized));
    let several = v1::WaiterView { take: 3, ..waiter() };
    check("http_waiter_take", &WaiterShown::from(several));
    let any = v1::WaiterView { any: true, ..waiter() };
    check("http_waiter_any", &WaiterShown::from(any));
    let of_pool = v1::WaiterView { any: true, pool: "accounts/".into(), ..waiter() };
    check("http_waiter_pool", &WaiterShown::from(of_pool));
    let drained = v1::ExplainResponse { drained: Some(drain_view()), ..Default::default() };
    check("http_explain_drained", &Explained::from(drained));
    let drains = v1::ListDrainsResponse { header: None, drains: vec![drain_view()] };
    check("http_drains", &Drains::from(drains));
    let waiters = vec![waiter().into()];
    let queue = Queue { lock: "deploy".into(), waiters, next: None, header: header.clone() };
    check("http_queue", &queue);
    let batch = v1::Batch { revision: 8850, events: vec![event(Cause::Forced)] };
    let history = History {
        lock: "deploy".into(),
        changes: vec![batch.into()],
        next: Decimal(8851),
        floor: Decimal(8000),
        before: None,
        archive: None,
        header: header.clone(),
    };
    check("http_history", &history);
    check("http_status", &Status::from(status()));
    let leader = v1::Leadership {
        name: "billing".into(),
        lease: LEASE,
        token: 2210,
        client: "host-3/77".into(),
        value: "10.0.0.4:9000".into(),
        held_ms: 7_380_000,
    };
    let election =
        Election { name: "billing".into(), leader: Some(leader.into()), header: header.clone() };
    check("http_election", &election);
    let put =
        KeyPut { key: "config/a".into(), version: 1, created: Decimal(8850), header: Some(header) };
    check("http_key_put", &put);
    let kv = v1::KeyValue { key: "config/a".into(), value: "1".into(), ..Default::default() };
    check("http_key", &KeyShown::from(kv));
}

#[test]
fn what_watches_send_stays() {
    let of_key = v1::Event { subject: v1::Subject::Key.into(), ..event(Cause::KeyPut) };
    let events = vec![event(Cause::Granted), of_key];
    check("watch_change", &Change::from(v1::Batch { revision: 8850, events }));
    check("watch_progress", &Progress { revision: Decimal(8850) });
    check("watch_compacted", &Compacted { floor: Decimal(8000) });
    check("watch_slow_consumer", &SlowConsumer { resume: Decimal(8001) });
}

#[test]
fn what_a_session_hears_stays() {
    let asked = Asked { name: Some("deploy".into()), leases: vec![ID, Decimal(7)] };
    let results = [
        R::Error(error().into()),
        R::Acquired(v1::AcquireResponse { token: 1043, place: 78, ..Default::default() }),
        R::Released(v1::ReleaseResponse::default()),
        R::Queued(v1::Queued { place: 78, ahead: 1, lease_created: 8800, lease: Some(lease()) }),
        R::Renewed(v1::Renewed { ttl_ms: vec![15_000, 0], changed: Vec::new() }),
        R::LeaseGranted(lease()),
        R::Revoked(v1::RevokeResponse::default()),
        R::Left(v1::LeaveResponse::default()),
        R::Stopped(v1::StoppedResponse::default()),
        R::Downgraded(v1::DowngradeResponse { header: None, token: 1044 }),
        R::Updated(v1::UpdateResponse { header: None, version: 42 }),
        R::Ended(v1::Ended {}),
        R::Forced(v1::ForceResponse { header: None, left_ms: 13_000 }),
        R::Put(v1::PutResponse { header: None, version: 1, created: 8850 }),
        R::Deleted(v1::DeleteResponse { header: None, existed: true }),
        R::Lease(v1::GetLeaseResponse { header: None, lease: Some(lease_view()) }.into()),
        R::Lock(v1::GetLockResponse { header: None, lock: None }),
        R::Key(v1::GetKeyResponse { header: None, kv: None }),
        R::Explained(explained().into()),
    ];
    let answers = (1..).zip(results).map(|(id, result)| {
        Answer::new(v1::Answer { id, revision: 8850, result: Some(result) }, &asked)
    });
    let granted = v1::Granted {
        id: 1,
        lock: "deploy".into(),
        token: 1043,
        place: 78,
        revision: 8850,
        ..Default::default()
    };
    let lost = v1::Lost {
        lock: "deploy".into(),
        token: 1043,
        revision: 8850,
        cause: Cause::Forced.into(),
        ..Default::default()
    };
    let ended =
        v1::LeaseEnded { revision: 8850, cause: Cause::Expired.into(), ..Default::default() };
    let wait = v1::WaitEnded { id: 1, place: 78, revision: 8850, ..Default::default() };
    let message = ServerMessage {
        welcome: Some(welcome().into()),
        revision: Some(Decimal(8851)),
        answers: answers.collect(),
        grants: vec![Granted::new(granted, Some(ID))],
        losses: vec![Lost::new(lost, Some(ID))],
        waits_ended: vec![WaitEnded::new(&wait, Some(ID))],
        leases_ended: vec![LeaseEnded::new(ended, ID)],
        leader: Some(leader().into()),
        closing: Some(error().into()),
    };
    check("session_server", &message);
    let (by, reason) = ("ops@host".to_owned(), "stuck for an hour".to_owned());
    let forced = v1::Lost { cause: Cause::Forced.into(), by, reason, ..Default::default() };
    let (by, reason) = (forced.by.clone(), forced.reason.clone());
    let cause = Cause::Revoked.into();
    let revoked = v1::LeaseEnded { cause, by, reason, ..Default::default() };
    let words = ServerMessage {
        losses: vec![Lost::new(forced, Some(ID))],
        leases_ended: vec![LeaseEnded::new(revoked, ID)],
        ..Default::default()
    };
    check("session_server_word", &words);
}

#[test]
fn what_clients_may_say_stays() {
    let lease = "6862914507731255300";
    let text = format!(
        r#"{{"hello":{{"client":"me"}},"resume":{{"leases":["{lease}"]}},"requests":[
        {{"id":1,"acquire":{{"lock":"deploy","lease":"{lease}","wait_ms":60000}}}},
        {{"id":2,"renew":{{"leases":["{lease}"]}}}},
        {{"id":3,"seq":4,"done":2,"deadline_ms":500,"release":{{"lock":"deploy","lease":"{lease}","token":"1043"}}}},
        {{"id":4,"grant_lease":{{"ttl_ms":15000,"metadata_base64":"/wA="}},"idempotency_key":"k"}},
        {{"id":5,"revoke":{{"lease":"{lease}","reason":"gone","now":true}}}},
        {{"id":6,"leave":{{"lock":"deploy","lease":"{lease}"}}}},
        {{"id":7,"stopped":{{"lock":"deploy","lease":"{lease}","lease_created":"8800","token":"1043"}}}},
        {{"id":8,"downgrade":{{"lock":"deploy","lease":"{lease}","token":"1043"}}}},
        {{"id":9,"update":{{"lock":"deploy","lease":"{lease}","token":"1043","metadata":"x"}}}},
        {{"id":10,"force":{{"lock":"deploy","token":"1042","reason":"gone"}}}},
        {{"id":11,"put":{{"key":"a","value":"1","expect":{{"absent":true}},
            "guard":{{"lock":"deploy","token":"1043"}}}}}},
        {{"id":12,"delete":{{"key":"a","expect":{{"modified":"8850"}}}}}},
        {{"id":13,"get_lease":{{"name":"{lease}"}}}},
        {{"id":14,"get_lock":{{"name":"deploy","stale":true}}}},
        {{"id":15,"get_key":{{"name":"a"}}}},
        {{"id":16,"explain":{{"lock":"deploy"}}}},
        {{"id":17,"acquire":{{"locks":["accounts/7",{{"lock":"w","slots":8}}],"new_lease":{{"ttl_ms":15000}}}}}}
        ]}}"#
    );
    let message: ClientMessage = read(&text);
    check("session_client", &message);
    let requests: Vec<v1::Request> =
        message.requests.into_iter().map(|request| request.try_into().unwrap()).collect();
    assert_eq!(requests.len(), 17);
    let Some(Command::Acquire(acquire)) = &requests[0].command else { panic!("an acquire") };
    assert_eq!((acquire.lease, acquire.wait_ms), (LEASE, Some(60_000)));
    assert_eq!((requests[2].seq, requests[2].done, requests[2].deadline_ms), (4, 2, 500));
    let Some(Command::Acquire(several)) = &requests[16].command else { panic!("an acquire") };
    assert_eq!(several.locks.len(), 2);
    assert_eq!(several.new_lease.as_ref().unwrap().ttl_ms, 15_000);
    let all: tenure_wire::v1::SessionRequest = v1::SessionRequest { hello: None, requests };
    super::check("session_from_json", &all);
}

#[test]
fn what_http_takes_stays() {
    let _: GrantLease = read(r#"{"ttl_ms":60000,"client":"curl"}"#);
    let _: Acquire = read(r#"{"lease":"6862914507731255300"}"#);
    let newest: Acquire = read(r#"{"lock":"web","lease":"1","supersede":"main","resume":true}"#);
    let newest = v1::AcquireRequest::try_from(newest).unwrap();
    assert_eq!((newest.supersede.as_str(), newest.resume), ("main", true));
    let _: Force = read(r#"{"lock":"deploy","token":"1042","reason":"gone"}"#);
    let named: Force = read(r#"{"lock":"deploy","token":"1042","by":"ops@host","reason":"gone"}"#);
    assert_eq!(named.by, "ops@host");
    let drain: Drain = read(r#"{"prefix":"db/","reason":"new disks"}"#);
    assert_eq!(v1::DrainRequest::from(drain).prefix.as_deref(), Some("db/"));
    let _: Patch = read(r#"{"lease":"1","token":"1042","metadata":"release 5.3"}"#);
    let _: Campaign = read(r#"{"lease":"1","value":"10.0.0.5:9000"}"#);
}

#[test]
fn what_is_not_known_or_not_meant_is_refused() {
    refuses::<GrantLease>(r#"{"ttl_ms":60000,"tll":1}"#);
    refuses::<GrantLease>(r#"{"ttl_ms":-1}"#);
    refuses::<GrantLease>(r#"{"ttl_ms":1.5}"#);
    refuses::<GrantLease>(r#"{"ttl_ms":60000,"ttl_ms":1}"#);
    refuses::<Acquire>(r#"{"lease":6862914507731255300}"#);
    refuses::<Acquire>(r#"{"lease":"1","mode":"upgrade"}"#);
    refuses::<ClientMessage>(r#"{"requests":[{"acquire":{"lock":"a","lease":"1"}}]}"#);
    refuses::<ClientMessage>(r#"{"requests":[{"id":1,"steal":{}}]}"#);
    refuses::<PlainRequest>(r#"{"commandType":0,"key":"a","clientID":"c","ttl":1,"more":1}"#);

    let bad = [
        r#"{"id":1}"#,
        r#"{"id":1,"get_key":{"name":"a"},"get_lock":{"name":"a"}}"#,
        r#"{"id":1,"acquire":{"lock":"a"}}"#,
        r#"{"id":1,"acquire":{"lock":"a","locks":["b"],"lease":"1"}}"#,
        r#"{"id":1,"acquire":{"lock":"a","lease":"0"}}"#,
        r#"{"id":1,"acquire":{"lock":"a","lease":"9223372036854775808"}}"#,
        r#"{"id":1,"acquire":{"lock":"a","lease":"1","new_lease":{"ttl_ms":1000}}}"#,
        r#"{"id":1,"acquire":{"locks":["a"],"lease":"1","mode":"shared"}}"#,
        r#"{"id":1,"acquire":{"lock":"a","lease":"1","mode":"slot"}}"#,
        r#"{"id":1,"revoke":{"lease":"1","now":true}}"#,
        r#"{"id":1,"put":{"key":"a","value":"1","value_base64":"MQ=="}}"#,
        r#"{"id":1,"put":{"key":"a","value":"1","expect":{"absent":true,"value":"1"}}}"#,
        r#"{"id":1,"put":{"key":"a","value":"1","expect":{}}}"#,
        r#"{"id":1,"get_lease":{"name":"deploy"}}"#,
    ];
    for text in bad {
        let request: tenure_wire::json::session::Request = read(text);
        let failed = v1::Request::try_from(request).expect_err(text);
        let error = v1::Error::from(&failed);
        assert!(["MALFORMED", "INVALID_FIELD"].contains(&error.reason.as_str()), "{text}");
    }
}

#[test]
fn every_form_is_described_under_a_name_of_its_own() {
    let described = tenure_wire::json::schemas();
    let names: Vec<_> = described.iter().map(|(name, _)| name.as_str()).collect();
    assert!(names.is_sorted_by(|a, b| a < b), "two forms share a name: {names:?}");
    for name in ["Acquire", "ErrorBody", "ClientMessage", "ServerMessage", "Explained", "Decimal"] {
        assert!(names.contains(&name), "{name}");
    }
}

#[test]
fn the_plain_protocol_stays() {
    let text = r#"{"commandType":0,"key":"l1","clientID":"client1","ttl":60}"#;
    check("plain_request", &read::<PlainRequest>(text));
    let token = PlainToken::new("l1".into(), 1043);
    check("plain_reply", &PlainReply { success: true, fencing_token: token, reason: None });
    let reason = Some("WAIT_TIMEOUT".into());
    check("plain_refused", &PlainReply { success: false, fencing_token: None, reason });
}
