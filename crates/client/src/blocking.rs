//! Wraps the client for programs without an async runtime.
//!
//! It is the same client with a runtime of its own, whose tasks run on a thread beside the caller's.
//!
//! ```no_run
//! # fn write(row: u32, token: tenure::Token) {}
//! # fn example(rows: Vec<u32>) -> Result<(), tenure::Error> {
//! let client = tenure::blocking::Client::from_env()?;
//! let guard = client.lock("deploy").acquire()?;
//! for row in rows {
//!     guard.check()?;
//!     write(row, guard.token());
//! }
//! guard.release()
//! # }
//! ```

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use crate::ask::LockAsk;
use crate::{Cancellation, DrainView, Error, LeaseId, Token};

/// How long dropping a guard waits for the release to be acknowledged.
const RELEASE: Duration = Duration::from_secs(1);

/// A client whose calls block.
///
/// ```no_run
/// let client = tenure::blocking::Client::connect("127.0.0.1:7450")?;
/// # Ok::<(), tenure::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Client {
    // Declared first, so that it is dropped before the runtime that its tasks run on.
    client: crate::Client,
    runtime: Arc<Runtime>,
}

/// A request for a lock.
///
/// ```no_run
/// # fn example(client: tenure::blocking::Client) -> Result<(), tenure::Error> {
/// use std::time::Duration;
/// let guard = client.lock("deploy").with(|ask| ask.wait(Duration::from_secs(5))).acquire()?;
/// # Ok(()) }
/// ```
#[must_use = "nothing is asked for until `acquire`"]
pub struct Ask {
    ask: LockAsk,
    runtime: Arc<Runtime>,
}

/// A held lock. Dropping it releases the lock.
///
/// ```no_run
/// # fn example(guard: tenure::blocking::Guard) -> Result<(), tenure::Error> {
/// guard.check()?;
/// guard.release()
/// # }
/// ```
#[derive(Debug)]
#[must_use = "dropping a guard gives the lock back"]
pub struct Guard {
    guard: Option<crate::Guard>,
    runtime: Arc<Runtime>,
}

/// A change that was not made, and the guard, which is as it was.
///
/// ```no_run
/// # fn example(reader: tenure::blocking::Guard) -> Result<(), tenure::Error> {
/// use std::time::Duration;
/// use tenure::blocking::StillHeld;
/// match reader.upgrade(Duration::from_secs(5)) {
///     Ok(writer) => writer.release(),
///     Err(StillHeld { guard: Some(reader), .. }) => reader.release(),
///     Err(still) => Err(still.error),
/// }
/// # }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct StillHeld {
    /// The guard; `None` if it is not certain how the lock is held. Then the client gives back what there is.
    pub guard: Option<Guard>,
    /// Why the change was not made.
    pub error: Error,
}

impl fmt::Display for StillHeld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}

impl std::error::Error for StillHeld {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&self.error)
    }
}

impl From<StillHeld> for Error {
    fn from(still: StillHeld) -> Self {
        still.error
    }
}

impl Client {
    /// Connects to the cluster that `TENURE_ADDR` names, or else to one on this machine.
    ///
    /// ```no_run
    /// let client = tenure::blocking::Client::from_env()?;
    /// # Ok::<(), tenure::Error>(())
    /// ```
    pub fn from_env() -> Result<Self, Error> {
        Self::on_a_runtime(crate::Client::from_env())
    }

    /// Connects to the cluster that has members at these addresses, separated by commas.
    ///
    /// ```no_run
    /// let client = tenure::blocking::Client::connect("10.0.0.11:7450,10.0.0.12:7450")?;
    /// # Ok::<(), tenure::Error>(())
    /// ```
    pub fn connect(addresses: impl AsRef<str>) -> Result<Self, Error> {
        Self::on_a_runtime(crate::Client::connect(addresses))
    }

