//! Bounds the records that wait for the thread that writes, kind by kind, and tells for how long the oldest waits.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Kinds of records that do not take each other's room: callers without credentials can cause any number of denials.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AuditKind {
    /// An act in the history of applied commands. It waits for room.
    Act,
    /// An act that is not in the history.
    Local,
    /// A denied call.
    Denial,
}

pub(super) const KINDS: usize = 3;

impl AuditKind {
    /// The most records of this kind that wait for the file.
    pub(super) const fn waiting_max(self) -> usize {
        match self {
            Self::Act | Self::Denial => 8_192,
            // Operators cause them one by one. A file that takes nothing meets this bound after days.
            Self::Local => 1_024,
        }
    }
}

/// The number of records of each kind.
pub(super) type AuditCounts = [usize; KINDS];

/// How many records wait.
#[derive(Debug, Default)]
pub(super) struct WaitingRecords(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    counts: AuditCounts,
    /// When the oldest record came that is not known to be on disk.
    oldest_us: Option<u64>,
}

impl WaitingRecords {
    /// Counts one more record, unless too many of its kind wait.
    pub(super) fn add(&self, kind: AuditKind, now_us: u64) -> bool {
        let mut waiting = self.lock();
        if waiting.counts[kind as usize] >= kind.waiting_max() {
            return false;
        }
        waiting.counts[kind as usize] += 1;
        waiting.oldest_us.get_or_insert(now_us);
        true
    }

    /// These records were written, or are lost.
    pub(super) fn remove(&self, counts: &AuditCounts) {
        let mut waiting = self.lock();
        for (left, count) in waiting.counts.iter_mut().zip(counts) {
            *left -= count;
        }
    }

    /// Everything that was taken out of the queue up to this moment is on disk.
    pub(super) fn synced(&self, taken_us: u64) {
        let mut waiting = self.lock();
        let is_empty = waiting.counts == AuditCounts::default();
        waiting.oldest_us = (!is_empty).then_some(taken_us);
    }

    /// How long the oldest record has waited to be on disk, in microseconds; zero if none waits.
    pub(super) fn oldest_waits_us(&self, now_us: u64) -> u64 {
        self.lock().oldest_us.map_or(0, |came_us| now_us.saturating_sub(came_us))
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_denials_takes_no_room_of_acts() {
        let waiting = WaitingRecords::default();
        let taken = (0..10_000).filter(|_| waiting.add(AuditKind::Denial, 1)).count();
        assert_eq!(taken, AuditKind::Denial.waiting_max());
        assert!(waiting.add(AuditKind::Act, 1) && waiting.add(AuditKind::Local, 1));
        waiting.remove(&[0, 0, 1]);
        assert!(waiting.add(AuditKind::Denial, 1) && !waiting.add(AuditKind::Denial, 1));
    }

    #[test]
    fn the_oldest_record_waits_until_it_is_on_disk() {
        let waiting = WaitingRecords::default();
        assert_eq!(waiting.oldest_waits_us(9), 0);
        waiting.add(AuditKind::Act, 5);
        waiting.add(AuditKind::Act, 7);
        assert_eq!(waiting.oldest_waits_us(9), 4);
        // The first one was taken at 6 and is written; the second one came later.
        waiting.remove(&[1, 0, 0]);
        assert_eq!(waiting.oldest_waits_us(9), 4, "written, but not synced");
        waiting.synced(6);
        assert_eq!(waiting.oldest_waits_us(9), 3);
        waiting.remove(&[1, 0, 0]);
        waiting.synced(8);
        assert_eq!(waiting.oldest_waits_us(9), 0);
    }
}
