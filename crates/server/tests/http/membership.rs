//! Tests that members are added, promoted, made leader and removed through any member.

use serde_json::json;

use crate::members::{Members, wait};

#[test]
fn members_come_lead_and_go() {
    let members = Members::start(3);
    let leader = members.leader();
    let at = members.client((leader + 1) % 3, "asked");
    let next = (leader + 2) % 3;
    let path = |member: &str| format!("/v1/cluster/members/{member}");
    let roles = || {
        let listed = at.get("/v1/cluster/members").ok()["members"].clone();
        let role = |it: &serde_json::Value| (it["name"].clone(), it["role"].clone());
        listed.as_array().unwrap().iter().map(role).collect::<Vec<_>>()
    };

    at.post(&path(&format!("m{next}")), &json!({"action": "lead"})).ok();
    wait("it leads", || (members.leader() == next).then_some(()));
    let led = (json!(format!("m{next}")), json!("leader"));
    wait("the others know", || roles().contains(&led).then_some(()));

    // A member without a vote does not lead.
    let record = |id: &str, name: &str| {
        let address = "127.0.0.1:1";
        json!({"member_id": id, "name": name, "member_address": address, "client_address": address})
    };
    at.post("/v1/cluster/members", &record("0", "d")).refused(400, "INVALID_FIELD");
    at.post("/v1/cluster/members", &record("77", "m0")).refused(409, "MEMBER_EXISTS");
    at.post("/v1/cluster/members", &record("77", "d e")).refused(400, "INVALID_FIELD");
    at.post("/v1/cluster/members", &record("77", "d")).ok();
    wait("it learns", || roles().contains(&(json!("d"), json!("learner"))).then_some(()));
    at.post(&path("d"), &json!({"action": "lead"})).refused(404, "MEMBER_NOT_FOUND");
    at.delete(&path("77")).ok();
    wait("it is gone", || (roles().len() == 3).then_some(()));
    at.delete(&path("77")).refused(404, "MEMBER_NOT_FOUND");

    at.delete(&path(&format!("m{leader}"))).ok();
    wait("two are left", || (roles().len() == 2).then_some(()));
    assert_eq!(at.get("/v1/cluster").ok()["survives"], 0);
}

#[test]
fn the_last_member_is_not_removed() {
    let members = Members::start(1);
    let at = members.client(0, "last");
    at.delete("/v1/cluster/members/m0").refused(409, "QUORUM_AT_RISK");
    assert_eq!(at.get("/readyz").ok()["status"], "ok");
}
