//! Tests that a prefix can be drained, that the newest request of a group replaces the older ones, that a more urgent
//! request passes others, that a holder keeps a lock as long as it progresses, that several slots are granted together,
//! and that one of several locks or slots is enough for who wants any.

use std::time::Duration;

use tenure::{Cause, Error, Refusal};

use super::{Alone, refusal, until, waiting};

#[tokio::test]
async fn a_drained_prefix_is_listed_and_explained_and_grants_when_it_is_opened() {
    let member = Alone::start();
    let (a, ops) = (member.client("a").await, member.client("ops").await);
    let held = a.lock("db/1").await.unwrap();
    ops.drain("db/", "new disks").await.unwrap();
    let Refusal::Draining(draining) = refusal(a.lock("db/2").no_wait().await) else {
        panic!("not drained")
    };
    assert_eq!((&*draining.prefix, &*draining.reason), ("db/", "new disks"));
    assert_eq!(draining.by.unwrap().as_str(), "ops");
    let drains = ops.drains().await.unwrap();
    assert_eq!((drains[0].prefix.as_str(), drains[0].holders), ("db/", 1));
    held.release().await.unwrap();
    assert_eq!(ops.drains().await.unwrap()[0].holders, 0);
    let explained = a.explain("db/2").await.unwrap();
    assert_eq!(explained.drained.unwrap().reason, "new disks");

    let asking = a.lock("db/2");
    let waiting = tokio::spawn(async move { asking.await });
    until("a waits", async || a.show("db/2").await.unwrap().is_some()).await;
    assert!(ops.undrain("db/").await.unwrap());
    waiting.await.unwrap().unwrap().release().await.unwrap();
    assert!(!ops.undrain("db/").await.unwrap());
    assert!(ops.drains().await.unwrap().is_empty());
}

