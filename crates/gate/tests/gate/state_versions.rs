//! Tests what becomes of the versions of states: in a full store, when they are purged, and with another database.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tenure_gate::store::{StateLimits, floors, start};
use tenure_gate::{RunningService, StartError};

use crate::calls::{Answer, Connection};
use crate::states::{get, info, lock, post, send, soon, state, unlock, versions};
use crate::store::{settings, started};

fn delete(to: SocketAddr, of: &str) -> Answer {
    send(to, "DELETE", of, &[], b"")
}

fn numbers(to: SocketAddr, of: &str) -> Vec<u64> {
    versions(to, of).iter().map(|it| it["version"].as_u64().unwrap()).collect()
}

/// The files of versions.
fn files(dir: &Path) -> usize {
    let files = fs::read_dir(dir.join("data/states")).unwrap();
    files.filter(|it| it.as_ref().unwrap().file_type().unwrap().is_file()).count()
}

/// Stops a store, and waits until it has closed its database.
fn stop(store: RunningService, dir: &Path) {
    store.stop();
    soon("the database is closed", || floors(&dir.join("data")).is_ok());
}

#[test]
fn a_write_to_a_full_store_removes_old_versions_of_its_state() {
    let dir = tempfile::tempdir().unwrap();
    // A state counts 20 KiB, a version 2 KiB beside its content.
    let limits = StateLimits { total_bytes_max: 160 * 1024, ..StateLimits::default() };
    let store = started(dir.path(), |settings| settings.states = limits);
    let (to, long) = (store.address, "x".repeat(30 * 1024));
    for serial in 1..=10 {
        let written = post(to, "s", serial, &long);
        assert_eq!(written.status, 200, "serial {serial}: {written:?}");
    }
    assert_eq!(numbers(to, "s"), [7, 8, 9, 10]);
    assert_eq!((get(to, "s").text(), files(dir.path())), (state(10, "a", &long).as_str(), 4));
    // Versions of other states are not touched, so a new state does not fit until they are purged.
    let full = post(to, "t", 1, &long);
    assert_eq!(full.refusal(), (507, "NO_SPACE"));
    assert!(full.text().contains("tenure store state purge"), "{}", full.text());
    assert_eq!(numbers(to, "s"), [7, 8, 9, 10]);
    let freed = 2 * (state(7, "a", &long).len() + 2 * 1024);
    let purged: Value = serde_json::from_slice(&delete(to, "s?keep=2").body).unwrap();
    assert_eq!(purged, json!({ "removed": 2, "bytes": freed }));
    assert_eq!(post(to, "t", 1, &long).status, 200);
    // A state that is larger than half of the store is written as well, at the cost of the one before.
    let longer = "y".repeat(60 * 1024);
    assert_eq!(delete(to, "s?keep=1").status, 200);
    assert_eq!(post(to, "t", 2, &longer).status, 200);
    assert_eq!(post(to, "t", 3, &longer).status, 200);
    assert_eq!(numbers(to, "t"), [3]);
    // A deletion needs no room, and takes none of the versions.
    assert_eq!(delete(to, "t").text(), r#"{"deleted":true}"#);
    assert_eq!(get(to, "t?version=3").text(), state(3, "a", &longer));
}

#[test]
fn old_versions_are_purged_also_while_the_state_is_locked() {
    let dir = tempfile::tempdir().unwrap();
    let store = started(dir.path(), |_| ());
    let to = store.address;
    for serial in 1..=5 {
        assert_eq!(post(to, "s", serial, "x").status, 200);
    }
    assert_eq!(lock(to, "s", "one").status, 200);
    assert_eq!(delete(to, "s?keep=9").text(), r#"{"removed":0,"bytes":0}"#);
    let purged: Value = serde_json::from_slice(&delete(to, "s?keep=2").body).unwrap();
    assert_eq!(purged["removed"], 3);
    assert_eq!((numbers(to, "s"), files(dir.path())), (vec![4, 5], 2));
    assert_eq!(post(to, "s?ID=one", 6, "y").status, 200);
    assert_eq!(unlock(to, "s", "one").status, 200);
    assert_eq!(delete(to, "s?keep=0").refusal(), (400, "INVALID_FIELD"));
    assert_eq!(delete(to, "s?keep=1&ID=one").refusal(), (400, "INVALID_FIELD"));
    assert_eq!(delete(to, "none?keep=1").refusal(), (404, "STATE_NOT_FOUND"));
    assert_eq!(delete(to, "s?keep=1&lock=other").refusal(), (409, "OTHER_LOCK"));
    // A holder from before may not.
    let with = |token| send(to, "DELETE", "s?keep=1", &[("fencing-token", token)], b"");
    assert_eq!(send(to, "LOCK", "s", &[("fencing-token", "34")], info("b").as_bytes()).status, 200);
    assert_eq!(with("33").refusal(), (412, "STALE_TOKEN"));
    assert_eq!(with("34").status, 200);
    assert_eq!(numbers(to, "s"), [6]);
}

#[test]
fn a_parameter_that_the_verb_does_not_use_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = started(dir.path(), |_| ());
    let to = store.address;
    assert_eq!(post(to, "s", 1, "x").status, 200);
    assert_eq!(post(to, "s", 2, "y").status, 200);
    for (verb, of) in [
        ("DELETE", "s?version=1"),
        ("DELETE", "s?versions=true"),
        ("DELETE", "s?restore=1"),
        ("GET", "s?ID=a"),
        ("GET", "s?restore=1"),
        ("GET", "s?keep=1"),
        ("GET", "s?versions=true&version=1"),
        ("POST", "s?version=1"),
        ("POST", "s?keep=1"),
        ("LOCK", "s?ID=a"),
        ("UNLOCK", "s?version=1"),
    ] {
        let body = if verb == "POST" { state(3, "a", "z") } else { info("a") };
        let said = send(to, verb, of, &[], body.as_bytes());
        assert_eq!(said.refusal(), (400, "INVALID_FIELD"), "{verb} {of}: {said:?}");
    }
    assert_eq!(get(to, "s").text(), state(2, "a", "y"));
}

#[test]
fn states_whose_database_is_missing_are_neither_deleted_nor_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let (data, kept) = (dir.path().join("data"), dir.path().join("kept"));
    let store = started(dir.path(), |_| ());
    assert_eq!(post(store.address, "s", 1, "x").status, 200);
    stop(store, dir.path());
    fs::rename(data.join("store.redb"), &kept).unwrap();
    for _ in 0..2 {
        let refused = loop {
            match start(settings(dir.path())) {
                Ok(_) => panic!("it would say that there is no state"),
                // The attempt before has not yet closed the database that it has created.
                Err(StartError::Disk { .. }) => std::thread::sleep(Duration::from_millis(10)),
                Err(other) => break other,
            }
        };
        assert!(!refused.is_setting());
        let text = format!("{refused}");
        assert!(text.contains("states") && text.contains("1 version"), "{text}");
    }
    fs::rename(&kept, data.join("store.redb")).unwrap();
    let store = started(dir.path(), |_| ());
    assert_eq!(get(store.address, "s").text(), state(1, "a", "x"));
}