    /// Connects with the settings of a [`Builder`](crate::Builder).
    ///
    /// ```no_run
    /// let builder = tenure::Client::builder().address("https://a.example:7450").ca("/etc/tenure/ca.pem");
    /// let client = tenure::blocking::Client::from_builder(builder)?;
    /// # Ok::<(), tenure::Error>(())
    /// ```
    pub fn from_builder(builder: crate::Builder) -> Result<Self, Error> {
        Self::on_a_runtime(builder.connect())
    }

    fn on_a_runtime(
        connecting: impl Future<Output = Result<crate::Client, Error>>,
    ) -> Result<Self, Error> {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(|error| Error::Setup(error.to_string()))?;
        let client = runtime.block_on(connecting)?;
        Ok(Self { client, runtime: Arc::new(runtime) })
    }

    /// Requests a lock under a new lease of its own.
    ///
    /// ```no_run
    /// # fn example(client: tenure::blocking::Client) -> Result<(), tenure::Error> {
    /// let guard = client.lock("deploy").acquire()?;
    /// # Ok(()) }
    /// ```
    pub fn lock(&self, lock: impl Into<String>) -> Ask {
        self.ask(self.client.lock(lock))
    }

    /// Requests several locks, all or none, under one new lease. The guard stands for all of them.
    ///
    /// ```no_run
    /// # fn example(client: tenure::blocking::Client) -> Result<(), tenure::Error> {
    /// let both = client.lock_all(["accounts/7", "accounts/9"]).acquire()?;
    /// # both.release() }
    /// ```
    pub fn lock_all<I>(&self, locks: I) -> Ask
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        self.ask(self.client.lock_all(locks))
    }

    /// Requests any one of several locks under a new lease, as [`Client::lock_any`](crate::Client::lock_any).
    ///
    /// ```no_run
    /// # fn example(client: tenure::blocking::Client) -> Result<(), tenure::Error> {
    /// let gpu = client.lock_any(["gpu/0", "gpu/1", "gpu/2"]).acquire()?;
    /// println!("working on {} under token {}", gpu.name(), gpu.token());
    /// # gpu.release() }
    /// ```
    pub fn lock_any<I>(&self, locks: I) -> Ask
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        self.ask(self.client.lock_any(locks))
    }

    /// Requests any slot of a pool under a new lease, as [`Client::pool`](crate::Client::pool).
    ///
    /// ```no_run
    /// # fn example(client: tenure::blocking::Client) -> Result<(), tenure::Error> {
    /// let gpu = client.pool("gpu/").acquire()?;
    /// # gpu.release() }
    /// ```
    pub fn pool(&self, prefix: impl Into<String>) -> Ask {
        self.ask(self.client.pool(prefix))
    }

    fn ask(&self, ask: LockAsk) -> Ask {
        Ask { ask, runtime: self.runtime.clone() }
    }

    /// Sets how many slots a semaphore has, as [`Client::resize`](crate::Client::resize) does.
    ///
    /// ```no_run
    /// # fn example(client: tenure::blocking::Client) -> Result<(), tenure::Error> {
    /// client.resize("runners", Some(12))
    /// # }
    /// ```
    pub fn resize(&self, lock: impl Into<String>, slots: Option<u32>) -> Result<(), Error> {
        self.runtime.block_on(self.client.resize(lock, slots))
    }

    /// Closes a prefix to new grants, as [`Client::drain`](crate::Client::drain) does.
    ///
    /// ```no_run
    /// # fn example(client: tenure::blocking::Client) -> Result<(), tenure::Error> {
    /// client.drain("db/", "new disks")
    /// # }
    /// ```
    pub fn drain(&self, prefix: impl Into<String>, reason: &str) -> Result<(), Error> {
        self.runtime.block_on(self.client.drain(prefix, reason))
    }

    /// Opens a prefix that [`drain`](Self::drain) closed. Returns whether it was closed.
    ///
    /// ```no_run
    /// # fn example(client: tenure::blocking::Client) -> Result<(), tenure::Error> {
    /// client.undrain("db/")?;
    /// # Ok(()) }
    /// ```
    pub fn undrain(&self, prefix: impl Into<String>) -> Result<bool, Error> {
        self.runtime.block_on(self.client.undrain(prefix))
    }

    /// Returns the prefixes that are closed, ordered, with how many holders are left below each.
    ///
    /// ```no_run
    /// # fn example(client: tenure::blocking::Client) -> Result<(), tenure::Error> {
    /// for drained in client.drains()? { println!("{}: {}", drained.prefix, drained.holders); }
    /// # Ok(()) }
    /// ```
    pub fn drains(&self) -> Result<Vec<DrainView>, Error> {
        self.runtime.block_on(self.client.drains())
    }

    /// Runs an operation of the async client to completion.
    ///
    /// ```no_run
    /// # fn example(client: tenure::blocking::Client) -> Result<(), tenure::Error> {
    /// let found = client.block_on(async |client| client.key("config").get().await)?;
    /// # Ok(()) }
    /// ```
    pub fn block_on<T>(&self, act: impl AsyncFnOnce(&crate::Client) -> T) -> T {
        self.runtime.block_on(act(&self.client))
    }
}

