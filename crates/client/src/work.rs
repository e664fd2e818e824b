//! Runs work under a lock, and never reports success for work that outlived it.

use std::fmt;
use std::panic::resume_unwind;
use std::pin::{Pin, pin};
use std::sync::{Mutex, PoisonError};
use std::task::Poll;

use crate::ask::LockAsk;
use crate::client::Client;
use crate::error::Error;
use crate::guard::Guard;
use crate::lease_state::Lost;

/// The lock was lost before its work was done. If the work returned something all the same, that is in here.
///
/// Becomes [`Error::Lost`] with `?`.
///
/// ```no_run
/// # async fn copy() -> u32 { 7 }
/// # async fn example(guard: tenure::Guard) {
/// match guard.run(copy()).await {
///     Ok(rows) => println!("{rows} rows"),
///     Err(lost) => {
///         println!("{}", lost.lost());
///         if let Some(rows) = lost.into_output() { println!("{rows} rows, and some of them too late"); }
///     }
/// }
/// # }
/// ```
pub struct LostWork<T> {
    lost: Lost,
    /// In a mutex, so that the error is `Sync` whatever the output is: it fits into `anyhow` and boxed errors.
    output: Mutex<Option<T>>,
}

impl<T> LostWork<T> {
    fn new(lost: Lost, output: Option<T>) -> Self {
        Self { lost, output: Mutex::new(output) }
    }

    /// For handles over other stores.
    #[cfg(feature = "internals")]
    #[doc(hidden)]
    pub fn of(lost: Lost, output: Option<T>) -> Self {
        Self::new(lost, output)
    }

    /// Returns why the lock was lost.
    ///
    /// ```no_run
    /// # fn example(lost: tenure::LostWork<u32>) { println!("{}", lost.lost()); }
    /// ```
    pub fn lost(&self) -> &Lost {
        &self.lost
    }

    /// Returns what the work returned after the lock was lost; `None` if the client stopped the work. Part of the work
    /// may have been done at the same time as that of the next holder.
    ///
    /// ```no_run
    /// # fn example(lost: tenure::LostWork<u32>) { let rows = lost.into_output(); }
    /// ```
    pub fn into_output(self) -> Option<T> {
        self.output.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> From<LostWork<T>> for Error {
    fn from(work: LostWork<T>) -> Self {
        Self::Lost(work.lost)
    }
}

impl<T> std::error::Error for LostWork<T> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.lost)
    }
}

impl<T> fmt::Display for LostWork<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lost: {}", self.lost)
    }
}

impl<T> fmt::Debug for LostWork<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LostWork").field("lost", &self.lost).finish_non_exhaustive()
    }
}

impl Guard {
    /// Runs work, drops it at its current await if the lock is lost, and never polls it after that. Work that returns
    /// after the lock was lost is answered with the loss, too; its output is in the error.
    ///
    /// Dropping the work stops only the work itself. Threads and tasks that it started continue: for blocking work use
    /// [`run_blocking`](Self::run_blocking), and give other tasks a guard of their own ([`reenter`](Self::reenter)), so
    /// that the lock is not released before they end.
    ///
    /// ```no_run
    /// # async fn build() -> u32 { 7 }
    /// # async fn example(guard: tenure::Guard) -> Result<(), tenure::Error> {
    /// let pages = guard.run(build()).await?;
    /// # Ok(()) }
    /// ```
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, LostWork<F::Output>> {
        let mut cancelled = pin!(self.lost());
        let mut work: Pin<Box<F>> = Box::pin(work);
        // Read the clock before every poll of the work, so that no step runs on an old check after a pause, and after
        // the last one: it may have taken longer than the lease.
        let done = std::future::poll_fn(|context| {
            if let Poll::Ready(lost) = cancelled.as_mut().poll(context) {
                return Poll::Ready(Err(LostWork::new(lost, None)));
            }
            if let Err(lost) = self.checked() {
                return Poll::Ready(Err(LostWork::new(lost, None)));
            }
            work.as_mut().poll(context).map(|output| self.in_time(output))
        });
        let done = done.await;
        drop(work);
        done
    }

    /// Runs work that blocks, on a thread for blocking work, and waits until it has returned, also if the lock is lost
    /// meanwhile. The work must check: [`Guard::check`] before each step, or the guard's
    /// [`cancellation`](Guard::cancellation).
    ///
    /// The work has a guard of its own, so the lock is not released before the work returns, even if the caller stops
    /// waiting or drops its own guard. Work that returns after the lock was lost is answered with the loss; its output
    /// is in the error.
    ///
    /// ```no_run
    /// # fn write(row: u32) {}
    /// # async fn example(guard: tenure::Guard, rows: Vec<u32>) -> Result<(), tenure::Error> {
    /// let written = guard.run_blocking(|guard| {
    ///     for row in rows {
    ///         guard.check()?;
    ///         write(row);
    ///     }
    ///     Ok::<_, tenure::Error>(())
    /// });
    /// written.await??;
    /// # Ok(()) }
    /// ```
    ///
    /// # Panics
    ///
    /// If the work panics, or the client's runtime ends before the work starts.
    pub async fn run_blocking<T, W>(&self, work: W) -> Result<T, LostWork<T>>
    where
        T: Send + 'static,
        W: FnOnce(&Guard) -> T + Send + 'static,
    {
        self.checked().map_err(|lost| LostWork::new(lost, None))?;
        let guard = self.another();
        let working = self.held().shared.runtime.spawn_blocking(move || {
            let output = work(&guard);
            guard.in_time(output)
        });
        match working.await.map_err(tokio::task::JoinError::try_into_panic) {
            Ok(done) => done,
            Err(Ok(panic)) => resume_unwind(panic),
            Err(Err(_)) => panic!("the runtime of the client ended before the work started"),
        }
    }

