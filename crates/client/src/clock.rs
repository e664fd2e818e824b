//! What time is it, also after the machine slept?

use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::life::{Moment, Reading};

#[cfg(not(target_os = "linux"))]
compile_error!(
    "tenure needs a clock, and timers of it, that count while the machine sleeps: Linux has both"
);

const BOOT: ClockId = ClockId::Boottime;

/// Reads both clocks. Nothing is cached: a check is worth as much as its reading.
pub(crate) fn read() -> Reading {
    #[cfg(feature = "virtual-time")]
    if let Some(reading) = crate::virtual_time::read() {
        return reading;
    }
    // The one that stops in sleep goes first: read in this order the difference is never too small.
    let awake = moment(clock_gettime(ClockId::Monotonic));
    let boot = moment(clock_gettime(BOOT));
    Reading { boot, awake }
}

/// A number nobody can guess.
pub fn random() -> u64 {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).expect("the system has randomness, or nothing here is safe");
    u64::from_le_bytes(bytes)
}

/// A time between half and the whole of this one, so that many do not try at the same moment.
pub fn jittered(time: std::time::Duration) -> std::time::Duration {
    let half = time / 2;
    let span = u64::try_from(half.as_micros()).unwrap_or(u64::MAX).max(1);
    half + std::time::Duration::from_micros(random() % span)
}

fn moment(time: Timespec) -> Moment {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let micros = u64::try_from(time.tv_nsec / 1_000).unwrap_or(0);
    Moment::from_micros(seconds * 1_000_000 + micros)
}
