//! Lets a thread sleep until an instant of the clock that also counts while the machine is suspended.

#[cfg(not(target_os = "linux"))]
pub(crate) use steps::Alarm;
#[cfg(target_os = "linux")]
pub(crate) use timer::Alarm;

/// Linux: a kernel timer (timerfd) on the boot-time clock.
#[cfg(target_os = "linux")]
mod timer {
    use std::io;
    use std::time::Duration;

    use rustix::fd::OwnedFd;
    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };

    use crate::clock;
    use crate::lease_state::Moment;

    /// The polling interval if the timer cannot be read.
    const WITHOUT_TIMER: Duration = Duration::from_millis(50);

    pub(crate) struct Alarm(OwnedFd);

    impl Alarm {
        pub(crate) fn new() -> io::Result<Self> {
            Ok(Self(timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC)?))
        }

        /// Sets the alarm to this instant and replaces the previous one. An instant in the past fires at once.
        pub(crate) fn set(&self, at: Moment) {
            // One microsecond more, so that rounding never makes the alarm fire early.
            let at = if at > clock::boot() { at.micros() + 1 } else { 1 };
            let value = Timespec {
                tv_sec: i64::try_from(at / 1_000_000).unwrap_or(i64::MAX),
                tv_nsec: i64::try_from(at % 1_000_000 * 1_000).unwrap_or(0),
            };
            let never = Timespec { tv_sec: 0, tv_nsec: 0 };
            let when = Itimerspec { it_interval: never, it_value: value };
            if let Err(error) = timerfd_settime(&self.0, TimerfdTimerFlags::ABSTIME, &when) {
                tracing::error!(%error, "the watchdog's timer cannot be set; checks still hold");
            }
        }

        /// Blocks until the alarm fires.
        pub(crate) fn wait(&self) {
            let mut fired = [0; 8];
            if let Err(error) = rustix::io::read(&self.0, &mut fired) {
                tracing::error!(%error, "the watchdog's timer cannot be read");
                std::thread::sleep(WITHOUT_TIMER);
            }
        }
    }
}

/// Other systems, whose timers stop while the machine is suspended: waits in short steps, so that after a resume the
/// alarm is late by one step at most.
#[cfg(any(test, not(target_os = "linux")))]
mod steps {
    use std::io;
    use std::sync::{Condvar, Mutex, PoisonError};
    use std::time::Duration;

    use crate::clock;
    use crate::lease_state::Moment;

    const STEP: Duration = Duration::from_millis(50);

    pub(crate) struct Alarm {
        at: Mutex<Option<Moment>>,
        changed: Condvar,
    }

    impl Alarm {
        #[cfg_attr(test, expect(clippy::unnecessary_wraps, reason = "the other one can fail"))]
        pub(crate) fn new() -> io::Result<Self> {
            Ok(Self { at: Mutex::new(None), changed: Condvar::new() })
        }

        /// Sets the alarm to this instant and replaces the previous one. An instant in the past fires at once.
        pub(crate) fn set(&self, at: Moment) {
            *self.at.lock().unwrap_or_else(PoisonError::into_inner) = Some(at);
            self.changed.notify_all();
        }

        /// Blocks until the alarm fires.
        pub(crate) fn wait(&self) {
            let mut at = self.at.lock().unwrap_or_else(PoisonError::into_inner);
            loop {
                let left = at.map(|at| at.since(clock::boot()));
                at = match left {
                    Some(Duration::ZERO) => {
                        *at = None;
                        return;
                    }
                    Some(left) => {
                        let waited = self.changed.wait_timeout(at, left.min(STEP));
                        waited.unwrap_or_else(PoisonError::into_inner).0
                    }
                    None => self.changed.wait(at).unwrap_or_else(PoisonError::into_inner),
                };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::clock;
    use crate::lease_state::Moment;

    #[test]
    fn both_kinds_ring_at_their_moment_and_at_once_when_it_is_over() {
        let soon = clock::boot() + Duration::from_millis(60);
        let timer = Alarm::new().unwrap();
        timer.set(soon);
        timer.wait();
        assert!(clock::boot() >= soon);
        timer.set(Moment::from_micros(1));
        timer.wait();

        let soon = clock::boot() + Duration::from_millis(60);
        let steps = Arc::new(steps::Alarm::new().unwrap());
        steps.set(soon);
        steps.wait();
        assert!(clock::boot() >= soon);
        // Another thread sets the alarm while this one waits without any.
        let other = steps.clone();
        let waiting = std::thread::spawn(move || other.wait());
        steps.set(Moment::from_micros(1));
        waiting.join().unwrap();
    }
}
