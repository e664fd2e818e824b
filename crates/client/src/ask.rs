//! Builds lock requests: mode, wait, ttl and the other options of an acquire.

use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tenure_types::{Mode, Name, Refusal};
use tenure_wire::{Failure, convert, v1};
use tokio::time::Instant;
use tracing::Instrument;

use crate::error::Error;
use crate::fence::{self, Fence};
use crate::guard::Guard;
use crate::held_lease::HeldLease;
use crate::shared::ClientShared;
use crate::wait;

/// How long a request is willing to queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WaitLimit {
    No,
    For(Duration),
    Unlimited,
}

/// All options of a lock request except its lease.
#[derive(Clone)]
pub(crate) struct AcquireOptions {
    pub(crate) locks: Vec<String>,
    /// Whether one of them is enough.
    pub(crate) any: bool,
    /// Whether the lock is the prefix of a pool.
    pub(crate) pool: bool,
    pub(crate) mode: Mode,
    pub(crate) take: u32,
    pub(crate) wait: WaitLimit,
    pub(crate) timeout: Option<Duration>,
    pub(crate) lock_delay: Duration,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) min_hold: Duration,
    pub(crate) supersede: Option<String>,
    pub(crate) priority: u8,
    pub(crate) progress_within: Duration,
    pub(crate) metadata: Bytes,
    pub(crate) election: bool,
    pub(crate) independent: bool,
    /// Whether this turns the shared hold of the lease into an exclusive one.
    pub(crate) upgrade: bool,
    pub(crate) ttl: Option<Duration>,
    pub(crate) window: Option<Duration>,
    pub(crate) grace: Option<Duration>,
    pub(crate) on_queued: Option<Arc<dyn Fn(u64) + Send + Sync>>,
}

/// The lease that a request acquires under: an existing one, or a new one of its own.
enum LeaseChoice {
    Existing(Arc<HeldLease>),
    Own(Arc<ClientShared>),
}

/// A request for a lock. Awaiting it waits in the queue and returns the guard.
///
/// ```no_run
/// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
/// use std::time::Duration;
/// let guard = client.lock("report").ttl(Duration::from_secs(30)).wait(Duration::from_secs(60)).await?;
/// # guard.release().await }
/// ```
#[must_use = "nothing is asked for until this is awaited"]
pub struct LockAsk {
    under: LeaseChoice,
    /// Boxed, because the builder methods move it often.
    pub(crate) ask: Box<AcquireOptions>,
    pub(crate) fence: Option<Arc<dyn Fence>>,
}

impl AcquireOptions {
    pub(crate) fn new(locks: Vec<String>) -> Self {
        Self {
            locks,
            any: false,
            pool: false,
            mode: Mode::Exclusive,
            take: 1,
            wait: WaitLimit::Unlimited,
            timeout: None,
            lock_delay: Duration::ZERO,
            max_hold: None,
            min_hold: Duration::ZERO,
            supersede: None,
            priority: 0,
            progress_within: Duration::ZERO,
            metadata: Bytes::new(),
            election: false,
            independent: false,
            upgrade: false,
            ttl: None,
            window: None,
            grace: None,
            on_queued: None,
        }
    }

    /// The name of the lock, if it is one.
    pub(crate) fn first(&self) -> Option<&String> {
        self.locks.first()
    }

    /// Refuses a mode for a pool: each slot has its own.
    fn check_pool(&self) -> Result<(), Error> {
        if !self.pool || self.mode == Mode::Exclusive {
            return Ok(());
        }
        let problem = "goes with locks and not with a pool: its slots have their own".to_owned();
        let wrong = Failure::InvalidField { field: "mode", problem };
        Err(Error::Failed { reason: wrong.reason().to_owned(), message: wrong.to_string() })
    }

    /// Builds the wire request without the lease.
    pub(crate) fn request(&self, wait_ms: Option<u64>) -> v1::AcquireRequest {
        let (mode, slots) = convert::mode(self.mode);
        let take = if self.take == 1 { 0 } else { self.take };
        let mut request = v1::AcquireRequest {
            wait_ms,
            metadata: self.metadata.clone(),
            lock_delay_ms: millis(self.lock_delay),
            max_hold_ms: self.max_hold.map(millis),
            min_hold_ms: millis(self.min_hold),
            supersede: self.supersede.clone().unwrap_or_default(),
            priority: self.priority.into(),
            progress_within_ms: millis(self.progress_within),
            election: self.election,
            independent: self.independent,
            upgrade: self.upgrade,
            ..Default::default()
        };
        if self.pool {
            request.pool = self.locks.concat();
            request.take = take;
        } else if let [only] = &self.locks[..] {
            request.lock.clone_from(only);
            (request.mode, request.slots, request.take) = (mode.into(), slots, take);
        } else {
            let mode = mode.into();
            let ask = |lock: &String| v1::LockAsk { lock: lock.clone(), mode, slots, take };
            let several = self.locks.iter().map(ask).collect();
            *if self.any { &mut request.any_of } else { &mut request.locks } = several;
        }
        request
    }
}

