//! Tells work that cannot be dropped when to stop.

use std::fmt;
use std::sync::Arc;

use crate::lease_state::Lost;
use crate::signal::Signal;

/// Tells work that polls for cancellation when to stop. Cheap to clone and to send to threads.
///
/// ```no_run
/// # fn example(guard: tenure::Guard) {
/// let stop = guard.cancellation();
/// std::thread::spawn(move || while !stop.is_cancelled() { /* a bit of work */ });
/// # }
/// ```
#[derive(Clone)]
pub struct Cancellation {
    lost: Arc<Signal>,
}

impl Cancellation {
    pub(crate) fn of(lost: Arc<Signal>) -> Self {
        Self { lost }
    }

    /// Whether the work must stop.
    ///
    /// ```no_run
    /// # fn example(stop: tenure::Cancellation) {
    /// if stop.is_cancelled() { return; }
    /// # }
    /// ```
    pub fn is_cancelled(&self) -> bool {
        self.lost.fired().is_some()
    }

    /// Waits until the work must stop, and returns why. Never returns if the lock is released before that.
    ///
    /// ```no_run
    /// # async fn example(stop: tenure::Cancellation) {
    /// println!("stopping: {}", stop.cancelled().await);
    /// # }
    /// ```
    pub async fn cancelled(&self) -> Lost {
        self.lost.wait().await
    }

    /// Calls `call` when the work must stop, and at once if that is already so. The client calls it from the thread
    /// that notices the loss, which may be the watchdog: the call must be quick and must not block. Never calls it if
    /// the lock is released before.
    ///
    /// ```no_run
    /// # fn example(guard: tenure::Guard, connection: std::net::TcpStream) {
    /// guard.cancellation().on_cancelled(move |_| drop(connection.shutdown(std::net::Shutdown::Both)));
    /// # }
    /// ```
    pub fn on_cancelled(&self, call: impl FnOnce(&Lost) + Send + 'static) {
        self.lost.on_fire(Box::new(call));
    }

    /// Returns a [`CancellationToken`](tokio_util::sync::CancellationToken) that is cancelled when the work must stop,
    /// for code that takes one. The watchdog cancels it, so that also happens while the runtime is blocked. Cancelling
    /// the token does not release the lock.
    ///
    /// ```no_run
    /// # async fn serve(stop: tokio_util::sync::CancellationToken) {}
    /// # async fn example(guard: tenure::Guard) {
    /// serve(guard.cancellation().token()).await;
    /// # }
    /// ```
    #[cfg(feature = "cancellation-token")]
    pub fn token(&self) -> tokio_util::sync::CancellationToken {
        let token = tokio_util::sync::CancellationToken::new();
        let cancelled = token.clone();
        self.on_cancelled(move |_| cancelled.cancel());
        token
    }
}

impl fmt::Debug for Cancellation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cancellation").field("cancelled", &self.is_cancelled()).finish()
    }
}
