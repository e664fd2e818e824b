//! Implements the guard: the value that stands for a held lock, stops work in time and releases the lock.

use std::fmt;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use tenure_types::{LeaseId, Revision, Token};
use tenure_wire::v1;
use tokio::runtime;
use tokio::sync::watch;
use tracing::Instrument;
use v1::answer::Result as Answer;
use v1::request::Command;

use crate::clock;
use crate::error::{Error, strange};
use crate::lease::HeldLease;
use crate::lease_state::{ClockReading, Lost, Moment, Standing};
use crate::local_queue::LocalTurns;
use crate::response_slot::Response;
use crate::shared::SentRequest;
use crate::signal::Signal;

/// One lock of a guard.
///
/// ```no_run
/// # fn example(guard: tenure::Guard) {
/// for lock in guard.locks() { println!("{} under token {}", lock.name, lock.token); }
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Lock {
    /// The lock's name.
    pub name: String,
    /// The fencing token of the grant.
    pub token: Token,
    /// The slot of a semaphore, counted from 0.
    pub slot: Option<u32>,
}

/// A held lock, or several that were requested together.
///
/// While the guard exists, the client renews its lease. Dropping the guard declares that the work has stopped, and
/// releases the lock in the background. A lost lock stays lost: [`check`](Guard::check), [`run`](Guard::run),
/// [`lost`](Guard::lost) and [`cancellation`](Guard::cancellation) report the loss before another client may start.
///
/// ```no_run
/// # async fn build(token: tenure::Token) {}
/// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
/// let guard = client.lock("report").await?;
/// let token = guard.token();
/// guard.run(async move { build(token).await }).await?;   // dropped at its await if the lock is lost
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[must_use = "dropping a guard gives the lock back"]
pub struct Guard {
    /// Shared by guards that were derived by [`reenter`](Guard::reenter).
    inner: Option<Arc<GuardState>>,
    locks: Vec<Lock>,
    lost: Arc<Signal>,
    at: Revision,
}

struct GuardState {
    held: Arc<HeldLease>,
    /// Whether the lease exists for this guard alone.
    own: bool,
    turns: LocalTurns,
}

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

impl Guard {
    /// Creates a guard of what was granted, if the lease can be relied on at this moment.
    pub(crate) fn new(
        held: Arc<HeldLease>,
        own: bool,
        (locks, at): (Vec<Lock>, Revision),
        turns: LocalTurns,
    ) -> Result<Self, Error> {
        // Subscribe before the grant is recorded, so that no loss is missed.
        let lost = Arc::new(Signal::default());
        locks.iter().for_each(|lock| held.listen(lock.token, lost.clone()));
        let now = clock::read();
        let granted = held.with_at(now, |state| {
            locks.iter().try_for_each(|lock| state.granted(&lock.name, lock.token, at, now))
        });
        let inner = Some(Arc::new(GuardState { held, own, turns }));
        let guard = Self { inner, locks, lost, at };
        // Dropping the guard releases every lock; no work has begun.
        granted.map_err(Error::Lost)?;
        Ok(guard)
    }

    fn inner(&self) -> &GuardState {
        self.inner.as_ref().expect("a guard is whole until it is released")
    }

    /// The lease of the guard.
    pub(crate) fn held(&self) -> &Arc<HeldLease> {
        &self.inner().held
    }

    /// Returns a revision at which the lock was held: that of the grant, unless the answer was lost and the client had
    /// to ask again. The lock's history from this revision on has everything that happened to it since.
    ///
    /// ```no_run
    /// # fn example(guard: tenure::Guard) {
    /// println!("tenure history deploy --from {}", guard.revision());
    /// # }
    /// ```
    pub fn revision(&self) -> Revision {
        self.at
    }

    /// Returns the fencing token. Pass it to the resource that the lock protects. For several locks, this is the token
    /// of the first by name.
    ///
    /// ```no_run
    /// # fn example(guard: tenure::Guard) {
    /// println!("token {}", guard.token());
    /// # }
    /// ```
    pub fn token(&self) -> Token {
        self.locks[0].token
    }

    /// Returns the slot of a semaphore, counted from 0.
    ///
    /// ```no_run
    /// # fn example(guard: tenure::Guard) {
    /// assert!(guard.slot().is_none(), "a plain lock has no slots");
    /// # }
    /// ```
    pub fn slot(&self) -> Option<u32> {
        self.locks[0].slot
    }

