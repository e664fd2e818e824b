//! Tests that guards, queues, writes and watches survive leaders that are killed, stopped or cut off.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::{Cause, Standing};
use tenure_server::os;
use tokio::sync::Semaphore;

use crate::common::proxy::Road;
use crate::common::{Cluster, TENURE, wait};
use crate::{addresses, client, runtime};

// Retry once: an election must end within half of the ttl of ten seconds.
#[test]
fn guards_stay_valid_while_leaders_are_killed_and_stopped() {
    let mut cluster = Cluster::found(3);
    let runtime = runtime();
    let (addresses, ttl) = (addresses(&cluster), Duration::from_secs(10));
    let client = runtime.block_on(client(&addresses, "holder"));
    let guard = runtime.block_on(async { client.lock("deploy").ttl(ttl).await }).unwrap();
    let lease = runtime.block_on(client.lease(ttl)).unwrap();
    let shared = runtime.block_on(async { lease.lock("cache").shared().await }).unwrap();
    let mut doubts = guard.standings();
    // Killed: the connection ends at once.
    let leader = cluster.leader();
    cluster.kill(leader);
    let (put, next) = runtime.block_on(async {
        (client.key("a").put("1").await, client.lock("other").await.unwrap().release().await)
    });
    put.unwrap();
    next.unwrap();
    cluster.start(leader, &[]);
    cluster.agree(&[0, 1, 2]);
    // Stopped: the connection stays open, and the leader does not answer.
    let leader = cluster.leader();
    cluster.members[leader].process.as_ref().unwrap().signal("-STOP");
    runtime.block_on(client.key("b").put("2")).unwrap();
    // The guards are held for more than one whole ttl after the stop: renewals went through another member.
    let until_us = os::now_us() + u64::try_from(ttl.as_micros()).unwrap();
    wait("a ttl passes", || {
        guard.check().unwrap();
        shared.check().unwrap();
        (os::now_us() > until_us).then_some(())
    });
    cluster.members[leader].process.as_ref().unwrap().signal("-CONT");
    assert!(!matches!(*doubts.borrow_and_update(), Standing::Lost(_)));
    runtime.block_on(guard.release()).unwrap();
    runtime.block_on(shared.release()).unwrap();
}

#[test]
fn fifty_waiters_are_served_in_order_over_failovers() {
    const WAITERS: usize = 50;
    let mut cluster = Cluster::found(3);
    let runtime = runtime();
    let addresses = addresses(&cluster);
    let client = runtime.block_on(client(&addresses, "waiters"));
    let first = runtime.block_on(async { client.lock("deploy").await }).unwrap();
    let served = Arc::new(Mutex::new(Vec::new()));
    // A client that got the lock releases it when the test allows it: each leader dies while one client holds and many
    // wait.
    let go = Arc::new(Semaphore::new(0));
    let mut tasks = Vec::new();
    for number in 0..WAITERS {
        let queued = Arc::new(AtomicBool::new(false));
        let (rung, served, go) = (queued.clone(), served.clone(), go.clone());
        let asking = client.lock("deploy").on_queued(move |_| rung.store(true, Ordering::Release));
        tasks.push(runtime.spawn(async move {
            let guard = asking.await?;
            served.lock().unwrap().push((number, guard.token()));
            go.acquire().await.unwrap().forget();
            guard.check()?;
            guard.release().await
        }));
        wait("it queues", || queued.load(Ordering::Acquire).then_some(()));
    }
    // The first leader dies while all wait.
    let mut dead = cluster.leader();
    cluster.kill(dead);
    cluster.leader();
    runtime.block_on(first.release()).unwrap();
    for part in 1..=4 {
        go.add_permits(WAITERS / 5);
        wait("some are served", || {
            (served.lock().unwrap().len() > part * WAITERS / 5).then_some(())
        });
        cluster.start(dead, &[]);
        cluster.agree(&[0, 1, 2]);
        dead = cluster.leader();
        cluster.kill(dead);
    }
    go.add_permits(WAITERS);
    for task in tasks {
        runtime.block_on(task).unwrap().unwrap();
    }
    let served = served.lock().unwrap();
    let order: Vec<usize> = served.iter().map(|(number, _)| *number).collect();
    assert_eq!(
        order,
        (0..WAITERS).collect::<Vec<_>>(),
        "violation: in order, none twice, none lost"
    );
    assert!(served.is_sorted_by(|a, b| a.1 < b.1), "tokens only grow");
}