#[tokio::test]
async fn the_newest_of_a_group_replaces_the_older_one_which_is_told_by_whom() {
    let member = Alone::start();
    let (a, b, c) = (member.client("a").await, member.client("b").await, member.client("c").await);
    let held = a.lock("web").supersede("main").await.unwrap();
    let asking = b.lock("web").supersede("main");
    let older = tokio::spawn(async move { asking.await });
    until("b waits", async || a.show("web").await.unwrap().unwrap().waiting == 1).await;
    // Under a lease that it shares with other requests, too.
    let lease = c.lease(Duration::from_secs(30)).await.unwrap();
    let asking = lease.lock("web").supersede("main");
    let newer = tokio::spawn(async move { asking.await });
    let Refusal::Superseded(by) = refusal(older.await.unwrap()) else { panic!("not superseded") };
    assert_eq!((by.client.as_str(), by.lease), ("c", lease.id()));
    held.release().await.unwrap();
    newer.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_more_urgent_request_passes_one_that_asked_before_it() {
    let member = Alone::start();
    let (a, b, c) = (member.client("a").await, member.client("b").await, member.client("c").await);
    let held = a.lock("web").await.unwrap();
    let asking = b.lock("web");
    let plain = tokio::spawn(async move { asking.await });
    until("b waits", async || a.show("web").await.unwrap().unwrap().waiting == 1).await;
    let asking = c.lock("web").priority(9);
    let urgent = tokio::spawn(async move { asking.await });
    until("c waits", async || a.show("web").await.unwrap().unwrap().waiting == 2).await;
    let ahead = a.explain("web").await.unwrap().ahead;
    assert_eq!(ahead[0].client, "c");
    assert_eq!((ahead[0].priority, ahead[1].priority), (9, 0));
    assert_eq!(ahead[0].passable, Duration::ZERO);
    assert!(ahead[1].passable > Duration::from_secs(200), "{ahead:?}");
    held.release().await.unwrap();
    urgent.await.unwrap().unwrap().release().await.unwrap();
    plain.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_priority_above_nine_is_refused() {
    let member = Alone::start();
    let a = member.client("a").await;
    let Err(error) = a.lock("web").priority(10).await else { panic!("there is no such priority") };
    assert!(error.to_string().contains("priority"), "{error}");
}

#[tokio::test]
async fn a_holder_that_promised_progress_loses_the_lock_when_it_is_stuck() {
    let member = Alone::start();
    let (a, b) = (member.client("a").await, member.client("b").await);
    let within = Duration::from_millis(700);
    let guard = a.lock("copy").progress_within(within).await.unwrap();
    let asking = b.lock("copy");
    let next = tokio::spawn(async move { asking.await });
    let (granted, mut number) = (tokio::time::Instant::now(), 0);
    while granted.elapsed() < 2 * within {
        number += 1;
        let left = guard.progress(number).await.unwrap().expect("it promised");
        assert!(left >= within, "{left:?}");
    }
    let left = guard.progress(1).await.unwrap().expect("it promised");
    let shown = b.explain("copy").await.unwrap().lock.unwrap().holders[0].progress.unwrap();
    assert_eq!((shown.number, shown.within), (number, within));
    assert!(shown.left <= left, "{shown:?} {left:?}");
    // It renews, and does not progress.
    let lost = guard.lost().await;
    assert_eq!(lost.cause(), Cause::NoProgress);
    let stayed = format!("the number stayed at {number} for 700 ms");
    assert_eq!(lost.reason(), Some(&*stayed));
    let old = guard.token();
    drop(guard);
    let next = next.await.unwrap().unwrap();
    assert!(next.token() > old);
    assert_eq!(next.progress(1).await.unwrap(), None);
    next.release().await.unwrap();
}

#[tokio::test]
async fn a_shared_hold_becomes_exclusive_when_the_other_reader_has_gone() {
    let member = Alone::start();
    let (a, b) = (member.client("a").await, member.client("b").await);
    let (first, second) =
        (a.lock("data").shared().await.unwrap(), b.lock("data").shared().await.unwrap());
    let old = first.token();
    let still = first.upgrade(Duration::from_millis(50)).await.unwrap_err();
    assert!(matches!(still.error, Error::Refused(Refusal::WaitTimeout)), "{still:?}");
    let first = still.guard.expect("it is held as before");
    first.check().unwrap();
    assert_eq!(first.token(), old);
    let waiting =
        tokio::spawn(async move { first.upgrade(Duration::from_secs(30)).await.unwrap() });
    until("a waits", async || b.show("data").await.unwrap().unwrap().waiting == 1).await;
    let still = second.upgrade(Duration::from_secs(30)).await.unwrap_err();
    assert!(matches!(still.error, Error::Refused(Refusal::Deadlock { .. })), "{still:?}");
    still.guard.expect("it is held as before").release().await.unwrap();
    let first = waiting.await.unwrap();
    assert!(first.token() > old);
    assert!(b.lock("data").shared().try_acquire().await.unwrap().is_none());
    let again = first.upgrade(Duration::ZERO).await.unwrap();
    again.release().await.unwrap();
    b.lock("data").no_wait().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_hold_is_given_to_the_lease_that_waits_and_to_no_other() {
    let member = Alone::start();
    let (a, b, c) = (member.client("a").await, member.client("b").await, member.client("c").await);
    let old = a.lock("web").await.unwrap();
    let token = old.token();
    let asking = b.lock("web");
    let first = tokio::spawn(async move { asking.await });
    until("b waits", async || a.show("web").await.unwrap().unwrap().waiting == 1).await;
    let lease = c.lease(Duration::from_secs(30)).await.unwrap();
    let to = lease.id();
    let still = old.hand_on(to).await.unwrap_err();
    assert!(matches!(still.error, Error::Refused(Refusal::NotWaiting { .. })), "{still:?}");
    let old = still.guard.expect("it is held as before");
    let asking = lease.lock("web");
    let next = tokio::spawn(async move { asking.await });
    until("c waits", async || a.show("web").await.unwrap().unwrap().waiting == 2).await;
    let given = old.hand_on(to).await.unwrap();
    let next = next.await.unwrap().unwrap();
    assert_eq!(next.token(), given);
    assert!(given > token);
    next.release().await.unwrap();
    first.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn several_slots_are_one_guard_and_a_smaller_semaphore_refuses_who_wants_more() {
    let member = Alone::start();
    let (a, b, ops) =
        (member.client("a").await, member.client("b").await, member.client("ops").await);
    let three = a.lock("pool").slots(4).take(3).await.unwrap();
    let slots: Vec<Option<u32>> = three.locks().map(|lock| lock.slot).collect();
    assert_eq!(slots, [Some(0), Some(1), Some(2)]);
    // One slot is free, but no request passes one that waits for two.
    let asking = b.lock("pool").slots(4).take(2);
    let waiting = tokio::spawn(async move { asking.await });
    until("b waits", async || a.show("pool").await.unwrap().unwrap().waiting == 1).await;
    assert!(matches!(refusal(ops.lock("pool").slots(4).no_wait().await), Refusal::Held(_)));
    let explained = a.explain("pool").await.unwrap();
    assert_eq!(explained.ahead[0].take, 2);
    three.release().await.unwrap();
    let two = waiting.await.unwrap().unwrap();
    assert_eq!(two.locks().count(), 2);
    assert_eq!(a.show("pool").await.unwrap().unwrap().holders.len(), 2, "all three are given back");

    let asking = a.lock("pool").slots(4).take(3).wait(Duration::from_secs(60));
    let waiting = tokio::spawn(async move { asking.await });
    until("a waits", async || ops.show("pool").await.unwrap().unwrap().waiting == 1).await;
    ops.resize("pool", Some(2)).await.unwrap();
    let told = refusal(waiting.await.unwrap());
    assert!(matches!(told, Refusal::Limit { bound: 2, asked: 3, .. }), "{told:?}");
    let pool = ops.show("pool").await.unwrap().unwrap();
    assert_eq!((pool.slots, pool.sized, pool.holders.len()), (Some(2), true, 2));
    two.release().await.unwrap();
    ops.resize("pool", None).await.unwrap();
    assert!(ops.show("pool").await.unwrap().is_none());
}

#[tokio::test]
async fn any_of_several_locks_is_granted_and_the_queues_of_the_others_are_left() {
    let member = Alone::start();
    let (a, b) = (member.client("a").await, member.client("b").await);
    let first = a.lock_any(["gpu/1", "gpu/0"]).await.unwrap();
    let second = a.lock_any(["gpu/1", "gpu/0"]).await.unwrap();
    assert_eq!((first.name(), second.name()), ("gpu/0", "gpu/1"));
    assert_eq!(first.locks().count(), 1);
    let Refusal::Held(held) = refusal(b.lock_any(["gpu/0", "gpu/1"]).no_wait().await) else {
        panic!("not held")
    };
    assert_eq!(held.lock.as_str(), "gpu/0");

    let asking = b.lock_any(["gpu/0", "gpu/1"]);
    let third = tokio::spawn(async move { asking.await });
    until("b waits", async || waiting(&a, "gpu/1").await == 1).await;
    let ahead = a.explain("gpu/0").await.unwrap().ahead;
    assert_eq!((ahead[0].any, &ahead[0].pool), (true, &None));
    assert_eq!(ahead[0].locks, ["gpu/0", "gpu/1"]);
    let old = second.token();
    second.release().await.unwrap();
    let third = third.await.unwrap().unwrap();
    assert_eq!(third.name(), "gpu/1");
    assert!(third.token() > old);
    assert_eq!(waiting(&a, "gpu/0").await, 0);
    third.check().unwrap();
    third.release().await.unwrap();
    assert!(a.show("gpu/1").await.unwrap().is_none());
    first.release().await.unwrap();
}

#[tokio::test]
async fn a_second_request_for_any_lock_under_one_lease_waits_for_the_first() {
    let member = Alone::start();
    let a = member.client("a").await;
    let lease = a.lease(Duration::from_secs(60)).await.unwrap();
    let first = lease.lock_any(["x", "y"]).await.unwrap();
    assert_eq!(first.name(), "x");
    // The permits of the locks that were not granted are free again.
    let other = lease.lock("y").await.unwrap();
    assert!(lease.lock_any(["x", "y"]).try_acquire().await.unwrap().is_none());
    let asking = lease.lock_any(["x", "y"]);
    let second = tokio::spawn(async move { asking.await });
    let old = first.token();
    first.release().await.unwrap();
    other.release().await.unwrap();
    let second = second.await.unwrap().unwrap();
    assert_eq!(second.name(), "x");
    assert!(second.token() > old);
    second.release().await.unwrap();
}

#[tokio::test]
async fn a_request_for_any_lock_that_is_dropped_leaves_all_queues() {
    let member = Alone::start();
    let (a, b) = (member.client("a").await, member.client("b").await);
    let held = a.lock_all(["x", "y"]).await.unwrap();
    // Once with a lease of its own, and once under a lease that continues.
    let lease = b.lease(Duration::from_secs(60)).await.unwrap();
    let (own, under) = (b.lock_any(["x", "y"]), lease.lock_any(["x", "y"]));
    let own = tokio::spawn(async move { own.await });
    let under = tokio::spawn(async move { under.await });
    until("both wait", async || waiting(&a, "y").await == 2).await;
    assert_eq!(waiting(&a, "x").await, 2);
    own.abort();
    under.abort();
    until("both have left", async || waiting(&a, "x").await + waiting(&a, "y").await == 0).await;
    held.release().await.unwrap();
    // The lease goes on, and can have either.
    let later = lease.lock_any(["x", "y"]).no_wait().await.unwrap();
    assert_eq!(later.name(), "x");
    later.release().await.unwrap();
}

#[tokio::test]
async fn any_slot_of_a_pool_is_granted_also_one_that_is_added() {
    let member = Alone::start();
    let (a, b, ops) =
        (member.client("a").await, member.client("b").await, member.client("ops").await);
    let empty = refusal(a.pool("gpu/").await);
    assert!(matches!(&empty, Refusal::PoolEmpty { pool } if pool.as_str() == "gpu/"), "{empty:?}");
    ops.resize("gpu/0", Some(1)).await.unwrap();
    let first = a.pool("gpu/").await.unwrap();
    assert_eq!((first.name(), first.locks().next().unwrap().slot), ("gpu/0", Some(0)));
    assert!(matches!(refusal(b.pool("gpu/").take(2).await), Refusal::PoolEmpty { .. }));
    assert!(matches!(refusal(b.pool("gpu/").no_wait().await), Refusal::Held(_)));
    let timed = refusal(b.pool("gpu/").wait(Duration::from_millis(50)).await);
    assert_eq!(timed, Refusal::WaitTimeout);

    let asking = b.pool("gpu/");
    let second = tokio::spawn(async move { asking.await });
    until("b waits", async || waiting(&a, "gpu/0").await == 1).await;
    let ahead = a.explain("gpu/0").await.unwrap().ahead;
    assert_eq!(ahead[0].pool.as_deref(), Some("gpu/"));
    ops.resize("gpu/1", Some(2)).await.unwrap();
    let second = second.await.unwrap().unwrap();
    assert_eq!(second.name(), "gpu/1");
    assert_eq!(waiting(&a, "gpu/0").await, 0);
    second.release().await.unwrap();
    let both = b.pool("gpu/").take(2).await.unwrap();
    assert_eq!(both.locks().filter(|lock| lock.name == "gpu/1").count(), 2);

    // A request that is dropped leaves all queues; one whose pool loses its last slot is told.
    let asking = b.pool("gpu/");
    let dropped = tokio::spawn(async move { asking.await });
    until("b waits", async || waiting(&a, "gpu/1").await == 1).await;
    dropped.abort();
    until("b has left", async || waiting(&a, "gpu/0").await + waiting(&a, "gpu/1").await == 0)
        .await;
    let asking = b.pool("gpu/");
    let last = tokio::spawn(async move { asking.await });
    until("b waits", async || waiting(&a, "gpu/1").await == 1).await;
    ops.resize("gpu/0", None).await.unwrap();
    ops.resize("gpu/1", None).await.unwrap();
    assert!(matches!(refusal(last.await.unwrap()), Refusal::PoolEmpty { .. }));
    first.release().await.unwrap();
    both.release().await.unwrap();
}

#[tokio::test]
async fn a_mode_of_a_pool_is_refused_before_anything_is_sent() {
    let member = Alone::start();
    let a = member.client("a").await;
    for ask in [a.pool("gpu/").shared(), a.pool("gpu/").slots(2), a.pool("gpu/").slots(2).take(2)] {
        // The cluster would answer that the pool is empty.
        let Err(Error::Failed { reason, message }) = ask.await else { panic!("not refused") };
        assert_eq!(reason, "INVALID_FIELD");
        assert!(message.contains("`mode`") && message.contains("pool"), "{message}");
    }
}
