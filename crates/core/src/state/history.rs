//! Keeps the events of the newest revisions and drops the oldest ones.
//!
//! Events are kept in encoded form, one record per revision, in segments. The set of records is part of the state; the
//! division into segments is not.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use tenure_types::Revision;

use crate::codec::{EventRef, Malformed, Reader, get_event, get_label, put_event, put_label};
use crate::event::TimeLabel;

/// The size at which a segment is closed: small enough to skip through, large enough to keep segments few.
const SEGMENT_BYTES: usize = 64 * 1024;

/// Room for the last record of a segment, which crosses that size. Without it the segment would be copied to grow.
const LAST_BYTES: usize = 4 * 1024;

/// The least distance between two marks of a segment. Every turn reads the newest records, so the way to them is short.
const MARK_BYTES: usize = 2 * 1024;

/// The length and revision ahead of the events of a record.
pub(crate) const HEAD: usize = 8 + 8;

#[derive(Clone, Default)]
struct HistorySegment {
    first: Revision,
    last: Revision,
    bytes: Vec<u8>,
    /// The revisions of some records, and where these start.
    marks: Vec<(Revision, usize)>,
}

impl HistorySegment {
    /// A position at or ahead of the first record from a revision on.
    fn position(&self, from: Revision) -> usize {
        let after = self.marks.partition_point(|(revision, _)| *revision <= from);
        after.checked_sub(1).map_or(0, |mark| self.marks[mark].1)
    }
}

/// The events of the newest revisions.
#[derive(Clone)]
pub(crate) struct History {
    /// The oldest revision that can be read.
    floor: Revision,
    closed: VecDeque<Arc<HistorySegment>>,
    open: HistorySegment,
    /// Where the oldest kept record starts in the first segment.
    skip: usize,
    /// Bytes of all kept records.
    bytes: u64,
    /// Where the record being written starts, if one is open.
    writing: Option<usize>,
    /// The label of the entry being applied, which every new record gets. Not part of the state.
    label: Option<TimeLabel>,
}

impl History {
    pub(crate) fn new(floor: Revision) -> Self {
        Self {
            floor,
            closed: VecDeque::new(),
            open: HistorySegment::default(),
            skip: 0,
            bytes: 0,
            writing: None,
            label: None,
        }
    }

    pub(crate) fn floor(&self) -> Revision {
        self.floor
    }

    /// Bytes of all kept records.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds an event to the record of `revision`. The first event begins the record.
    pub(crate) fn emit(&mut self, revision: Revision, event: &EventRef<'_>) {
        self.emit_inlined(revision, event);
    }

    /// The same, for the events of the most frequent commands.
    #[inline(always)]
    pub(crate) fn emit_inlined(&mut self, revision: Revision, event: &EventRef<'_>) {
        if self.writing.is_none() {
            self.begin(revision);
            if let Some(label) = self.label {
                put_label(&mut self.open.bytes, label);
            }
        }
        put_event(&mut self.open.bytes, event);
    }

    /// Sets the label of the records that follow.
    pub(crate) fn set_label(&mut self, label: Option<TimeLabel>) {
        self.label = label;
    }

    /// The label of the records that follow.
    pub(crate) fn label(&self) -> Option<TimeLabel> {
        self.label
    }

    /// Completes the open record, if any.
    pub(crate) fn commit(&mut self) {
        let Some(start) = self.writing.take() else { return };
        let len = (self.open.bytes.len() - start - 8) as u64;
        self.open.bytes[start..start + 8].copy_from_slice(&len.to_le_bytes());
        self.bytes += len + 8;
    }

    /// Appends a record read from a snapshot.
    pub(crate) fn append_record(
        &mut self,
        revision: Revision,
        events: &[u8],
    ) -> Result<(), Malformed> {
        check_events(events)?;
        self.begin(revision);
        self.open.bytes.extend_from_slice(events);
        self.commit();
        Ok(())
    }

    /// Drops every record below `keep`.
    pub(crate) fn compact(&mut self, keep: Revision) {
        while self.floor < keep && self.drop_oldest() {}
        // If no record is left, the floor is the revision at which the next record may start.
        self.floor = self.floor.max(keep);
    }

