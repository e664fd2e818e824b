//! Acquires a lock: waits for events instead of polling, and misses none.
//!
//! The order is: start the watch, then try, then wait for the event. In any other order the lock can become free
//! between the try and the watch, and no second event reports it.

use std::sync::Arc;
use std::time::Duration;

use tenure::LeaseTiming;
use tenure::engine::{StoreAsk, jittered};
use tokio::time::{Instant, sleep, timeout};

use crate::backend::{Backend, Owner, Put, StoreError, Watch};
use crate::error::Error;
use crate::guard::Guard;
use crate::locks::{LockWait, LocksShared};

/// The pause after the store failed grows from the first value to the second.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// The substitute for an unlimited wait.
const FAR: Duration = Duration::from_secs(86_400 * 365);

/// Waits for a lock, for as long as the caller wants.
pub(crate) async fn acquire<B: Backend>(
    shared: Arc<LocksShared<B>>,
    lock: String,
    wait: LockWait,
    timing: LeaseTiming,
) -> Result<Guard<B>, Error> {
    let mut asking = AcquireTask { shared, lock, timing, answered: Instant::now() };
    match wait {
        LockWait::No => match asking.attempt().await {
            Ok(PutAttempt::Granted(guard)) => Ok(guard),
            Ok(PutAttempt::Taken(_)) => Err(Error::Held { lock: asking.lock, waited: None }),
            Err(source) => Err(Error::Unavailable { waited: asking.answered.elapsed(), source }),
        },
        LockWait::Unlimited => asking.stand().await,
        // The dropped future cleans up after itself.
        LockWait::AtMost(time) => match timeout(time, asking.stand()).await {
            Ok(done) => done,
            Err(_) => Err(Error::Held { lock: asking.lock, waited: Some(time) }),
        },
    }
}

struct AcquireTask<B: Backend> {
    shared: Arc<LocksShared<B>>,
    lock: String,
    timing: LeaseTiming,
    /// When the store last answered.
    answered: Instant,
}

enum PutAttempt<B: Backend> {
    Granted(Guard<B>),
    Taken(Option<Duration>),
}

impl<B: Backend> AcquireTask<B> {
    /// Waits until the lock is granted, or the store was silent for too long.
    async fn stand(&mut self) -> Result<Guard<B>, Error> {
        let mut pause = PAUSE_MIN;
        loop {
            let answered = self.answered;
            let source = match self.stand_on_one_watch().await {
                Ok(guard) => return Ok(guard),
                Err(source) => source,
            };
            if self.answered.elapsed() >= self.shared.timeout {
                return Err(Error::Unavailable { waited: self.answered.elapsed(), source });
            }
            pause = if self.answered > answered { PAUSE_MIN } else { (pause * 2).min(PAUSE_MAX) };
            sleep(jittered(pause)).await;
        }
    }

    async fn stand_on_one_watch(&mut self) -> Result<Guard<B>, StoreError> {
        let late = mutant!("watch_after_try");
        let mut watch = if late { None } else { Some(self.watch().await?) };
        loop {
            let free_within = match self.attempt().await? {
                PutAttempt::Granted(guard) => return Ok(guard),
                PutAttempt::Taken(free_within) => free_within,
            };
            let watch = match &mut watch {
                Some(watch) => watch,
                none => none.insert(self.watch().await?),
            };
            tokio::select! {
                changed = watch.changed() => changed?,
                () = sleep(free_within.unwrap_or(FAR)) => {}
            }
            self.answered = Instant::now();
        }
    }

    async fn watch(&mut self) -> Result<B::Watch, StoreError> {
        let starting = self.shared.backend.watch(&self.lock);
        let watch =
            timeout(self.answer_timeout(), starting).await.unwrap_or_else(|_| Err(silent()))?;
        self.answered = Instant::now();
        Ok(watch)
    }

    /// Tries once, under an owner name of its own, so that a late effect concerns no other attempt.
    async fn attempt(&mut self) -> Result<PutAttempt<B>, StoreError> {
        let owner = Owner::draw();
        let (shared, lock) = (self.shared.clone(), self.lock.clone());
        let mut orphan = OrphanKey { shared, lock, owner: owner.clone(), perhaps: true };
        // Read the clock before anything is sent: the lock's time counts from here.
        let asked = StoreAsk::sent(self.timing);
        let putting = self.shared.backend.put_if_absent(&self.lock, &owner, self.timing.ttl());
        let put =
            timeout(self.answer_timeout(), putting).await.unwrap_or_else(|_| Err(silent()))?;
        self.answered = Instant::now();
        let token = match put {
            Put::Done(token) => token,
            Put::Taken { free_within } => {
                orphan.perhaps = false;
                return Ok(PutAttempt::Taken(free_within));
            }
        };
        let Ok(hold) = asked.granted() else {
            return Err(StoreError::new("the answer came too late to be relied on"));
        };
        orphan.perhaps = false;
        let lock = self.lock.clone();
        Ok(PutAttempt::Granted(Guard::new(self.shared.clone(), (lock, owner), token, hold)))
    }

    /// How long to wait for one answer: a later one leaves too little of the window to be of use.
    fn answer_timeout(&self) -> Duration {
        self.shared.timeout.min(self.timing.window() * 3 / 4)
    }
}

/// A key that may have been put although its caller no longer waits. It is deleted in the background.
struct OrphanKey<B: Backend> {
    shared: Arc<LocksShared<B>>,
    lock: String,
    owner: Owner,
    perhaps: bool,
}

impl<B: Backend> Drop for OrphanKey<B> {
    fn drop(&mut self) {
        if !self.perhaps {
            return;
        }
        let (shared, lock, owner) = (self.shared.clone(), self.lock.clone(), self.owner.clone());
        self.shared.runtime.spawn(async move {
            // If the delete fails, or arrives before the put that it undoes, the key expires.
            let deleting = shared.backend.compare_and_delete(&lock, &owner);
            let _ = timeout(shared.timeout, deleting).await;
        });
    }
}

fn silent() -> StoreError {
    StoreError::new("no answer in time")
}
