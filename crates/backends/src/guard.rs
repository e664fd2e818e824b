//! Implements the guard of a lock over another store: renews it, stops work in time and releases it.

use std::fmt;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tenure::engine::StoreHold;
use tenure::{Cancellation, Cause, LostWork, Standing, Token};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use crate::backend::{Backend, Fenced, Owner, Promise, StoreError};
use crate::error::Error;
use crate::locks::LocksShared;

/// Shorter sleeps are not worth a timer.
const NAP: Duration = Duration::from_millis(1);

/// A held lock of a store, which behaves like [`tenure::Guard`].
///
/// While the guard exists, it is renewed. Dropping it declares that the work has stopped, and releases the lock in the
/// background. A lost lock stays lost, and the guard reports the loss before the store can give the lock to another
/// client.
///
/// ```
/// # use tenure_backends::{Error, Locks, Memory};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// let locks = Locks::new(Memory::new())?;
/// let guard = locks.lock("report").await?;
/// guard.run(async { /* dropped at its await if the lock is lost */ }).await?;
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[must_use = "dropping a guard gives the lock back"]
pub struct Guard<B: Backend> {
    inner: Option<BackendGuardState<B>>,
    token: <B::Promise as Promise>::Token,
    cancellation: Cancellation,
    hold: Arc<StoreHold>,
}

struct BackendGuardState<B: Backend> {
    shared: Arc<LocksShared<B>>,
    lock: String,
    owner: Owner,
    hold: Arc<StoreHold>,
    renewal_task: AbortHandle,
}

impl<B: Backend> Guard<B> {
    pub(crate) fn new(
        shared: Arc<LocksShared<B>>,
        (lock, owner): (String, Owner),
        token: <B::Promise as Promise>::Token,
        hold: Arc<StoreHold>,
    ) -> Self {
        if let Some(watchdog) = &shared.watchdog {
            watchdog.watch(&hold);
        }
        let keep = keep(shared.clone(), lock.clone(), owner.clone(), hold.clone());
        let renewal_task = shared.runtime.spawn(keep).abort_handle();
        let cancellation = hold.cancellation();
        let inner =
            Some(BackendGuardState { shared, lock, owner, hold: hold.clone(), renewal_task });
        Self { inner, token, cancellation, hold }
    }

    /// Returns the lock's name.
    ///
    /// ```
    /// # fn example<B: tenure_backends::Backend>(guard: tenure_backends::Guard<B>) {
    /// println!("holding {}", guard.lock());
    /// # }
    /// ```
    pub fn lock(&self) -> &str {
        self.inner.as_ref().map_or("", |inner| &inner.lock)
    }

    /// Checks that the lock can be relied on at this moment. Only compares the clock, sends nothing.
    ///
    /// ```
    /// # use tenure_backends::{Backend, Error, Guard};
    /// # fn example<B: Backend>(guard: Guard<B>, rows: Vec<u32>) -> Result<(), Error> {
    /// for row in rows {
    ///     guard.check()?;
    ///     println!("writing {row}");
    /// }
    /// # Ok(()) }
    /// ```
    pub fn check(&self) -> Result<(), Error> {
        self.hold.check().map_err(|cause| Error::Lost { cause })
    }

    /// Returns the current standing: valid, doubtful, or lost and why.
    ///
    /// ```
    /// # fn example<B: tenure_backends::Backend>(guard: tenure_backends::Guard<B>) {
    /// println!("{:?}", guard.standing());
    /// # }
    /// ```
    pub fn standing(&self) -> Standing {
        self.hold.standing()
    }

    /// Subscribes to changes of the standing.
    ///
    /// ```
    /// # async fn example<B: tenure_backends::Backend>(guard: tenure_backends::Guard<B>) {
    /// let mut standings = guard.standings();
    /// while standings.changed().await.is_ok() { println!("{:?}", *standings.borrow_and_update()); }
    /// # }
    /// ```
    pub fn standings(&self) -> watch::Receiver<Standing> {
        self.hold.standings()
    }

    /// Waits until the lock is lost, and returns why.
    ///
    /// ```
    /// # async fn example<B: tenure_backends::Backend>(guard: tenure_backends::Guard<B>) {
    /// println!("lost: {}", guard.lost().await);
    /// # }
    /// ```
    pub async fn lost(&self) -> Cause {
        self.cancellation.cancelled().await.cause()
    }

    /// Returns a handle that tells work when to stop, from a thread of its own; for work that cannot be dropped.
    ///
    /// ```
    /// # fn example<B: tenure_backends::Backend>(guard: tenure_backends::Guard<B>) {
    /// assert!(!guard.cancellation().is_cancelled());
    /// # }
    /// ```
    pub fn cancellation(&self) -> Cancellation {
        self.cancellation.clone()
    }

