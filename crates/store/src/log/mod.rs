//! Writes batches to the log, makes them durable, and drops what is no longer needed.
//!
//! The log is one stream of records over numbered segment files. A batch is one write and takes effect whole: recovery
//! keeps all of its records or none. An entry for an index that the log already has replaces it and everything after
//! it; bytes on disk are never rewritten, the later record wins. The hard state is written to the same stream, so one
//! sync covers both.
//!
//! Segments are filled in order. The log seals and syncs a full segment before it writes to the next, so only the
//! newest can have a torn tail. Each record says how far its segment was durable when it was written, which lets
//! recovery tell a torn tail from damage; see `recover`.

mod cut;
#[cfg(test)]
mod hostile;
mod prepare;
mod read;
mod record;
mod recover;
mod segment;
mod types;
mod view;

use std::{
    collections::VecDeque,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

pub use cut::{Cut, CutCause};
pub use prepare::{Preparation, PreparedSegment};
pub use recover::Recovered;
pub use segment::{SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN};
pub use types::{
    HardState, LogBatch, LogEntry, LogId, LogOptions, NOTES_BYTES_MAX, Position, Presence, Room,
    Synced, WrittenBatch,
};

use crate::{
    Fatal, OpenError, Rejection, WriteError,
    disk::{Disk, File, is_full, write_zeros},
};
use record::{Encoder, HEADER_BYTES, LogRecord, START_BYTES, entry_bytes};
use segment::{DIR, FIRST_RECORD, Segment};
use types::capacity;
use view::{EntrySlot, LogView};

/// The unit that a disk writes whole.
const SECTOR_BYTES: u32 = 512;

/// The log of one member.
#[derive(Debug)]
pub struct Log {
    disk: Arc<dyn Disk>,
    options: LogOptions,
    view: LogView,
    /// The segments, oldest first; the log writes to the last.
    segments: VecDeque<Segment>,
    tail: Tail,
    next: Option<Segment>,
    spares_named: u64,
    buffer: Vec<u8>,
    stopped: Arc<AtomicBool>,
}

/// Where the last segment ends.
#[derive(Debug, Clone, Copy)]
struct Tail {
    end: u32,
    durable: u32,
    /// The durable mark of the last record written.
    marked: u32,
    previous: u32,
    started: bool,
}

/// A sync that can run on another thread while the log is written.
#[derive(Debug)]
pub struct SyncJob {
    file: Arc<dyn File>,
    through: Position,
    stopped: Arc<AtomicBool>,
}

/// The result of a [`SyncJob`]; the caller gives it to [`Log::finish_sync`].
#[derive(Debug)]
#[must_use]
pub struct SyncReport {
    through: Position,
    outcome: io::Result<Duration>,
}

#[cfg(feature = "sim")]
impl SyncReport {
    /// The report of a sync that took this long, if it succeeded.
    pub(crate) fn after(self, took: Duration) -> Self {
        Self { outcome: self.outcome.map(|_| took), ..self }
    }
}

impl Log {
    /// Opens the log and recovers its content. Everything that this returns is durable.
    pub fn open(disk: Arc<dyn Disk>, options: LogOptions) -> Result<(Self, Recovered), OpenError> {
        recover::open(disk, options)
    }

    /// Writes a batch. It can be read at once, and is durable after the next [`Log::sync`].
    pub fn write(&mut self, batch: &LogBatch<'_>) -> Result<WrittenBatch, WriteError> {
        self.check_running()?;
        self.view.check(batch).map_err(WriteError::Rejected)?;
        let notes = batch.notes.unwrap_or(&self.view.notes).len().max(self.view.notes.len());
        let max = capacity(self.options.segment_bytes).saturating_sub(copy_bytes(notes));
        let bytes = match batch.bytes() {
            Some(bytes) if bytes <= max => bytes,
            found => {
                let bytes = found.map_or(u64::MAX, u64::from);
                let max = u64::from(max);
                return Err(WriteError::Rejected(Rejection::TooLarge { bytes, max }));
            }
        };
        if bytes == 0 {
            return Ok(WrittenBatch { end: self.written(), bytes, rolled: false });
        }
        let rolled = self.make_room(bytes)?;
        let mut places = Vec::with_capacity(batch.entries.len());
        let parts = usize::from(batch.snapshot.is_some())
            + batch.entries.len()
            + usize::from(batch.hard_state.is_some())
            + usize::from(batch.notes.is_some());
        let written = self.append(|encoder| {
            let mut left = parts;
            let mut push = |record: &LogRecord<'_>| {
                left -= 1;
                encoder.push(record, left == 0)
            };
            if let Some(point) = batch.snapshot {
                push(&LogRecord::Snapshot(point));
            }
            if let Some(notes) = batch.notes {
                push(&LogRecord::Notes(notes));
            }
            for LogEntry { index, term, kind, payload } in batch.entries {
                let (index, term, kind) = (*index, *term, *kind);
                places.push(push(&LogRecord::Entry { index, term, kind, payload }));
            }
            if let Some(state) = batch.hard_state {
                push(&LogRecord::HardState(state));
            }
        })?;
        self.take_effect(batch, &places);
        Ok(WrittenBatch { end: self.written(), bytes: written, rolled })
    }

    /// Makes everything written so far durable. On an error the process must stop at once.
    pub fn sync(&mut self) -> Result<Synced, Fatal> {
        self.check_running()?;
        match self.begin_sync()? {
            Some(job) => {
                let report = job.run();
                self.finish_sync(report)
            }
            None => Ok(Synced { through: self.durable(), took: Duration::ZERO }),
        }
    }

    /// The sync of everything written so far, for the caller to run elsewhere; `None` if all is durable.
    pub fn begin_sync(&self) -> Result<Option<SyncJob>, Fatal> {
        self.check_running()?;
        let file = self.active().file.clone();
        let job = SyncJob { file, through: self.written(), stopped: self.stopped.clone() };
        Ok((self.tail.durable < self.tail.end).then_some(job))
    }

    /// Takes in the result of a sync. On an error the process must stop at once.
    pub fn finish_sync(&mut self, report: SyncReport) -> Result<Synced, Fatal> {
        let took = match report.outcome {
            Ok(took) => took,
            Err(source) => return Err(self.stop("sync the log", source)),
        };
        self.check_running()?;
        // A segment that was sealed in the meantime was synced then.
        if report.through.segment == self.active().number {
            let through =
                if mutant!("late_sync_covers_all") { self.tail.end } else { report.through.offset };
            self.tail.durable = self.tail.durable.max(through);
        }
        Ok(Synced { through: self.durable(), took })
    }

    /// Records durably how far the log is durable. Without this mark recovery could not tell damage to the newest batch
    /// from a torn write: call it when the log goes quiet or is closed.
    pub fn mark(&mut self) -> Result<(), WriteError> {
        self.sync()?;
        if self.write_mark()? {
            self.sync()?;
        }
        Ok(())
    }

    /// Records how far the log is durable, without waiting for the record itself to become durable. Returns whether
    /// there was anything to record.
    pub fn write_mark(&mut self) -> Result<bool, WriteError> {
        self.check_running()?;
        let needed = self.tail.marked < self.tail.durable;
        if needed {
            self.make_room(SECTOR_BYTES + 2 * HEADER_BYTES)?;
            self.append(|encoder| {
                // Put the mark in a sector of its own, so that damage to what it marks does not take the mark along.
                let mut gap = encoder.offset().next_multiple_of(SECTOR_BYTES) - encoder.offset();
                if gap > 0 {
                    if gap < HEADER_BYTES {
                        gap += SECTOR_BYTES;
                    }
                    encoder.push(&LogRecord::Durable { filler: gap - HEADER_BYTES }, true);
                }
                encoder.push(&LogRecord::Durable { filler: 0 }, true);
            })?;
        }
        Ok(needed)
    }

    /// Drops entries up to this index, and the segments that only they needed. A snapshot at this index or later must
    /// be durable.
    pub fn compact_to(&mut self, index: u64) -> Result<(), WriteError> {
        self.check_running()?;
        let rejected = WriteError::Rejected;
        self.view.check_compact(LogId { index, term: 0 }).map_err(rejected)?;
        if index == self.view.base.index {
            self.sync()?;
            return self.drop_segments().map_err(WriteError::Fatal);
        }
        let term = self.view.term(index).expect("entries after the base are there");
        let point = LogId { index, term };
        self.make_room(HEADER_BYTES)?;
        self.append(|encoder| {
            encoder.push(&LogRecord::Compact(point), true);
        })?;
        self.view.compact(point).expect("the point was checked before it was written");
        // The new start of the log must be durable before the segments below it are removed.
        self.sync()?;
        self.drop_segments().map_err(WriteError::Fatal)
    }

    /// The space that is left for writing.
    pub fn room(&self) -> io::Result<Room> {
        Ok(Room {
            in_segment: u64::from(self.free_in_active()),
            in_next: self.next.as_ref().map_or(0, |next| u64::from(capacity(next.bytes))),
            on_disk: self.disk.free_bytes()?,
        })
    }

    /// The hard state as of the last batch written.
    pub fn hard_state(&self) -> HardState {
        self.view.hard_state
    }

    /// The notes as of the last batch written that had any.
    pub fn notes(&self) -> &[u8] {
        &self.view.notes
    }

    /// The point after which the log starts.
    pub fn base(&self) -> LogId {
        self.view.base
    }

    /// The first index in the log, or the next one if the log is empty.
    pub fn first_index(&self) -> u64 {
        self.view.base.index + 1
    }

    /// The last index in the log, or the index of the base if the log is empty.
    pub fn last_index(&self) -> u64 {
        self.view.last_index()
    }

    /// The last entry, or the base if there is none.
    pub fn last(&self) -> LogId {
        self.view.last()
    }

    /// The position at which the next batch starts.
    pub fn written(&self) -> Position {
        Position { segment: self.active().number, offset: self.tail.end }
    }

    /// The position before which everything is durable.
    pub fn durable(&self) -> Position {
        Position { segment: self.active().number, offset: self.tail.durable }
    }

    /// The total size of the segment files, including a prepared one.
    pub fn bytes(&self) -> u64 {
        self.segments.iter().chain(&self.next).map(|segment| u64::from(segment.bytes)).sum()
    }

    /// The number of bytes written and not known to be durable.
    pub fn unsynced_bytes(&self) -> u64 {
        u64::from(self.tail.end - self.tail.durable)
    }

    /// The number of segment files, not counting a prepared one.
    pub fn segments(&self) -> usize {
        self.segments.len()
    }

    fn active(&self) -> &Segment {
        self.segments.back().expect("a log has a segment")
    }

    fn check_running(&self) -> Result<(), Fatal> {
        if self.stopped.load(Ordering::Acquire) { Err(Fatal::Stopped) } else { Ok(()) }
    }

    fn stop(&self, doing: &'static str, source: io::Error) -> Fatal {
        self.stopped.store(true, Ordering::Release);
        Fatal::Disk { doing, source }
    }

    fn free_in_active(&self) -> u32 {
        let copy = copy_bytes(self.view.notes.len());
        let start = if self.tail.started { 0 } else { START_BYTES + copy };
        (self.active().bytes - HEADER_BYTES).saturating_sub(self.tail.end + start)
    }

    /// Rolls to a new segment if the active one has no room for these bytes, and returns whether it did.
    fn make_room(&mut self, bytes: u32) -> Result<bool, WriteError> {
        let mut rolled = false;
        // A segment left by an earlier run may be smaller than the setting, so one roll may not suffice.
        while self.free_in_active() < bytes {
            self.roll()?;
            rolled = true;
        }
        Ok(rolled)
    }

    fn roll(&mut self) -> Result<(), WriteError> {
        // The next segment must exist before this one names it as its successor.
        self.prepare_next()?;
        let number = self.active().number + 1;
        self.append(|encoder| {
            encoder.push(&LogRecord::Seal { next: number }, true);
        })?;
        self.sync()?;
        let next = self.next.take().expect("the next segment was just prepared");
        assert_eq!(next.number, number, "segments are numbered without holes");
        self.segments.push_back(next);
        self.tail = Tail::empty(self.tail.previous);
        Ok(())
    }

    /// Writes records after the tail in one write, and returns how many bytes that took.
    fn append(&mut self, push: impl FnOnce(&mut Encoder<'_>)) -> Result<u32, WriteError> {
        let segment = self.segments.back().expect("a log has a segment");
        self.buffer.clear();
        let mut encoder = Encoder {
            buffer: &mut self.buffer,
            seed: segment.seed,
            start: self.tail.end,
            previous: self.tail.previous,
            durable: self.tail.durable,
        };
        if !self.tail.started {
            let (base, last) = (self.view.base, self.view.last());
            let hard_state = self.view.hard_state;
            encoder.push(&LogRecord::Start { base, last, hard_state }, true);
            if !self.view.notes.is_empty() {
                // Repeat the notes: the segment that holds them may be dropped before new notes are written.
                encoder.push(&LogRecord::Notes(&self.view.notes), true);
            }
        }
        push(&mut encoder);
        let (end, previous) = (encoder.offset(), encoder.previous);
        assert!(end <= segment.bytes, "a batch fits in its segment");
        let offset = u64::from(self.tail.end);
        if let Err(error) = segment.file.write_at(offset, &self.buffer) {
            if !is_full(&error) {
                return Err(self.stop("write the log", error).into());
            }
            // Part of the batch may be on the disk. Without the rest recovery does not take it for a batch, and the
            // next batch starts at the same offset with other checksums. The zeros are only for tidiness, so it does
            // not matter if the disk is too full even for them.
            return match write_zeros(&*segment.file, offset, self.buffer.len() as u64) {
                Err(error) if !is_full(&error) => {
                    Err(self.stop("undo a write to the log", error).into())
                }
                _ => Err(WriteError::NoSpace),
            };
        }
        let bytes = end - self.tail.end;
        let Tail { durable, .. } = self.tail;
        self.tail = Tail { end, durable, marked: durable, previous, started: true };
        Ok(bytes)
    }

    fn take_effect(&mut self, batch: &LogBatch<'_>, places: &[record::Placed]) {
        let checked = "the batch was checked before it was written";
        if let Some(point) = batch.snapshot {
            self.view.reset(point).expect(checked);
        }
        let segment = self.active().number;
        for (entry, placed) in batch.entries.iter().zip(places) {
            let payload = Some(entry.payload.clone());
            let slot =
                EntrySlot { term: entry.term, kind: entry.kind, segment, placed: *placed, payload };
            self.view.append(entry.index, slot).expect(checked);
        }
        if let Some(state) = batch.hard_state {
            self.view.set_hard_state(state).expect(checked);
        }
        if let Some(notes) = batch.notes {
            self.view.notes = notes.to_vec();
        }
    }

    /// Removes the segments that no entry needs, oldest first. Each removal is durable before the next, so that a crash
    /// never leaves a hole.
    fn drop_segments(&mut self) -> Result<(), Fatal> {
        let oldest = self.view.oldest_segment().unwrap_or(self.active().number);
        // Only a start record in the active segment repeats everything that must outlive the dropped segments.
        if !self.tail.started {
            return Ok(());
        }
        while self.segments.front().is_some_and(|segment| segment.number < oldest) {
            let number = self.segments.front().map_or(0, |segment| segment.number);
            let removed =
                self.disk.remove(&segment::name(number)).and_then(|()| self.disk.sync_dir(DIR));
            if let Err(source) = removed {
                return Err(self.stop("remove a segment", source));
            }
            self.segments.pop_front();
        }
        Ok(())
    }
}

/// The bytes that a new segment needs for its copy of the notes.
fn copy_bytes(notes: usize) -> u32 {
    if notes == 0 { 0 } else { entry_bytes(notes).unwrap_or(u32::MAX) }
}

impl Tail {
    fn empty(previous: u32) -> Self {
        Self {
            end: FIRST_RECORD,
            durable: FIRST_RECORD,
            marked: FIRST_RECORD,
            previous,
            started: false,
        }
    }
}

impl SyncJob {
    /// Syncs the file. If this fails, the process must stop, whether or not the report reaches the log.
    pub fn run(self) -> SyncReport {
        let outcome = self.file.sync();
        if outcome.is_err() {
            // Stop the log at once: it may be writing on another thread, on top of data that did not last.
            self.stopped.store(true, Ordering::Release);
        }
        SyncReport { through: self.through, outcome }
    }
}
