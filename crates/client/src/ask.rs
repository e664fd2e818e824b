//! What can be said when asking for a lock?

use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tenure_types::Mode;
use tenure_wire::{convert, v1};
use tracing::Instrument;

use crate::error::Error;
use crate::fence::{self, Fence};
use crate::guard::Guard;
use crate::lease::Held;
use crate::shared::Shared;
use crate::wait;

/// How long somebody is willing to queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wait {
    No,
    For(Duration),
    Unlimited,
}

/// Everything about an ask but the lease.
#[derive(Clone)]
pub(crate) struct Ask {
    pub(crate) locks: Vec<String>,
    pub(crate) mode: Mode,
    pub(crate) wait: Wait,
    pub(crate) lock_delay: Duration,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) metadata: Bytes,
    pub(crate) election: bool,
    pub(crate) independent: bool,
    pub(crate) ttl: Option<Duration>,
    pub(crate) window: Option<Duration>,
    pub(crate) grace: Option<Duration>,
    pub(crate) on_queued: Option<Arc<dyn Fn(u64) + Send + Sync>>,
}

/// Under which lease.
enum Under {
    Existing(Arc<Held>),
    Own(Arc<Shared>),
}

/// An ask for a lock. Awaiting it waits for its turn and gives the guard.
///
/// ```no_run
/// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
/// use std::time::Duration;
/// let guard = client.lock("report").ttl(Duration::from_secs(30)).wait(Duration::from_secs(60)).await?;
/// # guard.release().await }
/// ```
#[must_use = "nothing is asked for until this is awaited"]
pub struct LockAsk {
    under: Under,
    /// Apart: it is moved about a lot.
    pub(crate) ask: Box<Ask>,
    pub(crate) fence: Option<Arc<dyn Fence>>,
}

impl Ask {
    pub(crate) fn new(locks: Vec<String>) -> Self {
        Self {
            locks,
            mode: Mode::Exclusive,
            wait: Wait::Unlimited,
            lock_delay: Duration::ZERO,
            max_hold: None,
            metadata: Bytes::new(),
            election: false,
            independent: false,
            ttl: None,
            window: None,
            grace: None,
            on_queued: None,
        }
    }

    /// As it is sent, without the lease.
    pub(crate) fn request(&self, wait_ms: Option<u64>) -> v1::AcquireRequest {
        let (mode, slots) = convert::mode(self.mode);
        let mut request = v1::AcquireRequest {
            wait_ms,
            metadata: self.metadata.clone(),
            lock_delay_ms: millis(self.lock_delay),
            max_hold_ms: self.max_hold.map(millis),
            election: self.election,
            independent: self.independent,
            ..Default::default()
        };
        if let [only] = &self.locks[..] {
            request.lock.clone_from(only);
            (request.mode, request.slots) = (mode.into(), slots);
        } else {
            let ask = |lock: &String| v1::LockAsk { lock: lock.clone(), mode: mode.into(), slots };
            request.locks = self.locks.iter().map(ask).collect();
        }
        request
    }

    /// The wait as it is sent at first.
    pub(crate) fn wait_ms(&self) -> Option<u64> {
        match self.wait {
            Wait::No => Some(0),
            Wait::For(time) => Some(millis(time)),
            Wait::Unlimited => None,
        }
    }
}

impl LockAsk {
    pub(crate) fn on(held: Arc<Held>, locks: Vec<String>) -> Self {
        Self { under: Under::Existing(held), ask: Box::new(Ask::new(locks)), fence: None }
    }

    pub(crate) fn own(shared: Arc<Shared>, locks: Vec<String>) -> Self {
        Self { under: Under::Own(shared), ask: Box::new(Ask::new(locks)), fence: None }
    }

    /// Together with other shared holders, never with an exclusive one.
    ///
    /// ```no_run
    /// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
    /// let reader = client.lock("cache").shared().await?;
    /// # Ok(()) }
    /// ```
    pub fn shared(mut self) -> Self {
        self.ask.mode = Mode::Shared;
        self
    }

    /// One of so many numbered slots.
    ///
    /// ```no_run
    /// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
    /// let permit = client.lock("workers").slots(8).await?;
    /// println!("slot {:?}", permit.slot());
    /// # Ok(()) }
    /// ```
    pub fn slots(mut self, of: u32) -> Self {
        self.ask.mode = Mode::Slot { of };
        self
    }

    /// Queues at most so long.
    ///
    /// ```no_run
    /// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
    /// let guard = client.lock("deploy").wait(std::time::Duration::from_secs(5)).await?;
    /// # Ok(()) }
    /// ```
    pub fn wait(mut self, time: Duration) -> Self {
        self.ask.wait = if time.is_zero() { Wait::No } else { Wait::For(time) };
        self
    }

