//! Defines the scenarios that must hold over every store.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_backends::{Backend, Cause, Error, Guard, HeldLock, LockService, Locks, Standing, Wait};

pub(crate) const DEADLINE: Duration = Duration::from_secs(150);

/// Each client whose check allows it writes its name, and must never find the name of another.
#[derive(Default)]
pub(crate) struct Resource {
    holder: Mutex<Option<u64>>,
    pub(crate) writes: AtomicU64,
}

impl Resource {
    /// Works for some steps, as long as the guard allows.
    pub(crate) async fn use_it<B: Backend>(&self, who: u64, guard: &Guard<B>, steps: u32) {
        let before = self.holder.lock().unwrap().replace(who);
        assert_eq!(before, None, "two are holding");
        for _ in 0..steps {
            if guard.check().is_err() {
                break;
            }
            assert_eq!(*self.holder.lock().unwrap(), Some(who), "two are holding");
            self.writes.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        *self.holder.lock().unwrap() = None;
    }
}

/// Lets several tasks, each on a client of its own, acquire the same lock again and again. Returns what each holder
/// saw, in the order of holding.
pub(crate) async fn contend<B: Backend, T: Send + 'static>(
    make: impl Fn() -> Locks<B>,
    tasks: u64,
    rounds: u64,
    see: fn(&Guard<B>) -> T,
) -> Vec<T> {
    let (resource, seen) = (Arc::new(Resource::default()), Arc::new(Mutex::new(Vec::new())));
    let mut all = tokio::task::JoinSet::new();
    for who in 0..tasks {
        let (locks, resource, seen) = (make(), resource.clone(), seen.clone());
        all.spawn(async move {
            for round in 0..rounds {
                let guard = locks.lock("contended").wait(DEADLINE).await.unwrap();
                seen.lock().unwrap().push(see(&guard));
                resource.use_it(who, &guard, 3).await;
                // Half of them release and wait, half drop the guard.
                match round % 2 {
                    0 => guard.release().await.unwrap(),
                    _ => drop(guard),
                }
            }
        });
    }
    let done = tokio::time::timeout(DEADLINE, all.join_all()).await;
    done.expect("every client gets the lock in time");
    assert!(resource.writes.load(Ordering::Relaxed) >= tasks * rounds);
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    assert_eq!(seen.len() as u64, tasks * rounds);
    seen
}

/// Checks that a release wakes a waiter, long before the ttl would.
pub(crate) async fn wakes<B: Backend>(a: &Locks<B>, b: &Locks<B>, ttl: Duration) {
    for _ in 0..5 {
        let guard = a.lock("woken").await.unwrap();
        assert!(matches!(b.lock("woken").no_wait().await, Err(Error::Held { .. })));
        let asking = b.lock("woken").wait(DEADLINE);
        let waiting = tokio::spawn(async move { asking.await });
        // The result must not depend on whether the waiter already waits.
        tokio::task::yield_now().await;
        guard.release().await.unwrap();
        let woken = tokio::time::timeout(ttl / 2, waiting).await.expect("no event came");
        woken.unwrap().unwrap().release().await.unwrap();
    }
}

/// Checks that the lock is renewed beyond its ttl, and stays valid.
pub(crate) async fn outlives_its_ttl<B: Backend>(locks: &Locks<B>, ttl: Duration) {
    // Servers that have just lost their leader may take a while to elect the next.
    let until = tokio::time::Instant::now() + DEADLINE;
    let guard = loop {
        match locks.lock("kept").await {
            Err(Error::Unavailable { .. }) if tokio::time::Instant::now() < until => {}
            done => break done.unwrap(),
        }
    };
    let mut standings = guard.standings();
    let lost = standings.wait_for(|it| matches!(it, Standing::Lost(_)));
    let lost = tokio::time::timeout(ttl * 5 / 4, lost).await;
    assert!(lost.is_err(), "lost without a reason: {:?}", guard.standing());
    guard.check().unwrap();
    guard.release().await.unwrap();
}

/// Checks that, once nothing answers, the work is told to stop before the store would let another client start.
pub(crate) async fn is_lost_in_time<B: Backend>(
    guard: Guard<B>,
    ttl: Duration,
    kill: impl FnOnce(),
) {
    guard.check().unwrap();
    let stop = guard.cancellation();
    let began = tokio::time::Instant::now();
    kill();
    let done = guard.run(std::future::pending::<()>()).await.map_err(Error::from);
    // The newest renewal was sent just before the kill at the latest.
    let took = began.elapsed();
    assert!(matches!(done, Err(Error::Lost { cause: Cause::Unreachable { .. } })), "{done:?}");
    assert!(took < ttl, "told after {took:?} of a ttl of {ttl:?}");
    assert!(stop.is_cancelled() && guard.check().is_err());
    // Releasing a lost lock reports the loss.
    assert!(matches!(guard.release().await, Err(Error::Lost { .. })));
}

/// Checks that a program which knows only the interface of lock services runs over the store.
pub(crate) async fn serves<S: LockService>(service: &S, other: &S) {
    let guard = service.acquire("served", Wait::AtMost(DEADLINE)).await.unwrap();
    assert!(other.try_acquire("served").await.unwrap().is_none(), "it is held");
    HeldLock::release(guard).await.unwrap();
    let work = |guard: Arc<S::Guard>| async move {
        guard.check()?;
        Ok::<_, Error>(7)
    };
    assert_eq!(other.run_locked("served", Wait::AtMost(DEADLINE), work).await.unwrap(), 7);
    assert!(service.try_acquire("served").await.unwrap().is_some(), "it was released");
}
