//! Defines one interface over Tenure and the other stores, so that the same program runs over each.

use std::sync::Arc;
use std::time::Duration;

use tenure::{Cancellation, Lost, LostWork, Refusal, Standing};

use crate::backend::{Backend, Fenced, Promise, StoreError};
use crate::error::Error;
use crate::guard::Guard;
use crate::locks::Locks;

/// How long to wait for a lock.
///
/// ```
/// # use tenure_backends::Wait;
/// let wait = Wait::AtMost(std::time::Duration::from_secs(5));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Wait {
    /// Not at all: the lock is granted at once, or the request fails with [`Error::Held`].
    No,
    /// At most so long, also if the store does not answer.
    AtMost(Duration),
    /// Until the lock is granted.
    Unlimited,
}

/// A service that grants locks: [`tenure::Client`], or [`Locks`] over etcd, Redis, Redlock or memory.
///
/// ```
/// use tenure_backends::{Error, HeldLock, LockService, Locks, Memory, Wait};
///
/// /// Runs over every store.
/// async fn nightly(service: &impl LockService) -> Result<u32, Error> {
///     service.run_locked("nightly", Wait::Unlimited, |guard| async move {
///         guard.check()?;
///         Ok(7)
///     }).await
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// assert_eq!(nightly(&Locks::new(Memory::new())?).await?, 7);
/// # if false {
/// let client = tenure::Client::from_env().await?;
/// nightly(&client).await?;
/// # }
/// # Ok(()) }
/// ```
///
/// A program that needs a fencing token asks for `LockService<Promise = Fenced>`; it does not compile over Redis.
pub trait LockService: Send + Sync + 'static {
    /// What a grant is worth: [`Fenced`] or [`EfficiencyOnly`](crate::EfficiencyOnly).
    type Promise: Promise;
    /// The guard of a held lock.
    type Guard: HeldLock<Promise = Self::Promise>;

    /// Waits for a lock. Dropping the future gives up, and gives back what may have been granted.
    fn acquire(
        &self,
        lock: &str,
        wait: Wait,
    ) -> impl Future<Output = Result<Self::Guard, Error>> + Send;

    /// Acquires a lock if no other client has it; `None` if one has.
    fn try_acquire(
        &self,
        lock: &str,
    ) -> impl Future<Output = Result<Option<Self::Guard>, Error>> + Send {
        async move {
            match self.acquire(lock, Wait::No).await {
                Ok(guard) => Ok(Some(guard)),
                Err(Error::Held { .. }) => Ok(None),
                Err(error) => Err(error),
            }
        }
    }

    /// Waits for a lock, runs the work, and releases the lock. If the lock is lost, drops the work at its current
    /// await and returns [`Error::Lost`]; does the same if the work ends after the lock was lost. If the work keeps its
    /// guard beyond its end, the lock is released when that is dropped.
    fn run_locked<T, E, F, W>(
        &self,
        lock: &str,
        wait: Wait,
        work: F,
    ) -> impl Future<Output = Result<T, E>> + Send
    where
        F: FnOnce(Arc<Self::Guard>) -> W + Send,
        W: Future<Output = Result<T, E>> + Send,
        T: Send,
        E: From<Error> + Send,
    {
        async move {
            let guard = Arc::new(self.acquire(lock, wait).await?);
            let done = guard.run(work(guard.clone())).await.map_err(Error::from);
            let released = match Arc::into_inner(guard) {
                Some(last) => last.release().await,
                None => Ok(()),
            };
            let output = done?;
            match released {
                Err(error @ Error::Lost { .. }) => Err(error.into()),
                // The work was done in time; any other failure of the release does not undo it.
                Ok(()) | Err(_) => output,
            }
        }
    }
}

/// A held lock of any [`LockService`]. Dropping it releases the lock in the background.
///
/// ```
/// use tenure_backends::{Error, HeldLock};
/// async fn copy(guard: &impl HeldLock, rows: Vec<u32>) -> Result<(), Error> {
///     for row in rows {
///         guard.check()?;
///         println!("writing {row} under `{}`", guard.name());
///     }
///     Ok(())
/// }
/// ```
pub trait HeldLock: Send + Sync + 'static {
    /// What the grant is worth.
    type Promise: Promise;

    /// The lock's name.
    fn name(&self) -> &str;

    /// The fencing token, or [`NoToken`](crate::NoToken) of a store without tokens.
    fn token(&self) -> <Self::Promise as Promise>::Token;

    /// Checks that the lock can be relied on at this moment. Only compares the clock, sends nothing.
    fn check(&self) -> Result<(), Error>;

    /// The current standing: valid, doubtful, or lost and why.
    fn standing(&self) -> Standing;

    /// A handle that tells work when to stop, from a thread of its own; for work that cannot be dropped.
    fn cancellation(&self) -> Cancellation;

    /// Waits until the lock is lost, and returns why.
    fn lost(&self) -> impl Future<Output = Lost> + Send;

    /// Runs work, and drops it at its current await if the lock is lost. Work that returns after the lock was lost is
    /// answered with the loss, too; its output is in the error.
    fn run<F>(
        &self,
        work: F,
    ) -> impl Future<Output = Result<F::Output, LostWork<F::Output>>> + Send
    where
        F: Future + Send,
        F::Output: Send;

    /// Releases the lock and waits until the store has acknowledged it. The caller must have stopped its work.
    fn release(self) -> impl Future<Output = Result<(), Error>> + Send;
}