    /// Runs work, drops it at its current await if the lock is lost, and never polls it after that. Work that returns
    /// after the lock was lost is answered with the loss, too; its output is in the error.
    ///
    /// ```
    /// # async fn build() -> u32 { 7 }
    /// # use tenure_backends::{Backend, Error, Guard};
    /// # async fn example<B: Backend>(guard: Guard<B>) -> Result<(), Error> {
    /// let pages = guard.run(build()).await?;
    /// # Ok(()) }
    /// ```
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, LostWork<F::Output>> {
        let mut cancelled = pin!(self.lost());
        let mut work: Pin<Box<F>> = Box::pin(work);
        // Read the clock before every poll of the work, so that no step runs on an old check after a pause, and after
        // the last one: it may have taken longer than the lock's time.
        let done = std::future::poll_fn(|context| {
            if let Poll::Ready(cause) = cancelled.as_mut().poll(context) {
                return Poll::Ready(Err(LostWork::of(cause.into(), None)));
            }
            if let Err(cause) = self.hold.check() {
                return Poll::Ready(Err(LostWork::of(cause.into(), None)));
            }
            work.as_mut().poll(context).map(|output| match self.hold.check() {
                Ok(()) => Ok(output),
                Err(cause) => Err(LostWork::of(cause.into(), Some(output))),
            })
        });
        let done = done.await;
        drop(work);
        done
    }

    /// Returns what came with the grant.
    pub(crate) fn grant(&self) -> <B::Promise as Promise>::Token {
        self.token
    }

    /// Releases the lock and waits until the store has acknowledged it. The caller must have stopped its work. If the
    /// lock is lost, returns that at once and deletes the key in the background.
    ///
    /// ```
    /// # use tenure_backends::{Backend, Error, Guard};
    /// # async fn example<B: Backend>(guard: Guard<B>) -> Result<(), Error> {
    /// guard.release().await
    /// # }
    /// ```
    pub async fn release(mut self) -> Result<(), Error> {
        // Dropping a lost guard deletes its key.
        self.check()?;
        let inner = self.inner.take().expect("a guard is released once");
        // The release runs in a task of its own, so it continues if the caller stops waiting.
        let runtime = inner.shared.runtime.clone();
        let done = runtime.spawn(inner.finish()).await;
        done.unwrap_or_else(|_| Err(Error::Setup("the runtime is shutting down".to_owned())))
    }
}

impl<B: Backend<Promise = Fenced>> Guard<B> {
    /// Returns the fencing token, which is larger than that of every grant before. Pass it to the resource that the
    /// lock protects.
    ///
    /// ```
    /// # use tenure_backends::{Guard, Memory};
    /// # fn example(guard: Guard<Memory>) {
    /// println!("token {}", guard.token());
    /// # }
    /// ```
    pub fn token(&self) -> Token {
        self.token
    }
}

impl<B: Backend> fmt::Debug for Guard<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let token = &self.token;
        f.debug_struct("Guard").field("lock", &self.lock()).field("token", token).finish()
    }
}

impl<B: Backend> Drop for Guard<B> {
    fn drop(&mut self) {
        if let Some(inner) = self.inner.take() {
            let runtime = inner.shared.runtime.clone();
            // If the release fails, the key expires.
            runtime.spawn(async move { inner.finish().await.is_ok() });
        }
    }
}

impl<B: Backend> BackendGuardState<B> {
    /// Releases the lock, whose work has stopped. A lost lock is released too, so that other clients need not wait
    /// until it expires.
    async fn finish(self) -> Result<(), Error> {
        let Self { shared, lock, owner, hold, renewal_task } = self;
        renewal_task.abort();
        if !hold.stopped() {
            return Ok(());
        }
        let deleting = shared.backend.compare_and_delete(&lock, &owner);
        let deleted = timeout(shared.timeout, deleting).await;
        match deleted.unwrap_or_else(|_| Err(StoreError::new("no answer in time"))) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Error::Lost { cause: Cause::Gone }),
            Err(source) => Err(Error::Unavailable { waited: shared.timeout, source }),
        }
    }
}

/// Renews the lock until it is lost or released. Each attempt runs independently, with a timeout of its own.
async fn keep<B: Backend>(
    shared: Arc<LocksShared<B>>,
    lock: String,
    owner: Owner,
    hold: Arc<StoreHold>,
) {
    loop {
        if let Some(number) = hold.renewal() {
            let (shared, lock, owner, hold) =
                (shared.clone(), lock.clone(), owner.clone(), hold.clone());
            tokio::spawn(async move {
                let (ttl, answer_timeout) = (hold.ttl(), hold.answer_timeout());
                let swapping = shared.backend.compare_and_swap(&lock, &owner, ttl);
                match timeout(answer_timeout, swapping).await {
                    Ok(Ok(ours)) => hold.renewed(number, ours),
                    Ok(Err(_)) | Err(_) => hold.not_renewed(number),
                }
            });
        }
        match hold.due_in() {
            Some(due) => sleep(due.max(NAP)).await,
            None => return,
        }
    }
}
