//! Keeps in memory the state that results from the records of the log.
//!
//! Writing and recovery change the view through the same functions, which refuse what a correct member never does. A
//! refusal during a write is a mistake of the caller, and changes nothing. A refusal during recovery means that the
//! disk has content that this program did not write.

use std::collections::VecDeque;

use bytes::Bytes;

use super::record::Placed;
use crate::{HardState, LogBatch, LogId, Rejection};

/// The place of one entry, and its payload if it is recent.
#[derive(Debug, Clone)]
pub(crate) struct EntrySlot {
    pub(crate) term: u64,
    pub(crate) kind: u8,
    pub(crate) segment: u64,
    pub(crate) placed: Placed,
    pub(crate) payload: Option<Bytes>,
}

/// The state that results from the records so far.
#[derive(Debug)]
pub(crate) struct LogView {
    pub(crate) hard_state: HardState,
    pub(crate) base: LogId,
    pub(crate) notes: Vec<u8>,
    /// The index of the first slot. After recovery it is always the one after `base`. During recovery it may be later:
    /// the entries between the two were in segments that have been removed.
    first: u64,
    slots: VecDeque<EntrySlot>,
    /// Slots before this index have dropped their payload.
    cached_from: u64,
    cached_bytes: usize,
    cache_bytes_max: usize,
}

impl LogView {
    pub(crate) fn new(cache_bytes_max: usize) -> Self {
        Self {
            hard_state: HardState::default(),
            base: LogId::default(),
            notes: Vec::new(),
            first: 1,
            slots: VecDeque::new(),
            cached_from: 1,
            cached_bytes: 0,
            cache_bytes_max,
        }
    }

    /// Takes over the state that the start record of the oldest segment carries from the segments before it.
    pub(crate) fn begin(
        &mut self,
        base: LogId,
        last: LogId,
        state: HardState,
    ) -> Result<(), Rejection> {
        if base.index > last.index || last.index == u64::MAX {
            return Err(Rejection::Gap { expected: base.index, found: last.index });
        }
        self.hard_state = state;
        self.base = base;
        self.first = last.index + 1;
        self.cached_from = self.first;
        self.check_commit(state.commit)
    }

    pub(crate) fn last_index(&self) -> u64 {
        self.first - 1 + self.slots.len() as u64
    }

    /// The index and term of the last entry, or of the point after which the log starts.
    pub(crate) fn last(&self) -> LogId {
        self.slots
            .back()
            .map_or(self.base, |slot| LogId { index: self.last_index(), term: slot.term })
    }

    /// Whether every entry after the base is there.
    pub(crate) fn is_complete(&self) -> bool {
        self.first == self.base.index + 1
    }

    pub(crate) fn slot(&self, index: u64) -> Option<&EntrySlot> {
        let at = index.checked_sub(self.first)?;
        self.slots.get(usize::try_from(at).ok()?)
    }

    pub(crate) fn term(&self, index: u64) -> Option<u64> {
        if index == self.base.index {
            return Some(self.base.term);
        }
        self.slot(index).map(|slot| slot.term)
    }

    /// Checks whether a batch may be written, without changing anything.
    pub(crate) fn check(&self, batch: &LogBatch<'_>) -> Result<(), Rejection> {
        let mut last = self.last_index();
        let mut commit = self.hard_state.commit;
        if let Some(point) = batch.snapshot {
            self.check_snapshot(point)?;
            (last, commit) = (point.index, point.index);
        }
        for (at, entry) in batch.entries.iter().enumerate() {
            let expected = if at == 0 { entry.index.min(last.saturating_add(1)) } else { last + 1 };
            check_entry(expected, entry.index, commit)?;
            let before = match (at.checked_sub(1), batch.snapshot) {
                (Some(before), _) => Some(batch.entries[before].term),
                (None, Some(point)) => Some(point.term),
                (None, None) => self.term(entry.index - 1),
            };
            check_term(entry.index, before, entry.term)?;
            last = entry.index;
        }
        let Some(state) = batch.hard_state else { return Ok(()) };
        self.check_hard_state(state)?;
        if state.commit < commit {
            return Err(Rejection::CommitBack { from: commit, to: state.commit });
        }
        if state.commit > last {
            return Err(Rejection::CommitBeyond { commit: state.commit, last });
        }
        Ok(())
    }

