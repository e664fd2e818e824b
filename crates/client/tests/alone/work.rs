//! Tests that work which outlives its lock never reports success.

use std::time::Duration;

use tenure::{Cause, Client, Error, Guard, Refusal, Standing, Token, Urgency};

use super::{Alone, DEADLINE, refusal, until, waiting};

const LONG: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_that_blocks_its_thread_past_a_forced_loss_is_answered_with_the_loss() {
    let member = Alone::start();
    let (a, b) = (member.client("a").await, member.client("b").await);
    let operator = b.clone();
    let done = a.run("deploy", async |guard| {
        let (token, stop) = (guard.token(), guard.cancellation());
        tokio::spawn(async move {
            operator.force("deploy", token, "a test", Urgency::Now).await.unwrap();
        });
        // The thread never returns to the runtime before the work is done.
        while !stop.is_cancelled() {
            std::thread::yield_now();
        }
        Ok::<_, Error>("committed")
    });
    let done = tokio::time::timeout(DEADLINE, done).await.unwrap();
    assert!(matches!(&done, Err(Error::Lost(lost)) if *lost == Cause::Forced), "{done:?}");
}

#[tokio::test]
async fn the_standings_of_a_guard_tell_of_force_and_of_the_longest_hold() {
    let member = Alone::start();
    let (a, b) = (member.client("a").await, member.client("b").await);
    let lease = a.lease(Duration::from_secs(2)).await.unwrap();
    let other = lease.lock("other").await.unwrap();
    let forced = lease.lock("forced").await.unwrap();
    let nightly = lease.lock("nightly").max_hold(Duration::from_millis(2_500)).await.unwrap();
    let lost = |it: &Standing| matches!(it, Standing::Lost(_));
    for (guard, cause) in [(&forced, Cause::Forced), (&nightly, Cause::MaxHold)] {
        let mut standings = guard.standings();
        if cause == Cause::Forced {
            b.force("forced", guard.token(), "a test", Urgency::StopFirst).await.unwrap();
        }
        let told = tokio::time::timeout(DEADLINE / 6, standings.wait_for(lost)).await;
        assert_eq!(*told.expect("it is told").unwrap(), Standing::Lost(cause));
    }
    assert_eq!(*other.standings().borrow(), Standing::Valid, "the lease and its other locks stay");
    // A subscription ends with its guard.
    let mut standings = other.standings();
    other.release().await.unwrap();
    assert!(tokio::time::timeout(LONG, standings.changed()).await.unwrap().is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_late_work_returned_is_in_the_error() {
    let member = Alone::start();
    let (a, b) = (member.client("a").await, member.client("b").await);
    let guard = a.lock("deploy").await.unwrap();
    let (token, stop) = (guard.token(), guard.cancellation());
    let late = guard.run(async {
        // Only once the work runs: work that has not begun returns nothing.
        tokio::spawn(async move {
            b.force("deploy", token, "a test", Urgency::Now).await.unwrap();
        });
        while !stop.is_cancelled() {
            std::thread::yield_now();
        }
        "committed"
    });
    let late = late.await.unwrap_err();
    assert_eq!(*late.lost(), Cause::Forced);
    assert_eq!(late.to_string(), "lost: forced by b: a test");
    assert_eq!(late.into_output(), Some("committed"));
    // Work that the client stopped has returned nothing.
    let stopped = guard.run(std::future::pending::<u32>()).await.unwrap_err();
    assert_eq!(stopped.into_output(), None);
}

#[tokio::test]
async fn a_release_cancels_nothing() {
    let member = Alone::start();
    let client = member.client("a").await;
    let lease = client.lease(LONG).await.unwrap();
    // On a lease of its own, and on one that goes on.
    for guard in [client.lock("own").await.unwrap(), lease.lock("shared").await.unwrap()] {
        let name = guard.name().to_owned();
        let stop = guard.cancellation();
        let (tell, mut told) = tokio::sync::oneshot::channel();
        stop.on_cancelled(move |lost| tell.send(lost.clone()).unwrap());
        let mut standings = guard.standings();
        guard.release().await.unwrap();
        assert!(!stop.is_cancelled(), "{name}");
        assert!(told.try_recv().is_err(), "{name}");
        assert!(standings.changed().await.is_err(), "{name}: its standings end");
        assert_eq!(*standings.borrow(), Standing::Valid, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocking_work_is_waited_for_and_keeps_the_lock_until_it_returns() {
    let member = Alone::start();
    let (a, b) = (member.client("a").await, member.client("b").await);
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let (tell, told) = tokio::sync::oneshot::channel::<Token>();
    let asking = a.lock("deploy").ttl(LONG);
    let work = move |guard: &Guard| {
        tell.send(guard.token()).unwrap();
        // The work does not look whether it must stop.
        wait.recv().unwrap();
        Ok::<_, Error>("written")
    };
    let running = tokio::spawn(asking.run_blocking(work));
    let token = told.await.unwrap();
    let next = b.lock("deploy");
    let next = tokio::spawn(async move { next.await });
    until("b queues", async || waiting(&b, "deploy").await == 1).await;
    b.force("deploy", token, "a test", Urgency::StopFirst).await.unwrap();
    // The caller gives up, and the thread still writes.
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    assert!(matches!(refusal(b.lock("deploy").no_wait().await), Refusal::Held(_)));
    assert!(!next.is_finished());
    go.send(()).unwrap();
    let next = tokio::time::timeout(DEADLINE / 2, next).await.expect("it is handed over");
    next.unwrap().unwrap().release().await.unwrap();
    // A caller that waits hears of the loss, although the work reported success.
    let operator = b.clone();
    let late = a.lock("deploy").run_blocking(move |guard| {
        let (token, stop) = (guard.token(), guard.cancellation());
        tokio::runtime::Handle::current().spawn(async move {
            operator.force("deploy", token, "a test", Urgency::Now).await.unwrap();
        });
        while !stop.is_cancelled() {
            std::thread::yield_now();
        }
        Ok::<_, Error>("written")
    });
    assert!(matches!(late.await, Err(Error::Lost(_))));
}

#[derive(Debug)]
enum JobError {
    Lock(Error),
    Empty,
}

impl From<Error> for JobError {
    fn from(error: Error) -> Self {
        Self::Lock(error)
    }
}

#[tokio::test]
async fn errors_of_the_work_and_of_the_lock_come_in_one_result() {
    let member = Alone::start();
    let client = member.client("a").await;
    let empty = client.run("job", async |_| Err::<(), _>(JobError::Empty)).await;
    assert!(matches!(empty, Err(JobError::Empty)));
    assert!(client.show("job").await.unwrap().is_none(), "it is released all the same");
    let held = client.lock("job").await.unwrap();
    let busy = client.lock("job").no_wait().run(async |_| Ok::<_, JobError>(())).await;
    assert!(matches!(busy, Err(JobError::Lock(Error::Refused(Refusal::Held(_))))));
    assert!(client.try_lock("job").await.unwrap().is_none());
    held.release().await.unwrap();
    let guard = client.try_lock("job").await.unwrap().unwrap();
    assert_eq!(guard.name(), "job");
}

/// Generic code that spawns the work needs a future that is `Send`.
async fn spawned<W>(client: Client, work: impl FnOnce(Token) -> W + Send + 'static) -> u32
where
    W: Future<Output = Result<u32, Error>> + Send + 'static,
{
    let asking = client.lock("generic");
    let running = asking.run_send(|guard| async move { work(guard.token()).await });
    tokio::spawn(running).await.unwrap().unwrap()
}

#[tokio::test]
async fn generic_code_runs_work_in_a_task_of_its_own() {
    let member = Alone::start();
    let client = member.client("a").await;
    assert_eq!(spawned(client.clone(), |_| async { Ok(7) }).await, 7);
    assert!(client.show("generic").await.unwrap().is_none());
}

#[tokio::test]
async fn a_lease_and_a_leader_tell_of_their_loss_and_call_what_was_asked_for() {
    let member = Alone::start();
    let (a, b) = (member.client("a").await, member.client("b").await);
    let lease = a.lease(LONG).await.unwrap();
    let stop = lease.cancellation();
    let (tell, told) = tokio::sync::oneshot::channel();
    stop.on_cancelled(move |lost| tell.send(lost.clone()).unwrap());
    b.revoke(lease.id(), "a test", Urgency::StopFirst).await.unwrap();
    assert_eq!(lease.lost().await, Cause::Revoked);
    assert_eq!(told.await.unwrap(), Cause::Revoked);
    assert!(stop.is_cancelled());

    let lead = a.election("billing").campaign("me").await.unwrap();
    lead.check().unwrap();
    b.force("billing", lead.token(), "a test", Urgency::StopFirst).await.unwrap();
    assert_eq!(lead.cancellation().cancelled().await, Cause::Forced);
    assert_eq!(lead.lost().await, Cause::Forced);
    assert!(matches!(lead.check(), Err(Error::Lost(_))));
}
