//! Tests that each operation of the testkit has its effect on a program, on virtual time.

use std::cell::Cell;
use std::time::Duration;

use tenure::{Cause, Error, Standing};
use tenure_testkit::Cluster;
use tokio::time::{Instant, sleep, timeout};

const TTL: Duration = Duration::from_secs(15);

#[tokio::test(start_paused = true)]
async fn expire_now_ends_one_lease_and_no_other() {
    let cluster = Cluster::start().await.unwrap();
    let (a, b) = (cluster.client("a").await.unwrap(), cluster.client("b").await.unwrap());
    let guard = a.lock("deploy").await.unwrap();
    let other = a.lock("report").await.unwrap();
    let asking = b.lock("deploy");
    let waiting = tokio::spawn(async move { asking.await });
    let began = Instant::now();
    cluster.expire_now(&guard).await.unwrap();
    assert_eq!(guard.lost().await, Cause::Expired);
    assert!(matches!(guard.check(), Err(Error::Lost(lost)) if lost == Cause::Expired));
    let next = waiting.await.unwrap().unwrap();
    assert!(next.token() > guard.token());
    // Only the cluster's clock advanced.
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    for held in [&other, &next] {
        held.check().unwrap();
    }
    sleep(TTL * 4).await;
    for held in [&other, &next] {
        assert_eq!(held.standing(), Standing::Valid);
    }
    let twice = cluster.expire_now(&guard).await;
    assert!(matches!(twice, Err(tenure_testkit::Error::NotHeld)), "{twice:?}");
}

