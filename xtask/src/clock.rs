//! Measures how long something takes.

use std::time::{Duration, Instant};

/// Counts from its creation.
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts counting.
    #[expect(
        clippy::disallowed_methods,
        reason = "the time is shown to a person and takes part in no decision"
    )]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// The time since the start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}