impl Ask {
    /// Sets options of the request.
    ///
    /// ```no_run
    /// # fn example(client: tenure::blocking::Client) -> Result<(), tenure::Error> {
    /// let guard = client.lock("cache").with(|ask| ask.shared()).acquire()?;
    /// # Ok(()) }
    /// ```
    pub fn with(self, say: impl FnOnce(LockAsk) -> LockAsk) -> Self {
        Self { ask: say(self.ask), runtime: self.runtime }
    }

    /// Waits until the lock is granted.
    ///
    /// ```no_run
    /// # fn example(client: tenure::blocking::Client) -> Result<(), tenure::Error> {
    /// let guard = client.lock("deploy").acquire()?;
    /// # Ok(()) }
    /// ```
    pub fn acquire(self) -> Result<Guard, Error> {
        let guard = self.runtime.block_on(self.ask.into_future())?;
        Ok(Guard { guard: Some(guard), runtime: self.runtime })
    }
}

impl Guard {
    fn guard(&self) -> &crate::Guard {
        self.guard.as_ref().expect("a guard is whole until it is released")
    }

    /// Returns the fencing token.
    ///
    /// ```no_run
    /// # fn example(guard: tenure::blocking::Guard) { println!("{}", guard.token()); }
    /// ```
    pub fn token(&self) -> Token {
        self.guard().token()
    }

    /// Returns the lock's name. For several locks, this is the first by name.
    ///
    /// ```no_run
    /// # fn example(guard: tenure::blocking::Guard) { println!("holding {}", guard.name()); }
    /// ```
    pub fn name(&self) -> &str {
        self.guard().name()
    }

    /// Returns every lock that the guard stands for, in the order of their names.
    ///
    /// ```no_run
    /// # fn example(guard: tenure::blocking::Guard) { println!("{} locks", guard.locks().count()); }
    /// ```
    pub fn locks(&self) -> impl Iterator<Item = &crate::Lock> {
        self.guard().locks()
    }

    /// Checks that the lock can be relied on at this moment.
    ///
    /// ```no_run
    /// # fn example(guard: tenure::blocking::Guard) -> Result<(), tenure::Error> {
    /// guard.check()
    /// # }
    /// ```
    pub fn check(&self) -> Result<(), Error> {
        self.guard().check()
    }

    /// Returns a handle that tells other threads when to stop.
    ///
    /// ```no_run
    /// # fn example(guard: tenure::blocking::Guard) { let stop = guard.cancellation(); }
    /// ```
    pub fn cancellation(&self) -> Cancellation {
        self.guard().cancellation()
    }

