//! Measures how long work takes.

use std::time::{Duration, Instant};

/// Runs some work and returns how long it took. The only clock of the benchmarks.
#[expect(clippy::disallowed_methods, reason = "measuring is what a benchmark is for")]
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let result = work();
    (result, start.elapsed())
}
