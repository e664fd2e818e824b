//! Tests that one program runs over Tenure and over another store, and sees the same.

use std::time::Duration;

use tenure_backends::{Cause, Error, Fenced, HeldLock, LockService, Locks, Memory, Token, Wait};
use tenure_testkit::Cluster;

const WAIT: Duration = Duration::from_secs(2);

/// A program that knows only the interface. Returns the tokens of its grants.
async fn program<S>(service: &S, other: &S) -> Result<Vec<Token>, Error>
where
    S: LockService<Promise = Fenced>,
{
    let guard = service.acquire("deploy", Wait::Unlimited).await?;
    assert_eq!(guard.name(), "deploy");
    guard.check()?;
    assert!(other.try_acquire("deploy").await?.is_none(), "it is held");
    let waited = other.acquire("deploy", Wait::AtMost(WAIT)).await;
    assert!(matches!(waited, Err(Error::Held { waited: Some(WAIT), .. })));
    let mut tokens = vec![guard.token()];
    guard.release().await?;
    let work = |guard: std::sync::Arc<S::Guard>| async move {
        tokio::task::yield_now().await;
        guard.check()?;
        Ok::<_, Error>(guard.token())
    };
    tokens.push(other.run_locked("deploy", Wait::No, work).await?);
    assert!(service.try_acquire("deploy").await?.is_some(), "it was released");
    Ok(tokens)
}

/// Work that never ends, under a lock that is lost.
async fn stopped<S: LockService>(service: &S, lose: impl AsyncFnOnce()) -> Cause {
    let guard = service.acquire("lost", Wait::No).await.unwrap();
    let stop = guard.cancellation();
    let (done, ()) = tokio::join!(guard.run(std::future::pending::<()>()), lose());
    let lost = done.unwrap_err();
    assert!(stop.is_cancelled() && guard.check().is_err());
    assert_eq!(guard.lost().await, *lost.lost());
    let cause = lost.lost().cause();
    assert!(matches!(guard.release().await, Err(Error::Lost { .. })));
    cause
}

#[tokio::test(start_paused = true)]
async fn the_same_program_runs_over_tenure_and_over_memory() {
    let cluster = Cluster::start().await.unwrap();
    let (a, b) = (cluster.client("a").await.unwrap(), cluster.client("b").await.unwrap());
    let tokens = program(&a, &b).await.unwrap();
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
    let cause = stopped(&a, async || cluster.force("lost", "a test").await.unwrap()).await;
    assert_eq!(cause, Cause::Forced);

    let memory = Memory::new();
    let (a, b) = (Locks::new(memory.client("a")).unwrap(), Locks::new(memory.client("b")).unwrap());
    let tokens = program(&a, &b).await.unwrap();
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
    let cause = stopped(&a, async || a.backend().partition()).await;
    assert!(matches!(cause, Cause::Unreachable { .. }), "{cause:?}");
}
