//! Tests that a prefix can be drained, that the newest request of a group replaces the older ones, that a more urgent
//! request passes others, that a holder keeps a lock as long as it progresses, and that several slots are granted
//! together.

use std::time::Duration;

use tenure::{Cause, Error, Refusal};

use super::{Alone, refusal, until};

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
