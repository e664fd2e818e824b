//! Tests that changes are streamed once, in order, and from where the reader was.

use serde_json::json;

use crate::client::Client;
use crate::members::{Members, wait};

pub(crate) fn changes_are_streamed_and_resumed(at: &Client) {
    let (lock, lease, other) = (at.own("watched"), at.lease(60_000), at.lease(60_000));
    let path = format!("/v1/locks/{lock}");
    let mut live = at.events(&format!("/v1/watch?name={lock}"), &[]);
    let began = live.any();
    assert_eq!(began.event, "progress");
    let token = at.lock(&lock, &lease);
    let granted = live.next();
    assert_eq!(
        (&*granted.event, &granted.data["events"][0]["cause"]),
        ("change", &json!("granted"))
    );
    assert_eq!(granted.data["events"][0]["token"], token);
    assert_eq!(granted.data["revision"], granted.id);
    assert!(granted.id.parse::<u64>().unwrap() > began.id.parse::<u64>().unwrap());
    assert_eq!(at.post(&format!("{path}?keep=true"), &json!({"lease": other})).status, 202);
    assert_eq!(live.next().data["events"][0]["cause"], "queued");
    at.delete(&format!("{path}?lease={lease}&token={token}")).ok();
    // One message per revision: the handover is not split.
    let over = live.next();
    assert_eq!(over.data["events"][0]["cause"], "released");
    assert_eq!(over.data["events"][1]["cause"], "granted");
    assert_eq!(over.data["events"][1]["lease"], other);

    let last = [("Last-Event-ID", &*granted.id)];
    let mut resumed = at.events(&format!("/v1/watch?prefix={lock}&from=1"), &last);
    assert_eq!(resumed.next().data["events"][0]["cause"], "queued");
    assert_eq!(resumed.next().id, over.id);
    let mut from = at.events(&format!("/v1/watch?prefix={lock}&from={}", granted.id), &[]);
    assert_eq!(from.next().id, granted.id);

    let path = format!("/v1/keys/{lock}");
    at.ask("PUT", &path, &[], b"1").ok();
    let mut previous = at.events(&format!("/v1/watch?name={lock}&previous=true"), &[]);
    previous.any();
    at.ask("PUT", &path, &[], b"2").ok();
    let put = previous.next().data["events"][0].clone();
    assert_eq!((&put["value"], &put["previous"]["value"]), (&json!("2"), &json!("1")));
}

pub(crate) fn elections_are_observed(at: &Client) {
    let path = format!("/v1/elections/{}", at.own("observed"));
    let (a, b) = (at.lease(60_000), at.lease(60_000));
    let mut seen = at.events(&format!("{path}?view=observe"), &[]);
    let first = seen.next();
    assert_eq!((&*first.event, first.data.get("leader")), ("vacant", None));
    let led = at.post(&path, &json!({"lease": a, "value": "a"})).ok();
    let leads = seen.next();
    assert_eq!((&*leads.event, &leads.data["leader"]["value"]), ("leader", &json!("a")));
    assert_eq!(
        at.post(&format!("{path}?keep=true"), &json!({"lease": b, "value": "b"})).status,
        202
    );
    let token = led["leader"]["token"].as_str().unwrap();
    at.delete(&format!("{path}?lease={a}&token={token}")).ok();
    let leads = seen.next();
    assert_eq!((&*leads.event, &leads.data["leader"]["value"]), ("leader", &json!("b")));
    let token = leads.data["leader"]["token"].as_str().unwrap();
    at.delete(&format!("{path}?lease={b}&token={token}")).ok();
    assert_eq!(seen.next().event, "vacant");
}

#[test]
fn a_watch_that_fell_behind_the_history_is_told_the_floor() {
    let members = Members::start(1);
    let at = members.client(0, "floor");
    let limits = json!({"limits": [{"limit": "history_revisions", "value": 3}]});
    at.json("PATCH", "/v1/limits", &[], &limits).ok();
    for _ in 0..5 {
        at.ask("PUT", "/v1/keys/k", &[], b"v").ok();
    }
    let error = at.get("/v1/watch?from=1").refused(410, "COMPACTED");
    let floor = error["revision"].as_str().unwrap();
    let mut watch = at.events(&format!("/v1/watch?from={floor}"), &[]);
    assert_eq!(watch.next().id, floor);
    at.get("/v1/locks/l?view=history&from=1").refused(410, "COMPACTED");
    let error = at.get("/v1/watch?from=1000000").refused(400, "FUTURE_REVISION");
    assert_eq!(error["bound"].to_string(), error["revision"].as_str().unwrap(), "{error}");
    at.get("/v1/locks/l?view=history&from=1000000").refused(400, "FUTURE_REVISION");
}

#[test]
fn without_a_quorum_nothing_happens_and_the_member_says_so() {
    let mut members = Members::start(3);
    let leader = members.leader();
    let at = members.client(leader, "alone");
    let lease = at.lease(600_000);
    members.stop((leader + 1) % 3);
    members.stop((leader + 2) % 3);
    // Whether it still leads or not, it reports no more than it knows.
    let put = at.ask("PUT", "/v1/keys/k?timeout=200ms", &[], b"v");
    let error = put.value()["error"].clone();
    let said = (put.status, error["reason"].as_str().unwrap(), error["effect"].as_str().unwrap());
    let honest = [(504, "UNKNOWN_OUTCOME", "unknown"), (503, "NO_LEADER", "none")];
    assert!(honest.contains(&said), "{error}");
    let unready = || Some(at.get("/readyz")).filter(|it| it.status == 503);
    assert_ne!(wait("it is not ready", unready).value()["status"], "ok");
    assert_eq!(at.get("/healthz").ok()["status"], "ok");
    // There is no leader: nothing is sent anywhere, so nothing can have happened.
    wait("no member leads", || at.get("/v1/cluster").ok().get("leader").is_none().then_some(()));
    let renew = format!("/v1/leases/{lease}/renew?timeout=300ms");
    at.ask("POST", &renew, &[], b"").refused(503, "NO_LEADER");
    at.get(&format!("/v1/leases/{lease}?stale=true")).ok();
}