    /// Adds an entry, after dropping those at its index and later.
    pub(crate) fn append(&mut self, index: u64, slot: EntrySlot) -> Result<(), Rejection> {
        check_entry(index.min(self.last_index() + 1), index, self.hard_state.commit)?;
        check_term(index, self.term(index - 1), slot.term)?;
        self.truncate(index);
        self.cached_bytes += slot.payload.as_ref().map_or(0, Bytes::len);
        self.slots.push_back(slot);
        self.evict();
        Ok(())
    }

    pub(crate) fn set_hard_state(&mut self, state: HardState) -> Result<(), Rejection> {
        self.check_hard_state(state)?;
        if state.commit < self.hard_state.commit {
            return Err(Rejection::CommitBack { from: self.hard_state.commit, to: state.commit });
        }
        self.check_commit(state.commit)?;
        self.hard_state = state;
        Ok(())
    }

    /// Empties the log, which then continues after this point.
    pub(crate) fn reset(&mut self, point: LogId) -> Result<(), Rejection> {
        self.check_snapshot(point)?;
        self.slots.clear();
        self.cached_bytes = 0;
        self.first = point.index + 1;
        self.cached_from = self.first;
        self.base = point;
        // Everything in a snapshot is committed.
        self.hard_state.commit = point.index;
        Ok(())
    }

    pub(crate) fn check_compact(&self, point: LogId) -> Result<(), Rejection> {
        if point.index > self.hard_state.commit {
            let commit = self.hard_state.commit;
            return Err(Rejection::CompactBeyondCommit { index: point.index, commit });
        }
        if point.index < self.base.index {
            let base = self.base.index;
            return Err(Rejection::Compacted { index: point.index, base });
        }
        Ok(())
    }

    /// Drops the entries up to this point.
    pub(crate) fn compact(&mut self, point: LogId) -> Result<(), Rejection> {
        self.check_compact(point)?;
        self.base = point;
        while self.first <= point.index && !self.slots.is_empty() {
            let dropped = self.slots.pop_front();
            self.first += 1;
            self.cached_bytes -=
                dropped.and_then(|slot| slot.payload).map_or(0, |payload| payload.len());
        }
        self.first = self.first.max(point.index + 1);
        self.cached_from = self.cached_from.max(self.first);
        Ok(())
    }

    /// The oldest segment that an entry after the base needs, if there is an entry.
    pub(crate) fn oldest_segment(&self) -> Option<u64> {
        self.slots.front().map(|slot| slot.segment)
    }

    fn truncate(&mut self, from: u64) {
        let keep = from.saturating_sub(self.first);
        while self.slots.len() as u64 > keep {
            let dropped = self.slots.pop_back();
            self.cached_bytes -=
                dropped.and_then(|slot| slot.payload).map_or(0, |payload| payload.len());
        }
        // The next line changes `first` only during recovery, if the entry replaces one of a segment that has been
        // removed.
        self.first = self.first.min(from);
        self.cached_from = self.cached_from.min(from);
    }

    fn evict(&mut self) {
        while self.cached_bytes > self.cache_bytes_max && self.cached_from <= self.last_index() {
            let at = usize::try_from(self.cached_from - self.first).unwrap_or(usize::MAX);
            let dropped = self.slots.get_mut(at).and_then(|slot| slot.payload.take());
            self.cached_bytes -= dropped.map_or(0, |payload| payload.len());
            self.cached_from += 1;
        }
    }

    fn check_commit(&self, commit: u64) -> Result<(), Rejection> {
        let last = self.last_index();
        if commit > last {
            return Err(Rejection::CommitBeyond { commit, last });
        }
        Ok(())
    }

    fn check_snapshot(&self, point: LogId) -> Result<(), Rejection> {
        let commit = self.hard_state.commit;
        if point.index < commit {
            return Err(Rejection::SnapshotBelowCommit { index: point.index, commit });
        }
        if point.index == u64::MAX {
            return Err(Rejection::Gap { expected: commit, found: point.index });
        }
        Ok(())
    }

    fn check_hard_state(&self, state: HardState) -> Result<(), Rejection> {
        let now = self.hard_state;
        if state.term < now.term {
            return Err(Rejection::TermBack { from: now.term, to: state.term });
        }
        if state.term == now.term && now.vote.is_some() && state.vote != now.vote {
            return Err(Rejection::SecondVote { term: state.term });
        }
        Ok(())
    }
}

