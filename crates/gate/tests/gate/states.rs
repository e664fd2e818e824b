//! Tests the contract of Terraform's HTTP backend: locks, versions, lost updates, and what a crash leaves.

use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};
use tenure_gate::reason::Reason;
use tenure_gate::store::{Settings, StateLimits, start};
use tokio::sync::watch;

use crate::calls::{Answer, Connection};
use crate::state_cluster::{FakeCluster, with_cluster};
use crate::store::{settings, started};

/// The headers of a request.
pub(crate) type Headers<'a> = &'a [(&'a str, &'a str)];

pub(crate) fn send(
    to: SocketAddr,
    verb: &str,
    of: &str,
    headers: Headers<'_>,
    body: &[u8],
) -> Answer {
    let path = format!("/v1/states/{of}");
    Connection::open(to).unwrap().call(verb, &path, headers, body).unwrap()
}

pub(crate) fn info(id: &str) -> String {
    json!({
        "ID": id, "Operation": "OperationTypeApply", "Info": "", "Who": format!("{id}@ci"),
        "Version": "1.11.4", "Created": "2026-01-02T03:04:05.6Z", "Path": "",
    })
    .to_string()
}

pub(crate) fn lock(to: SocketAddr, of: &str, id: &str) -> Answer {
    send(to, "LOCK", of, &[], info(id).as_bytes())
}

pub(crate) fn unlock(to: SocketAddr, of: &str, id: &str) -> Answer {
    send(to, "UNLOCK", of, &[], info(id).as_bytes())
}

pub(crate) fn state(serial: u64, lineage: &str, value: &str) -> String {
    format!(
        r#"{{"version":4,"serial":{serial},"lineage":"{lineage}","outputs":{{"v":"{value}"}}}}"#
    )
}

pub(crate) fn post(to: SocketAddr, of: &str, serial: u64, value: &str) -> Answer {
    send(to, "POST", of, &[], state(serial, "a", value).as_bytes())
}

pub(crate) fn get(to: SocketAddr, of: &str) -> Answer {
    send(to, "GET", of, &[], b"")
}

pub(crate) fn versions(to: SocketAddr, of: &str) -> Vec<Value> {
    let said = get(to, &format!("{of}?versions=true"));
    assert_eq!(said.status, 200, "{said:?}");
    let mut page: Value = serde_json::from_slice(&said.body).unwrap();
    serde_json::from_value(page["versions"].take()).unwrap()
}

#[test]
fn an_apply_locks_reads_writes_and_unlocks() {
    let dir = tempfile::tempdir().unwrap();
    let store = started(dir.path(), |_| ());
    let to = store.address;
    assert_eq!(get(to, "prod").refusal(), (404, "STATE_NOT_FOUND"));
    assert_eq!(lock(to, "prod", "one").status, 200);
    assert_eq!(lock(to, "prod", "one").status, 200, "a repetition succeeds");
    // Two at once: the second is told who holds it, in Terraform's form.
    let second = lock(to, "prod", "two");
    assert_eq!(second.refusal(), (423, "STATE_LOCKED"));
    assert_eq!(second.text(), info("one"));
    assert_eq!(post(to, "prod?ID=one", 1, "x").status, 200);
    let body = state(1, "a", "x");
    let read = get(to, "prod");
    assert_eq!((read.status, read.text()), (200, body.as_str()));
    assert_eq!(read.header("content-type"), Some("application/json"));
    assert_eq!(read.header("tenure-version"), Some("1"));
    // Without the id of the lock, or with another one, nothing is written.
    for of in ["prod", "prod?ID=two"] {
        assert_eq!(post(to, of, 2, "y").refusal(), (423, "STATE_LOCKED"), "{of}");
        assert_eq!(send(to, "DELETE", of, &[], b"").refusal(), (423, "STATE_LOCKED"), "{of}");
    }
    let other = unlock(to, "prod", "two");
    assert_eq!((other.status, other.text()), (423, info("one").as_str()));
    assert_eq!(unlock(to, "prod", "one").status, 200);
    assert_eq!(unlock(to, "prod", "one").status, 200, "a repetition succeeds");
    assert_eq!(lock(to, "prod", "two").status, 200);
}