#[test]
fn versions_that_an_older_database_does_not_know_are_moved_aside() {
    let dir = tempfile::tempdir().unwrap();
    let (data, kept) = (dir.path().join("data"), dir.path().join("kept"));
    let store = started(dir.path(), |_| ());
    assert_eq!(post(store.address, "s", 1, "x").status, 200);
    stop(store, dir.path());
    fs::copy(data.join("store.redb"), &kept).unwrap();
    let store = started(dir.path(), |_| ());
    assert_eq!(post(store.address, "s", 2, "y").status, 200);
    stop(store, dir.path());
    fs::rename(&kept, data.join("store.redb")).unwrap();
    let store = started(dir.path(), |_| ());
    assert_eq!(get(store.address, "s").text(), state(1, "a", "x"));
    let aside = data.join("states/unnamed");
    assert_eq!(fs::read_to_string(aside.join("2")).unwrap(), state(2, "a", "y"));
    // The next file gets another number, so that nothing there is ever replaced.
    assert_eq!(post(store.address, "s", 2, "z").status, 200);
    assert!(data.join("states/3").exists());
}

#[test]
fn a_store_that_has_only_deleted_states_starts_with_what_a_crash_left() {
    let dir = tempfile::tempdir().unwrap();
    let limits = StateLimits { versions_max: 1, ..StateLimits::default() };
    let store = started(dir.path(), |settings| settings.states = limits);
    assert_eq!(post(store.address, "s", 1, "x").status, 200);
    assert_eq!(delete(store.address, "s").status, 200);
    store.stop();
    assert_eq!(files(dir.path()), 0);
    fs::write(dir.path().join("data/states/9"), "left").unwrap();
    let store = started(dir.path(), |settings| settings.states = limits);
    assert_eq!(get(store.address, "s").status, 404);
    assert!(dir.path().join("data/states/unnamed/9").exists());
}

#[test]
fn a_page_of_states_is_bounded_by_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let store = started(dir.path(), |_| ());
    let to = store.address;
    let info = json!({ "ID": "a", "Info": "i".repeat(16_000) }).to_string();
    for at in 0..80 {
        assert_eq!(send(to, "LOCK", &format!("s{at:02}"), &[], info.as_bytes()).status, 200);
    }
    let (mut after, mut found, mut pages) = (String::new(), 0, 0);
    loop {
        let path = format!("/v1/states?prefix=s&after={after}");
        let page = Connection::open(to).unwrap().call("GET", &path, &[], b"").unwrap();
        assert!(page.body.len() < 1_100_000, "{} bytes", page.body.len());
        let page: Value = serde_json::from_slice(&page.body).unwrap();
        let states = page["states"].as_array().unwrap();
        (found, pages) = (found + states.len(), pages + 1);
        if page["more"] == false {
            break;
        }
        after = states.last().unwrap()["state"].as_str().unwrap().to_owned();
    }
    assert_eq!((found, pages), (80, 2));
}