    /// Returns every lock that the guard stands for, in the order of their names.
    ///
    /// ```no_run
    /// # fn example(guard: tenure::Guard) {
    /// println!("{} locks", guard.locks().count());
    /// # }
    /// ```
    pub fn locks(&self) -> impl Iterator<Item = &Lock> {
        self.locks.iter()
    }

    /// Returns the id of the lease that the lock is held under.
    ///
    /// ```no_run
    /// # fn example(guard: tenure::Guard) {
    /// println!("lease {}", guard.lease());
    /// # }
    /// ```
    pub fn lease(&self) -> LeaseId {
        self.inner().held.id
    }

    /// Checks that the lock can be relied on at this moment. Only compares the clock, sends nothing.
    ///
    /// ```no_run
    /// # fn example(guard: tenure::Guard, rows: Vec<u32>) -> Result<(), tenure::Error> {
    /// for row in rows {
    ///     guard.check()?;
    ///     println!("writing {row} under token {}", guard.token());
    /// }
    /// # Ok(()) }
    /// ```
    pub fn check(&self) -> Result<(), Error> {
        self.checked().map_err(Error::Lost)
    }

    fn checked(&self) -> Result<(), Lost> {
        self.checked_at(clock::read())
    }

    fn checked_at(&self, now: ClockReading) -> Result<(), Lost> {
        let each = |lock: &Lock| {
            self.inner().held.with_at(now, |state| state.check_grant(lock.token, now))
        };
        self.locks.iter().try_for_each(each)
    }

    /// Returns the current standing: valid, doubtful, or lost and why.
    ///
    /// ```no_run
    /// # fn example(guard: tenure::Guard) {
    /// println!("{:?}", guard.standing());
    /// # }
    /// ```
    pub fn standing(&self) -> Standing {
        let now = clock::read();
        match self.checked() {
            Err(lost) => Standing::Lost(lost.cause()),
            Ok(()) => self.inner().held.with(|state| state.standing(now)),
        }
    }

    /// Subscribes to changes of the lease's standing.
    ///
    /// ```no_run
    /// # async fn example(guard: tenure::Guard) {
    /// let mut standings = guard.standings();
    /// while standings.changed().await.is_ok() { println!("{:?}", *standings.borrow_and_update()); }
    /// # }
    /// ```
    pub fn standings(&self) -> watch::Receiver<Standing> {
        self.inner().held.standing()
    }

    /// Subscribes to the instant until which the lock can be relied on if no further renewal is acknowledged. Each
    /// renewal moves it later.
    ///
    /// For a watchdog outside of this process, which must stop the work even if this process no longer runs.
    ///
    /// ```no_run
    /// # async fn example(guard: tenure::Guard) {
    /// let mut until = guard.valid_until();
    /// while until.changed().await.is_ok() { println!("until {:?}", *until.borrow_and_update()); }
    /// # }
    /// ```
    pub fn valid_until(&self) -> watch::Receiver<Moment> {
        self.inner().held.until()
    }

    /// Waits until the lock is lost, and returns why and by whom.
    ///
    /// ```no_run
    /// # async fn example(guard: tenure::Guard) {
    /// println!("lost: {}", guard.lost().await);
    /// # }
    /// ```
    pub async fn lost(&self) -> Lost {
        self.lost.wait().await
    }

    /// Returns a handle that tells work when to stop, for work that cannot be dropped.
    ///
    /// ```no_run
    /// # fn example(guard: tenure::Guard) {
    /// assert!(!guard.cancellation().is_cancelled());
    /// # }
    /// ```
    pub fn cancellation(&self) -> Cancellation {
        Cancellation { lost: self.lost.clone() }
    }

    /// Runs work, drops it at its current await if the lock is lost, and never polls it after that.
    ///
    /// ```no_run
    /// # async fn build() -> u32 { 7 }
    /// # async fn example(guard: tenure::Guard) -> Result<(), tenure::Error> {
    /// let pages = guard.run(build()).await?;
    /// # Ok(()) }
    /// ```
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, Error> {
        let mut cancelled = pin!(self.lost());
        let mut work: Pin<Box<F>> = Box::pin(work);
        // Read the clock before every poll of the work: after a pause, no step may run on an old check.
        let done = std::future::poll_fn(|context| {
            if let Poll::Ready(lost) = cancelled.as_mut().poll(context) {
                return Poll::Ready(Err(lost));
            }
            if let Err(lost) = self.checked() {
                return Poll::Ready(Err(lost));
            }
            work.as_mut().poll(context).map(Ok)
        });
        let done = done.await.map_err(Error::Lost);
        drop(work);
        done
    }

