//! Tests the quotas that a member counts for itself: sessions, watches, requests in a second, bytes in flight.

use std::io::{BufRead as _, BufReader};

use serde_json::{Value, json};
use tenure_wire::status::error_from;
use tenure_wire::v1;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use v1::session_service_client::SessionServiceClient;

use crate::alone::{Alone, settings};
use crate::bounded::wait;
use crate::client::Client;

/// The longest that anything takes.
const DEADLINE: std::time::Duration = std::time::Duration::from_secs(60);

async fn in_time<T>(what: &str, it: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, it).await.unwrap_or_else(|_| panic!("{what}: too late"))
}

fn member() -> (Alone, Client) {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path());
    let alone = Alone::run(dir, settings);
    let client = Client::new(alone.running.clients, "ana");
    (alone, client)
}

/// Sets the default quotas, as the local administrator. They hold for each address of callers without credentials.
fn set(alone: &Alone, quotas: &Value) {
    let client = Client::administrator(alone.running.clients, "administrator", &alone.data());
    client.json("PUT", "/v1/access/quotas", &[], quotas).ok();
}

fn connect(alone: &Alone) -> Channel {
    Endpoint::from_shared(format!("http://{}", alone.running.clients)).unwrap().connect_lazy()
}

#[test]
fn a_quota_that_is_too_low_keeps_out_neither_probes_nor_administrators() {
    let (alone, client) = member();
    wait("it leads", || (client.get("/readyz").status == 200).then_some(()));
    for quota in ["requests_per_second", "bytes_in_flight", "sessions", "bytes"] {
        set(&alone, &json!({ quota: 0 }));
        assert_eq!(client.get("/readyz").status, 200, "{quota}");
        assert_eq!(client.get("/v1/access").ok()["default_quotas"], json!({ quota: 0 }));
    }
    set(&alone, &json!({"requests_per_second": 0}));
    client.get("/v1/keys/k").refused(429, "QUOTA");
    // Reads that the member makes to answer do not count as requests of the caller.
    assert_eq!(client.get("/metrics").status, 200);
    set(&alone, &json!({}));
    assert_eq!(client.get("/v1/keys/k").status, 404);
}

// Retry once: it requires that two hundred requests take less than ten seconds.
#[test]
fn a_rate_bounds_the_requests_of_an_address_and_says_so() {
    let (alone, client) = member();
    client.json("PUT", "/v1/keys/k", &[], &json!({"value": ""})).ok();
    set(&alone, &json!({"requests_per_second": 20}));
    assert_eq!(client.get("/v1/access").ok()["default_quotas"], json!({"requests_per_second": 20}));
    let replies: Vec<_> = (0..200).map(|_| client.get("/v1/keys/k")).collect();
    let refused: Vec<_> = replies.into_iter().filter(|it| it.status != 200).collect();
    assert!(!refused.is_empty(), "two hundred requests took longer than ten seconds");
    let mut waits = Vec::new();
    for reply in refused {
        assert!(reply.header("retry-after").is_some());
        let error = reply.refused(429, "QUOTA");
        assert_eq!((&error["limit"], &error["bound"]), (&json!("requests_per_second"), &json!(20)));
        let message = error["message"].as_str().unwrap();
        let says = "the quota `requests_per_second` of the address is 20 by default, set by `tenure/member`, \
            asked for 21";
        assert_eq!(message, says);
        waits.push(error["retry_after_ms"].as_u64().unwrap());
    }
    waits.sort_unstable();
    waits.dedup();
    assert!(waits.len() > 3, "all are told to return at the same time: {waits:?}");
}

#[test]
fn one_request_may_not_exceed_the_bytes_in_flight() {
    let (alone, client) = member();
    set(&alone, &json!({"bytes_in_flight": 1_000}));
    client.json("PUT", "/v1/keys/small", &[], &json!({"value": ""})).ok();
    let large = "QUFB".repeat(1_000);
    let error = client.json("PUT", "/v1/keys/large", &[], &json!({"value": large}));
    let error = error.refused(429, "QUOTA");
    assert_eq!((&error["limit"], &error["bound"]), (&json!("bytes_in_flight"), &json!(1_000)));
    // A refused request no longer counts.
    client.json("PUT", "/v1/keys/small", &[], &json!({"value": ""})).ok();
}

#[test]
fn a_watch_more_than_the_quota_is_refused_until_another_ends() {
    let (alone, client) = member();
    set(&alone, &json!({"watches": 2}));
    let mut open: Vec<_> = (0..2).map(|_| client.events("/v1/watch?name=quiet", &[])).collect();
    let error = client.get("/v1/watch?name=quiet").refused(429, "QUOTA");
    assert_eq!((&error["limit"], &error["bound"]), (&json!("watches"), &json!(2)));
    let says =
        "the quota `watches` of the address is 2 by default, set by `tenure/member`, asked for 3";
    assert_eq!(error["message"], says);
    drop(open.pop());
    // The member sees a moment later that the client has gone.
    wait("a watch is accepted", || {
        let mut reply = BufReader::new(client.send("GET", "/v1/watch?name=quiet", &[], b""));
        let mut status = String::new();
        reply.read_line(&mut status).unwrap();
        status.starts_with("HTTP/1.1 200").then_some(())
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_more_than_the_quota_is_refused_until_another_ends() {
    let (alone, client) = tokio::task::spawn_blocking(member).await.unwrap();
    tokio::task::block_in_place(|| set(&alone, &json!({"sessions": 2})));
    let mut sessions = SessionServiceClient::new(connect(&alone));
    let mut open = Vec::new();
    for _ in 0..2 {
        let (to, requests) = tokio::sync::mpsc::channel(4);
        let hello = Some(v1::Hello::default());
        to.send(v1::SessionRequest { hello, requests: Vec::new() }).await.unwrap();
        let opened = in_time("a session", sessions.open(ReceiverStream::new(requests))).await;
        let mut from = opened.unwrap().into_inner();
        in_time("a welcome", from.message()).await.unwrap().unwrap();
        open.push((to, from));
    }
    let third = || tokio_stream::empty::<v1::SessionRequest>();
    let status = in_time("a refusal", sessions.open(third())).await.err().unwrap();
    assert_eq!(status.code(), tonic::Code::ResourceExhausted);
    let error = error_from(&status).unwrap();
    assert_eq!((&*error.reason, &*error.limit), ("QUOTA", "sessions"));
    assert_eq!((error.bound, error.asked), (2, 3));
    drop(open.pop());
    // The member sees a moment later that the session has ended.
    while in_time("an answer", sessions.open(third())).await.is_err() {}
    tokio::task::spawn_blocking(move || drop((alone, client))).await.unwrap();
}
