//! Holds the least important level that is written, which may change while the process runs.

use std::sync::atomic::{AtomicU8, Ordering};

use super::Level;

const LEVELS: [Level; 4] = [Level::Error, Level::Warn, Level::Info, Level::Debug];

/// The level in force.
#[derive(Debug)]
pub(super) struct LevelCell(AtomicU8);

impl LevelCell {
    pub(super) fn new(level: Level) -> Self {
        Self(AtomicU8::new(level as u8))
    }

    pub(super) fn get(&self) -> Level {
        LEVELS[usize::from(self.0.load(Ordering::Relaxed)).min(LEVELS.len() - 1)]
    }

    /// Sets the level and returns the previous one.
    pub(super) fn set(&self, level: Level) -> Level {
        let before = self.0.swap(level as u8, Ordering::Relaxed);
        // Each place that logs remembers whether it is enabled.
        tracing::callsite::rebuild_interest_cache();
        LEVELS[usize::from(before).min(LEVELS.len() - 1)]
    }
}
