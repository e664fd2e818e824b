//! How do handles over other stores live by the same rules?
//!
//! For `tenure-backends`, which has no promise of its own to make about time: the life of a lease, the clock and the
//! watchdog are the client's. Nothing here is part of the SDK's interface.
#![doc(hidden)]

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tenure_types::{Revision, Token};
use tokio::sync::watch;

use crate::clock;
use crate::guard::Cancellation;
use crate::life::{Asking, Cause, Farewell, Life, Moment, Pace, Standing};
use crate::signal::Signal;
use crate::watchdog;

/// A number nobody can guess.
pub fn random() -> u64 {
    clock::random()
}

/// A time between half and the whole of this one, so that many do not try at the same moment.
pub fn jittered(time: Duration) -> Duration {
    clock::jittered(time)
}

/// The clock that decides, read now.
pub fn now() -> Moment {
    clock::read().boot
}

/// An ask for a lock that is about to be sent. Time counts from here.
pub struct Ask {
    asking: Asking,
    /// What tells this grant from others in the life's books; the store's own token is the guard's.
    token: Token,
}

/// A lock that was granted, for as long as it can be relied on.
pub struct Hold {
    token: Token,
    life: Mutex<Life>,
    lost: Arc<Signal>,
    standing: watch::Sender<Standing>,
    /// The work has stopped: whatever is heard from now on concerns nobody.
    over: AtomicBool,
}

impl Ask {
    /// Reads the clock: the request is sent after this.
    pub fn sent(pace: Pace) -> Self {
        let mut asking = Asking::new(pace);
        asking.sent(clock::read());
        Self { asking, token: Token::from_u64(1).expect("1 is a token") }
    }

    /// It was granted. If the answer took too long to be relied on, says how long: then it must be given back.
    pub fn granted(&self) -> Result<Arc<Hold>, Duration> {
        let now = clock::read();
        let mut life = self.asking.granted(now).map_err(|late| late.after)?;
        // Only a lease that is lost already refuses, and this one was just granted.
        life.granted("", self.token, Revision(0), now).map_err(|_| Duration::ZERO)?;
        Ok(Arc::new(Hold {
            token: self.token,
            life: Mutex::new(life),
            lost: Arc::default(),
            standing: watch::Sender::new(Standing::Valid),
            over: AtomicBool::new(false),
        }))
    }
}

impl Hold {
    fn lock(&self) -> MutexGuard<'_, Life> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with its life; everyone who relies on it is told if it is lost by that.
    fn with<T>(&self, act: impl FnOnce(&mut Life) -> T) -> T {
        let (done, standing) = {
            let mut life = self.lock();
            let done = act(&mut life);
            (done, life.standing(clock::read()))
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

    /// Whether it can be relied on at this moment.
    pub fn check(&self) -> Result<(), Cause> {
        let now = clock::read();
        self.with(|life| life.check_grant(self.token, now)).map_err(|lost| lost.cause())
    }

    /// How it stands at this moment.
    pub fn standing(&self) -> Standing {
        let now = clock::read();
        self.with(|life| life.standing(now))
    }

    /// Follows how it stands.
    pub fn standings(&self) -> watch::Receiver<Standing> {
        self.standing.subscribe()
    }

    /// Tells work when to stop.
    pub fn cancellation(&self) -> Cancellation {
        Cancellation::of(self.lost.clone())
    }

    /// Whether a renewal shall be sent now; its number, if so. Time counts from here.
    pub fn renewal(&self) -> Option<u64> {
        let now = clock::read();
        self.with(|life| life.poll(now).then(|| life.renewing(now)))
    }

    /// The renewal of that number was acknowledged: it is still ours, or it is not.
    pub fn renewed(&self, number: u64, ours: bool) {
        let now = clock::read();
        self.with(|life| {
            if ours {
                let ttl = life.pace().ttl();
                life.renewed(number, ttl, Revision(0), now);
            } else {
                life.ended(Cause::Gone, now);
            }
        });
    }

    /// The renewal of that number failed, or nobody answered in its time.
    pub fn not_renewed(&self, number: u64) {
        self.with(|life| life.not_renewed(number));
    }

    /// How long nothing is due; nothing if it is lost.
    pub fn due_in(&self) -> Option<Duration> {
        let now = clock::read();
        self.with(|life| life.check(now).is_ok().then(|| life.due().since(now.boot)))
    }

    /// How long the store shall keep it after a renewal.
    pub fn ttl(&self) -> Duration {
        self.lock().pace().ttl()
    }

    /// How long one try of a renewal is waited for.
    pub fn patience(&self) -> Duration {
        self.lock().pace().window()
    }

    /// The work has stopped. Whether the lock shall be given back, which is said once.
    pub fn stopped(&self) -> bool {
        let farewells = self.with(|life| {
            life.stopped(self.token);
            life.farewells()
        });
        self.over.store(true, Ordering::Release);
        farewells.iter().any(|(_, _, farewell)| *farewell == Farewell::Release)
    }

    fn lost_at(&self) -> Option<Moment> {
        let now = clock::read();
        self.with(|life| life.check(now).is_ok().then(|| life.lost_at()))
    }
}

/// The thread that tells work to stop when the runtime is too busy to notice.
pub struct Watchdog {
    dog: watchdog::Watchdog,
    holds: Arc<Mutex<Vec<Weak<Hold>>>>,
}

impl Watchdog {
    /// Starts the thread. It ends when this is dropped.
    pub fn start() -> io::Result<Self> {
        let (dog, holds) = (watchdog::Watchdog::new()?, Arc::<Mutex<Vec<Weak<Hold>>>>::default());
        let watched = Arc::downgrade(&holds);
        dog.start(move || {
            let holds: Vec<Arc<Hold>> = {
                let watched = watched.upgrade()?;
                let mut watched = watched.lock().unwrap_or_else(PoisonError::into_inner);
                watched.retain(|hold| hold.strong_count() > 0);
                watched.iter().filter_map(Weak::upgrade).collect()
            };
            Some(holds.iter().filter_map(|hold| hold.lost_at()).min())
        })?;
        Ok(Self { dog, holds })
    }

    /// Looks after a lock from now on.
    pub fn watch(&self, hold: &Arc<Hold>) {
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
