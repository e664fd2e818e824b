//! Configures the locks of a store, and builds lock requests.

use std::fmt;
use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tenure::LeaseTiming;
use tenure::engine::Watchdog;
use tokio::runtime::Handle;

use crate::acquire;
use crate::backend::Backend;
use crate::error::Error;
use crate::guard::Guard;

/// The default ttl.
const TTL: Duration = Duration::from_secs(15);
/// The default bound on how long a store may be silent.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The locks of one store. Cheap to clone; all clones share one watchdog.
///
/// ```
/// # use tenure_backends::{Locks, Memory};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tenure_backends::Error> {
/// let locks = Locks::new(Memory::new())?;
/// let rows = locks.run("report", async |guard| -> Result<u32, tenure_backends::Error> {
///     println!("token {}", guard.token());
///     Ok(7)
/// }).await?;
/// assert_eq!(rows, 7);
/// # Ok(()) }
/// ```
pub struct Locks<B: Backend> {
    pub(crate) shared: Arc<LocksShared<B>>,
}

/// What all requests and guards of a store share.
pub(crate) struct LocksShared<B> {
    pub(crate) backend: B,
    pub(crate) timeout: Duration,
    pub(crate) runtime: Handle,
    /// `None` only with a planted bug: then only timers of the runtime check the time.
    pub(crate) watchdog: Option<Watchdog>,
    timing: LeaseTiming,
}

/// The settings of a store's locks.
///
/// ```
/// # use std::time::Duration;
/// # use tenure_backends::{Locks, Memory};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tenure_backends::Error> {
/// let locks = Locks::builder(Memory::new()).ttl(Duration::from_secs(30)).grace(Duration::from_secs(2)).start()?;
/// # Ok(()) }
/// ```
#[must_use = "nothing is set up until `start`"]
pub struct Builder<B: Backend> {
    backend: B,
    ttl: Duration,
    window: Option<Duration>,
    grace: Duration,
    timeout: Duration,
}

/// A request for a lock. Awaiting it waits for the lock.
///
/// ```
/// # use tenure_backends::{Error, Locks, Memory};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// let locks = Locks::new(Memory::new())?;
/// let guard = locks.lock("deploy").await?;
/// assert!(matches!(locks.lock("deploy").no_wait().await, Err(Error::Held { .. })));
/// guard.release().await
/// # }
/// ```
#[must_use = "nothing is asked until it is awaited"]
pub struct LockAsk<B: Backend> {
    shared: Arc<LocksShared<B>>,
    lock: String,
    wait: LockWait,
    timing: LeaseTiming,
}

/// How long to wait for a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LockWait {
    No,
    AtMost(Duration),
    Unlimited,
}

impl<B: Backend> Locks<B> {
    /// Creates locks with the default times. Needs a Tokio runtime, on which they are renewed.
    ///
    /// ```
    /// # use tenure_backends::{Locks, Memory};
    /// assert!(Locks::new(Memory::new()).is_err(), "there is no runtime here");
    /// ```
    pub fn new(backend: B) -> Result<Self, Error> {
        Self::builder(backend).start()
    }

    /// Returns a builder with the default settings.
    ///
    /// ```
    /// # use tenure_backends::{Locks, Memory};
    /// let builder = Locks::builder(Memory::new()).ttl(std::time::Duration::from_secs(5));
    /// ```
    pub fn builder(backend: B) -> Builder<B> {
        Builder { backend, ttl: TTL, window: None, grace: Duration::ZERO, timeout: TIMEOUT }
    }

    /// Requests a lock. Awaiting it waits until the lock is granted.
    ///
    /// ```
    /// # use tenure_backends::{Backend, Locks};
    /// # async fn example<B: Backend>(locks: Locks<B>) -> Result<(), tenure_backends::Error> {
    /// let guard = locks.lock("deploy").await?;
    /// # guard.release().await }
    /// ```
    pub fn lock(&self, lock: impl Into<String>) -> LockAsk<B> {
        let (shared, timing) = (self.shared.clone(), self.shared.timing);
        LockAsk { shared, lock: lock.into(), wait: LockWait::Unlimited, timing }
    }

