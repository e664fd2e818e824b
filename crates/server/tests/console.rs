//! Tests sign-in to the console: what a session stands for, what its cookie is worth elsewhere, and when it ends.

use serde_json::json;
use tenure_server::{ConsoleMode, ServerSettings};

use crate::alone::{self, Alone};
use crate::client::{Client, Reply};
use crate::identity::{IdentityMember, Key};

const FROM_CONSOLE: (&str, &str) = ("Tenure-Console", "1");

/// Signs in. Returns the cookie as a browser sends it back.
fn sign_in(stage: &IdentityMember, key: &Key) -> String {
    let bearer = format!("Bearer {}", key.text);
    let headers = [("Authorization", &*bearer), FROM_CONSOLE];
    let reply = stage.http.ask("POST", "/v1/console/session", &headers, b"");
    assert_eq!(reply.ok()["signed_in"], true);
    let set = reply.header("set-cookie").unwrap();
    assert!(set.contains("; HttpOnly; SameSite=Strict"), "{set}");
    set.split(';').next().unwrap().to_owned()
}

fn ask(at: &Client, method: &str, path: &str, cookie: &str, more: &[(&str, &str)]) -> Reply {
    let headers = [&[("Cookie", cookie), FROM_CONSOLE], more].concat();
    at.ask(method, path, &headers, b"")
}

#[test]
fn a_session_stands_for_the_principal_until_it_signs_out() {
    let stage = IdentityMember::enabled();
    let key = stage.key("ana", None);
    stage.http.get("/v1/console").refused(401, "UNAUTHENTICATED");
    let cookie = sign_in(&stage, &key);
    assert!(!cookie.contains(&key.text));
    let console = ask(&stage.http, "GET", "/v1/console", &cookie, &[]).ok();
    assert_eq!((&console["principal"], &console["signed_in"]), (&json!("ana"), &json!(true)));
    assert_eq!(console["identity"], true);
    let left = ask(&stage.http, "DELETE", "/v1/console/session", &cookie, &[]);
    assert!(left.header("set-cookie").unwrap().contains("Max-Age=0"));
    ask(&stage.http, "GET", "/v1/console", &cookie, &[]).refused(401, "UNAUTHENTICATED");
}

#[test]
fn the_cookie_counts_only_in_requests_of_the_console() {
    let stage = IdentityMember::enabled();
    let cookie = sign_in(&stage, &stage.key("ana", None));
    let alone = stage.http.ask("GET", "/v1/locks", &[("Cookie", &cookie)], b"");
    alone.refused(401, "UNAUTHENTICATED");
    ask(&stage.http, "GET", "/v1/locks", &cookie, &[]).ok();
    let site = |site| ask(&stage.http, "GET", "/v1/locks", &cookie, &[("Sec-Fetch-Site", site)]);
    site("same-origin").ok();
    site("same-site").refused(401, "UNAUTHENTICATED");
    site("cross-site").refused(401, "UNAUTHENTICATED");
    let origin = [("Origin", "http://127.0.0.1:1")];
    ask(&stage.http, "GET", "/v1/locks", &cookie, &origin).refused(403, "HOST_NOT_ALLOWED");
    let (name, _) = cookie.split_once('=').unwrap();
    let guessed = format!("{name}={}", "0".repeat(64));
    ask(&stage.http, "GET", "/v1/locks", &guessed, &[]).refused(401, "UNAUTHENTICATED");
}

#[test]
fn a_session_ends_with_its_key() {
    let stage = IdentityMember::enabled();
    let key = stage.key("ana", None);
    let cookie = sign_in(&stage, &key);
    ask(&stage.http, "GET", "/v1/locks", &cookie, &[]).ok();
    stage.revoke(&key);
    ask(&stage.http, "GET", "/v1/locks", &cookie, &[]).refused(401, "UNAUTHENTICATED");
}

