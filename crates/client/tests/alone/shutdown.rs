//! Tests that locks are given back when a program ends.

use std::time::Duration;

use tenure::Error;
use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;

use super::{Alone, DEADLINE};
use crate::wire::{Wire, WireState};

/// Longer than any test: a lock that is not given back stays held.
const LONG: Duration = Duration::from_secs(600);

fn runtimes() -> [Runtime; 2] {
    let many = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    [Builder::new_current_thread().enable_all().build().unwrap(), many]
}

/// Whether no lease holds the lock.
fn is_free(member: &Alone, lock: &str) -> bool {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { member.client("look").await.show(lock).await.unwrap().is_none() })
}

#[test]
fn a_guard_dropped_before_main_returns_gives_its_lock_back() {
    let member = Alone::start();
    for round in 0..5 {
        for runtime in runtimes() {
            let (own, under) = (format!("own-{round}"), format!("under-{round}"));
            runtime.block_on(async {
                let client = member.client("a").await;
                let lease = client.lease(LONG).await.unwrap();
                let guards =
                    (client.lock(&own).ttl(LONG).await.unwrap(), lease.lock(&under).await.unwrap());
                drop(guards);
            });
            drop(runtime);
            assert!(is_free(&member, &own) && is_free(&member, &under), "round {round}");
        }
    }
}

#[test]
fn a_guard_inside_a_task_gives_its_lock_back_when_the_runtime_ends() {
    let member = Alone::start();
    for runtime in runtimes() {
        runtime.block_on(async {
            let guard = member.client("a").await.lock("task").ttl(LONG).await.unwrap();
            tokio::spawn(async move { guard.run(std::future::pending::<()>()).await.is_ok() });
            tokio::task::yield_now().await;
        });
        drop(runtime);
        assert!(is_free(&member, "task"));
    }
}

#[tokio::test]
async fn close_waits_for_guards_and_their_releases_and_ends_those_who_wait() {
    let member = Alone::start();
    let (a, b) = (member.client("a").await, member.client("b").await);
    let lease = a.lease(LONG).await.unwrap();
    let (one, two) = (a.lock("one").await.unwrap(), lease.lock("two").await.unwrap());
    let held = b.lock("three").await.unwrap();
    let waiting = a.lock("three");
    let waiting = tokio::spawn(async move { waiting.await });
    while b.show("three").await.unwrap().unwrap().waiting == 0 {
        tokio::task::yield_now().await;
    }
    let Err(Error::StillHeld { locks }) = a.close(Duration::ZERO).await else { panic!("closed") };
    assert_eq!(locks.len(), 2, "{locks:?}");
    assert!(matches!(waiting.await.unwrap(), Err(Error::Closed)));
    assert!(matches!(a.lock("four").await, Err(Error::Closed)));
    one.check().unwrap();
    let closing = a.clone();
    let closing = tokio::spawn(async move { closing.close(DEADLINE).await });
    tokio::task::yield_now().await;
    drop((one, two));
    closing.await.unwrap().unwrap();
    for lock in ["one", "two"] {
        assert!(b.show(lock).await.unwrap().is_none(), "{lock} is released");
    }
    assert_eq!(b.show("three").await.unwrap().unwrap().waiting, 0);
    held.release().await.unwrap();
}

#[tokio::test]
async fn a_grant_that_close_takes_back_does_not_become_a_guard() {
    let member = Alone::start();
    let wire = Wire::to(member.running.clients);
    let builder = tenure::Client::builder().address(wire.address()).timeout(DEADLINE);
    let client = builder.connect().await.unwrap();
    let lease = client.lease(LONG).await.unwrap();
    wire.set(WireState::Frozen);
    // Sent before the revocation, so the cluster grants it and takes it back; both answers come later.
    let acquiring = tokio::spawn(async move { lease.lock("deploy").await.map(|_| ()) });
    tokio::task::yield_now().await;
    let closing = tokio::spawn(async move { client.close(DEADLINE).await });
    tokio::task::yield_now().await;
    wire.set(WireState::Whole);
    let acquired = acquiring.await.unwrap();
    assert!(matches!(acquired, Err(Error::Closed)), "{acquired:?}");
    closing.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn close_returns_at_its_deadline_if_no_member_answers() {
    let member = Alone::start();
    let wire = Wire::to(member.running.clients);
    let builder = tenure::Client::builder().address(wire.address()).timeout(DEADLINE);
    let client = builder.connect().await.unwrap();
    let guard = client.lock("deploy").ttl(LONG).await.unwrap();
    wire.set(WireState::Frozen);
    drop(guard);
    let began = Instant::now();
    let closed = client.close(DEADLINE / 100).await;
    assert!(matches!(closed, Err(Error::Unknown { .. })), "{closed:?}");
    assert!(began.elapsed() < DEADLINE / 6, "{:?}", began.elapsed());
}