    /// Drops the oldest revision; `false` if there is none.
    pub(crate) fn drop_oldest(&mut self) -> bool {
        let Some((revision, len)) = self.oldest() else { return false };
        self.skip += len;
        self.bytes -= len as u64;
        self.floor = revision.next();
        let first = self.closed.front().map_or(&self.open, |segment| segment);
        if self.skip == first.bytes.len() {
            self.skip = 0;
            if self.closed.pop_front().is_none() {
                self.open.bytes.clear();
                self.open.marks.clear();
            }
        }
        true
    }

    /// The kept records from a revision on, each as its revision and encoded events.
    pub(crate) fn records(&self, from: Revision) -> impl Iterator<Item = (Revision, &[u8])> {
        let passed = self.closed.partition_point(|segment| segment.last < from);
        let segments = self.closed.range(passed..).map(|segment| &**segment).chain([&self.open]);
        segments
            .enumerate()
            .flat_map(move |(number, segment)| {
                let skipped = if passed + number == 0 { self.skip } else { 0 };
                let start = if number == 0 { segment.position(from) } else { 0 };
                HistoryRecords { bytes: &segment.bytes[start.max(skipped)..] }
            })
            .filter(move |&(revision, _)| revision >= from)
    }

    /// Copies all records from a revision on, in the form that [`read_records`] reads. Returns them with the newest
    /// revision among them; none if they have more bytes than that.
    pub(crate) fn copy_from(
        &self,
        from: Revision,
        bytes_max: usize,
    ) -> Option<(Vec<u8>, Revision)> {
        let passed = self.closed.partition_point(|segment| segment.last < from);
        let first = self.closed.get(passed).map_or(&self.open, |segment| segment);
        let skipped = if passed == 0 { self.skip } else { 0 };
        let mut records =
            HistoryRecords { bytes: &first.bytes[first.position(from).max(skipped)..] };
        let mut wanted = records.bytes;
        while records.next().is_some_and(|(revision, _)| revision < from) {
            wanted = records.bytes;
        }
        let later = self.closed.iter().skip(passed + 1).map(|segment| &segment.bytes[..]);
        let open = (passed < self.closed.len()).then_some(&self.open.bytes[..]);
        let parts = core::iter::once(wanted).chain(later).chain(open);
        let bytes = parts.clone().map(<[u8]>::len).sum();
        if bytes > bytes_max {
            return None;
        }
        let mut copy = Vec::with_capacity(bytes);
        parts.for_each(|part| copy.extend_from_slice(part));
        let newest = match self.closed.back() {
            Some(last) if self.open.bytes.is_empty() => last.last,
            _ => self.open.last,
        };
        Some((copy, newest))
    }

    fn begin(&mut self, revision: Revision) {
        if self.open.bytes.len() >= SEGMENT_BYTES {
            let open = core::mem::take(&mut self.open);
            self.open.bytes.reserve(SEGMENT_BYTES + LAST_BYTES);
            self.closed.push_back(Arc::new(open));
        }
        if self.open.bytes.is_empty() {
            self.open.first = revision;
        }
        self.open.last = revision;
        let start = self.open.bytes.len();
        if self.open.marks.last().is_none_or(|(_, mark)| start - mark >= MARK_BYTES) {
            self.open.marks.push((revision, start));
        }
        self.writing = Some(start);
        self.open.bytes.extend_from_slice(&[0; 8]);
        self.open.bytes.extend_from_slice(&revision.0.to_le_bytes());
    }

    fn oldest(&self) -> Option<(Revision, usize)> {
        let first = self.closed.front().map_or(&self.open, |segment| segment);
        let (revision, events) = HistoryRecords { bytes: &first.bytes[self.skip..] }.next()?;
        Some((revision, HEAD + events.len()))
    }
}

/// Checks the events of a record that was read.
pub(crate) fn check_events(events: &[u8]) -> Result<(), Malformed> {
    let mut reader = Reader::new(events);
    get_label(&mut reader)?;
    while !reader.is_empty() {
        get_event(&mut reader)?.to_owned()?;
    }
    Ok(())
}