    /// Returns another guard of the same grant, for a callee that takes the lock again, without a request to the
    /// cluster. The client releases the lock when the last of these guards is gone. Reentry is always explicit: a
    /// second [`Lease::lock`](crate::Lease::lock) of a held lock waits, in any task or thread.
    ///
    /// ```no_run
    /// # async fn rename(guard: tenure::Guard) {}
    /// # async fn example(guard: tenure::Guard) -> Result<(), tenure::Error> {
    /// rename(guard.reenter()?).await;      // releases its own; the lock stays held
    /// guard.check()?;
    /// guard.release().await
    /// # }
    /// ```
    pub fn reenter(&self) -> Result<Self, Error> {
        self.check()?;
        let (inner, locks, lost) = (self.inner.clone(), self.locks.clone(), self.lost.clone());
        Ok(Self { inner, locks, lost, at: self.at })
    }

    /// Turns an exclusive hold into a shared one, without a gap. The token changes. While other guards of the same
    /// grant exist, which have the old token, this fails with `GUARD_SHARED`.
    ///
    /// ```no_run
    /// # async fn example(mut guard: tenure::Guard) -> Result<(), tenure::Error> {
    /// guard.downgrade().await?;
    /// # Ok(()) }
    /// ```
    pub async fn downgrade(&mut self) -> Result<(), Error> {
        if self.inner.as_ref().is_some_and(|inner| Arc::strong_count(inner) > 1) {
            return Err(Error::Failed {
                reason: "GUARD_SHARED".to_owned(),
                message: "there are other guards of the same hold".to_owned(),
            });
        }
        let held = self.inner().held.clone();
        for at in 0..self.locks.len() {
            let lock = &self.locks[at];
            let command = Command::Downgrade(v1::DowngradeRequest {
                lock: lock.name.clone(),
                lease_slot: held.handle.slot,
                lease_generation: held.handle.generation,
                token: lock.token.get(),
                ..Default::default()
            });
            let seq = held.seq().await;
            let (answer, revision) = held.shared.call(command, seq.identity()).await?;
            let Answer::Downgraded(it) = answer else { return Err(strange()) };
            let new = Token::from_u64(it.token).ok_or_else(strange)?;
            let old = std::mem::replace(&mut self.locks[at].token, new);
            let revision = tenure_wire::convert::revision_from(revision).unwrap_or(Revision(0));
            held.regranted(old, new, revision);
        }
        Ok(())
    }

    /// Replaces the metadata of the grant, which other clients can read.
    ///
    /// ```no_run
    /// # async fn example(guard: tenure::Guard) -> Result<(), tenure::Error> {
    /// guard.update("release 5.3").await
    /// # }
    /// ```
    pub async fn update(&self, metadata: impl Into<Bytes>) -> Result<(), Error> {
        let (held, lock) = (&self.inner().held, &self.locks[0]);
        let command = Command::Update(v1::UpdateRequest {
            lock: lock.name.clone(),
            lease_slot: held.handle.slot,
            lease_generation: held.handle.generation,
            token: lock.token.get(),
            metadata: metadata.into(),
            ..Default::default()
        });
        let updated = held.numbered(command).await?;
        if matches!(updated, Answer::Updated(_)) { Ok(()) } else { Err(strange()) }
    }

    /// Releases the lock and waits until the cluster has acknowledged it. The caller must have stopped its work. While
    /// other guards of the same grant exist, only this guard ends and the lock stays held.
    ///
    /// ```no_run
    /// # async fn example(guard: tenure::Guard) -> Result<(), tenure::Error> {
    /// guard.release().await
    /// # }
    /// ```
    pub async fn release(mut self) -> Result<(), Error> {
        let now = clock::read();
        let lost = self.checked_at(now);
        let inner = self.inner.take().expect("a guard is released once");
        let done = match Arc::into_inner(inner) {
            Some(last) if lost.is_ok() && !last.own && self.locks.len() == 1 => {
                let token = self.locks[0].token;
                let span = tracing::debug_span!("release", ?token);
                if span.is_disabled() {
                    last.release(token, now).await
                } else {
                    Box::pin(last.release(token, now).instrument(span)).await
                }
            }
            Some(last) => {
                let (tokens, runtime) = (self.tokens(), last.held.shared.runtime.clone());
                let span = tracing::debug_span!("release", ?tokens);
                let rest: UnfinishedLocks =
                    Box::pin(async move { last.finish(&tokens).await }.instrument(span));
                Finishing { rest: Some(rest), runtime }.await
            }
            None => Ok(()),
        };
        match lost {
            Err(lost) => Err(Error::Lost(lost)),
            Ok(()) => done,
        }
    }