// Retry once: a machine that stalls for an election timeout causes an election of its own.
#[test]
fn a_leader_behind_a_black_hole_costs_no_guard() {
    let cluster = Cluster::found_behind_client_proxies(1);
    let client_proxies = cluster.client_proxies.as_ref().unwrap();
    let me = 3;
    client_proxies.know(me, std::process::id());
    let runtime = runtime();
    let behind: Vec<String> =
        (0..3).map(|at| format!("127.0.0.1:{}", client_proxies.port(at))).collect();
    let client = runtime.block_on(client(&behind.join(","), "holder"));
    let ttl = Duration::from_secs(10);
    let guard = runtime.block_on(async { client.lock("deploy").ttl(ttl).await }).unwrap();
    // Members reach each other, and the leader still leads. Only this client's bytes to and from the leader are lost,
    // without an error.
    let leader = cluster.leader();
    client_proxies.between(me, leader, Road::Hole);
    let until_us = os::now_us() + u64::try_from(ttl.as_micros()).unwrap() * 3 / 2;
    wait("more than a ttl passes", || {
        guard.check().unwrap();
        (os::now_us() > until_us).then_some(())
    });
    runtime.block_on(client.key("a").put("1")).unwrap();
    assert_eq!(cluster.leader(), leader, "no other member had a reason to lead");
    runtime.block_on(guard.release()).unwrap();
}

#[test]
fn a_holder_that_was_cut_off_when_its_lock_was_forced_learns_who_forced_it() {
    let cluster = Cluster::found_behind_client_proxies(1);
    let client_proxies = cluster.client_proxies.as_ref().unwrap();
    let me = 3;
    client_proxies.know(me, std::process::id());
    let runtime = runtime();
    let client = runtime.block_on(client(&addresses(&cluster), "holder"));
    let ttl = Duration::from_secs(30);
    let guard = runtime.block_on(async { client.lock("deploy").ttl(ttl).await }).unwrap();
    client_proxies.around(me, Road::Cut);
    let token = guard.token().to_string();
    let forced = std::process::Command::new(TENURE)
        .args(["force", "deploy", "--token", &token, "--reason", "stuck for an hour", "--yes"])
        .args(["--addr", &cluster.address(0).to_string(), "--client", "ops@host"])
        .args(["--output", "json"])
        .output()
        .unwrap();
    assert!(forced.status.success(), "{}", String::from_utf8_lossy(&forced.stderr));
    assert!(guard.check().is_ok(), "no member could tell it");
    client_proxies.around(me, Road::Open);
    let lost = runtime.block_on(guard.lost());
    assert_eq!(lost, Cause::Gone, "{lost}");
    let why = runtime.block_on(guard.why_lost()).unwrap().unwrap();
    assert_eq!(why.to_string(), "forced by ops@host: stuck for an hour");
}

#[test]
fn every_write_happens_once_and_every_watch_tells_it_once_over_failovers() {
    const WRITES: u64 = 300;
    let mut cluster = Cluster::found(3);
    let runtime = runtime();
    let addresses = addresses(&cluster);
    let writer = runtime.block_on(client(&addresses, "writer"));
    let watcher = runtime.block_on(client(&addresses, "watcher"));
    let mut watch = runtime.block_on(async { watcher.watch("count").await }).unwrap();
    let written = Arc::new(Mutex::new(Vec::new()));
    let seen = written.clone();
    let writing = runtime.spawn(async move {
        for number in 0..WRITES {
            let revision = writer.key("count").put(number.to_string()).await.unwrap();
            seen.lock().unwrap().push(revision);
        }
        writer.key("count").get().await.unwrap().unwrap().version
    });
    let watching = runtime.spawn(async move {
        let mut told = Vec::new();
        while (told.len() as u64) < WRITES {
            let batch = watch.next().await.unwrap().unwrap();
            assert_eq!(batch.events.len(), 1);
            told.push(batch.revision);
        }
        told
    });
    for part in 1..3 {
        let half = usize::try_from(WRITES).unwrap() * part / 3;
        wait("writes go on", || (written.lock().unwrap().len() >= half).then_some(()));
        let leader = cluster.leader();
        cluster.kill(leader);
        cluster.leader();
        cluster.start(leader, &[]);
    }
    assert_eq!(runtime.block_on(writing).unwrap(), WRITES, "each was done once");
    let told = runtime.block_on(watching).unwrap();
    assert!(told.is_sorted_by(|a, b| a < b));
    assert_eq!(told.len() as u64, WRITES);
}
