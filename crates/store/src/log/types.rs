//! What is asked of a log, and what does it answer?

use std::time::Duration;

use bytes::Bytes;

use super::{
    record::{HEADER_BYTES, Record, START_BYTES, entry_bytes, notes_bytes},
    segment::{FIRST_RECORD, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN},
};
use crate::OpenError;

/// One entry of the replicated log. What `kind` and `payload` mean is not the store's business.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Place in the log, from 1.
    pub index: u64,
    /// Term of the leader that proposed it.
    pub term: u64,
    /// A small number kept with the entry.
    pub kind: u8,
    /// The bytes agreed on.
    pub payload: Bytes,
}

/// What a member must not forget besides its entries.
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
pub struct Point {
    /// Index of an entry; 0 is the point before the first.
    pub index: u64,
    /// Term of that entry.
    pub term: u64,
}

/// A place in the stream of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Number of the segment.
    pub segment: u64,
    /// Offset inside it.
    pub offset: u32,
}

/// Changes that take effect together or not at all, in this order.
#[derive(Debug, Clone, Copy, Default)]
pub struct Batch<'a> {
    /// Empty the log and go on after this point. The snapshot must be durable already.
    pub snapshot: Option<Point>,
    /// Entries with successive indexes; the first may replace one that is not committed.
    pub entries: &'a [Entry],
    /// The hard state after the entries.
    pub hard_state: Option<HardState>,
    /// Takes the place of the notes written before: at most [`NOTES_BYTES_MAX`] bytes, whose meaning
    /// is the caller's.
    pub notes: Option<&'a [u8]>,
}

/// Bytes of notes, at most: every segment begins with a copy of them, and the smallest segment must
/// have room for batches beside it.
pub const NOTES_BYTES_MAX: usize = 2 * 1024;

/// A batch that is in the log and durable once [`Log::durable`](crate::Log::durable) has reached its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// Where the batch ends.
    pub end: Position,
    /// Bytes written.
    pub bytes: u32,
    /// Whether a segment was sealed and synced on the way.
    pub rolled: bool,
}

/// A sync that succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Synced {
    /// Everything before this place is durable.
    pub through: Position,
    /// How long the disk took.
    pub took: Duration,
}

/// How much can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Bytes of batches that fit in the current segment.
    pub in_segment: u64,
    /// Bytes of batches that fit in the next segment, if it is prepared.
    pub in_next: u64,
    /// Bytes free on the disk; a further segment needs [`Options::segment_bytes`] of them.
    pub on_disk: u64,
}

/// Whether a log may be created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Presence {
    /// Create the log if it is not there.
    #[default]
    MayBeNew,
    /// The member has been started before: a missing log is an error, not a new beginning.
    MustExist,
}

/// Settings of a log.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Size of new segments.
    pub segment_bytes: u32,
    /// Bytes of recent payloads kept in memory.
    pub cache_bytes: usize,
    /// A number that is fresh and unpredictable at each open. New segments mix it into their
    /// checksums, so that a client cannot send bytes that look like a record.
    pub salt: u64,
    /// Whether the log may be created.
    pub presence: Presence,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            segment_bytes: 64 * 1024 * 1024,
            cache_bytes: 64 * 1024 * 1024,
            salt: 0,
            presence: Presence::MayBeNew,
        }
    }
}

impl Options {
    /// The most bytes a batch may need on disk: what an empty segment takes, less the copy of the
    /// notes that it begins with if there are any. An entry needs its payload, 40 bytes, and up to 7
    /// of padding.
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

/// What a segment takes besides its header, the record that starts it and the one that seals it.
pub(super) fn capacity(segment_bytes: u32) -> u32 {
    segment_bytes - FIRST_RECORD - START_BYTES - HEADER_BYTES
}

impl Batch<'_> {
    /// Bytes this batch needs on disk, or nothing if that is beyond counting.
    pub fn bytes(&self) -> Option<u32> {
        let mut bytes = if self.snapshot.is_some() { HEADER_BYTES } else { 0 };
        for entry in self.entries {
            bytes = bytes.checked_add(entry_bytes(entry.payload.len())?)?;
        }
        bytes = bytes.checked_add(self.notes.map_or(Some(0), notes_bytes)?)?;
        bytes.checked_add(if self.hard_state.is_some() { Record::HARD_STATE_BYTES } else { 0 })
    }
}