    /// Waits for a lock, runs the work, and releases the lock. If the lock is lost, the work is dropped at its current
    /// await and the result is [`Error::Lost`]; it is the same if the work ends after the lock was lost. Errors of the
    /// lock become errors of the work.
    ///
    /// ```
    /// # use tenure_backends::{Backend, Error, Locks};
    /// # async fn example<B: Backend>(locks: Locks<B>) -> Result<(), Error> {
    /// locks.run("report", async |_guard| -> Result<(), Error> { println!("working"); Ok(()) }).await
    /// # }
    /// ```
    pub async fn run<T, E, F>(&self, lock: impl Into<String>, work: F) -> Result<T, E>
    where
        F: AsyncFnOnce(&Guard<B>) -> Result<T, E>,
        E: From<Error>,
    {
        let guard = self.lock(lock).await?;
        let done = guard.run(work(&guard)).await.map_err(Error::from);
        let released = guard.release().await;
        let output = done?;
        match released {
            Err(error @ Error::Lost { .. }) => Err(error.into()),
            // The work was done in time; any other failure of the release does not undo it.
            Ok(()) | Err(_) => output,
        }
    }

    /// Returns the store.
    ///
    /// ```
    /// # use tenure_backends::{Locks, Memory};
    /// # fn example(locks: Locks<Memory>) {
    /// locks.backend().partition();
    /// # }
    /// ```
    pub fn backend(&self) -> &B {
        &self.shared.backend
    }
}

impl<B: Backend> Clone for Locks<B> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<B: Backend> fmt::Debug for Locks<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locks").field("timing", &self.shared.timing).finish_non_exhaustive()
    }
}

impl<B: Backend> Builder<B> {
    /// Sets how long the store keeps a lock after a renewal.
    ///
    /// ```
    /// # use tenure_backends::{Locks, Memory};
    /// let builder = Locks::builder(Memory::new()).ttl(std::time::Duration::from_secs(5));
    /// ```
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Sets how long a lock is relied on after a renewal. The default is half of the ttl.
    ///
    /// ```
    /// # use tenure_backends::{Locks, Memory};
    /// let builder = Locks::builder(Memory::new()).window(std::time::Duration::from_secs(9));
    /// ```
    pub fn window(mut self, window: Duration) -> Self {
        self.window = Some(window);
        self
    }

    /// Sets how long work takes to stop.
    ///
    /// ```
    /// # use tenure_backends::{Locks, Memory};
    /// let builder = Locks::builder(Memory::new()).grace(std::time::Duration::from_secs(2));
    /// ```
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Sets how long the store may be silent before a request is given up.
    ///
    /// ```
    /// # use tenure_backends::{Locks, Memory};
    /// let builder = Locks::builder(Memory::new()).timeout(std::time::Duration::from_secs(30));
    /// ```
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Starts the watchdog. Sends nothing to the store yet.
    ///
    /// ```
    /// # use tenure_backends::{Locks, Memory};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tenure_backends::Error> {
    /// let locks = Locks::builder(Memory::new()).start()?;
    /// # Ok(()) }
    /// ```
    pub fn start(self) -> Result<Locks<B>, Error> {
        let runtime = Handle::try_current()
            .map_err(|_| Error::Setup("there is no Tokio runtime here".to_owned()))?;
        let timing = LeaseTiming::new(self.ttl)?;
        let timing = match self.window {
            Some(window) => timing.with_window(window)?,
            None => timing,
        };
        let timing = timing.stop_within(self.grace)?;
        let watchdog = if mutant!("timer_on_the_runtime_only") {
            None
        } else {
            Some(Watchdog::start().map_err(|error| Error::Setup(error.to_string()))?)
        };
        let shared =
            LocksShared { backend: self.backend, timeout: self.timeout, runtime, watchdog, timing };
        Ok(Locks { shared: Arc::new(shared) })
    }
}

impl<B: Backend> LockAsk<B> {
    /// Waits for at most `wait`.
    ///
    /// ```
    /// # use tenure_backends::{Backend, Locks};
    /// # async fn example<B: Backend>(locks: Locks<B>) -> Result<(), tenure_backends::Error> {
    /// let guard = locks.lock("deploy").wait(std::time::Duration::from_secs(60)).await?;
    /// # guard.release().await }
    /// ```
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = LockWait::AtMost(wait);
        self
    }

    /// Does not wait: tries once.
    ///
    /// ```
    /// # use tenure_backends::{Backend, Locks};
    /// # async fn example<B: Backend>(locks: Locks<B>) -> Result<(), tenure_backends::Error> {
    /// let guard = locks.lock("deploy").no_wait().await?;
    /// # guard.release().await }
    /// ```
    pub fn no_wait(mut self) -> Self {
        self.wait = LockWait::No;
        self
    }
}

impl<B: Backend> IntoFuture for LockAsk<B> {
    type Output = Result<Guard<B>, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(acquire::acquire(self.shared, self.lock, self.wait, self.timing))
    }
}