#[test]
fn a_lost_update_is_refused_and_a_repetition_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let store = started(dir.path(), |_| ());
    let to = store.address;
    // Two clients that lock nothing have read serial 1.
    assert_eq!(post(to, "s", 1, "x").status, 200);
    assert_eq!(post(to, "s", 2, "first").status, 200);
    assert_eq!(post(to, "s", 2, "second").refusal(), (409, "STALE_STATE"));
    assert_eq!(post(to, "s", 1, "x").refusal(), (409, "STALE_STATE"));
    // The client sends again what the store has, because the first answer did not arrive.
    let again = post(to, "s", 2, "first");
    assert_eq!((again.status, again.text()), (200, r#"{"version":2,"serial":2}"#));
    let foreign = send(to, "POST", "s", &[], state(9, "other", "z").as_bytes());
    assert_eq!(foreign.refusal(), (409, "OTHER_LINEAGE"));
    assert_eq!(versions(to, "s").len(), 2);
    // After a deletion every lineage may begin.
    assert_eq!(send(to, "DELETE", "s", &[], b"").text(), r#"{"deleted":true}"#);
    assert_eq!(send(to, "DELETE", "s", &[], b"").text(), r#"{"deleted":false}"#);
    assert_eq!(get(to, "s").status, 404);
    assert_eq!(send(to, "POST", "s", &[], state(1, "other", "z").as_bytes()).status, 200);
    assert_eq!(get(to, "s?version=2").text(), state(2, "a", "first"), "old versions stay");
}

#[test]
fn force_unlock_takes_the_lock_and_with_it_the_right_to_write() {
    let dir = tempfile::tempdir().unwrap();
    let store = started(dir.path(), |_| ());
    let to = store.address;
    assert_eq!(lock(to, "s", "dead").status, 200);
    // What OpenTofu sends: the id, and nothing else is known.
    assert_eq!(send(to, "UNLOCK", "s", &[], br#"{"ID":"dead"}"#).status, 200);
    assert_eq!(lock(to, "s", "next").status, 200);
    assert_eq!(post(to, "s?ID=dead", 1, "late").refusal(), (423, "STATE_LOCKED"));
    // Terraform 1.11 sends no body at all.
    assert_eq!(send(to, "UNLOCK", "s", &[], b"").status, 200);
    assert_eq!(post(to, "s?ID=next", 1, "late").refusal(), (409, "STATE_LOCK_LOST"));
    assert_eq!(get(to, "s").status, 404);
    // The name of a state that was never written is free for another lock.
    assert_eq!(lock(to, "s?lock=other", "a").status, 200);
    assert_eq!(lock(to, "s", "a").refusal(), (409, "OTHER_LOCK"));
}

#[test]
fn locks_and_versions_outlive_a_restart_and_leftovers_do_not() {
    let dir = tempfile::tempdir().unwrap();
    let store = started(dir.path(), |_| ());
    assert_eq!(lock(store.address, "s", "one").status, 200);
    assert_eq!(post(store.address, "s?ID=one", 1, "kept").status, 200);
    store.stop();
    // A crash in the middle of the next write, before and after its file got its name.
    let files = dir.path().join("data/states");
    fs::write(files.join("2.partial"), "half").unwrap();
    fs::write(files.join("3"), state(2, "a", "never acknowledged")).unwrap();
    let store = started(dir.path(), |_| ());
    assert_eq!(get(store.address, "s").text(), state(1, "a", "kept"));
    assert_eq!(lock(store.address, "s", "two").text(), info("one"));
    assert!(!files.join("2.partial").exists() && !files.join("3").exists());
    assert_eq!(
        fs::read_to_string(files.join("unnamed/3")).unwrap(),
        state(2, "a", "never acknowledged")
    );
    // A file that has changed is not served.
    fs::write(files.join("1"), state(1, "a", "kepT")).unwrap();
    assert_eq!(get(store.address, "s").refusal(), (500, "FILE_FAILED"));
}

#[test]
fn old_versions_are_kept_up_to_the_bound_and_restored() {
    let dir = tempfile::tempdir().unwrap();
    let limits = StateLimits { versions_max: 3, ..StateLimits::default() };
    let store = started(dir.path(), |settings| settings.states = limits);
    let to = store.address;
    for serial in 1..=5 {
        assert_eq!(post(to, "s", serial, &serial.to_string()).status, 200);
    }
    let kept: Vec<_> = versions(to, "s").iter().map(|it| it["version"].clone()).collect();
    assert_eq!(kept, [3, 4, 5]);
    assert_eq!(fs::read_dir(dir.path().join("data/states")).unwrap().count(), 3);
    assert_eq!(get(to, "s?version=2").status, 404);
    assert_eq!(get(to, "s?version=3").text(), state(3, "a", "3"));
    let restored = send(to, "POST", "s?restore=3", &[], b"");
    assert_eq!(restored.text(), r#"{"version":6,"serial":6}"#, "{restored:?}");
    assert_eq!(get(to, "s").text(), state(6, "a", "3"));
    // A client that read version 5 does not overwrite what was restored.
    assert_eq!(post(to, "s", 6, "late").refusal(), (409, "STALE_STATE"));
    assert_eq!(send(to, "POST", "s?restore=1", &[], b"").refusal(), (404, "STATE_NOT_FOUND"));
    let list = send(to, "GET", "", &[], b"");
    assert_eq!(list.status, 404, "the list has no slash");
    let list = Connection::open(to).unwrap().call("GET", "/v1/states", &[], b"").unwrap();
    let list: Value = serde_json::from_slice(&list.body).unwrap();
    let first = &list["states"][0];
    assert_eq!(
        (&first["state"], &first["version"], &first["held"]),
        (&json!("s"), &json!(6), &Value::Null)
    );
}

#[test]
fn what_is_too_long_damaged_or_no_state_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let limits =
        StateLimits { bytes_max: 200, total_bytes_max: 100 * 1024, ..StateLimits::default() };
    let store = started(dir.path(), |settings| settings.states = limits);
    let to = store.address;
    let write = |headers: Headers<'_>, body: &str| send(to, "POST", "s", headers, body.as_bytes());
    assert_eq!(write(&[], &state(1, "a", &"x".repeat(200))).refusal(), (413, "TOO_LARGE"));
    assert_eq!(write(&[], "{}").refusal(), (400, "MALFORMED"));
    assert_eq!(write(&[], "no JSON").refusal(), (400, "MALFORMED"));
    let sum = [("content-md5", "1B2M2Y8AsgTpgAmY7PhCfg==")];
    assert_eq!(write(&sum, &state(1, "a", "x")).refusal(), (400, "DIGEST_MISMATCH"));
    // As `openssl md5 -binary | base64` prints it for this body.
    let sum = [("content-md5", "uXSagh7Q3c6vdo+VHHiMAg==")];
    assert_eq!(write(&sum, r#"{"serial":1,"lineage":"a"}"#).status, 200);
    for of in ["", "%00", &"x".repeat(600), "s?ID=a&ID=b", "s?x=1", "s?lock="] {
        let said = send(to, "LOCK", of, &[], info("a").as_bytes());
        assert!((400..=404).contains(&said.status), "{of}: {said:?}");
    }
    for body in ["", "{}", r#"{"ID":""}"#, "[]", &format!(r#"{{"ID":"{}"}}"#, "x".repeat(300))] {
        assert_eq!(
            send(to, "LOCK", "t", &[], body.as_bytes()).refusal(),
            (400, "MALFORMED"),
            "{body}"
        );
    }
    let long = format!(r#"{{"ID":"a","Info":"{}"}}"#, "x".repeat(20_000));
    assert_eq!(send(to, "LOCK", "t", &[], long.as_bytes()).refusal(), (413, "TOO_LARGE"));
    assert_eq!(send(to, "PATCH", "t", &[], b"").refusal(), (405, "UNKNOWN_VERB"));
    // Names are not paths: what looks like one is a name, and no file appears outside of the directory.
    assert_eq!(send(to, "POST", "..%2F..%2Fetc", &[], state(1, "a", "x").as_bytes()).status, 200);
    // The sum of all sizes is bounded.
    let full = (0..10).map(|at| lock(to, &format!("n{at}"), "a").reason().to_owned());
    assert!(full.collect::<Vec<_>>().contains(&"NO_SPACE".to_owned()));
}

#[test]
fn tokens_are_judged_by_the_floor_of_the_lock() {
    let dir = tempfile::tempdir().unwrap();
    let store = started(dir.path(), |_| ());
    let to = store.address;
    let with = |verb: &str, of: &str, token: &str, body: &str| {
        send(to, verb, of, &[("fencing-token", token)], body.as_bytes())
    };
    assert_eq!(with("LOCK", "s", "33", &info("one")).status, 200);
    assert_eq!(post(to, "s?ID=one", 1, "x").status, 200, "the store knows the token");
    assert_eq!(with("LOCK", "s", "33", &info("two")).status, 423, "the same grant, another client");
    // The job died, and the cluster has granted the lock again: the new holder takes the place of the dead one.
    assert_eq!(with("LOCK", "s", "34", &info("two")).status, 200);
    assert_eq!(with("POST", "s?ID=one", "33", &state(2, "a", "late")).status, 423);
    assert_eq!(with("POST", "s", "33", &state(2, "a", "late")).status, 423);
    assert_eq!(with("UNLOCK", "s", "33", &info("two")).refusal(), (412, "STALE_TOKEN"));
    assert_eq!(with("UNLOCK", "s", "34", &info("two")).status, 200);
    // Unlocked, and still nothing older than 34 writes, nor anything without a token.
    assert_eq!(with("POST", "s", "33", &state(2, "a", "late")).refusal(), (412, "STALE_TOKEN"));
    assert_eq!(with("LOCK", "s", "33", &info("old")).refusal(), (412, "STALE_TOKEN"));
    assert_eq!(with("GET", "s", "33", "").refusal(), (412, "STALE_TOKEN"));
    assert_eq!(with("GET", "s?lock=other", "99", "").refusal(), (409, "OTHER_LOCK"));
    assert_eq!(with("GET", "s", "34", "").status, 200);
    assert_eq!(post(to, "s", 2, "bare").refusal(), (428, "TOKEN_REQUIRED"));
    assert_eq!(lock(to, "s", "bare").refusal(), (428, "TOKEN_REQUIRED"));
    assert_eq!(with("POST", "s", "34", &state(2, "a", "y")).status, 200);
    assert_eq!(
        with("POST", "s?lock=other", "99", &state(3, "a", "z")).refusal(),
        (409, "OTHER_LOCK")
    );
    // The floor is the one of all data under this lock.
    let path = "/v1/data/page?lock=s";
    let late = Connection::open(to).unwrap().call("PUT", path, &[("fencing-token", "33")], b"x");
    assert_eq!(late.unwrap().refusal(), (412, "STALE_TOKEN"));
    let tokens: Vec<_> = versions(to, "s").iter().map(|it| it["token"].clone()).collect();
    assert_eq!(tokens, ["33", "34"]);
}

#[test]
fn keys_are_asked_for_where_the_store_has_some() {
    let dir = tempfile::tempdir().unwrap();
    let (writer, reader) = ("w123456789abcdef0123456789abcdef", "r123456789abcdef0123456789abcdef");
    let file = |name: &str, key: &str| {
        fs::write(dir.path().join(name), key).unwrap();
        Some(dir.path().join(name))
    };
    let store = started(dir.path(), |settings| {
        settings.writers = file("writers", writer);
        settings.readers = file("readers", reader);
    });
    let to = store.address;
    // The base64 of `ci:KEY`, as curl and Terraform send it.
    let basic = |key: &str| match key.as_bytes()[0] {
        b'w' => "Basic Y2k6dzEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=",
        _ => "Basic Y2k6cjEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=",
    };
    let refused = lock(to, "s", "a");
    assert_eq!(refused.refusal(), (401, "UNAUTHENTICATED"));
    assert_eq!(refused.header("www-authenticate"), Some("Basic realm=\"tenure\""));
    let as_of = |key: &str, verb: &str, of: &str, body: &str| {
        send(to, verb, of, &[("authorization", basic(key))], body.as_bytes())
    };
    assert_eq!(as_of(writer, "LOCK", "s", &info("a")).status, 200);
    assert_eq!(as_of(writer, "POST", "s?ID=a", &state(1, "a", "x")).status, 200);
    assert_eq!(as_of(reader, "GET", "s", "").status, 200);
    assert_eq!(as_of(reader, "POST", "s?ID=a", &state(2, "a", "x")).refusal(), (403, "READ_ONLY"));
    assert_eq!(get(to, "s").refusal(), (401, "UNAUTHENTICATED"));
    let bearer = format!("Bearer {reader}");
    let list = |headers: Headers<'_>| {
        Connection::open(to).unwrap().call("GET", "/v1/states", headers, b"").unwrap().status
    };
    assert_eq!((list(&[]), list(&[("authorization", &bearer)])), (401, 200));
}

pub(crate) fn soon(what: &str, mut is: impl FnMut() -> bool) {
    for _ in 0..3_000 {
        if is() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("never: {what}");
}

#[test]
fn with_a_cluster_a_locked_state_is_a_lock_of_the_cluster() {
    let (dir, cluster) = (tempfile::tempdir().unwrap(), Arc::new(FakeCluster::default()));
    let store = started(dir.path(), |settings| with_cluster(settings, &cluster));
    let to = store.address;
    assert_eq!(post(to, "s", 1, "x").refusal(), (428, "TOKEN_REQUIRED"), "nothing unlocked");
    // Another client of the cluster holds the lock.
    let other = cluster.take("s").unwrap();
    let refused = lock(to, "s", "one");
    let said: Value = serde_json::from_slice(&refused.body).unwrap();
    assert_eq!((refused.status, &said["ID"]), (423, &json!("held-in-the-cluster")));
    assert_eq!((&said["Who"], &said["Info"]), (&json!("ana"), &json!("held by ana")));
    assert_eq!(unlock(to, "s", "held-in-the-cluster").status, 423, "that is not ours to unlock");
    cluster.expire("s");
    drop(other);
    cluster.is_down.store(true, Ordering::SeqCst);
    assert_eq!(lock(to, "s", "one").refusal(), (503, "CLUSTER_UNAVAILABLE"));
    cluster.is_down.store(false, Ordering::SeqCst);
    assert_eq!(lock(to, "s", "one").status, 200);
    assert_eq!(lock(to, "s", "one").status, 200, "a repetition");
    assert_eq!(lock(to, "s", "two").text(), info("one"));
    assert!(cluster.is_held("s"));
    assert_eq!(post(to, "s?ID=one", 1, "x").status, 200);
    assert_eq!(unlock(to, "s", "one").status, 200);
    assert!(!cluster.is_held("s"), "the cluster knows before the answer");
    assert_eq!(lock(to, "s", "two").status, 200);
}

#[test]
fn a_lost_lock_is_acquired_again_unless_another_client_came_first() {
    let (dir, cluster) = (tempfile::tempdir().unwrap(), Arc::new(FakeCluster::default()));
    let store = started(dir.path(), |settings| with_cluster(settings, &cluster));
    let to = store.address;
    assert_eq!(lock(to, "s", "one").status, 200);
    cluster.expire("s");
    soon("the lock is held again", || cluster.is_held("s"));
    assert_eq!(post(to, "s?ID=one", 1, "x").status, 200);
    assert_eq!(lock(to, "s", "two").text(), info("one"));
    // The store ends, its lease ends, and the next start holds the lock again for the same client.
    store.stop();
    cluster.expire("s");
    let store = started(dir.path(), |settings| with_cluster(settings, &cluster));
    let to = store.address;
    soon("the lock is held again", || cluster.is_held("s"));
    soon("its token is known", || post(to, "s?ID=one", 2, "y").status == 200);
    // A client with a lease of its own came first: it shows a larger token, and the first one is out.
    let late = {
        let mut held = cluster.held.lock().unwrap();
        let (token, tell) = held.remove("s").unwrap();
        let next = token + 10;
        cluster.tokens.store(next - 100 + 1, Ordering::SeqCst);
        held.insert("s".to_owned(), (next, watch::channel(false).0));
        let _ = tell.send(true);
        next
    };
    let token = late.to_string();
    let shown = [("fencing-token", token.as_str())];
    assert_eq!(send(to, "LOCK", "s", &shown, info("ci").as_bytes()).status, 200);
    assert_eq!(post(to, "s?ID=one", 3, "late").refusal(), (423, "STATE_LOCKED"));
    assert_eq!(send(to, "POST", "s?ID=ci", &shown, state(3, "a", "z").as_bytes()).status, 200);
    // That client dies without unlocking: a plain client gets the lock once the lease is over.
    assert_eq!(lock(to, "s", "plain").text(), info("ci"));
    cluster.expire("s");
    soon("a plain client gets the lock", || lock(to, "s", "plain").status == 200);
    assert_eq!(post(to, "s?ID=plain", 4, "w").status, 200);
    assert_eq!(send(to, "POST", "s?ID=ci", &shown, state(5, "a", "v").as_bytes()).status, 423);
}

#[test]
fn a_store_keeps_at_least_one_version() {
    let dir = tempfile::tempdir().unwrap();
    let limits = StateLimits { versions_max: 0, ..StateLimits::default() };
    assert!(start(Settings { states: limits, ..settings(dir.path()) }).is_err());
}

/// One response for each reason that only states have.
pub(crate) fn refusals() -> Vec<(Answer, Reason)> {
    let (dir, cluster) = (tempfile::tempdir().unwrap(), Arc::new(FakeCluster::default()));
    let reader = "r123456789abcdef0123456789abcdef";
    let keys = dir.path().join("readers");
    fs::write(&keys, reader).unwrap();
    let store = started(dir.path(), |_| ());
    let to = store.address;
    let mut said = vec![(get(to, "s"), Reason::StateNotFound)];
    assert_eq!(post(to, "s", 1, "x").status, 200);
    said.push((post(to, "s", 1, "y"), Reason::StaleState));
    let other = state(2, "other", "z");
    said.push((send(to, "POST", "s", &[], other.as_bytes()), Reason::OtherLineage));
    said.push((post(to, "s?ID=gone", 2, "y"), Reason::StateLockLost));
    let sum = [("content-md5", "1B2M2Y8AsgTpgAmY7PhCfg==")];
    said.push((send(to, "POST", "s", &sum, state(2, "a", "y").as_bytes()), Reason::DigestMismatch));
    assert_eq!(lock(to, "s", "a").status, 200);
    said.push((post(to, "s", 2, "y"), Reason::StateLocked));
    fs::remove_file(dir.path().join("data/states/1")).unwrap();
    said.push((get(to, "s"), Reason::FileFailed));
    store.stop();
    cluster.is_down.store(true, Ordering::SeqCst);
    let store = started(dir.path(), |settings| {
        with_cluster(settings, &cluster);
    });
    said.push((lock(store.address, "t", "a"), Reason::ClusterUnavailable));
    store.stop();
    let writers = dir.path().join("writers");
    fs::write(&writers, reader.replace('r', "w")).unwrap();
    let store = started(dir.path(), |settings| {
        (settings.readers, settings.writers) = (Some(keys.clone()), Some(writers.clone()));
    });
    let bearer = format!("Bearer {reader}");
    let shown = [("authorization", bearer.as_str())];
    said.push((send(store.address, "LOCK", "t", &shown, info("a").as_bytes()), Reason::ReadOnly));
    said
}