    fn tokens(&self) -> Vec<Token> {
        self.locks.iter().map(|lock| lock.token).collect()
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").field("locks", &self.locks).finish_non_exhaustive()
    }
}

impl fmt::Debug for Cancellation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cancellation").field("cancelled", &self.is_cancelled()).finish()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(inner) = self.inner.take().and_then(Arc::into_inner) {
            let (tokens, runtime) = (self.tokens(), inner.held.shared.runtime.clone());
            runtime.spawn(async move {
                if let Err(error) = inner.finish(&tokens).await {
                    tracing::debug!(%error, "a lock was not given back; its lease will run out");
                }
            });
        }
    }
}

type UnfinishedLocks = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

/// The final requests of a guard. If the caller stops waiting, they continue in the background.
struct Finishing {
    rest: Option<UnfinishedLocks>,
    runtime: runtime::Handle,
}

impl Future for Finishing {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(rest) = &mut self.rest else { return Poll::Pending };
        let done = rest.as_mut().poll(context);
        if done.is_ready() {
            self.rest = None;
        }
        done
    }
}

impl Drop for Finishing {
    fn drop(&mut self) {
        if let Some(rest) = self.rest.take() {
            self.runtime.spawn(rest);
        }
    }
}

/// The release of one lock. If the caller stops waiting, it continues in the background.
struct Releasing {
    held: Arc<HeldLease>,
    token: Token,
    /// The lock's name, until the release is done.
    lock: Option<String>,
    turns: LocalTurns,
    asked: Option<SentRequest>,
}

impl Releasing {
    /// The fast path: waits for an immediate answer without a timer. Returns whether the release is done.
    async fn soon(&mut self) -> bool {
        let Some(lock) = &self.lock else { return true };
        self.asked = self.held.shared.ask_now(self.held.release_request(lock.clone(), self.token));
        let Some((_, on)) = &mut self.asked else { return false };
        let Some(said) = on.soon().await else { return false };
        if let Response::Answer(answer) = &said
            && let Some(Answer::Released(_)) = &answer.result
        {
            self.held.shared.earn();
            self.lock = None;
            self.held.unlisten(self.token);
            return true;
        }
        on.put_back(said);
        false
    }

    /// The slow path: continues the release until it is answered.
    fn rest(&mut self) -> Option<UnfinishedLocks> {
        let lock = self.lock.take()?;
        let (held, token, asked) = (self.held.clone(), self.token, self.asked.take());
        let turns = std::mem::take(&mut self.turns);
        Some(Box::pin(async move {
            let done = held.release_asked(lock, token, asked).await;
            held.unlisten(token);
            drop(turns);
            done
        }))
    }
}

impl Drop for Releasing {
    fn drop(&mut self) {
        if let Some(rest) = self.rest() {
            self.held.shared.runtime.spawn(rest);
        }
    }
}

impl GuardState {
    /// Releases a single lock, whose work has stopped and whose lease continues.
    async fn release(self, token: Token, now: ClockReading) -> Result<(), Error> {
        let lock = self.held.with_at(now, |state| state.given_back(token, now));
        if lock.is_none() {
            // The lock was lost just now, so `finish` has more to tell the cluster.
            let runtime = self.held.shared.runtime.clone();
            let rest: UnfinishedLocks = Box::pin(async move { self.finish(&[token]).await });
            return Finishing { rest: Some(rest), runtime }.await;
        }
        let Self { held, own: _, turns } = self;
        let mut releasing = Releasing { held, token, lock, turns, asked: None };
        if releasing.soon().await {
            return Ok(());
        }
        let runtime = releasing.held.shared.runtime.clone();
        Finishing { rest: releasing.rest(), runtime }.await
    }

    /// Tells the cluster that the work has stopped, in the way that fits the lease.
    async fn finish(self, tokens: &[Token]) -> Result<(), Error> {
        let Self { held, own, turns } = self;
        let now = clock::read();
        // If the lease is the guard's own and no lock was taken away, one revoke ends everything.
        let whole =
            own && tokens.iter().all(|it| held.with(|state| state.check_grant(*it, now)).is_ok());
        let done = if whole {
            held.with(|state| tokens.iter().for_each(|token| state.stopped(*token)));
            Box::pin(held.revoke()).await
        } else {
            held.farewell(tokens).await
        };
        drop(turns);
        done
    }
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
}
