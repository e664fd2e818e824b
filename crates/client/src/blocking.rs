//! How does a program without a runtime hold a lock?
//!
//! The same client with a runtime of its own: its tasks run on a thread beside the caller's.
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

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use crate::ask::LockAsk;
use crate::{Cancellation, Error, Token};

/// How long a dropped guard waits until its lock is given back.
const RELEASE: Duration = Duration::from_secs(1);

/// A client whose calls block.
///
/// ```no_run
/// let client = tenure::blocking::Client::connect("127.0.0.1:7450")?;
/// # Ok::<(), tenure::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Client {
    // Dropped before the runtime that its tasks run on.
    client: crate::Client,
    runtime: Arc<Runtime>,
}

/// An ask for a lock.
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

/// A held lock. Dropping it gives the lock back.
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

impl Client {
    /// Connects to the cluster that `TENURE_ADDR` names, else to one on this machine.
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

    /// Connects as a builder says.
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

    /// Asks for a lock on a lease of its own.
    ///
    /// ```no_run
    /// # fn example(client: tenure::blocking::Client) -> Result<(), tenure::Error> {
    /// let guard = client.lock("deploy").acquire()?;
    /// # Ok(()) }
    /// ```
    pub fn lock(&self, lock: impl Into<String>) -> Ask {
        Ask { ask: self.client.lock(lock), runtime: self.runtime.clone() }
    }

    /// Runs anything of the other client to its end.
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
    /// Says more about the ask.
    ///
    /// ```no_run
    /// # fn example(client: tenure::blocking::Client) -> Result<(), tenure::Error> {
    /// let guard = client.lock("cache").with(|ask| ask.shared()).acquire()?;
    /// # Ok(()) }
    /// ```
    pub fn with(self, say: impl FnOnce(LockAsk) -> LockAsk) -> Self {
        Self { ask: say(self.ask), runtime: self.runtime }
    }

    /// Waits for the lock.
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

    /// The fencing token.
    ///
    /// ```no_run
    /// # fn example(guard: tenure::blocking::Guard) { println!("{}", guard.token()); }
    /// ```
    pub fn token(&self) -> Token {
        self.guard().token()
    }

    /// Whether the lock can be relied on at this moment.
    ///
    /// ```no_run
    /// # fn example(guard: tenure::blocking::Guard) -> Result<(), tenure::Error> {
    /// guard.check()
    /// # }
    /// ```
    pub fn check(&self) -> Result<(), Error> {
        self.guard().check()
    }

    /// Tells other threads when to stop.
    ///
    /// ```no_run
    /// # fn example(guard: tenure::blocking::Guard) { let stop = guard.cancellation(); }
    /// ```
    pub fn cancellation(&self) -> Cancellation {
        self.guard().cancellation()
    }

    /// Gives the lock back. The work has stopped.
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
            // Waited for, so that the runtime does not end before the lock is given back; on a channel, because this
            // may be called from a thread of somebody's runtime.
            let (done, released) = std::sync::mpsc::channel();
            self.runtime.spawn(async move {
                let outcome = guard.release().await;
                // Nobody waits any longer: it was released all the same.
                let _ = done.send(outcome.is_ok());
            });
            if released.recv_timeout(RELEASE).is_err() {
                tracing::debug!("a lock is still being given back");
            }
        }
    }
}