/// Writes a record in the form that [`read_records`] reads.
pub(crate) fn put_record(out: &mut Vec<u8>, revision: Revision, events: &[u8]) {
    out.extend_from_slice(&(events.len() as u64 + 8).to_le_bytes());
    out.extend_from_slice(&revision.0.to_le_bytes());
    out.extend_from_slice(events);
}

/// Iterates over concatenated records.
pub(crate) fn read_records(bytes: &[u8]) -> impl Iterator<Item = (Revision, &[u8])> {
    HistoryRecords { bytes }
}

struct HistoryRecords<'a> {
    bytes: &'a [u8],
}

impl<'a> Iterator for HistoryRecords<'a> {
    type Item = (Revision, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (len, rest) = self.bytes.split_first_chunk::<8>()?;
        let len = usize::try_from(u64::from_le_bytes(*len)).ok()?;
        let (record, rest) = rest.split_at_checked(len)?;
        let (revision, events) = record.split_first_chunk::<8>()?;
        self.bytes = rest;
        Some((Revision(u64::from_le_bytes(*revision)), events))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::SubjectRef;
    use crate::event::Cause;

    fn filled(revisions: u64) -> History {
        let mut history = History::new(Revision(1));
        let name = [b'n'; 500];
        for revision in 1..=revisions {
            let event = EventRef::new(Cause::Granted, SubjectRef::Lock(&name));
            history.emit(Revision(revision), &event);
            history.commit();
        }
        history
    }

    #[test]
    fn every_revision_is_found_across_segments() {
        let history = filled(1_000);
        assert!(history.closed.len() > 3, "the test needs several segments");
        for from in [1, 2, 128, 500, 1_000] {
            let found: Vec<u64> = history.records(Revision(from)).map(|(r, _)| r.0).collect();
            assert_eq!(found, (from..=1_000).collect::<Vec<_>>());
        }
        assert_eq!(history.records(Revision(1_001)).count(), 0);
    }

    #[test]
    fn the_way_to_the_newest_records_is_short() {
        let history = filled(1_000);
        for from in 1..=1_000 {
            let passed = history.closed.partition_point(|it| it.last < Revision(from));
            let segment = history.closed.get(passed).map_or(&history.open, |it| it);
            let bytes = &segment.bytes[segment.position(Revision(from))..];
            let (first, _) = HistoryRecords { bytes }.next().unwrap();
            assert!(first <= Revision(from) && from - first.0 <= 4, "{from} from {first:?}");
        }
    }

    #[test]
    fn a_copy_has_the_same_records() {
        for keep in [1, 129, 990, 1_001] {
            let mut history = filled(1_000);
            history.compact(Revision(keep));
            for from in keep..=1_001 {
                let (copy, newest) = history.copy_from(Revision(from), usize::MAX).unwrap();
                assert_eq!(newest, Revision(1_000));
                assert!(read_records(&copy).eq(history.records(Revision(from))), "{keep} {from}");
                assert!(
                    copy.is_empty() || history.copy_from(Revision(from), copy.len() - 1).is_none()
                );
            }
        }
    }

    #[test]
    fn records_are_found_after_everything_was_dropped() {
        let mut history = filled(3);
        history.compact(Revision(4));
        assert_eq!(history.records(Revision(0)).count(), 0);
        let event = EventRef::new(Cause::Granted, SubjectRef::Lock(b"n"));
        history.emit(Revision(4), &event);
        history.commit();
        assert_eq!(history.records(Revision(0)).count(), 1);
        assert_eq!(history.records(Revision(4)).count(), 1);
    }

    #[test]
    fn compaction_keeps_exactly_what_it_says() {
        for keep in [1, 2, 129, 130, 131, 1_000, 1_001] {
            let mut history = filled(1_000);
            history.compact(Revision(keep));
            assert_eq!(history.floor(), Revision(keep));
            assert_eq!(history.records(Revision(0)).count() as u64, 1_001 - keep);
            assert_eq!(history.records(Revision(keep)).count() as u64, 1_001 - keep);
            let bytes: usize = history.records(Revision(0)).map(|(_, e)| e.len() + HEAD).sum();
            assert_eq!(history.bytes(), bytes as u64);
        }
    }
}
