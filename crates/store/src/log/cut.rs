//! Describes what recovery cut from the end of the log.
//!
//! No durable mark follows the newest batch. If recovery cannot read that batch, it cannot prove whether a sync had
//! covered it, so the member must treat every cut as entries that it may have acknowledged and lost. Two facts help.
//! Headers have their own checksums, so most still name the entries that were cut. A write that a power loss cuts short
//! leaves whole sectors of zeros, because the segment holds nothing but zeros after its end; damage does not.

use std::fmt;

use super::{
    SECTOR_BYTES,
    record::{ALIGN, HEADER_BYTES, RecordHeader, RecordKind},
    segment::Segment,
};

/// The part that recovery cut from the end of the log: every batch from the first unreadable one on.
///
/// The member may have acknowledged the entries in them, and voted in the terms that they name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// The segment that contained the cut.
    pub segment: u64,
    /// The offset of its first byte.
    pub offset: u64,
    /// Its length, up to the last byte that was not zero.
    pub bytes: u64,
    /// What the bytes look like.
    pub cause: CutCause,
    /// The first index that may have been cut: the smaller of the smallest index in a readable header and the index
    /// after the last entry kept.
    pub first_index: u64,
    /// The last index in a readable header; `None` if there is none.
    pub last_index: Option<u64>,
    /// The largest term in a readable header; `None` if there is none.
    pub term: Option<u64>,
}

/// What the bytes of a cut look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CutCause {
    /// A part of the first unreadable batch is zeros, as after a write that a power loss cut short. A disk that lost a
    /// sector which it had reported as durable leaves the same.
    Torn,
    /// Every sector of the batch was written and some content is wrong: the batch was probably durable.
    Damaged,
}

impl fmt::Display for Cut {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { segment, offset, bytes, first_index, .. } = self;
        let cause = match self.cause {
            CutCause::Torn => "torn",
            CutCause::Damaged => "damaged",
        };
        write!(to, "{bytes} {cause} bytes at segment {segment}, offset {offset}: ")?;
        match self.last_index {
            Some(last) => write!(to, "entries {first_index} to {last}"),
            None => write!(to, "entries from {first_index} on, if any"),
        }
    }
}

impl Cut {
    /// The bytes after the end of the stream, unless they are all zeros.
    pub(super) fn find(segment: &Segment, image: &[u8], end: u32, last_kept: u64) -> Option<Self> {
        let rest = &image[end as usize..];
        let bytes = rest.iter().rposition(|byte| *byte != 0)? as u64 + 1;
        let named: Vec<RecordKind> = (end..segment.bytes)
            .step_by(ALIGN as usize)
            .take_while(|offset| u64::from(offset - end) < bytes)
            .filter_map(|offset| RecordHeader::read(image, offset, segment.seed)?.named())
            .collect();
        let entries = || {
            named.iter().filter_map(|named| match named {
                RecordKind::Entry(point) => Some(point.index),
                RecordKind::Term(_) => None,
            })
        };
        let terms = named.iter().map(|named| match named {
            RecordKind::Entry(point) => point.term,
            RecordKind::Term(term) => *term,
        });
        let next = last_kept.saturating_add(1);
        Some(Self {
            segment: segment.number,
            offset: u64::from(end),
            bytes,
            cause: cause(segment, image, end),
            first_index: entries().min().map_or(next, |first| first.min(next)),
            last_index: entries().max(),
            term: terms.max(),
        })
    }
}

/// Tells damage from a torn write by the first record that cannot be read.
fn cause(segment: &Segment, image: &[u8], mut offset: u32) -> CutCause {
    // The batch may begin with records that are whole.
    let (mut from, mut to) = (offset, offset);
    while let Some(header) = RecordHeader::read(image, offset, segment.seed) {
        (from, to) = (offset, header.end(offset).unwrap_or(segment.bytes));
        if header.record(image, offset).is_none() {
            break;
        }
        (from, to) = (to, to);
        offset = to;
    }
    // If the header itself cannot be read, only its own length is certain.
    if from == to {
        to = from.saturating_add(HEADER_BYTES);
    }
    if has_empty_part(image, from, to.min(segment.bytes)) {
        CutCause::Torn
    } else {
        CutCause::Damaged
    }
}

/// Whether, in some sector, the part of this range is all zeros.
fn has_empty_part(image: &[u8], from: u32, to: u32) -> bool {
    let mut at = from;
    while at < to {
        let end = (at + 1).next_multiple_of(SECTOR_BYTES).min(to);
        if image[at as usize..end as usize].iter().all(|byte| *byte == 0) {
            return true;
        }
        at = end;
    }
    from >= to
}
