//! Tests that the audit log names the principals of administrative acts, and that invitations can be listed and taken
//! back.

use std::time::Duration;

use serde_json::{Value, json};
use tenure_core::codec::encode_request;
use tenure_core::event::{Batch, Cause, Event, Subject};
use tenure_core::request::{Command, LeaseRef, Request, RequestId};
use tenure_core::{Filter, Machine};
use tenure_server::ServerSettings;
use tenure_types::{LeaseId, Refusal, Revision};

use crate::alone::{self, Alone};
use crate::bounded::{DEADLINE, wait};
use crate::client::Client;
use crate::identity::{IdentityMember, Key};

/// The records of an act, once there are as many as expected.
fn records(stage: &IdentityMember, key: &Key, act: &str, count: usize) -> Vec<Value> {
    wait(&format!("{count} records of {act}"), || {
        let records = stage.get("/v1/audit?last=1000", key).ok()["records"].clone();
        let all = records.as_array().unwrap().iter();
        let found: Vec<Value> = all.filter(|record| record["act"] == act).cloned().collect();
        (found.len() >= count).then_some(found)
    })
}

fn invite(stage: &IdentityMember, key: &Key, body: &Value) -> String {
    let made = stage.post("/v1/cluster/invitations", key, body).ok();
    made["id"].as_str().unwrap().to_owned()
}

fn delete(stage: &IdentityMember, path: &str, key: &Key) -> crate::client::Reply {
    stage.http.ask("DELETE", path, &[("Authorization", &key.bearer())], b"")
}

#[test]
fn enabling_identity_sets_default_quotas_unless_an_administrator_has_set_some() {
    for chosen in [None, Some(json!({"leases": 7}))] {
        let stage = IdentityMember::new();
        let ana = stage.key("ana", None);
        let (http, headers) = (&stage.http, [("Authorization", &*ana.bearer())]);
        let put = |path: &str, body: &Value| http.json("PUT", path, &headers, body).ok();
        let quotas = || stage.get("/v1/access", &ana).ok()["default_quotas"].clone();
        assert_eq!(quotas(), json!({}));
        if let Some(chosen) = &chosen {
            put("/v1/access/quotas", chosen);
        }
        put("/v1/access/identity", &json!({"enabled": true}));
        match chosen {
            Some(chosen) => assert_eq!(quotas(), chosen),
            None => {
                let set = quotas();
                assert_eq!(set["leases"], 100_000, "{set}");
                assert_eq!(set.as_object().unwrap().len(), tenure_types::Quota::ALL.len(), "{set}");
            }
        }
        // An administrator who removes them is not overruled.
        put("/v1/access/quotas", &json!({}));
        put("/v1/access/identity", &json!({"enabled": true}));
        assert_eq!(quotas(), json!({}), "it was enabled already");
    }
}

#[test]
fn every_administrative_act_names_its_principal() {
    let stage = IdentityMember::enabled();
    let (ana, bob) = (stage.key("ana", None), stage.key("bob", None));
    let lease = stage.lease(&bob);
    let held = stage.post("/v1/locks/x", &bob, &json!({"lease": lease})).ok();
    let token = held["token"].clone();
    let force = json!({"lock": "x", "token": token, "by": "host/7", "reason": "stuck"});
    stage.post("/v1/force", &ana, &force).ok();
    let limits = json!({"limits": [{"limit": "slots", "value": 9}]});
    let bearer = ana.bearer();
    stage.http.json("PATCH", "/v1/limits", &[("Authorization", &bearer)], &limits).ok();
    delete(&stage, &format!("/v1/leases/{lease}?reason=gone"), &ana).ok();
    let id = invite(&stage, &ana, &json!({"member_id": "77"}));
    delete(&stage, &format!("/v1/cluster/invitations/{id}"), &ana).ok();
    stage.post("/v1/cluster/keys/rotate", &ana, &json!({})).ok();

    for act in ["force", "set_limits", "revoke", "member_invited", "invitation_cancelled"] {
        let found = records(&stage, &ana, act, 1);
        assert_eq!(found[0]["principal"], "ana", "{found:?}");
    }
    let force = &records(&stage, &ana, "force", 1)[0];
    assert_eq!((&force["who"], &force["why"]), (&json!("host/7"), &json!("stuck")), "{force}");
    let invited = &records(&stage, &ana, "member_invited", 1)[0];
    assert_eq!(invited["member"], "77", "{invited}");
    let rotated = records(&stage, &ana, "ticket_key", 1);
    assert!(rotated.iter().any(|record| record["principal"] == "ana"), "{rotated:?}");
    let changed = records(&stage, &ana, "set_access", 1);
    assert_eq!(changed[0]["principal"], "tenure/member", "{changed:?}");
}

