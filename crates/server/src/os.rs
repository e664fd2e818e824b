//! Provides time, randomness and the limit of open files from the operating system.

use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};

/// The clock that a member uses.
pub trait Clock: Send + Sync {
    /// Microseconds since some fixed moment; never goes back.
    fn now_us(&self) -> u64;
}

/// The monotonic clock of the machine.
pub struct Monotonic;

impl Clock for Monotonic {
    fn now_us(&self) -> u64 {
        now_us()
    }
}

/// The monotonic clock, in microseconds. It stands still while the machine is suspended.
pub fn now_us() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let micros = u64::try_from(now.tv_nsec / 1_000).unwrap_or(0);
    seconds * 1_000_000 + micros
}

/// The wall clock, in milliseconds since 1970. It may be set, forwards and backwards: only the expiry of credentials
/// and of certificates depends on it, and events carry it as a label.
pub fn wall_ms() -> u64 {
    let now = clock_gettime(ClockId::Realtime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let millis = u64::try_from(now.tv_nsec / 1_000_000).unwrap_or(0);
    seconds * 1_000 + millis
}

/// A number that cannot be guessed.
pub fn random() -> u64 {
    u64::from_le_bytes(random_bytes())
}

/// Bytes that cannot be guessed.
pub fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the system has randomness, or nothing here is safe");
    bytes
}

/// A random time between half and the whole of this one, so that many callers do not retry at the same moment.
pub fn jittered(time: Duration) -> Duration {
    let half = time / 2;
    let span = u64::try_from(half.as_micros()).unwrap_or(u64::MAX).max(1);
    half + Duration::from_micros(random() % span)
}

/// A duration in microseconds.
pub fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// How long until a moment of [`now_us`].
pub fn until(moment_us: u64) -> Duration {
    Duration::from_micros(moment_us.saturating_sub(now_us()))
}

/// Raises this process's limit of open files to the maximum that the system allows. Returns that limit, or nothing if
/// there is none. Every connection uses one file.
pub fn raise_open_files() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let all = Rlimit { current: limit.maximum, maximum: limit.maximum };
    match setrlimit(Resource::Nofile, all) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    }
}
