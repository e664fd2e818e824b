//! How long did it take?

use std::time::{Duration, Instant};

/// Runs something and says how long it took. The only clock of the benchmarks.
#[expect(clippy::disallowed_methods, reason = "measuring is what a benchmark is for")]
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let result = work();
    (result, start.elapsed())
}
