//! Tests that administrators, and only they, read the audit log over HTTP and gRPC, also without a quorum.

use serde_json::{Value, json};
use tenure_wire::status::REASON;
use tenure_wire::v1;
use tenure_wire::v1::maintenance_service_client::MaintenanceServiceClient;
use tonic::Code;

use crate::bounded::wait;
use crate::client::{Client, local_bearer};
use crate::common::Members;
use crate::identity::IdentityMember;

/// Creates a role, as the caller of this header.
fn put_role(http: &Client, role: &str, bearer: &str) {
    let body = json!({"rules": [{"verbs": ["read"], "prefix": "a/"}]});
    let path = format!("/v1/access/roles/{role}");
    http.json("PUT", &path, &[("Authorization", bearer)], &body).ok();
}

/// The record of a new role, once the member at this client has it.
fn role_record(http: &Client, role: &str, bearer: &str) -> Value {
    wait("the act is recorded", || {
        let found = http.ask("GET", "/v1/audit?last=1000", &[("Authorization", bearer)], b"").ok();
        let records = found["records"].as_array().unwrap();
        let is_it = |it: &&Value| it["act"] == "set_access" && it["target"] == role;
        records.iter().find(is_it).cloned()
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn administrators_read_acts_and_denied_calls_over_both_apis() {
    let stage = IdentityMember::enabled();
    let (ana, bob) = (stage.key("ana", None), stage.key("bob", None));
    put_role(&stage.http, "auditors", &ana.bearer());
    let act = role_record(&stage.http, "auditors", &ana.bearer());
    assert_eq!((&act["principal"], &act["why"]), (&json!("ana"), &json!("role_put")), "{act}");
    assert_eq!(act["outcome"], "done", "{act}");

    let refused = stage.get("/v1/audit", &bob).refused(403, "PERMISSION_DENIED");
    assert!(refused["message"].as_str().unwrap().contains("`administer`"), "{refused}");
    stage.http.get("/v1/audit").refused(401, "UNAUTHENTICATED");
    let mut grpc = MaintenanceServiceClient::new(stage.channel());
    let status = grpc.audit(bob.call(v1::AuditRequest::default())).await.unwrap_err();
    let reason = status.metadata().get(REASON).map(|it| it.to_str().unwrap());
    assert_eq!((status.code(), reason), (Code::PermissionDenied, Some("PERMISSION_DENIED")));

    // Both APIs have the same records, oldest first, and the refused calls are among them.
    let found = stage.get("/v1/audit", &ana).ok();
    let over_http = found["records"].as_array().unwrap();
    let answer = grpc.audit(ana.call(v1::AuditRequest { last: 0 })).await.unwrap().into_inner();
    let read = |text: &String| serde_json::from_str::<Value>(text).unwrap();
    assert_eq!(answer.records.iter().map(read).collect::<Vec<_>>(), *over_http);
    assert!(answer.records.iter().all(|it| !it.contains('\n')), "{:?}", answer.records);
    let header = answer.header.unwrap();
    assert_eq!(found["header"]["revision"], header.revision.to_string());
    assert_eq!(header.member_id, stage.member.running.member.id().get());
    let apis: Vec<&str> = over_http
        .iter()
        .filter(|it| it["act"] == "denied" && it["principal"] == "bob")
        .map(|it| it["api"].as_str().unwrap())
        .collect();
    assert_eq!(apis, ["http", "grpc"]);

    let newest = grpc.audit(ana.call(v1::AuditRequest { last: 1 })).await.unwrap().into_inner();
    assert_eq!(newest.records, answer.records[answer.records.len() - 1..]);
    let newest = stage.get("/v1/audit?last=1", &ana).ok();
    assert_eq!(newest["records"], json!([over_http.last().unwrap()]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_number_of_records_that_cannot_be_is_refused() {
    let stage = IdentityMember::enabled();
    let ana = stage.key("ana", None);
    for wrong in ["0", "1001", "-1", "many", ""] {
        let refused = stage.get(&format!("/v1/audit?last={wrong}"), &ana);
        let message = refused.refused(400, "INVALID_FIELD")["message"].clone();
        assert!(message.as_str().unwrap().contains("a number from 1 to 1000"), "{message}");
    }
    stage.get("/v1/audit?first=1", &ana).refused(400, "MALFORMED");
    let mut grpc = MaintenanceServiceClient::new(stage.channel());
    let status = grpc.audit(ana.call(v1::AuditRequest { last: 1_001 })).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    assert!(grpc.audit(ana.call(v1::AuditRequest { last: 1_000 })).await.is_ok());
}

#[test]
fn every_caller_reads_it_before_identity_is_enabled() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().to_owned();
    let stage = IdentityMember::start(&data, dir);
    put_role(&stage.http, "auditors", &local_bearer(&stage.member.data()));
    assert_eq!(role_record(&stage.http, "auditors", "")["why"], "role_put");
}

#[test]
fn a_member_without_a_quorum_shows_what_it_has_recorded() {
    let mut members = Members::found(3);
    let (leader, left) = (members.leader(), members.follower());
    let client = |members: &Members, at: usize| Client::new(members.one(at).clients, "audit");
    put_role(&client(&members, leader), "auditors", &local_bearer(&members.data(leader)));
    let http = client(&members, left);
    let before = role_record(&http, "auditors", "");
    for at in (0..3).filter(|at| *at != left) {
        members.stop(at);
    }
    wait("it has no leader", || (http.get("/readyz").status == 503).then_some(()));
    assert_eq!(role_record(&http, "auditors", ""), before);
}

/// The records of transfers of leadership at this client's member: to which member, and with which outcome.
fn transfers(http: &Client) -> Vec<(String, String)> {
    let found = http.get("/v1/audit?last=1000").ok();
    let records = found["records"].as_array().unwrap().iter();
    let text = |it: &Value, field: &str| it[field].as_str().unwrap_or_default().to_owned();
    let records = records.filter(|it| it["act"] == "leadership_transferred");
    records.map(|it| (text(it, "target"), text(it, "outcome"))).collect()
}

#[test]
fn a_transfer_is_recorded_as_it_ended_also_if_its_caller_went_away() {
    let mut members = Members::found(3);
    let leader = members.leader();
    let at = (leader + 1) % 3;
    let http = Client::new(members.one(leader).clients, "audit");
    let to = members.one(at).member.id().to_string();
    let path = format!("/v1/cluster/members/m{at}");
    let body = json!({"action": "lead"}).to_string();
    // Sends the request, and closes the connection once the leader tries to hand over.
    let ask_and_leave = |members: &Members, timeout: &str| {
        let headers = [("Content-Type", "application/json")];
        let path = format!("{path}?timeout={timeout}");
        let connection = http.send("POST", &path, &headers, body.as_bytes());
        wait("the leader hands over", || {
            let status = members.one(leader).member.status().unwrap();
            (!status.agreement.settled).then_some(())
        });
        drop(connection);
    };

    // Nothing was done: it leads already.
    http.post(&format!("/v1/cluster/members/m{leader}"), &json!({"action": "lead"})).ok();
    // A member that is down cannot take over, but no answer says that it never will.
    members.stop(at);
    ask_and_leave(&members, "1s");
    let unknown = (to.clone(), "unknown".to_owned());
    wait("the unknown outcome is recorded", || (!transfers(&http).is_empty()).then_some(()));
    assert_eq!(transfers(&http), std::slice::from_ref(&unknown));

    ask_and_leave(&members, "60s");
    members.start_again(at);
    wait("it leads", || (members.leader() == at).then_some(()));
    wait("the transfer is recorded", || (transfers(&http).len() > 1).then_some(()));
    assert_eq!(transfers(&http), [unknown, (to, "done".to_owned())]);
}