#[tokio::test(start_paused = true)]
async fn a_paused_client_is_lost_by_the_clock_and_another_goes_on() {
    let cluster = Cluster::start().await.unwrap();
    let (a, b) = (cluster.client("a").await.unwrap(), cluster.client("b").await.unwrap());
    let guard = a.lock("deploy").await.unwrap();
    let stop = guard.cancellation();
    let paused = cluster.pause_client(&a);
    let began = Instant::now();
    let next = b.lock("deploy").await.unwrap();
    let took = began.elapsed();
    assert!(took > TTL - TTL / 3 && took < TTL * 2, "the lease ran out after {took:?}");
    // A paused process is notified of nothing.
    assert!(!stop.is_cancelled());
    drop(paused);
    let lost = guard.lost().await;
    assert!(matches!(lost.cause(), Cause::Stalled { .. }), "{lost:?}");
    assert!(guard.check().is_err() && next.check().is_ok());
    // The client works again: it can acquire the lock.
    next.release().await.unwrap();
    drop(guard);
    a.lock("deploy").await.unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_short_pause_costs_nothing() {
    let cluster = Cluster::start().await.unwrap();
    let a = cluster.client("a").await.unwrap();
    let guard = a.lock("deploy").await.unwrap();
    for _ in 0..5 {
        let paused = cluster.pause_client(&a);
        sleep(TTL / 8).await;
        drop(paused);
        sleep(TTL).await;
        guard.check().unwrap();
    }
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn dropped_renewals_stop_the_work_before_anyone_else_starts() {
    let cluster = Cluster::start().await.unwrap();
    let (a, b) = (cluster.client("a").await.unwrap(), cluster.client("b").await.unwrap());
    let guard = a.lock("deploy").await.unwrap();
    let dropped = cluster.drop_renewals(&a);
    let began = Instant::now();
    // Work that records each of its steps, and a client that waits for it to end.
    let newest = Cell::new(began);
    let work = async {
        loop {
            newest.set(Instant::now());
            sleep(Duration::from_millis(100)).await;
        }
    };
    let (done, next) = tokio::join!(
        async {
            let done: Result<(), Error> = guard.run(work).await.map_err(Error::from);
            (done, Instant::now())
        },
        async { (b.lock("deploy").await.unwrap(), Instant::now()) },
    );
    let ((done, stopped), (next, started)) = (done, next);
    let Err(Error::Lost(lost)) = done else { panic!("{done:?}") };
    let Cause::Unreachable { silent } = lost.cause() else { panic!("{lost:?}") };
    assert!(silent >= TTL / 2 && silent < TTL, "{silent:?}");
    assert!(newest.get() <= stopped && stopped < started, "stopped {stopped:?}, then {started:?}");
    next.release().await.unwrap();
    drop((guard, dropped));
    // Once renewals arrive again, everything works as before.
    let guard = a.lock("deploy").await.unwrap();
    sleep(TTL * 3).await;
    guard.check().unwrap();
}

#[tokio::test(start_paused = true)]
async fn leaders_are_killed_and_no_client_loses_anything() {
    let cluster = Cluster::start().await.unwrap();
    let (a, b) = (cluster.client("a").await.unwrap(), cluster.client("b").await.unwrap());
    let guard = a.lock("deploy").await.unwrap();
    let asking = b.lock("deploy");
    let waiting = tokio::spawn(async move { asking.await });
    sleep(Duration::from_secs(1)).await;
    for _ in 0..10 {
        cluster.kill_leader().await.unwrap();
        sleep(TTL).await;
        guard.check().unwrap();
        assert_eq!(guard.standing(), Standing::Valid);
    }
    let token = guard.token();
    guard.release().await.unwrap();
    let next = timeout(TTL, waiting).await.unwrap().unwrap().unwrap();
    assert!(next.token() > token);
    let shown = a.show("deploy").await.unwrap().unwrap();
    assert_eq!(shown.holders.len(), 1);
    next.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn without_a_quorum_no_call_hangs_and_none_reports_what_is_not_known() {
    let cluster = Cluster::start().await.unwrap();
    let a = cluster.builder().name("a").ttl(TTL * 20).connect().await.unwrap();
    let (lease, guard) = (a.lease(TTL * 20).await.unwrap(), a.lock("held").await.unwrap());
    let kept = lease.lock("kept").await.unwrap();
    assert_eq!(a.status().await.unwrap().survives, 1);
    cluster.lose_quorum().await.unwrap();
    // Longer than any request may take, including the releases in between.
    let within = Duration::from_secs(60);
    let own = timeout(within, a.lock("own").into_future()).await.expect("it gives up");
    assert!(matches!(own, Err(Error::Unknown { .. })), "{own:?}");
    let under = timeout(within, lease.lock("under").no_wait().into_future()).await;
    let under = under.expect("it gives up");
    assert!(matches!(under, Err(Error::Unknown { .. })), "{under:?}");
    for guard in [guard, kept] {
        let began = Instant::now();
        let released = timeout(within, guard.release()).await.expect("it gives up");
        match released {
            // `waited` covers the whole wait, also the part without a timer. The virtual clock runs in whole
            // milliseconds.
            Err(Error::Unknown { waited, .. }) => {
                assert!(waited + Duration::from_millis(2) >= began.elapsed(), "{waited:?}");
            }
            // Once a member knows that there is no leader, it reports so: nothing happened.
            Err(Error::Unavailable) => {}
            other => panic!("{other:?}"),
        }
    }
    cluster.restart_members().await.unwrap();
    // What may have been granted is released, and all of these locks are free again.
    for lock in ["own", "under", "held"] {
        let again = timeout(TTL * 30, a.lock(lock).into_future()).await.expect("it is free");
        again.unwrap().release().await.unwrap();
    }
    // Under a lease that continues, the lock may still be held: the next guard that takes it releases it.
    lease.check().unwrap();
    let again = timeout(TTL * 30, lease.lock("kept").into_future()).await.expect("it has its turn");
    again.unwrap().release().await.unwrap();
    a.lock("kept").no_wait().await.unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_status_tells_how_many_more_may_fail() {
    let cluster = Cluster::start().await.unwrap();
    let a = cluster.client("a").await.unwrap();
    assert_eq!(a.status().await.unwrap().survives, 1);
    cluster.kill_leader().await.unwrap();
    assert_eq!(a.status().await.unwrap().survives, 0);
    cluster.restart_members().await.unwrap();
    assert_eq!(a.status().await.unwrap().survives, 1);
}

#[tokio::test(start_paused = true)]
async fn force_tells_the_holder_and_waits_until_it_has_stopped() {
    let cluster = Cluster::start().await.unwrap();
    let (a, b) = (cluster.client("a").await.unwrap(), cluster.client("b").await.unwrap());
    let guard = a.lock("deploy").await.unwrap();
    cluster.force("deploy", "the runner was deleted").await.unwrap();
    let lost = guard.lost().await;
    assert_eq!(lost, Cause::Forced);
    assert_eq!(lost.reason(), Some("the runner was deleted"));
    assert_eq!(lost.by(), Some("operator"));
    // No client gets the lock until the holder has confirmed that its work has stopped, or until its lease would have
    // ended.
    let early = b.lock("deploy").wait(Duration::from_secs(1)).await;
    assert!(matches!(early, Err(Error::Refused(_))), "{early:?}");
    let token = guard.token();
    drop(guard);
    let next = b.lock("deploy").wait(Duration::from_secs(1)).await.unwrap();
    assert!(next.token() > token);
    let not_held = cluster.force("nothing", "no reason").await;
    assert!(matches!(not_held, Err(tenure_testkit::Error::NotHeld)), "{not_held:?}");
}

#[tokio::test(start_paused = true)]
async fn watches_elections_and_two_clusters_work_in_one_test() {
    let (one, two) = (Cluster::start().await.unwrap(), Cluster::start().await.unwrap());
    let (a, b) = (one.client("a").await.unwrap(), two.client("a").await.unwrap());
    let (first, second) = (a.lock("same").await.unwrap(), b.lock("same").await.unwrap());
    let mut watch = a.watch("same").await.unwrap();
    let election = a.election("scheduler");
    let lead = election.campaign("node-1").await.unwrap();
    one.kill_leader().await.unwrap();
    sleep(TTL * 2).await;
    lead.guard().check().unwrap();
    drop(two);
    drop((second, b));
    first.check().unwrap();
    let token = first.token();
    first.release().await.unwrap();
    // Across the change of leader, the watch has missed nothing and repeated nothing.
    let batch = watch.next().await.unwrap().unwrap();
    let tokens: Vec<_> = batch.events.iter().map(|event| event.token).collect();
    assert_eq!(tokens, [Some(token)]);
}

#[tokio::test(start_paused = true)]
#[expect(clippy::disallowed_methods, reason = "the point is how little real time it takes")]
async fn an_hour_of_renewals_takes_no_hour() {
    let real = std::time::Instant::now();
    let cluster = Cluster::start().await.unwrap();
    let a = cluster.client("a").await.unwrap();
    let guard = a.lock("deploy").await.unwrap();
    let began = Instant::now();
    sleep(Duration::from_secs(3_600)).await;
    guard.check().unwrap();
    assert!(began.elapsed() >= Duration::from_secs(3_600));
    println!("an hour took {:?}", real.elapsed());
    assert!(real.elapsed() < Duration::from_secs(360), "{:?}", real.elapsed());
}
