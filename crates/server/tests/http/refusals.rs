//! Tests that invalid requests are refused with their reason and change nothing.

use std::io::Write;

use serde_json::{Value, json};

use crate::client::{Client, Reply};
use crate::members::Members;

type Row<'a> = (&'a str, String, Vec<(&'a str, &'a str)>, Vec<u8>, u16, &'a str);

const JSON: (&str, &str) = ("Content-Type", "application/json");

fn row<'a>(verb: &'a str, path: &str, body: &Value, status: u16, reason: &'a str) -> Row<'a> {
    (verb, path.to_owned(), vec![JSON], body.to_string().into_bytes(), status, reason)
}

fn bare<'a>(verb: &'a str, path: &str, status: u16, reason: &'a str) -> Row<'a> {
    (verb, path.to_owned(), vec![], vec![], status, reason)
}

fn headed<'a>(path: &str, header: (&'a str, &'a str), status: u16, reason: &'a str) -> Row<'a> {
    ("PUT", path.to_owned(), vec![header], b"v".to_vec(), status, reason)
}

fn table<'a>(lease: &str) -> Vec<Row<'a>> {
    let held = json!({ "lease": lease });
    let grant = json!({"ttl_ms": 60000});
    let long = "x".repeat(600);
    let text = |text: &str| text.as_bytes().to_vec();
    vec![
        bare("GET", "/nowhere", 404, "UNKNOWN_OPERATION"),
        bare("GET", "/v1", 404, "UNKNOWN_OPERATION"),
        bare("GET", "/v1/locks/", 404, "UNKNOWN_OPERATION"),
        bare("GET", "/v2/locks", 404, "UNKNOWN_OPERATION"),
        bare("PUT", "/v1/locks/a", 405, "UNKNOWN_VERB"),
        bare("OPTIONS", "/v1/locks/a", 405, "UNKNOWN_VERB"),
        bare("POST", "/v1/watch", 405, "UNKNOWN_VERB"),
        // Unknown parameters are refused, not skipped.
        bare("GET", "/v1/locks?what=1", 400, "MALFORMED"),
        bare("GET", "/v1/locks?limit=1&limit=2", 400, "MALFORMED"),
        bare("GET", "/v1/locks?limit=-1", 400, "MALFORMED"),
        bare("GET", "/v1/locks?limit=0", 400, "INVALID_FIELD"),
        bare("GET", "/v1/locks/a?view=all", 400, "MALFORMED"),
        bare("GET", "/v1/locks/a?from=1", 400, "INVALID_FIELD"),
        bare("GET", "/v1/locks/%ff", 400, "MALFORMED"),
        bare("GET", "/v1/locks?prefix=%ff", 400, "MALFORMED"),
        bare("GET", "/v1/locks/%zz", 400, "MALFORMED"),
        bare("GET", "/v1/leases/x", 400, "INVALID_FIELD"),
        bare("GET", "/v1/leases/0", 400, "INVALID_FIELD"),
        bare("GET", "/v1/leases/18446744073709551615", 400, "INVALID_FIELD"),
        bare("GET", "/v1/leases/7", 404, "LEASE_NOT_FOUND"),
        bare("GET", "/v1/watch?prefix=a&name=b", 400, "INVALID_FIELD"),
        bare("GET", "/v1/cluster?x=1", 400, "MALFORMED"),
        bare("DELETE", "/v1/locks/a", 400, "MALFORMED"),
        bare("DELETE", "/v1/locks/a?lease=7&token=0", 400, "INVALID_FIELD"),
        bare("DELETE", "/v1/locks/a?lease=7&token=8", 404, "LEASE_NOT_FOUND"),
        bare("DELETE", "/v1/leases/7?now=true", 400, "INVALID_FIELD"),
        bare("DELETE", "/v1/leases/7?timeout=0", 400, "INVALID_FIELD"),
        bare("DELETE", "/v1/leases/7?timeout=6m", 400, "INVALID_FIELD"),
        bare("POST", "/v1/locks/a", 415, "UNSUPPORTED_MEDIA"),
        bare("POST", "/v1/leases", 415, "UNSUPPORTED_MEDIA"),
        row("POST", "/v1/leases?ttl=1", &grant, 400, "MALFORMED"),
        row("POST", "/v1/leases", &json!({"ttl_ms": 60000, "what": 1}), 400, "MALFORMED"),
        row("POST", "/v1/leases", &json!({"ttl_ms": "60000"}), 400, "MALFORMED"),
        row("POST", "/v1/leases", &json!({}), 400, "MALFORMED"),
        row("POST", "/v1/leases", &json!({"ttl_ms": 10}), 400, "INVALID_TTL"),
        row("POST", "/v1/leases", &json!({"ttl_ms": 60000, "lease": "0"}), 400, "INVALID_FIELD"),
        row("POST", "/v1/leases", &json!({"ttl_ms": 60000, "lease": 7}), 400, "MALFORMED"),
        row("POST", "/v1/leases", &json!({"ttl_ms": 60000, "lease": lease}), 409, "LEASE_EXISTS"),
        row("POST", "/v1/leases", &json!({"ttl_ms": 60000, "client": long}), 400, "INVALID_NAME"),
        row("POST", "/v1/locks/a", &json!({}), 400, "INVALID_FIELD"),
        row("POST", "/v1/locks/a", &json!({"lease": "7"}), 404, "LEASE_NOT_FOUND"),
        row("POST", "/v1/locks/a", &json!({"lease": lease, "lock": "b"}), 400, "INVALID_FIELD"),
        row("POST", "/v1/locks/a", &json!({"lease": lease, "wait_ms": 1}), 400, "INVALID_FIELD"),
        row("POST", "/v1/locks/a", &json!({"lease": lease, "mode": "slot"}), 400, "INVALID_FIELD"),
        row("POST", "/v1/locks/a", &json!({"lease": lease, "ticket": true}), 400, "MALFORMED"),
        row("POST", "/v1/locks/a", &json!({"lease": lease, "slots": 0}), 400, "INVALID_FIELD"),
        row("POST", "/v1/locks/a?wait=soon", &held, 400, "MALFORMED"),
        row("POST", "/v1/locks/a?wait=-1s", &held, 400, "MALFORMED"),
        row("POST", "/v1/locks/a?wait=2h", &held, 400, "WAIT_TOO_LONG"),
        row("POST", "/v1/locks/a?keep=1", &held, 400, "MALFORMED"),
        row("POST", &format!("/v1/locks/{long}"), &held, 400, "INVALID_NAME"),
        row("POST", "/v1/locks/%01", &held, 400, "INVALID_NAME"),
        row("POST", "/v1/locks", &held, 400, "INVALID_FIELD"),
        row(
            "POST",
            "/v1/locks",
            &json!({"lease": lease, "locks": ["a", "a"]}),
            400,
            "DUPLICATE_LOCK",
        ),
        row("POST", "/v1/force", &json!({"lock": "a", "token": "8"}), 400, "MALFORMED"),
        row("POST", "/v1/elections/e?view=observe", &held, 400, "MALFORMED"),
        row("POST", "/v1/cluster/members/m0", &json!({"action": "sing"}), 400, "MALFORMED"),
        row(
            "PATCH",
            "/v1/limits",
            &json!({"limits": [{"limit": "x", "value": 1}]}),
            400,
            "INVALID_FIELD",
        ),
        row("PATCH", "/v1/locks/a", &json!({"lease": lease, "token": "8"}), 400, "INVALID_FIELD"),
        row(
            "PATCH",
            "/v1/locks/a",
            &json!({"lease": lease, "token": "8", "metadata": ""}),
            409,
            "NOT_HOLDER",
        ),
        ("POST", "/v1/leases".into(), vec![JSON], text("{"), 400, "MALFORMED"),
        ("POST", "/v1/leases".into(), vec![JSON], text(""), 400, "MALFORMED"),
        ("POST", "/v1/leases".into(), vec![JSON], text(&"[".repeat(100_000)), 400, "MALFORMED"),
        ("POST", "/v1/leases".into(), vec![JSON], vec![b' '; 600_000], 413, "TOO_LARGE"),
        ("POST", format!("/v1/leases/{lease}/renew"), vec![], text("x"), 400, "MALFORMED"),
        (
            "POST",
            "/v1/leases".into(),
            vec![("Content-Type", "text/plain")],
            text("{}"),
            415,
            "UNSUPPORTED_MEDIA",
        ),
        (
            "POST",
            "/v1/leases".into(),
            vec![JSON, ("Content-Encoding", "gzip")],
            text("{}"),
            415,
            "UNSUPPORTED_MEDIA",
        ),
        headed("/v1/keys/k", ("If-Match", "*"), 400, "INVALID_FIELD"),
        headed("/v1/keys/k", ("If-Match", "W/\"1\""), 400, "INVALID_FIELD"),
        headed("/v1/keys/k", ("If-None-Match", "\"1\""), 400, "INVALID_FIELD"),
        headed("/v1/keys/k", ("If-Match", "\"99\""), 412, "COMPARE_FAILED"),
        headed("/v1/keys/k?lock=l", ("Accept", "*/*"), 400, "INVALID_FIELD"),
        headed("/v1/keys/k?lease=7", ("Accept", "*/*"), 404, "LEASE_NOT_FOUND"),
        headed("/v1/keys/k?lock=l&token=8", ("Accept", "*/*"), 412, "GUARD_FAILED"),
        ("PUT", "/v1/keys/k".into(), vec![], vec![0; 40_000], 400, "VALUE_TOO_LONG"),
        ("PUT", "/v1/keys/k".into(), vec![], vec![0; 3_000_000], 413, "TOO_LARGE"),
        // No web page acts through a user's browser.
        headed("/v1/keys/k", ("Host", "evil.example"), 403, "HOST_NOT_ALLOWED"),
        headed("/v1/keys/k", ("Host", ""), 403, "HOST_NOT_ALLOWED"),
        headed("/v1/keys/k", ("Origin", "http://evil.example"), 403, "HOST_NOT_ALLOWED"),
        headed("/v1/keys/k", ("Origin", "null"), 403, "HOST_NOT_ALLOWED"),
        headed("/v1/ws", ("Origin", "http://evil.example"), 403, "HOST_NOT_ALLOWED"),
        headed("/v1/lock-socket", ("Host", "evil.example"), 403, "HOST_NOT_ALLOWED"),
    ]
}

