//! Reads the clocks: the one that counts while the machine is suspended, and the one that stops.

#[cfg(target_os = "linux")]
use rustix::rand::GetRandomFlags;
use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::lease_state::{ClockReading, Moment};
use crate::surroundings;

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
compile_error!(
    "tenure needs a clock that counts while the machine sleeps, and one that does not: Linux and macOS have both"
);

/// Reads both clocks. Nothing is cached, because a check is only as good as its reading.
pub(crate) fn read() -> ClockReading {
    if let Some(reading) = surroundings::read() {
        return reading;
    }
    // The clock that stops in suspend is read first. In this order the measured difference is never too small.
    let awake = awake();
    ClockReading { boot: never_stops(), awake }
}

/// Reads only the clock that decides about leases.
pub(crate) fn boot() -> Moment {
    if let Some(reading) = surroundings::read() {
        return reading.boot;
    }
    never_stops()
}

/// The clock that keeps counting while the machine is suspended.
#[cfg(target_os = "linux")]
fn never_stops() -> Moment {
    moment(clock_gettime(ClockId::Boottime))
}

#[cfg(target_os = "linux")]
fn awake() -> Moment {
    moment(clock_gettime(ClockId::Monotonic))
}

/// The clock that keeps counting while the machine is suspended. On macOS that is `CLOCK_MONOTONIC`.
#[cfg(target_os = "macos")]
fn never_stops() -> Moment {
    moment(clock_gettime(ClockId::Monotonic))
}

/// On macOS the standard library's `Instant` stops in suspend. The first call aligns it with the other clock.
#[cfg(target_os = "macos")]
#[expect(clippy::disallowed_methods, reason = "the only clock that stops in sleep")]
fn awake() -> Moment {
    use std::sync::OnceLock;
    use std::time::Instant;
    static BEGAN: OnceLock<(Instant, Moment)> = OnceLock::new();
    let (instant, moment) = *BEGAN.get_or_init(|| (Instant::now(), never_stops()));
    moment + instant.elapsed()
}

/// A random number that cannot be predicted.
pub(crate) fn random() -> u64 {
    let mut bytes = [0; 8];
    fill(&mut bytes);
    u64::from_le_bytes(bytes)
}

#[cfg(target_os = "linux")]
fn fill(bytes: &mut [u8; 8]) {
    // Repeats the call: a signal may interrupt it while the kernel has not gathered enough randomness.
    while rustix::rand::getrandom(&mut bytes[..], GetRandomFlags::empty()) != Ok(bytes.len()) {}
}

#[cfg(not(target_os = "linux"))]
fn fill(bytes: &mut [u8; 8]) {
    getrandom::fill(bytes).expect("the system has randomness, or nothing here is safe");
}

/// A random duration between half of `time` and all of it, so that many clients do not retry at the same moment.
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
