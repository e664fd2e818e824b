//! Tests what a holder sees when its lock is lost.

use std::time::Duration;

use tenure::{Cause, Error, Refusal, Standing, Urgency};

use super::{Alone, cause, refusal, until, waiting};

#[tokio::test]
async fn a_lock_taken_away_stops_the_work_and_goes_on_when_it_has_stopped() {
    let member = Alone::start();
    let (a, b) = (member.client("a").await, member.client("b").await);
    let guard = a.lock("deploy").ttl(Duration::from_secs(60)).await.unwrap();
    let token = guard.token();
    let other = b.lock("deploy");
    let other = tokio::spawn(async move { other.await });
    until("b queues", async || waiting(&a, "deploy").await == 1).await;
    let stop = guard.cancellation();
    let work = tokio::spawn(async move {
        let done = guard.run(std::future::pending::<()>()).await.map_err(Error::from);
        (done, guard)
    });
    b.force("deploy", token, "a test", Urgency::StopFirst).await.unwrap();
    let (done, guard) = work.await.unwrap();
    assert_eq!(cause(&done), Some(Cause::Forced));
    assert_eq!(done.unwrap_err().to_string(), "lost: forced by b: a test");
    assert!(stop.is_cancelled() && guard.check().is_err());
    assert!(!other.is_finished(), "no other client starts before the work has stopped");
    // Releasing confirms that the work has stopped: the lock is handed over long before the ttl of 60s.
    assert!(matches!(guard.release().await, Err(Error::Lost { .. })));
    let lost = b.why_taken("deploy", token).await.unwrap().unwrap();
    assert_eq!((lost.by(), lost.reason()), (Some("b"), Some("a test")));
    let next = tokio::time::timeout(Duration::from_secs(20), other).await;
    next.unwrap().unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_lock_held_as_long_as_it_may_be_is_lost_and_its_lease_goes_on() {
    let member = Alone::start();
    let client = member.client("a").await;
    let lease = client.lease(Duration::from_secs(2)).await.unwrap();
    let other = lease.lock("other").await.unwrap();
    let guard = lease.lock("nightly").max_hold(Duration::from_millis(2_500)).await.unwrap();
    assert_eq!(guard.lost().await, Cause::MaxHold);
    assert_eq!(cause(&guard.release().await), Some(Cause::MaxHold));
    // The renewals that follow report a loss. The client reads the holdings and keeps the other locks for more than a
    // ttl.
    let mut standings = lease.standings();
    let lost = standings.wait_for(|it| matches!(it, Standing::Lost(_)));
    assert!(tokio::time::timeout(Duration::from_secs(3), lost).await.is_err());
    other.check().unwrap();
    assert!(client.show("nightly").await.unwrap().is_none(), "nothing cools: it was confirmed");
}

#[tokio::test]
async fn revoking_a_lease_loses_all_of_its_locks() {
    let member = Alone::start();
    let (a, b) = (member.client("a").await, member.client("b").await);
    let lease = a.lease(Duration::from_secs(60)).await.unwrap();
    let (one, two) = (lease.lock("one").await.unwrap(), lease.lock("two").await.unwrap());
    b.revoke(lease.id(), "a test", Urgency::StopFirst).await.unwrap();
    assert_eq!(one.lost().await.to_string(), "revoked by b: a test");
    assert_eq!(two.lost().await.to_string(), "revoked by b: a test");
    assert!(matches!(lease.standing(), Standing::Lost(Cause::Revoked)));
    assert!(matches!(lease.lock("three").await, Err(Error::Lost { .. } | Error::Refused(_))));
}

#[tokio::test]
async fn without_renewals_the_guard_doubts_then_is_lost_before_anyone_else_starts() {
    let member = Alone::start();
    let (a, b) = (member.client("a").await, member.client("b").await);
    let guard = a.lock("deploy").ttl(Duration::from_secs(4)).await.unwrap();
    let mut standings = guard.standings();
    let other = b.lock("deploy");
    let other = tokio::spawn(async move { other.await });
    a.drop_renewals(true);
    standings.wait_for(|it| *it == Standing::Doubtful).await.unwrap();
    guard.check().unwrap();
    let done = guard.run(std::future::pending::<()>()).await.map_err(Error::from);
    assert!(matches!(cause(&done), Some(Cause::Unreachable { .. })), "{done:?}");
    assert!(!other.is_finished(), "the cluster gives the holder two seconds more");
    // Later renewals do not revive the lost lease.
    a.drop_renewals(false);
    other.await.unwrap().unwrap().release().await.unwrap();
    assert!(guard.check().is_err());
}

#[tokio::test]
async fn a_lost_lease_is_revoked_once_its_work_has_stopped_and_not_before() {
    let member = Alone::start();
    let (a, b) = (member.client("a").await, member.client("b").await);
    let lease = a.lease(Duration::from_secs(20)).await.unwrap();
    let (one, two) = (lease.lock("one").await.unwrap(), lease.lock("two").await.unwrap());
    a.drop_renewals(true);
    one.lost().await;
    assert!(matches!(one.release().await, Err(Error::Lost { .. })));
    // The work under the other lock continues, as far as the client knows.
    assert!(matches!(refusal(b.lock("one").no_wait().await), Refusal::Held(_)));
    drop(two);
    let free = b.lock("one").wait(Duration::from_secs(5)).await.unwrap();
    free.release().await.unwrap();
}

#[tokio::test(flavor = "current_thread")]
async fn a_blocked_runtime_does_not_hide_the_loss() {
    let member = Alone::start();
    let client = member.client("a").await;
    let guard = client.lock("deploy").ttl(Duration::from_secs(1)).await.unwrap();
    let stop = guard.cancellation();
    // The only thread of the runtime does not return to it; the watchdog runs on a thread of its own.
    let told = std::thread::spawn(move || {
        let attempts = 2_000;
        (0..attempts).any(|_| {
            std::thread::sleep(Duration::from_millis(5));
            stop.is_cancelled()
        })
    });
    assert!(told.join().unwrap(), "cancelled although no task ran");
    let lost = guard.check();
    assert!(matches!(cause(&lost), Some(Cause::Stalled { .. })), "{lost:?}");
}