#[test]
fn invitations_are_listed_without_secrets_and_taken_back() {
    let stage = IdentityMember::enabled();
    let (ana, bob) = (stage.key("ana", None), stage.key("bob", None));
    let list = || stage.get("/v1/cluster/invitations", &ana).ok()["invitations"].clone();
    assert_eq!(list(), json!([]));
    let ids = [json!({}), json!({"member_id": "77", "expires_ms": 60_000})]
        .map(|body| invite(&stage, &ana, &body));
    let listed = list();
    let found = |id: &str| listed.as_array().unwrap().iter().find(|it| it["id"] == id).unwrap();
    let left_ms = |id: &str| found(id)["expires_ms"].as_u64().unwrap();
    assert!((50_000..=60_000).contains(&left_ms(&ids[1])), "{listed}");
    assert!(left_ms(&ids[0]) > 3_000_000, "{listed}");
    assert_eq!(
        (&found(&ids[0])["member_id"], &found(&ids[1])["member_id"]),
        (&Value::Null, &json!("77"))
    );
    assert!(!listed.to_string().contains("tenure-invitation"), "{listed}");

    let path = |id: &str| format!("/v1/cluster/invitations/{id}");
    assert_eq!(stage.get("/v1/cluster/invitations", &bob).status, 403);
    assert_eq!(delete(&stage, &path(&ids[0]), &bob).status, 403);
    assert_eq!(delete(&stage, &path(&ids[0]), &ana).ok()["cancelled"], true);
    assert_eq!(delete(&stage, &path(&ids[0]), &ana).ok()["cancelled"], false);
    delete(&stage, &path("xyz"), &ana).refused(400, "INVALID_FIELD");
    assert_eq!(list().as_array().unwrap().len(), 1);
}

/// The events of a kind in the history of the member, as pairs of revision and event.
fn events(stage: &IdentityMember) -> Vec<(u64, Event)> {
    let read =
        |machine: &Machine| machine.events(Revision(1), Filter::All, 10_000).unwrap().batches;
    let batches = stage.member.running.member.read_stale(read).unwrap();
    let each = |batch: Batch| batch.events.into_iter().map(move |event| (batch.revision.0, event));
    batches.into_iter().flat_map(each).collect()
}

