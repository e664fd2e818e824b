//! Defines the values that the log takes and returns.

use std::time::Duration;

use bytes::Bytes;

use super::{
    record::{HEADER_BYTES, LogRecord, START_BYTES, entry_bytes, notes_bytes},
    segment::{FIRST_RECORD, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN},
};
use crate::OpenError;

/// One entry of the replicated log. The store does not interpret `kind` and `payload`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEntry {
    /// The place in the log, counted from 1.
    pub index: u64,
    /// The term of the leader that proposed it.
    pub term: u64,
    /// A small number kept with the entry.
    pub kind: u8,
    /// The agreed bytes.
    pub payload: Bytes,
}

/// What a member must keep durably besides its entries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HardState {
    /// The latest term seen.
    pub term: u64,
    /// The member voted for in that term.
    pub vote: Option<u64>,
    /// The last index known to be committed.
    pub commit: u64,
}

/// A place in the replicated log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogId {
    /// Index of an entry; 0 is the point before the first.
    pub index: u64,
    /// Term of that entry.
    pub term: u64,
}

/// A place in the stream of bytes over all segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Number of the segment.
    pub segment: u64,
    /// Offset inside it.
    pub offset: u32,
}

/// Changes that take effect together or not at all, in this order.
#[derive(Debug, Clone, Copy, Default)]
pub struct LogBatch<'a> {
    /// Empties the log, which then continues after this point. The snapshot must be durable already.
    pub snapshot: Option<LogId>,
    /// Entries with successive indexes; the first may replace one that is not committed.
    pub entries: &'a [LogEntry],
    /// The hard state after the entries.
    pub hard_state: Option<HardState>,
    /// Replaces the notes written before: at most [`NOTES_BYTES_MAX`] bytes, which the store does not interpret.
    pub notes: Option<&'a [u8]>,
}

/// The largest size of the notes. Every segment begins with a copy of them, and the smallest segment must have room for
/// batches besides.
pub const NOTES_BYTES_MAX: usize = 2 * 1024;

/// A batch that is in the log and durable once [`Log::durable`](crate::Log::durable) has reached its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WrittenBatch {
    /// The position at which the batch ends.
    pub end: Position,
    /// The number of bytes written.
    pub bytes: u32,
    /// Whether the write sealed and synced a segment.
    pub rolled: bool,
}

/// A sync that succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Synced {
    /// The position before which everything is durable.
    pub through: Position,
    /// The time that the disk took.
    pub took: Duration,
}

/// The space that is left for writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// The bytes of batches that fit in the current segment.
    pub in_segment: u64,
    /// The bytes of batches that fit in the next segment, if it is prepared.
    pub in_next: u64,
    /// The free bytes on the disk; a further segment needs [`LogOptions::segment_bytes`] of them.
    pub on_disk: u64,
}

/// Whether a log may be created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Presence {
    /// Create the log if it is absent.
    #[default]
    MayBeNew,
    /// The member has been started before: a missing log is an error, not a new beginning.
    MustExist,
}

/// Settings of a log.
#[derive(Debug, Clone, Copy)]
pub struct LogOptions {
    /// The size of new segments.
    pub segment_bytes: u32,
    /// The number of bytes of recent payloads to keep in memory.
    pub cache_bytes: usize,
    /// A number that is fresh and unpredictable at each open. New segments mix it into their
    /// checksums, so that a client cannot send bytes that look like a record.
    pub salt: u64,
    /// Whether the log may be created.
    pub presence: Presence,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self {
            segment_bytes: 64 * 1024 * 1024,
            cache_bytes: 64 * 1024 * 1024,
            salt: 0,
            presence: Presence::MayBeNew,
        }
    }
}

impl LogOptions {
    /// The most bytes a batch may need on disk: the capacity of an empty segment, less its copy of the notes if there
    /// are any. An entry needs its payload, 40 bytes, and up to 7 bytes of padding.
    pub fn batch_bytes_max(&self) -> u64 {
        u64::from(capacity(self.segment_bytes))
    }

    pub(super) fn check(&self) -> Result<(), OpenError> {
        let (found, min, max) = (self.segment_bytes, SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX);
        if found < min || found > max || !found.is_multiple_of(512) {
            return Err(OpenError::SegmentBytes { found, min, max });
        }
        Ok(())
    }
}

/// The bytes that fit in a segment besides its header, its start record and its seal record.
pub(super) fn capacity(segment_bytes: u32) -> u32 {
    segment_bytes - FIRST_RECORD - START_BYTES - HEADER_BYTES
}

impl LogBatch<'_> {
    /// The bytes that this batch needs on disk; `None` if the number overflows.
    pub fn bytes(&self) -> Option<u32> {
        let mut bytes = if self.snapshot.is_some() { HEADER_BYTES } else { 0 };
        for entry in self.entries {
            bytes = bytes.checked_add(entry_bytes(entry.payload.len())?)?;
        }
        bytes = bytes.checked_add(self.notes.map_or(Some(0), notes_bytes)?)?;
        bytes.checked_add(if self.hard_state.is_some() { LogRecord::HARD_STATE_BYTES } else { 0 })
    }
}