    /// Does not queue: now or not at all.
    ///
    /// ```no_run
    /// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
    /// use tenure::{Error, Refusal};
    /// match client.lock("deploy").no_wait().await {
    ///     Ok(guard) => guard.release().await?,
    ///     Err(Error::Refused(Refusal::Held(held))) => println!("{held}"),
    ///     Err(other) => return Err(other),
    /// }
    /// # Ok(()) }
    /// ```
    pub fn no_wait(mut self) -> Self {
        self.ask.wait = Wait::No;
        self
    }

    /// Nobody may have the lock for so long after an end that its holder did not ask for.
    ///
    /// ```no_run
    /// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
    /// let guard = client.lock("printer").lock_delay(std::time::Duration::from_secs(30)).await?;
    /// # Ok(()) }
    /// ```
    pub fn lock_delay(mut self, time: Duration) -> Self {
        self.ask.lock_delay = time;
        self
    }

    /// Holds it no longer than this; more than the ttl.
    ///
    /// ```no_run
    /// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
    /// let guard = client.lock("nightly").max_hold(std::time::Duration::from_secs(3_600)).await?;
    /// # Ok(()) }
    /// ```
    pub fn max_hold(mut self, time: Duration) -> Self {
        self.ask.max_hold = Some(time);
        self
    }

    /// What the grant carries for others to see.
    ///
    /// ```no_run
    /// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
    /// let guard = client.lock("deploy").metadata("release 5.2").await?;
    /// # Ok(()) }
    /// ```
    pub fn metadata(mut self, metadata: impl Into<Bytes>) -> Self {
        self.ask.metadata = metadata.into();
        self
    }

    /// The lease's other tasks go on while this one waits, so this wait closes no ring.
    ///
    /// ```no_run
    /// # async fn example(lease: tenure::Lease) -> Result<(), tenure::Error> {
    /// let guard = lease.lock("b").independent().await?;
    /// # Ok(()) }
    /// ```
    pub fn independent(mut self) -> Self {
        self.ask.independent = true;
        self
    }

    /// The ttl of the lease that the lock is given; without effect under an existing lease.
    ///
    /// ```no_run
    /// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
    /// let guard = client.lock("deploy").ttl(std::time::Duration::from_secs(30)).await?;
    /// # Ok(()) }
    /// ```
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ask.ttl = Some(ttl);
        self
    }

    /// Declares how long the work takes to stop; refused if that does not fit the ttl.
    ///
    /// ```no_run
    /// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
    /// let guard = client.lock("deploy").grace(std::time::Duration::from_secs(5)).await?;
    /// # Ok(()) }
    /// ```
    pub fn grace(mut self, grace: Duration) -> Self {
        self.ask.grace = Some(grace);
        self
    }

    /// Relies on the lease for another time than half of its ttl after a renewal.
    ///
    /// ```no_run
    /// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
    /// let guard = client.lock("deploy").window(std::time::Duration::from_secs(10)).await?;
    /// # Ok(()) }
    /// ```
    pub fn window(mut self, window: Duration) -> Self {
        self.ask.window = Some(window);
        self
    }

    /// Is told how many are ahead when the ask has to queue; again after a reconnect.
    ///
    /// ```no_run
    /// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
    /// let guard = client.lock("deploy").on_queued(|ahead| println!("{ahead} ahead")).await?;
    /// # Ok(()) }
    /// ```
    pub fn on_queued(mut self, tell: impl Fn(u64) + Send + Sync + 'static) -> Self {
        self.ask.on_queued = Some(Arc::new(tell));
        self
    }

    async fn acquire(self) -> Result<Guard, Error> {
        let acquired = match self.under {
            Under::Existing(held) => wait::under(held, self.ask).await,
            // Apart: it is the longer of the two, and nobody shall carry both.
            Under::Own(shared) => Box::pin(wait::own(shared, *self.ask)).await,
        };
        match &acquired {
            Ok(guard) => tracing::debug!(token = %guard.token(), "acquired"),
            Err(error) => tracing::debug!(%error, "not acquired"),
        }
        match self.fence {
            Some(it) => Box::pin(fence::fenced(acquired?, &*it)).await,
            None => acquired,
        }
    }
}

impl IntoFuture for LockAsk {
    type Output = Result<Guard, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        let span = tracing::debug_span!("lock", locks = ?self.ask.locks);
        // Nobody carries what nobody looks at.
        if span.is_disabled() {
            Box::pin(self.acquire())
        } else {
            Box::pin(self.acquire().instrument(span))
        }
    }
}

pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