fn revision(at: &Client) -> Value {
    at.get("/v1/locks").ok()["header"]["revision"].clone()
}

#[test]
fn refusals_have_their_status_and_reason_and_change_nothing() {
    let members = Members::start(1);
    let at = members.client(0, "refusals");
    let lease = at.lease(3_600_000);
    let before = revision(&at);
    for (verb, path, headers, body, status, reason) in table(&lease) {
        let reply: Reply = at.ask(verb, &path, &headers, &body);
        let told = String::from_utf8_lossy(&reply.body).into_owned();
        let said = format!("{verb} {path} {headers:?}: {} {told}", reply.status);
        assert_eq!(reply.status, status, "{said}");
        reply.refused(status, reason);
        assert_eq!(reply.header("content-type"), Some("application/json"), "{said}");
        if status == 405 {
            assert!(reply.header("allow").is_some_and(|verbs| verbs.contains("GET")), "{said}");
        }
        assert_eq!(revision(&at), before, "{said}");
    }
    let host = [("Host", "locks.example:7450"), ("Origin", "https://locks.example:7450")];
    assert_eq!(at.ask("PUT", "/v1/keys/k", &host, b"v").status, 200);
}

#[test]
fn one_who_sends_half_a_body_and_goes_changes_nothing() {
    let members = Members::start(1);
    let at = members.client(0, "half");
    let before = revision(&at);
    let mut stream = std::net::TcpStream::connect(at.at).unwrap();
    let head =
        format!("PUT /v1/keys/k HTTP/1.1\r\nHost: {}\r\nContent-Length: 9\r\n\r\nhalf", at.at);
    stream.write_all(head.as_bytes()).unwrap();
    drop(stream);
    assert_eq!(revision(&at), before);
    at.get("/v1/keys/k").refused(404, "KEY_NOT_FOUND");
}
