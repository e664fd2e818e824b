//! What does a member measure of itself, and how is it read without stopping it?

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Syncs that the recent ones are judged by.
const SYNCS_KEPT: usize = 512;

/// What a member measures of itself. Sizes are as of the last look, at most about a second old.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Bytes free on the disk.
    pub disk_free_bytes: u64,
    /// Whether they are so few that the state may not grow.
    pub disk_short: bool,
    /// Bytes of its log, its snapshots and its reserve.
    pub data_bytes: u64,
    /// Bytes of its log.
    pub log_bytes: u64,
    /// How often its log was made durable since it started.
    pub syncs: u64,
    /// How long that took the last time.
    pub sync_last_us: u64,
    /// How long at most the fastest 99 of 100 of the recent ones took.
    pub sync_p99_us: u64,
}

/// Where the loop writes its figures and anybody reads them.
#[derive(Debug, Default)]
pub(crate) struct Meters {
    disk_free_bytes: AtomicU64,
    disk_short: AtomicBool,
    data_bytes: AtomicU64,
    log_bytes: AtomicU64,
    syncs: AtomicU64,
    sync_last_us: AtomicU64,
    sync_p99_us: AtomicU64,
}

/// How long recent syncs took.
#[derive(Debug, Default)]
pub(crate) struct Syncs {
    recent_us: VecDeque<u64>,
}

/// What is on the disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) disk_free_bytes: u64,
    pub(crate) data_bytes: u64,
    pub(crate) log_bytes: u64,
}

impl Meters {
    /// Each figure is true; together they may be from either side of a look.
    pub(crate) fn read(&self) -> Figures {
        let read = |meter: &AtomicU64| meter.load(Ordering::Relaxed);
        Figures {
            disk_free_bytes: read(&self.disk_free_bytes),
            disk_short: self.disk_short.load(Ordering::Relaxed),
            data_bytes: read(&self.data_bytes),
            log_bytes: read(&self.log_bytes),
            syncs: read(&self.syncs),
            sync_last_us: read(&self.sync_last_us),
            sync_p99_us: read(&self.sync_p99_us),
        }
    }

    pub(crate) fn synced(&self, took: Duration) {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        self.sync_last_us.store(micros(took), Ordering::Relaxed);
    }

    pub(crate) fn look(&self, sizes: Sizes, syncs: &Syncs) {
        self.disk_free_bytes.store(sizes.disk_free_bytes, Ordering::Relaxed);
        self.data_bytes.store(sizes.data_bytes, Ordering::Relaxed);
        self.log_bytes.store(sizes.log_bytes, Ordering::Relaxed);
        self.sync_p99_us.store(syncs.p99_us(), Ordering::Relaxed);
    }

    pub(crate) fn short(&self, short: bool) {
        self.disk_short.store(short, Ordering::Relaxed);
    }
}

impl Syncs {
    pub(crate) fn add(&mut self, took: Duration) {
        if self.recent_us.len() == SYNCS_KEPT {
            self.recent_us.pop_front();
        }
        self.recent_us.push_back(micros(took));
    }

    fn p99_us(&self) -> u64 {
        let mut sorted: Vec<u64> = self.recent_us.iter().copied().collect();
        sorted.sort_unstable();
        let rank = (sorted.len() * 99).div_ceil(100);
        rank.checked_sub(1).and_then(|at| sorted.get(at)).copied().unwrap_or(0)
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_of_a_hundred_is_left_out_and_the_old_are_forgotten() {
        let mut syncs = Syncs::default();
        assert_eq!(syncs.p99_us(), 0);
        (1..=100).for_each(|us| syncs.add(Duration::from_micros(us)));
        assert_eq!(syncs.p99_us(), 99);
        (0..SYNCS_KEPT).for_each(|_| syncs.add(Duration::from_micros(7)));
        assert_eq!(syncs.p99_us(), 7);
    }
}
