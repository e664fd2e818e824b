//! Who stops the work when the runtime is too busy to notice?
//!
//! A thread of its own, asleep on a timer of the clock that counts suspend. It sees to it that a lease whose time is
//! over is lost, and everyone who relies on it told, even if no task of the runtime runs.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::fd::OwnedFd;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::clock;
use crate::life::Moment;

/// A moment that is over.
const NOW: Moment = Moment::from_micros(1);
/// If the timer cannot be read, the thread looks that often all the same.
const WITHOUT_TIMER: Duration = Duration::from_millis(50);

/// The thread's timer. Setting it is how others wake the thread.
pub(crate) struct Watchdog {
    timer: Arc<Timer>,
}

struct Timer {
    clock: OwnedFd,
    /// How often somebody wanted the thread to look.
    wakes: AtomicU64,
    /// In virtual time there is no thread: what would wake it wakes a task.
    #[cfg(feature = "virtual-time")]
    bell: Arc<tokio::sync::Notify>,
}

impl Watchdog {
    pub(crate) fn new() -> io::Result<Self> {
        let clock = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC)?;
        let timer = Timer {
            clock,
            wakes: AtomicU64::new(0),
            #[cfg(feature = "virtual-time")]
            bell: Arc::default(),
        };
        Ok(Self { timer: Arc::new(timer) })
    }

    /// Starts the thread. Whenever it wakes it looks, and hears when to look again, or that there is nothing to look
    /// after any more.
    pub(crate) fn start(
        &self,
        mut look: impl FnMut() -> Option<Option<Moment>> + Send + 'static,
    ) -> io::Result<()> {
        let timer = self.timer.clone();
        #[cfg(feature = "virtual-time")]
        if crate::virtual_time::read().is_some() {
            crate::virtual_time::look(timer.bell.clone(), look);
            return Ok(());
        }
        let work = move || {
            loop {
                let mut fired = [0; 8];
                if let Err(error) = rustix::io::read(&timer.clock, &mut fired) {
                    tracing::error!(%error, "the watchdog's timer cannot be read");
                    std::thread::sleep(WITHOUT_TIMER);
                }
                let before = timer.wakes.load(Ordering::SeqCst);
                let Some(next) = look() else { return };
                if let Some(next) = next {
                    set(&timer.clock, next);
                }
                // Whoever woke us meanwhile may have set the timer before we did: it counts.
                if timer.wakes.load(Ordering::SeqCst) != before {
                    set(&timer.clock, NOW);
                }
            }
        };
        std::thread::Builder::new().name("tenure-watchdog".into()).spawn(work)?;
        Ok(())
    }

    /// Has the thread look at once.
    pub(crate) fn wake(&self) {
        self.timer.wakes.fetch_add(1, Ordering::SeqCst);
        set(&self.timer.clock, NOW);
        #[cfg(feature = "virtual-time")]
        self.timer.bell.notify_one();
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.wake();
    }
}

fn set(timer: &OwnedFd, at: Moment) {
    // A microsecond more: rounding must not make it look too early.
    let at = if at > clock::read().boot { at.micros() + 1 } else { 1 };
    let value = Timespec {
        tv_sec: i64::try_from(at / 1_000_000).unwrap_or(i64::MAX),
        tv_nsec: i64::try_from(at % 1_000_000 * 1_000).unwrap_or(0),
    };
    let never = Timespec { tv_sec: 0, tv_nsec: 0 };
    let when = Itimerspec { it_interval: never, it_value: value };
    if let Err(error) = timerfd_settime(timer, TimerfdTimerFlags::ABSTIME, &when) {
        tracing::error!(%error, "the watchdog's timer cannot be set; checks still hold");
    }
}
