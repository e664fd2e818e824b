//! Tests what the console needs of the HTTP API, on any member: searches, the summary, the past, and its page.

use serde_json::{Value, json};

use crate::client::Client;

/// The names of the locks in an answer.
fn names(answer: &Value) -> Vec<String> {
    let locks = answer["locks"].as_array().unwrap();
    locks.iter().map(|lock| lock["lock"].as_str().unwrap().to_owned()).collect()
}

fn lease_of(at: &Client, client: &str) -> String {
    let granted = at.post("/v1/leases", &json!({"ttl_ms": 60_000, "client": client})).ok();
    granted["lease"].as_str().unwrap().to_owned()
}

/// Waits for a lock without holding it.
fn queue(at: &Client, lock: &str, lease: &str) {
    let queued = at.post(&format!("/v1/locks/{lock}?keep=true"), &json!({"lease": lease}));
    assert_eq!(queued.status, 202);
}

pub(crate) fn locks_are_found_by_more_than_their_prefix(at: &Client) {
    let prefix = at.own("search/");
    let (ana, ben) = (lease_of(at, &at.own("ana")), lease_of(at, &at.own("ben")));
    for name in ["one", "Two", "three"] {
        at.lock(&format!("{prefix}{name}"), &ana);
    }
    queue(at, &format!("{prefix}one"), &ben);
    let token = at.lock(&format!("{prefix}four"), &ben);
    let force = json!({"lock": format!("{prefix}four"), "token": token, "reason": "search"});
    at.post("/v1/force", &force).ok();
    let election = format!("{prefix}election");
    at.post(&format!("/v1/elections/{election}"), &json!({"lease": ana, "value": "v"})).ok();
    let find = |more: &str| {
        let found = at.get(&format!("/v1/locks?prefix={prefix}&{more}")).ok();
        let found = names(&found);
        found.iter().map(|name| name.strip_prefix(&prefix).unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(find("contains=TW"), ["Two"]);
    assert_eq!(find("state=awaited"), ["one"]);
    assert_eq!(find("state=revoking"), ["four"]);
    assert_eq!(find("state=held"), ["Two", "election", "one", "three"]);
    assert_eq!(find("election=true"), ["election"]);
    assert_eq!(find(&format!("client={}&election=false", at.own("ben"))), ["four", "one"]);
    assert_eq!(find("waiting_ms=0"), ["one"]);
    assert_eq!(find("waiting_ms=60000"), [""; 0]);
    // Page by page.
    let page = at.get(&format!("/v1/locks?prefix={prefix}&state=held&limit=2")).ok();
    assert_eq!(names(&page).len(), 2);
    let after = page["next"].as_str().unwrap();
    let rest = at.get(&format!("/v1/locks?prefix={prefix}&state=held&limit=2&after={after}")).ok();
    assert_eq!(names(&rest), [format!("{prefix}one"), format!("{prefix}three")]);
    at.get("/v1/locks?state=unknown").refused(400, "MALFORMED");
    let leases = at.get(&format!("/v1/leases?client={}", at.own("be"))).ok();
    assert_eq!(
        (&leases["leases"][0]["lease"], leases["leases"].as_array().unwrap().len()),
        (&json!(ben), 1)
    );
    assert_eq!(leases.get("next"), None);
    let none = at.get(&format!("/v1/leases?client={}", at.own("nobody"))).ok();
    assert_eq!(none["leases"], json!([]));
    at.delete(&format!("/v1/leases/{ana}")).ok();
    at.delete(&format!("/v1/leases/{ben}")).ok();
}

pub(crate) fn the_summary_names_who_waits_longest(at: &Client) {
    let lock = at.own("summary/lock");
    let (holder, waiter) = (lease_of(at, "holder"), lease_of(at, "waiter"));
    let before = at.get("/v1/overview").ok();
    at.lock(&lock, &holder);
    queue(at, &lock, &waiter);
    // The stream sends the next summary after some seconds at most.
    let mut events = at.events("/v1/overview?follow=true", &[]);
    let mine = |overview: &Value| {
        let list = overview["longest_waits"].as_array().cloned().unwrap_or_default();
        list.into_iter().find(|it| it["lock"] == json!(lock))
    };
    let (overview, wait) = loop {
        let sent = events.any();
        if let Some(wait) = mine(&sent.data).filter(|_| sent.event == "overview") {
            break (sent.data, wait);
        }
    };
    assert_eq!(
        (&wait["holder"]["client"], &wait["first"]["client"]),
        (&json!("holder"), &json!("waiter"))
    );
    assert_eq!((&wait["waiting"], &wait["holders"]), (&json!(1), &json!(1)));
    assert_eq!(overview["complete"], true);
    let number = |of: &Value, field: &str| of[field].as_u64().unwrap();
    assert!(number(&overview, "held") >= 1 && number(&overview, "waiters") >= 1);
    let granted = |of: &Value| number(&of["totals"], "granted");
    assert!(granted(&overview) > granted(&before), "grants are counted");
    let prefix = format!("{}/", lock.split('/').next().unwrap());
    let prefixes = overview["prefixes"].as_array().unwrap();
    assert!(prefixes.iter().any(|it| it["prefix"] == json!(prefix) && number(it, "waiting") >= 1));
    at.get("/v1/overview?follow=maybe").refused(400, "MALFORMED");
    at.delete(&format!("/v1/leases/{holder}")).ok();
    at.delete(&format!("/v1/leases/{waiter}")).ok();
}

pub(crate) fn the_past_of_all_locks_is_searched(at: &Client) {
    let prefix = at.own("past/");
    let (ana, ben) = (lease_of(at, "ana"), lease_of(at, "ben"));
    let (one, two) = (format!("{prefix}one"), format!("{prefix}two"));
    let token = at.lock(&one, &ana);
    at.lock(&two, &ben);
    queue(at, &two, &ana);
    let ring = at.post(&format!("/v1/locks/{one}?keep=true"), &json!({"lease": ben}));
    ring.refused(409, "DEADLOCK");
    let force = json!({"lock": one, "token": token, "reason": "why", "by": "me", "now": true});
    at.post("/v1/force", &force).ok();
    let found = |more: &str| {
        let found = at.get(&format!("/v1/history?prefix={prefix}&{more}")).ok();
        let changes = found["changes"].as_array().unwrap().clone();
        changes.iter().flat_map(|it| it["events"].as_array().unwrap().clone()).collect::<Vec<_>>()
    };
    let deadlocks = found("cause=deadlock");
    assert_eq!(deadlocks.len(), 1);
    assert_eq!((&deadlocks[0]["client"], &deadlocks[0]["lock"]), (&json!("ben"), &json!(one)));
    let lost = found("lost=true");
    assert_eq!((&lost[0]["reason"], &lost[0]["by"]), (&json!("why"), &json!("me")));
    assert_eq!(found("cause=granted&client=ben").len(), 1);
    assert_eq!(found("until=2001-01-01T00:00:00Z").len(), 0);
    at.get("/v1/history?since=yesterday").refused(400, "INVALID_FIELD");
    at.get("/v1/history?cause=luck").refused(400, "MALFORMED");
    at.delete(&format!("/v1/leases/{ana}")).ok();
    at.delete(&format!("/v1/leases/{ben}")).ok();
}

pub(crate) fn the_page_is_served_and_says_how(at: &Client) {
    let page = at.get("/");
    assert_eq!(page.status, 200);
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    let text = String::from_utf8(page.body.clone()).unwrap();
    let script = text.split("src=\"").nth(1).unwrap().split('"').next().unwrap();
    let script = at.get(script);
    assert_eq!(script.header("content-type").unwrap(), "text/javascript; charset=utf-8");
    assert!(script.header("cache-control").unwrap().contains("immutable"));
    let etag = page.header("etag").unwrap();
    assert_eq!(at.ask("GET", "/", &[("If-None-Match", etag)], b"").status, 304);
    at.get("/console/0/main.js").refused(404, "UNKNOWN_OPERATION");
    let console = at.get("/v1/console").ok();
    assert_eq!((&console["identity"], &console["read_only"]), (&json!(false), &json!(false)));
    assert_eq!(console["signed_in"], false);
    assert_eq!(at.get("/v1/locks").header("x-content-type-options").unwrap(), "nosniff");
}
