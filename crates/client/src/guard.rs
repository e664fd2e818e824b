//! Implements the guard: the value that stands for a held lock, stops work in time and releases the lock.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tenure_types::{LeaseId, Revision, Token};
use tenure_wire::v1;
use tokio::sync::watch;
use v1::answer::Result as Answer;
use v1::request::Command;

use crate::cancellation::Cancellation;
use crate::clock;
use crate::error::{Error, strange};
use crate::held_lease::HeldLease;
use crate::lease_state::{ClockReading, Lost, Standing};
use crate::local_queue::LocalPermits;
use crate::shared::RequestIdentity;
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
/// guard.run(async move { build(token).await }).await?;   // drops the future if the lock is lost
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[must_use = "dropping a guard gives the lock back"]
pub struct Guard {
    /// Shared by guards that were derived by [`reenter`](Guard::reenter).
    pub(crate) inner: Option<Arc<GuardState>>,
    pub(crate) locks: Vec<Lock>,
    lost: Arc<Signal>,
    at: Revision,
}

/// What guards of the same grant share.
pub(crate) struct GuardState {
    pub(crate) held: Arc<HeldLease>,
    /// Whether the lease exists for this guard alone.
    pub(crate) own: bool,
    pub(crate) permits: LocalPermits,
}

impl Guard {
    /// Creates the guard of a grant, if the lease can be relied on at this moment.
    pub(crate) fn new(
        held: Arc<HeldLease>,
        own: bool,
        (locks, at): (Vec<Lock>, Revision),
        permits: LocalPermits,
    ) -> Result<Self, Error> {
        // Subscribe before the grant is recorded, so that no loss is missed.
        let lost = Arc::new(Signal::default());
        locks.iter().for_each(|lock| held.listen(lock.token, lost.clone()));
        let now = clock::read();
        let granted = held.with_at(now, |state| {
            locks.iter().try_for_each(|lock| state.granted(&lock.name, lock.token, at, now))
        });
        let is_closing = held.shared.cleanups.is_closing();
        let inner = Some(Arc::new(GuardState { held, own, permits }));
        let guard = Self { inner, locks, lost, at };
        // On an error the guard is dropped, which releases every lock. No work has begun.
        granted.map_err(|lost| if is_closing { Error::Closed } else { Error::Lost(lost) })?;
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

    /// Returns the lock's name. For several locks, this is the first by name.
    ///
    /// ```no_run
    /// # fn example(guard: tenure::Guard) {
    /// println!("holding {}", guard.name());
    /// # }
    /// ```
    pub fn name(&self) -> &str {
        &self.locks[0].name
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

    /// Checks that the lock can be relied on at this moment. Reads the clock and sends nothing.
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

    pub(crate) fn checked(&self) -> Result<(), Lost> {
        self.checked_at(clock::read())
    }

    pub(crate) fn checked_at(&self, now: ClockReading) -> Result<(), Lost> {
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

    /// Subscribes to changes of the guard's standing. A guard has the standing of its lease, unless the lock itself is
    /// lost. The subscription ends when the lock is released.
    ///
    /// ```no_run
    /// # async fn example(guard: tenure::Guard) {
    /// let mut standings = guard.standings();
    /// while standings.changed().await.is_ok() { println!("{:?}", *standings.borrow_and_update()); }
    /// # }
    /// ```
    pub fn standings(&self) -> watch::Receiver<Standing> {
        self.inner().held.guard_standings(&self.lost, &self.locks)
    }

    /// Subscribes to the instant until which the lock can be relied on if no further renewal is acknowledged. Each
    /// renewal moves it later.
    ///
    /// For a watchdog outside of this process, which must stop the work even if this process no longer runs.
    #[cfg(feature = "internals")]
    #[doc(hidden)]
    pub fn valid_until(&self) -> watch::Receiver<crate::Moment> {
        self.inner().held.until()
    }

    /// Waits until the lock is lost, and returns the cause and, if a person took the lock away, who that was.
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
        Cancellation::of(self.lost.clone())
    }

    /// Returns another guard of the same grant, for a callee that takes the lock again, without a request to the
    /// cluster. The client releases the lock when the last of these guards is gone. Reentry is always explicit: a
    /// second [`Lease::lock`](crate::Lease::lock) of a held lock waits, in any task or thread.
    ///
    /// ```no_run
    /// # async fn rename(guard: tenure::Guard) {}
    /// # async fn example(guard: tenure::Guard) -> Result<(), tenure::Error> {
    /// rename(guard.reenter()?).await;      // drops that guard; the lock stays held
    /// guard.check()?;
    /// guard.release().await
    /// # }
    /// ```
    pub fn reenter(&self) -> Result<Self, Error> {
        self.check()?;
        Ok(self.another())
    }

    /// Returns another guard of the same grant, also if the lock is lost.
    pub(crate) fn another(&self) -> Self {
        let (inner, locks, lost) = (self.inner.clone(), self.locks.clone(), self.lost.clone());
        Self { inner, locks, lost, at: self.at }
    }

    /// Turns an exclusive hold into a shared one, without a gap. The token changes. Fails with `GUARD_SHARED` while
    /// other guards of the same grant exist, because these would keep the old token.
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

    /// Reports how far the work has come, for a lock that was taken with
    /// [`progress_within`](crate::LockAsk::progress_within). Only a number that is larger than all before counts as
    /// progress; before the first report it is 0. Returns in how much time a larger number is due, or `None` if none
    /// was promised. One report counts for all locks of the guard.
    ///
    /// ```no_run
    /// # async fn example(guard: tenure::Guard) -> Result<(), tenure::Error> {
    /// for chunk in 1..=1_000 {
    ///     // copy the chunk
    ///     guard.progress(chunk).await?;
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn progress(&self, number: u64) -> Result<Option<Duration>, Error> {
        let (held, lock) = (&self.inner().held, &self.locks[0]);
        let command = Command::Progress(v1::ProgressRequest {
            lock: lock.name.clone(),
            lease_slot: held.handle.slot,
            lease_generation: held.handle.generation,
            token: lock.token.get(),
            number,
            ..Default::default()
        });
        // The number itself makes a repetition harmless.
        let (answer, _) = held.shared.call(command, RequestIdentity::Harmless).await?;
        let Answer::Progressed(it) = answer else { return Err(strange()) };
        Ok(it.left_ms.map(Duration::from_millis))
    }

    /// Replaces the metadata of the grant, which other clients can read. For several locks, this changes the grant of
    /// the first by name.
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
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").field("locks", &self.locks).finish_non_exhaustive()
    }
}
