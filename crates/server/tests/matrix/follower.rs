//! Tests that a follower does not forward what its caller may not do, and forwards what it may.

use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use tenure_core::codec::encode_request;
use tenure_core::request::{Command, Expect, Put, Request, RequestId};

use super::stage::{enable, key};
use crate::bounded::{DEADLINE, wait};
use crate::client::Client;
use crate::common::Members;

#[test]
fn a_follower_refuses_what_the_leader_would_refuse() {
    let members = Members::found(3);
    let leader = &members.one(members.leader()).member;
    enable(leader);
    let bearers = ["owner", "other", "nil"].map(|name| key(leader, name).1);
    let follower = Client::new(members.one(members.follower()).clients, "follower");
    let ask = |bearer: &str, verb: &str, path: &str, body: &serde_json::Value| {
        follower.json(verb, path, &[("Authorization", bearer)], body)
    };
    let nothing = json!(null);
    wait("it knows the keys", || {
        let known = |bearer: &String| {
            follower.ask("GET", "/v1/limits", &[("Authorization", bearer)], b"").status == 200
        };
        bearers.iter().all(known).then_some(())
    });
    let [owner, others @ ..] = &bearers;
    for other in others {
        for (verb, path, body, missing) in [
            ("PUT", "/v1/keys/own/k", &json!("value"), "keys"),
            ("POST", "/v1/locks/own/l", &json!({"new_lease": {"ttl_ms": 60_000}}), "acquire"),
            ("POST", "/v1/cluster/invitations", &json!({}), "operate"),
            ("POST", "/v1/cluster/members/98", &json!({"action": "promote"}), "operate"),
            ("POST", "/v1/cluster/members/98", &json!({"action": "lead"}), "operate"),
            ("PUT", "/v1/access/identity", &json!({"enabled": false}), "administer"),
        ] {
            let refused = ask(other, verb, path, body).refused(403, "PERMISSION_DENIED");
            assert!(refused["message"].as_str().unwrap().contains(missing), "{path}: {refused}");
        }
        let removed =
            follower.ask("DELETE", "/v1/cluster/members/98", &[("Authorization", other)], b"");
        removed.refused(403, "PERMISSION_DENIED");
    }
    let key = "/v1/keys/own/k";
    assert_eq!(follower.ask("GET", key, &[("Authorization", owner)], b"").status, 404);
    ask(owner, "PUT", key, &nothing).ok();
    ask(owner, "POST", "/v1/cluster/invitations", &json!({})).ok();

    // A command that a follower forwards without deciding is decided by the leader and at its place in the log.
    let forwards = |principal: &str, key: &str| {
        let put = Put { key, value: b"value", lease: None, expect: Expect::Any, guard: None };
        let (id, command) = (RequestId::None, Command::Put(put));
        let mut bytes = Vec::new();
        encode_request(&Request { principal, id, command }, &mut bytes);
        let member = &members.one(members.follower()).member;
        let outcomes = member.submit(vec![Bytes::from(bytes)], Duration::ZERO, DEADLINE);
        outcomes[0].as_ref().is_ok_and(|outcome| outcome.result.is_ok())
    };
    assert!(forwards("owner", "own/forwarded"));
    for principal in ["other", "nil", "no-such-principal", ""] {
        assert!(!forwards(principal, "own/forged"), "{principal}");
    }
    let forged = "/v1/keys/own/forged";
    assert_eq!(follower.ask("GET", forged, &[("Authorization", owner)], b"").status, 404);
}
