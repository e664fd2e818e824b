//! Encodes and decodes one record of the log.
//!
//! ```text
//!  0  u32  checksum of this header from byte 4, of the segment's salt and number, and of the offset
//!  4  u32  length: header and body, without padding
//!  8  u32  checksum of the record before this one
//! 12  u32  durable mark: the segment was known durable up to this offset when this was written
//! 16  u8   kind      17  u8  1 if this ends a batch      18  u8  kind of entry      19  u8  zero
//! 20  u32  checksum of the body with its padding
//! 24  u64  index
//! 32  u64  term
//! 40       body, then zeros up to a multiple of eight bytes
//! ```
//!
//! Numbers are little-endian. The checksum covers the position of the record, so bytes that look like a record are
//! valid only in their own segment and at their own offset. It also covers the segment's random salt, so a client
//! cannot send a payload that looks like a record. The header has its own checksum, so recovery can trust a durable
//! mark even when the body after it is torn.

use std::ops::Range;

use super::types::NOTES_BYTES_MAX;
use crate::{HardState, LogId};

/// Length of a header, and so of a record without a body.
pub(crate) const HEADER_BYTES: u32 = 40;

/// Records start at multiples of this, so that a search for one need not look at every byte.
pub(crate) const ALIGN: u32 = 8;

/// Length of the record that starts a segment.
pub(crate) const START_BYTES: u32 = HEADER_BYTES + 48;

const ENDS_BATCH: u8 = 1;

/// The content of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogRecord<'a> {
    /// Opens a segment with everything that must outlive the segments before it.
    Start { base: LogId, last: LogId, hard_state: HardState },
    /// One entry of the replicated log.
    Entry { index: u64, term: u64, kind: u8, payload: &'a [u8] },
    /// The hard state from here on.
    HardState(HardState),
    /// The log is empty and continues after this point.
    Snapshot(LogId),
    /// Entries up to this point are no longer needed.
    Compact(LogId),
    /// Only a durable mark, and zeros that fill up a sector.
    Durable { filler: u32 },
    /// The stream continues in the next segment, which exists.
    Seal { next: u64 },
    /// The notes from here on.
    Notes(&'a [u8]),
}

/// The fields of a header whose checksum has been verified.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RecordHeader {
    pub(crate) checksum: u32,
    pub(crate) previous: u32,
    pub(crate) durable: u32,
    pub(crate) ends_batch: bool,
    length: u32,
    kind: u8,
    entry_kind: u8,
    body_checksum: u32,
    index: u64,
    term: u64,
}

/// What a header names of a record whose body may be unreadable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordKind {
    /// An entry.
    Entry(LogId),
    /// The term of a hard state.
    Term(u64),
}

/// Appends records of one segment to a buffer, each chained to the one before.
#[derive(Debug)]
pub(crate) struct Encoder<'b> {
    pub(crate) buffer: &'b mut Vec<u8>,
    pub(crate) seed: u32,
    /// The offset in the segment at which the buffer begins.
    pub(crate) start: u32,
    pub(crate) previous: u32,
    pub(crate) durable: u32,
}

/// The place of a record in its segment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Placed {
    pub(crate) offset: u32,
    pub(crate) length: u32,
}

/// The start value that makes the checksums of one segment different from all others.
pub(crate) fn seed(salt: u64, segment: u64) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&salt.to_le_bytes()), &segment.to_le_bytes())
}

/// The length of an entry on disk; `None` if it is too long to be written.
pub(crate) fn entry_bytes(payload: usize) -> Option<u32> {
    padded(HEADER_BYTES.checked_add(u32::try_from(payload).ok()?)?)
}

/// The length of notes on disk; `None` if they are too long to be written.
pub(crate) fn notes_bytes(notes: &[u8]) -> Option<u32> {
    if notes.len() > NOTES_BYTES_MAX { None } else { entry_bytes(notes.len()) }
}

pub(crate) fn padded(length: u32) -> Option<u32> {
    length.checked_next_multiple_of(ALIGN)
}

impl LogRecord<'_> {
    /// The length on disk of the record that carries a hard state.
    pub(crate) const HARD_STATE_BYTES: u32 = HEADER_BYTES + 16;

    fn kind(&self) -> u8 {
        match self {
            Self::Start { .. } => 1,
            Self::Entry { .. } => 2,
            Self::HardState(_) => 3,
            Self::Snapshot(_) => 4,
            Self::Compact(_) => 5,
            Self::Durable { .. } => 6,
            Self::Seal { .. } => 7,
            Self::Notes(_) => 8,
        }
    }

    fn point(&self) -> LogId {
        match *self {
            Self::Start { last: point, .. } | Self::Snapshot(point) | Self::Compact(point) => point,
            Self::Entry { index, term, .. } => LogId { index, term },
            Self::HardState(state) => LogId { index: state.commit, term: state.term },
            Self::Durable { .. } | Self::Notes(_) => LogId::default(),
            Self::Seal { next } => LogId { index: next, term: 0 },
        }
    }
}

