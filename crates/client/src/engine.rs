//! Exposes the lease state, the clock and the watchdog to handles over other lock stores.
//!
//! For `tenure-backends`, which makes no promises of its own about time and uses the client's rules instead. Nothing
//! here is part of the SDK's interface.
#![doc(hidden)]

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tenure_types::{Revision, Token};
use tokio::sync::watch;

use crate::cancellation::Cancellation;
use crate::clock;
use crate::lease_state::{
    Cause, EndMessage, LeaseState, LeaseTiming, Moment, PendingGrant, Standing,
};
use crate::signal::Signal;
use crate::watchdog;

/// A random number that cannot be predicted.
pub fn random() -> u64 {
    clock::random()
}

/// A random duration between half of `time` and all of it, so that many clients do not retry at the same moment.
pub fn jittered(time: Duration) -> Duration {
    clock::jittered(time)
}

/// Reads the clock that decides about leases.
pub fn now() -> Moment {
    clock::read().boot
}

/// A lock request that is about to be sent. Its lease time counts from here.
pub struct StoreAsk {
    asking: PendingGrant,
    /// Identifies this grant in the lease state. The store's own token is kept by the guard.
    token: Token,
}

/// A granted lock, and how long it can be relied on.
pub struct StoreHold {
    token: Token,
    state: Mutex<LeaseState>,
    lost: Arc<Signal>,
    standing: watch::Sender<Standing>,
    /// Whether the work has stopped. Losses after that are not reported.
    over: AtomicBool,
}

impl StoreAsk {
    /// Reads the clock. The caller must send the request after this call.
    pub fn sent(timing: LeaseTiming) -> Self {
        let mut asking = PendingGrant::new(timing);
        asking.sent(clock::read());
        Self { asking, token: Token::from_u64(1).expect("1 is a token") }
    }

    /// Records the grant. If the answer took too long to be relied on, returns how long; the caller must then release
    /// the lock.
    pub fn granted(&self) -> Result<Arc<StoreHold>, Duration> {
        let now = clock::read();
        let mut state = self.asking.granted(now).map_err(|late| late.after)?;
        // Only a lost lease refuses a grant, and this one was just granted.
        state.granted("", self.token, Revision(0), now).map_err(|_| Duration::ZERO)?;
        Ok(Arc::new(StoreHold {
            token: self.token,
            state: Mutex::new(state),
            lost: Arc::default(),
            standing: watch::Sender::new(Standing::Valid),
            over: AtomicBool::new(false),
        }))
    }
}

impl StoreHold {
    fn lock(&self) -> MutexGuard<'_, LeaseState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the lease state, and notifies everything that relies on it if the change loses the lease.
    fn with<T>(&self, act: impl FnOnce(&mut LeaseState) -> T) -> T {
        let (done, standing) = {
            let mut state = self.lock();
            let done = act(&mut state);
            (done, state.standing(clock::read()))
        };
        if self.over.load(Ordering::Acquire) {
            return done;
        }
        if let Standing::Lost(cause) = standing {
            self.lost.fire(cause);
        }
        self.standing.send_if_modified(|known| {
            let changed = *known != standing && !matches!(known, Standing::Lost(_));
            if changed {
                *known = standing;
            }
            changed
        });
        done
    }

    /// Checks that the lock can be relied on at this moment.
    pub fn check(&self) -> Result<(), Cause> {
        let now = clock::read();
        self.with(|state| state.check_grant(self.token, now)).map_err(|lost| lost.cause())
    }

    /// Returns the current standing.
    pub fn standing(&self) -> Standing {
        let now = clock::read();
        self.with(|state| state.standing(now))
    }

    /// Subscribes to changes of the standing.
    pub fn standings(&self) -> watch::Receiver<Standing> {
        self.standing.subscribe()
    }

    /// Returns a handle that tells work when to stop.
    pub fn cancellation(&self) -> Cancellation {
        Cancellation::of(self.lost.clone())
    }

    /// Returns the number of the renewal that is due now, if one is. Its lease time counts from here.
    pub fn renewal(&self) -> Option<u64> {
        let now = clock::read();
        self.with(|state| state.poll(now).then(|| state.renewing(now)))
    }

    /// Records the acknowledgement of a renewal: the lock is still ours, or it is not.
    pub fn renewed(&self, number: u64, ours: bool) {
        let now = clock::read();
        self.with(|state| {
            if ours {
                let ttl = state.timing().ttl();
                state.renewed(number, ttl, Revision(0), now);
            } else {
                state.ended(Cause::Gone, now);
            }
        });
    }

    /// Records that a renewal failed or was not answered in time.
    pub fn not_renewed(&self, number: u64) {
        self.with(|state| state.not_renewed(number));
    }

    /// Returns how long nothing is due, or `None` if the lock is lost.
    pub fn due_in(&self) -> Option<Duration> {
        let now = clock::read();
        self.with(|state| state.check(now).is_ok().then(|| state.due().since(now.boot)))
    }

    /// How long the store keeps the lock after a renewal.
    pub fn ttl(&self) -> Duration {
        self.lock().timing().ttl()
    }

    /// How long to wait for one renewal attempt.
    pub fn answer_timeout(&self) -> Duration {
        self.lock().timing().window()
    }

    /// Records that the work has stopped. Returns whether to release the lock, once.
    pub fn stopped(&self) -> bool {
        let farewells = self.with(|state| {
            state.stopped(self.token);
            state.farewells()
        });
        self.over.store(true, Ordering::Release);
        farewells.iter().any(|(_, _, farewell)| *farewell == EndMessage::Release)
    }

    fn lost_at(&self) -> Option<Moment> {
        let now = clock::read();
        self.with(|state| state.check(now).is_ok().then(|| state.lost_at()))
    }
}

/// The thread that tells work to stop when the runtime is too busy to notice.
pub struct Watchdog {
    dog: watchdog::WatchdogTimer,
    holds: Arc<Mutex<Vec<Weak<StoreHold>>>>,
}

impl Watchdog {
    /// Starts the thread. The thread ends when this value is dropped.
    pub fn start() -> io::Result<Self> {
        let (dog, holds) =
            (watchdog::WatchdogTimer::new()?, Arc::<Mutex<Vec<Weak<StoreHold>>>>::default());
        let watched = Arc::downgrade(&holds);
        dog.start(move || {
            let holds: Vec<Arc<StoreHold>> = {
                let watched = watched.upgrade()?;
                let mut watched = watched.lock().unwrap_or_else(PoisonError::into_inner);
                watched.retain(|hold| hold.strong_count() > 0);
                watched.iter().filter_map(Weak::upgrade).collect()
            };
            Some(holds.iter().filter_map(|hold| hold.lost_at()).min())
        })?;
        Ok(Self { dog, holds })
    }

    /// Adds a lock to those that the thread watches.
    pub fn watch(&self, hold: &Arc<StoreHold>) {
        self.holds.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(hold));
        self.dog.wake();
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.holds = Arc::default();
        self.dog.wake();
    }
}