impl LockAsk {
    pub(crate) fn on(held: Arc<HeldLease>, locks: Vec<String>) -> Self {
        Self {
            under: LeaseChoice::Existing(held),
            ask: Box::new(AcquireOptions::new(locks)),
            fence: None,
        }
    }

    pub(crate) fn own(shared: Arc<ClientShared>, locks: Vec<String>) -> Self {
        Self {
            under: LeaseChoice::Own(shared),
            ask: Box::new(AcquireOptions::new(locks)),
            fence: None,
        }
    }

    /// Makes one of the locks enough.
    pub(crate) fn any(mut self) -> Self {
        self.ask.any = true;
        self
    }

    /// Makes the lock the prefix of a pool.
    pub(crate) fn of_pool(mut self) -> Self {
        self.ask.pool = true;
        self
    }

    /// Acquires in shared mode: together with other shared holders, never together with an exclusive one. Not for a
    /// [`pool`](crate::Client::pool): the request is then refused with `INVALID_FIELD`.
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

    /// Acquires one of `of` numbered slots of a semaphore. Not for a [`pool`](crate::Client::pool), whose semaphores
    /// have sizes already: the request is then refused with `INVALID_FIELD`.
    ///
    /// ```no_run
    /// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
    /// let permit = client.lock("workers").slots(8).await?;
    /// println!("slot {:?}", permit.slot());
    /// # Ok(()) }
    /// ```
    pub fn slots(mut self, of: u32) -> Self {
        self.ask.mode = Mode::slot(of);
        self
    }

    /// Acquires this many [`slots`](Self::slots) of the semaphore, all at once or none. Each slot is one of the guard's
    /// [`locks`](Guard::locks), with a token of its own. No request passes one that waits for more slots than are
    /// free. Zero counts as one. More than one needs feature level 11.
    ///
    /// ```no_run
    /// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
    /// let half = client.lock("gpus").slots(8).take(4).await?;
    /// for gpu in half.locks() { println!("slot {:?} under token {}", gpu.slot, gpu.token); }
    /// # Ok(()) }
    /// ```
    pub fn take(mut self, slots: u32) -> Self {
        self.ask.take = slots.max(1);
        self
    }

    /// Queues for at most `time`, and returns then even if no member answers: [`Refusal::WaitTimeout`] if the request
    /// was queued, [`Error::Unknown`] or [`Error::Unavailable`] if no member has answered.
    ///
    /// ```no_run
    /// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
    /// let guard = client.lock("deploy").wait(std::time::Duration::from_secs(5)).await?;
    /// # Ok(()) }
    /// ```
    pub fn wait(mut self, time: Duration) -> Self {
        self.ask.wait = if time.is_zero() { WaitLimit::No } else { WaitLimit::For(time) };
        self
    }

