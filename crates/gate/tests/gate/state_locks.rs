//! Tests the locks of states at a cluster where requests overlap, and where the store lost a lock in between.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::calls::call;
use crate::state_cluster::{FakeCluster, with_cluster};
use crate::states::{get, info, lock, post, send, soon, unlock};
use crate::store::started;

#[test]
fn a_repetition_of_a_lock_that_is_under_way_succeeds() {
    let (dir, cluster) = (tempfile::tempdir().unwrap(), Arc::new(FakeCluster::default()));
    let store = started(dir.path(), |settings| with_cluster(settings, &cluster));
    let to = store.address;
    cluster.is_late.send_replace(true);
    let first = thread::spawn(move || lock(to, "s", "one"));
    soon("it is granted", || cluster.is_held("s"));
    // The client has not seen the answer, and sends the same again.
    let again = thread::spawn(move || lock(to, "s", "one"));
    let other = thread::spawn(move || lock(to, "s", "two"));
    // Time for both to arrive. One that arrives later finds the row written.
    thread::sleep(Duration::from_millis(300));
    cluster.is_late.send_replace(false);
    assert_eq!(first.join().unwrap().status, 200);
    assert_eq!(again.join().unwrap().status, 200);
    assert_eq!(other.join().unwrap().text(), info("one"), "the holder is known by its info");
    assert_eq!(unlock(to, "s", "one").status, 200);
    assert!(!cluster.is_held("s"));
}

#[test]
fn an_unlock_does_not_wait_for_a_lock_that_waits_for_the_cluster() {
    let (dir, cluster) = (tempfile::tempdir().unwrap(), Arc::new(FakeCluster::default()));
    let store = started(dir.path(), |settings| with_cluster(settings, &cluster));
    let to = store.address;
    let shown = [("fencing-token", "50")];
    assert_eq!(send(to, "LOCK", "s", &shown, info("ci").as_bytes()).status, 200);
    cluster.is_late.send_replace(true);
    let plain = thread::spawn(move || lock(to, "s", "plain"));
    soon("the cluster is asked", || cluster.asked.load(Ordering::SeqCst) > 0);
    assert_eq!(send(to, "UNLOCK", "s", &shown, info("ci").as_bytes()).status, 200);
    assert!(!plain.is_finished());
    cluster.is_late.send_replace(false);
    assert_eq!(plain.join().unwrap().status, 200);
}

#[test]
fn a_holder_that_was_fenced_out_gets_no_new_token() {
    let (dir, cluster) = (tempfile::tempdir().unwrap(), Arc::new(FakeCluster::default()));
    let store = started(dir.path(), |settings| with_cluster(settings, &cluster));
    let to = store.address;
    assert_eq!(lock(to, "s", "one").status, 200);
    assert_eq!(post(to, "s?ID=one", 1, "x").status, 200);
    // The store loses its lease. Another client is granted the lock, works, and releases it.
    cluster.is_down.store(true, Ordering::SeqCst);
    cluster.expire("s");
    assert_eq!(call(to, "PUT", "/v1/data/page?lock=s", Some(150), "later").status, 200);
    assert_eq!(post(to, "s?ID=one", 2, "late").refusal(), (412, "STALE_TOKEN"));
    cluster.tokens.store(100, Ordering::SeqCst);
    cluster.is_down.store(false, Ordering::SeqCst);
    // The store is granted the lock again, and its client is out all the same.
    soon("the client has lost the state", || {
        let late = post(to, "s?ID=one", 2, "late");
        assert_ne!(late.status, 200, "its work overlapped with that of a later holder");
        late.refusal() == (409, "STATE_LOCK_LOST")
    });
    soon("the lock is free", || !cluster.is_held("s"));
    assert_eq!(lock(to, "s", "two").status, 200);
    assert_eq!(post(to, "s?ID=two", 2, "next").status, 200);
}

#[test]
fn a_lock_is_acquired_again_with_the_same_note_and_problems_are_told_once() {
    let (dir, cluster) = (tempfile::tempdir().unwrap(), Arc::new(FakeCluster::default()));
    let told = Arc::new(Mutex::new(Vec::new()));
    let store = started(dir.path(), |settings| {
        with_cluster(settings, &cluster);
        let told = Arc::clone(&told);
        settings.tell = Arc::new(move |what: &str| told.lock().unwrap().push(what.to_owned()));
    });
    let to = store.address;
    let long = json!({ "ID": "one", "Operation": "apply", "Who": "w".repeat(5_000) }).to_string();
    assert_eq!(send(to, "LOCK", "s", &[], long.as_bytes()).status, 200);
    assert_eq!(post(to, "s?ID=one", 1, "x").status, 200);
    cluster.is_down.store(true, Ordering::SeqCst);
    let asked = cluster.asked.load(Ordering::SeqCst);
    cluster.expire("s");
    soon("the store has tried again", || cluster.asked.load(Ordering::SeqCst) >= asked + 2);
    cluster.is_down.store(false, Ordering::SeqCst);
    soon("the lock is held again", || cluster.is_held("s"));
    let notes = cluster.notes.lock().unwrap().clone();
    assert_eq!(notes.len(), 2);
    assert_eq!(notes[0], notes[1]);
    assert_eq!(notes[0].chars().count(), 256);
    let told = told.lock().unwrap();
    let problems = told.iter().filter(|it| it.contains("no leader"));
    assert_eq!(problems.count(), 1, "{told:?}");
    // A version has room for a short description of its writer.
    let versions = get(to, "s?versions=true");
    let versions: serde_json::Value = serde_json::from_slice(&versions.body).unwrap();
    assert_eq!(versions["versions"][0]["who"], "w".repeat(256));
}