#[test]
fn a_disabled_principal_loses_all_in_the_order_of_the_log_and_its_locks_cool() {
    let stage = IdentityMember::enabled();
    stage.principal("eve", "everything", true);
    let (eve, ana) = (stage.key("eve", None), stage.key("ana", None));
    let lease = |key: &Key, ttl_ms: u64| {
        let granted = stage.post("/v1/leases", key, &json!({"ttl_ms": ttl_ms})).ok();
        granted["lease"].as_str().unwrap().to_owned()
    };
    let (thief, own) = (lease(&eve, 3_000), lease(&ana, 60_000));
    let held = stage.post("/v1/locks/stolen", &eve, &json!({"lease": thief})).ok();
    stage.post("/v1/locks/own", &ana, &json!({"lease": own})).ok();
    let token = held["token"].as_str().unwrap().parse::<u64>().unwrap();
    // The thief waits for a lock of the other, and the other for the lock of the thief.
    let wait_for = |lock: &str, key: &Key, lease: &str| {
        let (http, bearer) = (stage.http.clone(), key.bearer());
        let (path, body) = (format!("/v1/locks/{lock}?wait=50s"), json!({"lease": lease}));
        std::thread::spawn(move || http.json("POST", &path, &[("Authorization", &bearer)], &body))
    };
    let second = lease(&eve, 60_000);
    let thief_waits = wait_for("own", &eve, &second);
    wait("the thief waits", || (stage.waiters("own", &ana) == 1).then_some(()));
    let other_waits = wait_for("stolen", &ana, &own);
    wait("the other waits", || (stage.waiters("stolen", &ana) == 1).then_some(()));

    stage.principal("eve", "everything", false);
    thief_waits.join().unwrap().refused(401, "UNAUTHENTICATED");
    stage
        .post(&format!("/v1/leases/{thief}/renew"), &eve, &json!({}))
        .refused(401, "UNAUTHENTICATED");
    // A member that has not heard of it yet forwards a renewal. The machine renews nothing.
    let mut bytes = Vec::new();
    let id = LeaseRef::Id(LeaseId::new(thief.parse().unwrap()).unwrap());
    let command = Command::Renew(vec![id]);
    encode_request(&Request { principal: "eve", id: RequestId::None, command }, &mut bytes);
    let outcomes = stage.member.running.member.submit(vec![bytes.into()], Duration::ZERO, DEADLINE);
    let refused = outcomes[0].as_ref().unwrap().result.as_ref().unwrap_err();
    assert!(matches!(refused, Refusal::Forbidden { .. }), "{refused}");

    let granted = other_waits.join().unwrap().ok();
    let next: u64 = granted["token"].as_str().unwrap().parse().unwrap();
    assert!(next > token, "{next} after {token}");

    let all = events(&stage);
    let revision = |what: &str, is: &dyn Fn(&Event) -> bool| {
        let found: Vec<u64> = all.iter().filter(|(_, it)| is(it)).map(|(at, _)| *at).collect();
        assert_eq!(found.len(), 1, "{what}: {found:?}");
        found[0]
    };
    let of = |name: &str, event: &Event| match &event.subject {
        Subject::Lock(lock) => lock.as_str() == name,
        _ => false,
    };
    let disabled = revision("disabled", &|it| it.reason.as_deref() == Some("principal_disabled"));
    let left = revision("left", &|it| of("own", it) && it.cause == Cause::Revoked);
    let taken = revision("taken", &|it| of("stolen", it) && it.cause == Cause::Revoked);
    let cooled = revision("cooled", &|it| of("stolen", it) && it.cause == Cause::Cooled);
    let got = |it: &Event| it.token.map(tenure_types::Token::get) == Some(next);
    let got = revision("granted", &|it| it.cause == Cause::Granted && got(it));
    assert!(disabled < left && disabled < taken, "{disabled} {left} {taken}");
    assert!(taken < cooled && cooled <= got, "{taken} {cooled} {got}");
    let taken = all.iter().find(|(at, it)| *at == taken && of("stolen", it)).unwrap();
    // It cools for as long as the lease of the thief would have lived.
    assert!(taken.1.left_ms.is_some_and(|left_ms| (1..=3_001).contains(&left_ms)), "{taken:?}");
    let ends = all
        .iter()
        .filter(|(_, it)| matches!(it.subject, Subject::Lease(_)) && it.cause == Cause::Revoked);
    assert_eq!(ends.count(), 2, "both leases of the thief have ended");
}

#[test]
fn a_page_of_an_allowed_origin_can_see_that_its_credentials_are_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let page = "https://app.example";
    let settings = ServerSettings {
        allowed_origins: vec![page.to_owned()],
        require_identity: true,
        ..alone::settings(dir.path())
    };
    let member = Alone::run(dir, settings);
    let http = Client::new(member.running.clients, "page");
    wait("it leads", || (http.get("/readyz").status == 200).then_some(()));
    let ask = |origin: &str, key: &str| {
        let headers = [("Origin", origin), ("Authorization", key)];
        http.ask("GET", "/v1/locks", &headers, b"")
    };
    let refused = ask(page, "Bearer wrong");
    assert_eq!((refused.status, refused.header("access-control-allow-origin")), (401, Some(page)));
    assert_eq!(refused.header("vary"), Some("Origin"));
    assert_eq!(
        ask("https://evil.example", "Bearer wrong").header("access-control-allow-origin"),
        None
    );
}
