//! What time is it, also after the machine slept?

use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::life::{Moment, Reading};
use crate::surroundings;

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
compile_error!(
    "tenure needs a clock that counts while the machine sleeps, and one that does not: Linux and macOS have both"
);

/// Reads both clocks. Nothing is cached: a check is worth as much as its reading.
pub(crate) fn read() -> Reading {
    if let Some(reading) = surroundings::read() {
        return reading;
    }
    // The one that stops in sleep goes first: read in this order the difference is never too small.
    let awake = awake();
    Reading { boot: never_stops(), awake }
}

/// Only the one that decides.
pub(crate) fn boot() -> Moment {
    if let Some(reading) = surroundings::read() {
        return reading.boot;
    }
    never_stops()
}

/// The clock that goes on while the machine sleeps.
#[cfg(target_os = "linux")]
fn never_stops() -> Moment {
    moment(clock_gettime(ClockId::Boottime))
}

#[cfg(target_os = "linux")]
fn awake() -> Moment {
    moment(clock_gettime(ClockId::Monotonic))
}

/// The clock that goes on while the machine sleeps: on this system the one of this name does.
#[cfg(target_os = "macos")]
fn never_stops() -> Moment {
    moment(clock_gettime(ClockId::Monotonic))
}

/// The one that stops is what the standard library goes by here; it begins where the other one was.
#[cfg(target_os = "macos")]
#[expect(clippy::disallowed_methods, reason = "the only clock that stops in sleep")]
fn awake() -> Moment {
    use std::sync::OnceLock;
    use std::time::Instant;
    static BEGAN: OnceLock<(Instant, Moment)> = OnceLock::new();
    let (instant, moment) = *BEGAN.get_or_init(|| (Instant::now(), never_stops()));
    moment + instant.elapsed()
}

/// A number nobody can guess.
pub(crate) fn random() -> u64 {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).expect("the system has randomness, or nothing here is safe");
    u64::from_le_bytes(bytes)
}

/// A time between half and the whole of this one, so that many do not try at the same moment.
pub(crate) fn jittered(time: std::time::Duration) -> std::time::Duration {
    let half = time / 2;
    let span = u64::try_from(half.as_micros()).unwrap_or(u64::MAX).max(1);
    half + std::time::Duration::from_micros(random() % span)
}

fn moment(time: Timespec) -> Moment {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let micros = u64::try_from(time.tv_nsec / 1_000).unwrap_or(0);
    Moment::from_micros(seconds * 1_000_000 + micros)
}