    /// Does not queue: the lock is granted at once, or the request is refused. If no member can be connected to,
    /// returns at once; if none answers, after three seconds, or after the [`timeout`](Self::timeout).
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
        self.ask.wait = WaitLimit::No;
        self
    }

    /// Bounds the whole request: finding a member, queueing, and raising a [`fence`](Self::fence). The client returns
    /// then even if no member answers, and gives back what may have been granted in the background.
    ///
    /// ```no_run
    /// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
    /// let guard = client.lock("deploy").no_wait().timeout(std::time::Duration::from_millis(500)).await?;
    /// # Ok(()) }
    /// ```
    pub fn timeout(mut self, time: Duration) -> Self {
        self.ask.timeout = Some(time);
        self
    }

    /// Does not queue, and returns `None` if another client holds the lock.
    ///
    /// ```no_run
    /// # async fn example(lease: tenure::Lease) -> Result<(), tenure::Error> {
    /// let Some(reader) = lease.lock("cache").shared().try_acquire().await? else { return Ok(()) };
    /// # reader.release().await }
    /// ```
    pub async fn try_acquire(self) -> Result<Option<Guard>, Error> {
        match self.no_wait().await {
            Ok(guard) => Ok(Some(guard)),
            Err(Error::Refused(Refusal::Held(_))) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Withholds the lock from other clients for this long after a hold that its holder did not end itself.
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

    /// Limits the hold to `time`, which must be longer than the ttl. The cluster then takes the lock away.
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

    /// Withholds the lock from all clients until this time has passed since the grant, even if it is released earlier:
    /// for work that must not run twice within a period. The period counts starts, whether or not the work succeeds.
    ///
    /// A job that a timer starts once per hour takes somewhat less than an hour, so that a timer that is a little early
    /// does not skip one: `tenure run --once-per 1h` takes nine tenths.
    ///
    /// ```no_run
    /// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
    /// use std::time::Duration;
    /// let ask = client.lock("report").min_hold(Duration::from_secs(54 * 60));
    /// let Some(guard) = ask.try_acquire().await? else { return Ok(()) };
    /// # guard.release().await }
    /// ```
    pub fn min_hold(mut self, time: Duration) -> Self {
        self.ask.min_hold = time;
        self
    }

    /// Replaces the older requests of this group that wait for the same lock, if this one has to wait: for work of
    /// which only the newest matters, such as deploys. The older ones end with [`Refusal::Superseded`], which names
    /// this client. A holder is never replaced. Groups of different principals are different, and this request joins
    /// the queue at its end.
    ///
    /// ```no_run
    /// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
    /// let guard = client.lock("deploy/web").supersede("main").await?;
    /// # guard.release().await }
    /// ```
    pub fn supersede(mut self, group: impl Into<String>) -> Self {
        self.ask.supersede = Some(group.into());
        self
    }

    /// Makes the request more urgent, from 0 (the default) to 9: it stands in the queue as if it had asked 30 seconds
    /// earlier for each step. So it passes only requests that asked within that time before it, and no request waits
    /// for ever. A request that does not wait passes no other. Where identity is enabled, the caller needs the verb
    /// `force` for the lock. Needs feature level 8.
    ///
    /// ```no_run
    /// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
    /// let guard = client.lock("deploy/web").priority(5).await?;
    /// # guard.release().await }
    /// ```
    pub fn priority(mut self, priority: u8) -> Self {
        self.ask.priority = priority;
        self
    }

    /// Promises progress: after the grant, and after each report, a larger number follows within this time, reported
    /// with [`Guard::progress`](crate::Guard::progress). A holder that is alive but stuck loses the lock with the cause
    /// [`Cause::NoProgress`](crate::Cause::NoProgress): it is told to stop, and the lock is granted again once it has
    /// confirmed that, at the latest when its lease would have ended. Needs feature level 9.
    ///
    /// ```no_run
    /// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
    /// let guard = client.lock("copy").progress_within(std::time::Duration::from_secs(300)).await?;
    /// guard.progress(1).await?;
    /// # guard.release().await }
    /// ```
    pub fn progress_within(mut self, time: Duration) -> Self {
        self.ask.progress_within = time;
        self
    }

    /// Attaches metadata to the grant, which other clients can read.
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

    /// Declares that other tasks of the lease continue while this one waits, so that deadlock detection ignores this
    /// wait.
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

    /// Sets the ttl of the lease that is created for the lock. Has no effect under an existing lease.
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

    /// Declares how long the work takes to stop. The request fails if that does not fit the ttl.
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

    /// Sets how long the lease is relied on after a renewal. The default is half of its ttl.
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

    /// Calls `tell` with the number of waiters ahead when the request has to queue, and again after a reconnect.
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
        let shared = match &self.under {
            LeaseChoice::Existing(held) => &held.shared,
            LeaseChoice::Own(shared) => shared,
        };
        if shared.cleanups.is_closing() {
            return Err(Error::Closed);
        }
        if self.ask.locks.iter().any(|lock| Name::check(lock).is_err()) {
            return Err(Error::Refused(Refusal::InvalidName));
        }
        self.ask.check_pool()?;
        let until = self.ask.timeout.map(|time| Instant::now() + time.min(wait::FAR));
        let acquired = match self.under {
            LeaseChoice::Existing(held) => wait::under(held, self.ask).await,
            // Boxed, because it is the larger of the two futures, and the caller's future does not have to contain
            // both.
            LeaseChoice::Own(shared) => Box::pin(wait::own(shared, *self.ask)).await,
        };
        match &acquired {
            Ok(guard) => tracing::debug!(token = %guard.token(), "acquired"),
            Err(error) => tracing::debug!(%error, "not acquired"),
        }
        match self.fence {
            Some(it) => Box::pin(fence::fenced(acquired?, &*it, until)).await,
            None => acquired,
        }
    }
}

impl IntoFuture for LockAsk {
    type Output = Result<Guard, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        let span = tracing::debug_span!("lock", locks = ?self.ask.locks);
        // Without a subscriber the span is not attached, which keeps the future small.
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