impl<B: Backend> LockService for Locks<B> {
    type Promise = B::Promise;
    type Guard = Guard<B>;

    async fn acquire(&self, lock: &str, wait: Wait) -> Result<Guard<B>, Error> {
        let ask = self.lock(lock);
        match wait {
            Wait::No => ask.no_wait().await,
            Wait::AtMost(time) => ask.wait(time).await,
            Wait::Unlimited => ask.await,
        }
    }
}

impl<B: Backend> HeldLock for Guard<B> {
    type Promise = B::Promise;

    fn name(&self) -> &str {
        self.lock()
    }

    fn token(&self) -> <B::Promise as Promise>::Token {
        self.grant()
    }

    fn check(&self) -> Result<(), Error> {
        Guard::check(self)
    }

    fn standing(&self) -> Standing {
        Guard::standing(self)
    }

    fn cancellation(&self) -> Cancellation {
        Guard::cancellation(self)
    }

    async fn lost(&self) -> Lost {
        Guard::lost(self).await.into()
    }

    async fn run<F>(&self, work: F) -> Result<F::Output, LostWork<F::Output>>
    where
        F: Future + Send,
        F::Output: Send,
    {
        Guard::run(self, work).await
    }

    async fn release(self) -> Result<(), Error> {
        Guard::release(self).await
    }
}

impl LockService for tenure::Client {
    type Promise = Fenced;
    type Guard = tenure::Guard;

    async fn acquire(&self, lock: &str, wait: Wait) -> Result<tenure::Guard, Error> {
        let ask = self.lock(lock);
        let (asked, waited) = match wait {
            Wait::No => (ask.no_wait().await, None),
            Wait::AtMost(time) => (ask.wait(time).await, Some(time)),
            Wait::Unlimited => (ask.await, None),
        };
        match asked {
            Err(tenure::Error::Refused(Refusal::Held(_) | Refusal::WaitTimeout)) => {
                Err(Error::Held { lock: lock.to_owned(), waited })
            }
            done => Ok(done?),
        }
    }
}

impl HeldLock for tenure::Guard {
    type Promise = Fenced;

    fn name(&self) -> &str {
        tenure::Guard::name(self)
    }

    fn token(&self) -> tenure::Token {
        tenure::Guard::token(self)
    }

    fn check(&self) -> Result<(), Error> {
        Ok(tenure::Guard::check(self)?)
    }

    fn standing(&self) -> Standing {
        tenure::Guard::standing(self)
    }

    fn cancellation(&self) -> Cancellation {
        tenure::Guard::cancellation(self)
    }

    async fn lost(&self) -> Lost {
        tenure::Guard::lost(self).await
    }

    async fn run<F>(&self, work: F) -> Result<F::Output, LostWork<F::Output>>
    where
        F: Future + Send,
        F::Output: Send,
    {
        tenure::Guard::run(self, work).await
    }

    async fn release(self) -> Result<(), Error> {
        Ok(tenure::Guard::release(self).await?)
    }
}

impl From<tenure::Error> for Error {
    fn from(error: tenure::Error) -> Self {
        use tenure::Error as Tenure;
        match error {
            Tenure::Lost(lost) => Self::Lost { cause: lost.cause() },
            Tenure::LeaseTiming(wrong) => Self::LeaseTiming(wrong),
            Tenure::Setup(why) => Self::Setup(why),
            Tenure::Unreachable { waited, .. } | Tenure::Unknown { waited, .. } => {
                Self::Unavailable { waited, source: StoreError::new(error.to_string()) }
            }
            Tenure::Unavailable => {
                let source = StoreError::new(error.to_string());
                Self::Unavailable { waited: Duration::ZERO, source }
            }
            other => Self::Tenure(other),
        }
    }
}

impl<T> From<LostWork<T>> for Error {
    fn from(work: LostWork<T>) -> Self {
        Self::Lost { cause: work.lost().cause() }
    }
}
