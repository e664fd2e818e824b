//! Keeps the part of the log that the engine sees.
//!
//! It is everything after the newest snapshot, and some of what is before it, in memory. Payloads are shared with their
//! other users. A member that needs older entries is sent a snapshot. The log on disk goes back further.

use std::cell::Cell;
use std::collections::VecDeque;

use raft::eraftpb::{Entry as EngineEntry, Snapshot};
use raft::{Error, GetEntriesContext, RaftState, Result, Storage, StorageError};
use tenure_store::{HardState, LogEntry, LogId};

use crate::engine;
use crate::member::{MemberId, Membership};

/// The recent entries, and the snapshot that covers the rest.
pub(crate) struct Recent {
    base: LogId,
    entries: VecDeque<LogEntry>,
    /// The index up to which the log on disk was told to drop entries. Never above that of the base.
    dropped: u64,
    /// The hard state at the start; the engine reads it once.
    hard_state: HardState,
    members: Membership,
    snapshot: Option<(LogId, Membership)>,
    /// Set if a member needs a snapshot that contains it as a member, and the newest does not.
    wanted: Cell<bool>,
}

impl Recent {
    pub(crate) fn new(
        base: LogId,
        entries: Vec<LogEntry>,
        hard_state: HardState,
        members: Membership,
        snapshot: Option<(LogId, Membership)>,
    ) -> Self {
        Self {
            base,
            entries: entries.into(),
            dropped: base.index,
            hard_state,
            members,
            snapshot,
            wanted: Cell::new(false),
        }
    }

    pub(crate) fn base(&self) -> LogId {
        self.base
    }

    pub(crate) fn last(&self) -> LogId {
        self.entries
            .back()
            .map_or(self.base, |entry| LogId { index: entry.index, term: entry.term })
    }

    pub(crate) fn entry(&self, index: u64) -> Option<&LogEntry> {
        let at = index.checked_sub(self.base.index + 1)?;
        self.entries.get(usize::try_from(at).ok()?)
    }

    pub(crate) fn snapshot_point(&self) -> LogId {
        self.snapshot.as_ref().map_or(LogId::default(), |(point, _)| *point)
    }

    /// Whether a new snapshot was requested since the last call.
    pub(crate) fn take_wanted(&self) -> bool {
        self.wanted.take()
    }

    /// Appends entries. The first may replace an entry, and then it replaces all after it.
    pub(crate) fn append(&mut self, entries: &[LogEntry]) {
        let Some(first) = entries.first() else { return };
        assert!(first.index > self.base.index, "what is compacted is never replaced");
        assert!(first.index <= self.last().index + 1, "the log has no holes");
        while self.entries.back().is_some_and(|entry| entry.index >= first.index) {
            self.entries.pop_back();
        }
        self.entries.extend(entries.iter().cloned());
    }

    /// Replaces everything by a snapshot.
    pub(crate) fn reset(&mut self, point: LogId, members: Membership) {
        self.base = point;
        self.dropped = point.index;
        self.entries.clear();
        self.snapshot = Some((point, members));
    }

    /// Drops the snapshot at this point, which can no longer be used. It is never handed out again.
    pub(crate) fn forget_snapshot(&mut self, point: LogId) {
        if self.snapshot_point() == point {
            self.snapshot = None;
            self.wanted.set(true);
        }
    }

    /// Records that a snapshot at this point exists and may be sent.
    pub(crate) fn set_snapshot(&mut self, point: LogId, members: Membership) {
        if point > self.snapshot_point() {
            self.snapshot = Some((point, members));
        }
    }

    /// Drops entries up to this index, here and on disk. Returns whether the disk still has some.
    pub(crate) fn compact(&mut self, to: u64) -> bool {
        assert!(to <= self.snapshot_point().index, "a snapshot stands for what is dropped");
        while let Some(entry) = self.entries.front()
            && entry.index <= to
        {
            self.drop_first();
        }
        let has_more = to > self.dropped;
        self.dropped = self.dropped.max(to);
        has_more
    }