    /// Turns a shared hold into an exclusive one, as [`Guard::upgrade`](crate::Guard::upgrade) does.
    ///
    /// ```no_run
    /// # fn example(client: tenure::blocking::Client) -> Result<(), tenure::Error> {
    /// let reader = client.lock("index").with(|ask| ask.shared()).acquire()?;
    /// let writer = reader.upgrade(std::time::Duration::from_secs(30))?;
    /// writer.release()
    /// # }
    /// ```
    pub fn upgrade(self, wait: Duration) -> Result<Self, StillHeld> {
        let (guard, runtime) = self.into_parts();
        let outcome = runtime.block_on(guard.upgrade(wait));
        outcome
            .map(|guard| Self { guard: Some(guard), runtime: Arc::clone(&runtime) })
            .map_err(|still| Self::still_held(still, runtime))
    }

    /// Turns an exclusive hold into a shared one, as [`Guard::downgrade`](crate::Guard::downgrade) does.
    ///
    /// ```no_run
    /// # fn example(mut guard: tenure::blocking::Guard) -> Result<(), tenure::Error> {
    /// guard.downgrade()
    /// # }
    /// ```
    pub fn downgrade(&mut self) -> Result<(), Error> {
        let guard = self.guard.as_mut().expect("a guard is whole until it is released");
        self.runtime.block_on(guard.downgrade())
    }

    /// Gives the hold to the client of another lease that waits for the lock, as
    /// [`Guard::hand_on`](crate::Guard::hand_on) does. The caller must have stopped its work.
    ///
    /// ```no_run
    /// # fn stop_work() {}
    /// # fn example(guard: tenure::blocking::Guard, successor: tenure::LeaseId) -> Result<(), tenure::Error> {
    /// stop_work();
    /// guard.hand_on(successor)?;
    /// # Ok(()) }
    /// ```
    pub fn hand_on(self, to: LeaseId) -> Result<Token, StillHeld> {
        let (guard, runtime) = self.into_parts();
        let outcome = runtime.block_on(guard.hand_on(to));
        outcome.map_err(|still| Self::still_held(still, runtime))
    }

    /// Reports how far the work has come, as [`Guard::progress`](crate::Guard::progress) does.
    ///
    /// ```no_run
    /// # fn example(guard: tenure::blocking::Guard) -> Result<(), tenure::Error> {
    /// for chunk in 1..=1_000 {
    ///     // copy the chunk
    ///     guard.progress(chunk)?;
    /// }
    /// # Ok(()) }
    /// ```
    pub fn progress(&self, number: u64) -> Result<Option<Duration>, Error> {
        self.runtime.block_on(self.guard().progress(number))
    }

    /// Takes the guard out, so that dropping `self` releases nothing.
    fn into_parts(mut self) -> (crate::Guard, Arc<Runtime>) {
        let guard = self.guard.take().expect("a guard is whole until it is released");
        (guard, Arc::clone(&self.runtime))
    }

    fn still_held(still: crate::StillHeld, runtime: Arc<Runtime>) -> StillHeld {
        let guard = still.guard.map(|guard| Self { guard: Some(guard), runtime });
        StillHeld { guard, error: still.error }
    }

    /// Releases the lock. The caller must have stopped its work.
    ///
    /// ```no_run
    /// # fn example(guard: tenure::blocking::Guard) -> Result<(), tenure::Error> {
    /// guard.release()
    /// # }
    /// ```
    pub fn release(mut self) -> Result<(), Error> {
        let guard = self.guard.take().expect("a guard is released once");
        self.runtime.block_on(guard.release())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(guard) = self.guard.take() {
            // Wait, so that the runtime does not end before the release is sent. Wait on a channel, because this may
            // run on a thread of another runtime, where `block_on` panics.
            let (done, released) = std::sync::mpsc::channel();
            self.runtime.spawn(async move {
                let outcome = guard.release().await;
                // An error means that the dropping thread no longer waits; the lock is released all the same.
                let _ = done.send(outcome.is_ok());
            });
            if released.recv_timeout(RELEASE).is_err() {
                tracing::debug!("a lock is still being given back");
            }
        }
    }
}