    /// Returns the output of work that has just ended, if the lock was held until then.
    fn in_time<T>(&self, output: T) -> Result<T, LostWork<T>> {
        match self.checked() {
            Ok(()) => Ok(output),
            Err(lost) => Err(LostWork::new(lost, Some(output))),
        }
    }

    /// Releases the lock after its work. A loss that the release reports counts, because the work may have outlived
    /// the lock; any other failure of the release does not undo the work.
    async fn end<T, E: From<Error>>(self, done: Result<Result<T, E>, Error>) -> Result<T, E> {
        let name = self.name().to_owned();
        let released = self.release().await;
        let output = done?;
        match released {
            Ok(()) => output,
            Err(Error::Lost(lost)) => Err(Error::Lost(lost).into()),
            Err(error) => {
                tracing::warn!(lock = name, %error, "cannot release the lock; its lease runs out");
                output
            }
        }
    }
}

impl LockAsk {
    /// Waits for the lock, runs the work, and releases the lock, like [`Client::run`].
    ///
    /// ```no_run
    /// # async fn migrate(token: tenure::Token) -> Result<(), tenure::Error> { Ok(()) }
    /// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
    /// use std::time::Duration;
    /// let lock = client.lock("deploy").wait(Duration::from_secs(60));
    /// lock.run(async |guard| migrate(guard.token()).await).await?;
    /// # Ok(()) }
    /// ```
    pub async fn run<T, E, F>(self, work: F) -> Result<T, E>
    where
        F: AsyncFnOnce(&Guard) -> Result<T, E>,
        E: From<Error>,
    {
        let guard = self.await?;
        let done = guard.run(work(&guard)).await.map_err(Error::from);
        guard.end(done).await
    }

    /// Does the same in generic code that needs a `Send` future. The work has a guard of its own; the lock is released
    /// when that one is gone, too.
    ///
    /// ```no_run
    /// # async fn migrate(token: tenure::Token) -> Result<(), tenure::Error> { Ok(()) }
    /// # fn example(client: tenure::Client) {
    /// tokio::spawn(client.lock("deploy").run_send(|guard| async move { migrate(guard.token()).await }));
    /// # }
    /// ```
    #[expect(clippy::manual_async_fn, reason = "the bound on the future is the point")]
    pub fn run_send<T, E, F, W>(self, work: F) -> impl Future<Output = Result<T, E>> + Send
    where
        F: FnOnce(Guard) -> W + Send,
        W: Future<Output = Result<T, E>> + Send,
        T: Send,
        E: From<Error> + Send,
    {
        async move {
            let guard = self.await?;
            let done = guard.run(work(guard.another())).await.map_err(Error::from);
            guard.end(done).await
        }
    }

    /// Waits for the lock, runs work that blocks, and releases the lock once the work has returned; see
    /// [`Guard::run_blocking`].
    ///
    /// ```no_run
    /// # fn migrate(guard: &tenure::Guard) -> Result<(), tenure::Error> { Ok(()) }
    /// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
    /// client.lock("deploy").run_blocking(migrate).await?;
    /// # Ok(()) }
    /// ```
    pub async fn run_blocking<T, E, W>(self, work: W) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<Error> + Send + 'static,
        W: FnOnce(&Guard) -> Result<T, E> + Send + 'static,
    {
        let guard = self.await?;
        let done = guard.run_blocking(work).await.map_err(Error::from);
        guard.end(done).await
    }
}

impl Client {
    /// Waits for a lock, runs the work, and releases the lock. If the lock is lost, the client drops the work at its
    /// current await and returns [`Error::Lost`]; it does the same if the work ends after the lock was lost. `Ok` means
    /// that the lock was held until the work had ended.
    ///
    /// Errors of the client become errors of the work. To keep what late work returned, hold the guard:
    /// [`Guard::run`]. For work that blocks, use [`LockAsk::run_blocking`].
    ///
    /// ```no_run
    /// # async fn migrate(token: tenure::Token) -> Result<u32, std::io::Error> { Ok(0) }
    /// # async fn example(client: tenure::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let rows = client.run("deploy", async |guard| -> Result<u32, Box<dyn std::error::Error>> {
    ///     Ok(migrate(guard.token()).await?)
    /// });
    /// println!("{} rows", rows.await?);
    /// # Ok(()) }
    /// ```
    pub async fn run<T, E, F>(&self, lock: impl Into<String>, work: F) -> Result<T, E>
    where
        F: AsyncFnOnce(&Guard) -> Result<T, E>,
        E: From<Error>,
    {
        self.lock(lock).run(work).await
    }
}