impl Encoder<'_> {
    /// Offset in the segment of the next record.
    pub(crate) fn offset(&self) -> u32 {
        // The caller has checked that everything it pushes fits in the segment.
        self.start + u32::try_from(self.buffer.len()).expect("a batch fits in a segment")
    }

    pub(crate) fn push(&mut self, record: &LogRecord<'_>, ends_batch: bool) -> Placed {
        let offset = self.offset();
        let at = self.buffer.len();
        let point = record.point();
        self.buffer.extend_from_slice(&[0; 8]);
        self.buffer.extend_from_slice(&self.previous.to_le_bytes());
        self.buffer.extend_from_slice(&self.durable.to_le_bytes());
        let entry_kind = if let LogRecord::Entry { kind, .. } = record { *kind } else { 0 };
        let flags = if ends_batch { ENDS_BATCH } else { 0 };
        self.buffer.extend_from_slice(&[record.kind(), flags, entry_kind, 0]);
        self.buffer.extend_from_slice(&[0; 4]);
        self.buffer.extend_from_slice(&point.index.to_le_bytes());
        self.buffer.extend_from_slice(&point.term.to_le_bytes());
        match record {
            LogRecord::Start { base, hard_state, .. } => {
                for word in [base.index, base.term, hard_state.term, hard_state.commit] {
                    self.buffer.extend_from_slice(&word.to_le_bytes());
                }
                put_vote(self.buffer, hard_state.vote);
            }
            LogRecord::Entry { payload, .. } => self.buffer.extend_from_slice(payload),
            LogRecord::Notes(notes) => self.buffer.extend_from_slice(notes),
            LogRecord::HardState(state) => put_vote(self.buffer, state.vote),
            LogRecord::Durable { filler } => {
                self.buffer.resize(self.buffer.len() + *filler as usize, 0);
            }
            LogRecord::Snapshot(_) | LogRecord::Compact(_) | LogRecord::Seal { .. } => {}
        }
        let length = u32::try_from(self.buffer.len() - at).expect("a record fits in a segment");
        self.buffer.resize(self.buffer.len().next_multiple_of(ALIGN as usize), 0);
        let (header, body) = self.buffer[at..].split_at_mut(HEADER_BYTES as usize);
        header[4..8].copy_from_slice(&length.to_le_bytes());
        header[20..24].copy_from_slice(&crc32c::crc32c(body).to_le_bytes());
        self.previous = checksum(self.seed, offset, header);
        header[..4].copy_from_slice(&self.previous.to_le_bytes());
        Placed { offset, length }
    }
}

impl RecordHeader {
    /// Reads the header at this offset of a segment, if a header of this segment lies there.
    pub(crate) fn read(segment: &[u8], offset: u32, seed: u32) -> Option<Self> {
        Self::read_at(segment.get(offset as usize..)?, offset, seed)
    }

    /// Reads the header at the start of these bytes, which lie at this offset of their segment.
    pub(crate) fn read_at(bytes: &[u8], offset: u32, seed: u32) -> Option<Self> {
        let header = bytes.get(..HEADER_BYTES as usize)?;
        // Make the cheap test first: a search tries every eighth byte of a segment.
        if word(header, 4) < HEADER_BYTES {
            return None;
        }
        let found = Self {
            checksum: word(header, 0),
            length: word(header, 4),
            previous: word(header, 8),
            durable: word(header, 12),
            kind: header[16],
            ends_batch: header[17] == ENDS_BATCH,
            entry_kind: header[18],
            body_checksum: word(header, 20),
            index: long(header, 24),
            term: long(header, 32),
        };
        let is_ours = found.checksum == checksum(seed, offset, header);
        (is_ours && header[17] <= ENDS_BATCH && header[19] == 0).then_some(found)
    }

    /// What the header of an entry or a hard state names, whether or not its body is whole.
    pub(crate) fn named(&self) -> Option<RecordKind> {
        let point = LogId { index: self.index, term: self.term };
        match self.kind {
            2 => Some(RecordKind::Entry(point)),
            3 => Some(RecordKind::Term(self.term)),
            _ => None,
        }
    }

    /// The offset at which the record ends, if its length is possible.
    pub(crate) fn end(&self, offset: u32) -> Option<u32> {
        offset.checked_add(padded(self.length)?)
    }