    /// Drops the oldest entries that the newest snapshot covers from memory, until at most these bytes of them are
    /// left. Large values would otherwise take as much memory as a member writes between three snapshots.
    pub(crate) fn trim(&mut self, bytes_max: u64) {
        let newest = self.snapshot_point().index;
        let covered = self.entries.iter().take_while(|entry| entry.index <= newest);
        let mut bytes: u64 = covered.map(weight).sum();
        while bytes > bytes_max
            && let Some(entry) = self.entries.front()
            && entry.index <= newest
        {
            bytes -= weight(entry);
            self.drop_first();
        }
    }

    fn drop_first(&mut self) {
        if let Some(entry) = self.entries.pop_front() {
            self.base = LogId { index: entry.index, term: entry.term };
        }
    }
}

fn weight(entry: &LogEntry) -> u64 {
    entry.payload.len() as u64 + 40
}

impl Storage for Recent {
    fn initial_state(&self) -> Result<RaftState> {
        let hard_state = engine::hard_state_to(self.hard_state);
        Ok(RaftState { hard_state, conf_state: engine::members_to(&self.members) })
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _context: GetEntriesContext,
    ) -> Result<Vec<EngineEntry>> {
        if low <= self.base.index {
            return Err(Error::Store(StorageError::Compacted));
        }
        let max_bytes = max_size.into().unwrap_or(u64::MAX);
        let mut bytes = 0_u64;
        let mut entries = Vec::new();
        for index in low..high {
            let entry = self.entry(index).ok_or(Error::Store(StorageError::Unavailable))?;
            bytes = bytes.saturating_add(weight(entry));
            if bytes > max_bytes && !entries.is_empty() {
                break;
            }
            entries.push(engine::entry_to(entry));
        }
        Ok(entries)
    }

    fn term(&self, index: u64) -> Result<u64> {
        if index == self.base.index {
            return Ok(self.base.term);
        }
        if index < self.base.index {
            return Err(Error::Store(StorageError::Compacted));
        }
        self.entry(index).map(|entry| entry.term).ok_or(Error::Store(StorageError::Unavailable))
    }

    fn first_index(&self) -> Result<u64> {
        Ok(self.base.index + 1)
    }

    fn last_index(&self) -> Result<u64> {
        Ok(self.last().index)
    }

    fn snapshot(&self, request_index: u64, to: u64) -> Result<Snapshot> {
        // A member accepts only a snapshot that contains it as a member.
        let serves =
            |members: &Membership| MemberId::new(to).is_some_and(|to| members.contains(to));
        match &self.snapshot {
            Some((point, members)) if point.index >= request_index && serves(members) => {
                Ok(engine::snapshot_to(*point, members))
            }
            _ => {
                self.wanted.set(true);
                Err(Error::Store(StorageError::SnapshotTemporarilyUnavailable))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recent(entries: u64, bytes: usize) -> Recent {
        let entry = |index| LogEntry {
            index,
            term: 1,
            kind: engine::NORMAL,
            payload: vec![0; bytes].into(),
        };
        let entries = (1..=entries).map(entry).collect();
        let state = HardState::default();
        Recent::new(LogId::default(), entries, state, Membership::default(), None)
    }

    #[test]
    fn memory_has_few_bytes_of_what_a_snapshot_covers_and_all_that_follows() {
        let mut recent = recent(100, 1_000);
        recent.trim(0);
        assert_eq!(recent.base().index, 0, "no snapshot stands for it");
        recent.set_snapshot(LogId { index: 80, term: 1 }, Membership::default());
        recent.trim(10 * 1_040);
        assert_eq!((recent.base().index, recent.last().index), (70, 100));
        assert!(recent.term(70).is_ok() && recent.term(69).is_err());
        recent.trim(0);
        assert_eq!(recent.base().index, 80);
    }

    #[test]
    fn the_disk_is_told_to_drop_what_memory_has_dropped_before() {
        let mut recent = recent(100, 10);
        recent.set_snapshot(LogId { index: 40, term: 1 }, Membership::default());
        assert!(!recent.compact(0));
        recent.trim(0);
        recent.set_snapshot(LogId { index: 90, term: 1 }, Membership::default());
        assert!(recent.compact(40), "the disk has these entries");
        assert!(!recent.compact(40));
        assert_eq!(recent.base().index, 40);
    }
}
