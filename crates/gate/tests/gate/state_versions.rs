//! Tests what becomes of the versions of states with another database, and long lists of states.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tenure_gate::store::{StateLimits, floors, start};
use tenure_gate::{RunningService, StartError};

use crate::calls::{Answer, Connection};
use crate::states::{get, post, send, soon, state};
use crate::store::{settings, started};

fn delete(to: SocketAddr, of: &str) -> Answer {
    send(to, "DELETE", of, &[], b"")
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