    /// Decodes the record if its body is whole, and returns it with the offset of the next record.
    pub(crate) fn record<'a>(
        &self,
        segment: &'a [u8],
        offset: u32,
    ) -> Option<(LogRecord<'a>, u32)> {
        let end = self.end(offset)?;
        let body_at = offset.checked_add(HEADER_BYTES)?;
        let body = segment.get(body_at as usize..end as usize)?;
        if crc32c::crc32c(body) != self.body_checksum {
            return None;
        }
        let (body, padding) = body.split_at((self.length - HEADER_BYTES) as usize);
        if padding.iter().any(|byte| *byte != 0) {
            return None;
        }
        Some((self.parse(body)?, end))
    }

    fn parse<'a>(&self, body: &'a [u8]) -> Option<LogRecord<'a>> {
        let point = LogId { index: self.index, term: self.term };
        let record = match (self.kind, body.len()) {
            (1, 48) => {
                let vote = vote(body, 32)?;
                let hard_state = HardState { term: long(body, 16), commit: long(body, 24), vote };
                let base = LogId { index: long(body, 0), term: long(body, 8) };
                LogRecord::Start { base, last: point, hard_state }
            }
            (2, _) => LogRecord::Entry {
                index: self.index,
                term: self.term,
                kind: self.entry_kind,
                payload: body,
            },
            (3, 16) => LogRecord::HardState(HardState {
                term: self.term,
                commit: self.index,
                vote: vote(body, 0)?,
            }),
            (4, 0) => LogRecord::Snapshot(point),
            (5, 0) => LogRecord::Compact(point),
            (6, _) if body.iter().all(|byte| *byte == 0) => {
                LogRecord::Durable { filler: self.length - HEADER_BYTES }
            }
            (7, 0) => LogRecord::Seal { next: self.index },
            (8, 0..=NOTES_BYTES_MAX) => LogRecord::Notes(body),
            _ => return None,
        };
        Some(record)
    }
}

/// The range of an entry's payload in the bytes of its record.
pub(crate) fn payload_range(placed: Placed) -> Range<usize> {
    HEADER_BYTES as usize..placed.length as usize
}

fn checksum(seed: u32, offset: u32, header: &[u8]) -> u32 {
    let place = crc32c::crc32c_append(seed, &offset.to_le_bytes());
    crc32c::crc32c_append(place, &header[4..])
}

fn put_vote(buffer: &mut Vec<u8>, vote: Option<u64>) {
    buffer.extend_from_slice(&u64::from(vote.is_some()).to_le_bytes());
    buffer.extend_from_slice(&vote.unwrap_or(0).to_le_bytes());
}

fn vote(body: &[u8], at: usize) -> Option<Option<u64>> {
    match (long(body, at), long(body, at + 8)) {
        (0, 0) => Some(None),
        (1, member) => Some(Some(member)),
        _ => None,
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes make a word"))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes make a long"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORDS: [LogRecord<'static>; 9] = [
        LogRecord::Start {
            base: LogId { index: 3, term: 1 },
            last: LogId { index: 9, term: 2 },
            hard_state: HardState { term: 2, vote: Some(0), commit: 8 },
        },
        LogRecord::Entry { index: 10, term: 2, kind: 7, payload: b"odd" },
        LogRecord::Entry { index: 11, term: 2, kind: 0, payload: b"" },
        LogRecord::HardState(HardState { term: 3, vote: None, commit: 9 }),
        LogRecord::Snapshot(LogId { index: 40, term: 3 }),
        LogRecord::Compact(LogId { index: 41, term: 3 }),
        LogRecord::Durable { filler: 24 },
        LogRecord::Seal { next: 2 },
        LogRecord::Notes(b"remember"),
    ];

    fn encoded(seed: u32) -> (Vec<u8>, Vec<Placed>) {
        let mut buffer = Vec::new();
        let mut encoder =
            Encoder { buffer: &mut buffer, seed, start: 0, previous: 0, durable: 512 };
        let placed = RECORDS.iter().map(|record| encoder.push(record, true)).collect();
        (buffer, placed)
    }

    #[test]
    fn every_kind_of_record_reads_back_as_it_was_written() {
        let (bytes, placed) = encoded(5);
        let mut previous = 0;
        for (record, placed) in RECORDS.iter().zip(placed) {
            let header = RecordHeader::read(&bytes, placed.offset, 5).unwrap();
            assert_eq!((header.previous, header.durable), (previous, 512));
            assert!(header.ends_batch);
            let (found, end) = header.record(&bytes, placed.offset).unwrap();
            assert_eq!(found, *record);
            assert_eq!(end, placed.offset + padded(placed.length).unwrap());
            previous = header.checksum;
        }
    }

    #[test]
    fn no_flipped_bit_leaves_a_record_that_reads() {
        let (bytes, placed) = encoded(5);
        for (at, placed) in placed.iter().enumerate() {
            let end = placed.offset + padded(placed.length).unwrap();
            for bit in placed.offset as usize * 8..end as usize * 8 {
                let mut spoiled = bytes.clone();
                spoiled[bit / 8] ^= 1 << (bit % 8);
                let found = RecordHeader::read(&spoiled, placed.offset, 5)
                    .and_then(|header| header.record(&spoiled, placed.offset));
                assert_eq!(found, None, "record {at}, bit {bit}");
            }
        }
    }

    #[test]
    fn a_record_is_one_only_in_its_own_segment_and_place() {
        let (bytes, placed) = encoded(seed(1, 1));
        assert!(RecordHeader::read(&bytes, 0, seed(1, 1)).is_some());
        assert!(RecordHeader::read(&bytes, 0, seed(1, 2)).is_none());
        assert!(RecordHeader::read(&bytes, 0, seed(2, 1)).is_none());
        let second = placed[1].offset;
        assert!(RecordHeader::read(&bytes[second as usize..], 0, seed(1, 1)).is_none());
    }
}