#[test]
fn streams_of_a_session_end_when_it_signs_out_and_others_go_on() {
    let stage = IdentityMember::enabled();
    let key = stage.key("ana", None);
    let (cookie, other) = (sign_in(&stage, &key), sign_in(&stage, &key));
    let open =
        |cookie: &str, path: &str| stage.http.events(path, &[("Cookie", cookie), FROM_CONSOLE]);
    let paths = ["/v1/overview?follow=true", "/v1/watch?prefix="];
    let mut streams = paths.map(|path| open(&cookie, path));
    let mut kept = open(&other, paths[0]);
    let left = ask(&stage.http, "DELETE", "/v1/console/session", &cookie, &[]);
    assert_eq!(left.status, 200, "the answer to the request that ends its own session");
    for events in &mut streams {
        // What was on its way comes first.
        let mut sent = std::iter::repeat_with(|| events.any()).take(3);
        let closing = sent.find(|it| it.event == "closing").expect("the stream ends");
        assert_eq!(closing.data["error"]["reason"], "UNAUTHENTICATED", "{}", closing.data);
    }
    assert_eq!(kept.any().event, "overview");
    ask(&stage.http, "GET", "/v1/console", &other, &[]).ok();
}

#[test]
fn the_permissions_are_those_of_the_principal() {
    let stage = IdentityMember::enabled();
    let cookie = sign_in(&stage, &stage.key("bob", None));
    ask(&stage.http, "GET", "/v1/audit", &cookie, &[]).refused(403, "PERMISSION_DENIED");
    ask(&stage.http, "GET", "/v1/overview", &cookie, &[]).refused(403, "PERMISSION_DENIED");
    ask(&stage.http, "GET", "/v1/access/usage", &cookie, &[]).refused(403, "PERMISSION_DENIED");
}

#[test]
fn what_principals_use_is_shown_beside_their_quotas() {
    let stage = IdentityMember::enabled();
    let key = stage.key("ana", None);
    let lease = stage.lease(&key);
    stage.post("/v1/locks/used", &key, &json!({"lease": lease})).ok();
    let usage = stage.get("/v1/access/usage", &key).ok();
    let all = usage["principals"].as_array().unwrap();
    let ana = all.iter().find(|it| it["principal"] == "ana").unwrap();
    assert_eq!((&ana["used"]["leases"], &ana["used"]["locks"]), (&json!(1), &json!(1)));
    assert!(ana["bounds"]["leases"].is_null() || ana["bounds"]["leases"].as_u64() > Some(0));
    let first = stage.get("/v1/access/usage?limit=1", &key).ok();
    let next = first["next"].as_str().unwrap();
    let rest = stage.get(&format!("/v1/access/usage?after={next}"), &key).ok();
    assert_eq!(rest["principals"].as_array().unwrap().len() + 1, all.len());
}

fn with_console(console: ConsoleMode) -> Alone {
    let dir = tempfile::tempdir().unwrap();
    let settings = ServerSettings { console, ..alone::settings(dir.path()) };
    Alone::run(dir, settings)
}

#[test]
fn a_read_only_console_cannot_act_and_other_clients_can() {
    let member = with_console(ConsoleMode::ReadOnly);
    let at = Client::new(member.running.clients, "read-only");
    let lease = json!({"ttl_ms": 60_000});
    let from_console = at.json("POST", "/v1/leases", &[FROM_CONSOLE], &lease);
    let error = from_console.refused(400, "INVALID_FIELD");
    assert!(error["message"].as_str().unwrap().contains("read-only"), "{error}");
    at.post("/v1/leases", &lease).ok();
    assert_eq!(at.ask("GET", "/v1/console", &[FROM_CONSOLE], b"").ok()["read_only"], true);
    assert_eq!(at.get("/").status, 200);
}

#[test]
fn a_member_can_do_without_the_console() {
    let member = with_console(ConsoleMode::Off);
    let at = Client::new(member.running.clients, "off");
    at.get("/").refused(404, "UNKNOWN_OPERATION");
    at.get("/console/0/main.js").refused(404, "UNKNOWN_OPERATION");
    at.get("/v1/locks").ok();
}