fn check_entry(expected: u64, found: u64, commit: u64) -> Result<(), Rejection> {
    if found != expected || found == u64::MAX {
        return Err(Rejection::Gap { expected, found });
    }
    if found <= commit {
        return Err(Rejection::BelowCommit { index: found, commit });
    }
    Ok(())
}

fn check_term(index: u64, before: Option<u64>, term: u64) -> Result<(), Rejection> {
    match before {
        Some(before) if term < before => Err(Rejection::EntryTermBack { index, before, term }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LogEntry;

    fn entry(index: u64, term: u64) -> LogEntry {
        LogEntry { index, term, kind: 0, payload: Bytes::from(vec![1; 10]) }
    }

    fn view(entries: u64, commit: u64) -> LogView {
        let mut view = LogView::new(35);
        for index in 1..=entries {
            append(&mut view, entry(index, 2)).unwrap();
        }
        view.set_hard_state(HardState { term: 2, vote: Some(1), commit }).unwrap();
        view
    }

    fn append(view: &mut LogView, entry: LogEntry) -> Result<(), Rejection> {
        let placed = Placed { offset: 0, length: 0 };
        let payload = Some(entry.payload);
        let slot =
            EntrySlot { term: entry.term, kind: 0, segment: entry.index / 4, placed, payload };
        view.append(entry.index, slot)
    }

    #[test]
    fn what_a_correct_member_never_writes_is_refused() {
        let view = view(5, 3);
        let refuse = |entries: &[LogEntry], hard_state, snapshot| {
            view.check(&LogBatch { entries, hard_state, snapshot, notes: None }).unwrap_err()
        };
        let state = |term, vote, commit| Some(HardState { term, vote, commit });
        assert!(matches!(refuse(&[entry(7, 2)], None, None), Rejection::Gap { expected: 6, .. }));
        assert!(matches!(refuse(&[entry(3, 2)], None, None), Rejection::BelowCommit { .. }));
        assert!(matches!(refuse(&[entry(6, 1)], None, None), Rejection::EntryTermBack { .. }));
        let gap = [entry(6, 2), entry(8, 2)];
        assert!(matches!(refuse(&gap, None, None), Rejection::Gap { expected: 7, found: 8 }));
        assert!(matches!(refuse(&[], state(1, None, 3), None), Rejection::TermBack { .. }));
        assert!(matches!(refuse(&[], state(2, Some(2), 3), None), Rejection::SecondVote { .. }));
        assert!(matches!(refuse(&[], state(2, None, 3), None), Rejection::SecondVote { .. }));
        assert!(matches!(refuse(&[], state(2, Some(1), 2), None), Rejection::CommitBack { .. }));
        assert!(matches!(refuse(&[], state(2, Some(1), 6), None), Rejection::CommitBeyond { .. }));
        let point = Some(LogId { index: 2, term: 2 });
        assert!(matches!(refuse(&[], None, point), Rejection::SnapshotBelowCommit { .. }));
        let shorter = [entry(4, 3)];
        let state = state(3, Some(9), 4);
        assert!(
            view.check(&LogBatch { entries: &shorter, hard_state: state, ..LogBatch::default() })
                .is_ok()
        );
    }

    #[test]
    fn a_later_entry_for_an_index_replaces_the_suffix() {
        let mut view = view(5, 3);
        append(&mut view, entry(4, 3)).unwrap();
        assert_eq!(view.last(), LogId { index: 4, term: 3 });
        assert_eq!(view.term(5), None);
    }

    #[test]
    fn payloads_in_memory_stay_within_their_bound() {
        let mut view = view(20, 10);
        let cached = |view: &LogView| {
            (1..=view.last_index())
                .filter(|index| view.slot(*index).is_some_and(|slot| slot.payload.is_some()))
                .collect::<Vec<_>>()
        };
        assert_eq!(cached(&view), [18, 19, 20]);
        append(&mut view, entry(19, 3)).unwrap();
        assert_eq!(cached(&view), [18, 19]);
        view.compact(LogId { index: 10, term: 2 }).unwrap();
        append(&mut view, entry(20, 3)).unwrap();
        append(&mut view, entry(21, 3)).unwrap();
        assert_eq!(cached(&view), [19, 20, 21]);
        assert_eq!(view.oldest_segment(), Some(2));
        view.reset(LogId { index: 30, term: 4 }).unwrap();
        assert_eq!((view.cached_bytes, view.last_index(), view.hard_state.commit), (0, 30, 30));
    }
}
