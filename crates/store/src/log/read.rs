//! Reads entries back.

use bytes::Bytes;

use super::{
    Log, LogEntry,
    record::{self, LogRecord, RecordHeader},
    view::EntrySlot,
};
use crate::ReadError;

impl Log {
    /// The term of the entry at an index, or of the base.
    pub fn term(&self, index: u64) -> Result<u64, ReadError> {
        self.check_running()?;
        self.view.term(index).ok_or_else(|| self.outside(index))
    }

    /// Returns entries from `from` up to but without `to`: the first one whatever its size, further ones as long as all
    /// payloads together stay within `max_bytes`.
    pub fn entries(&self, from: u64, to: u64, max_bytes: u64) -> Result<Vec<LogEntry>, ReadError> {
        self.check_running()?;
        if from <= self.view.base.index {
            return Err(ReadError::Compacted { base: self.view.base.index });
        }
        if to > self.view.last_index() + 1 {
            return Err(ReadError::Beyond { last: self.view.last_index() });
        }
        let mut entries = Vec::new();
        let mut bytes = 0_u64;
        for index in from..to {
            let slot = self.view.slot(index).ok_or_else(|| self.outside(index))?;
            bytes = bytes.saturating_add(record::payload_range(slot.placed).len() as u64);
            if bytes > max_bytes && !entries.is_empty() {
                break;
            }
            let payload = match &slot.payload {
                Some(payload) => payload.clone(),
                None => self.payload(index, slot)?,
            };
            entries.push(LogEntry { index, term: slot.term, kind: slot.kind, payload });
        }
        Ok(entries)
    }

    fn outside(&self, index: u64) -> ReadError {
        if index < self.view.base.index {
            ReadError::Compacted { base: self.view.base.index }
        } else {
            ReadError::Beyond { last: self.view.last_index() }
        }
    }

    /// Reads a payload from disk and verifies that it belongs to the entry at this index.
    fn payload(&self, index: u64, slot: &EntrySlot) -> Result<Bytes, ReadError> {
        let number = slot.segment;
        let offset = slot.placed.offset;
        let corrupt = || ReadError::Corrupt { segment: number, offset: u64::from(offset), index };
        let at = self
            .segments
            .binary_search_by_key(&number, |segment| segment.number)
            .map_err(|_| corrupt())?;
        let segment = &self.segments[at];
        // The record lay whole in its segment when it was written or recovered, so this length is bounded.
        let length = record::padded(slot.placed.length).ok_or_else(corrupt)?;
        let mut bytes = vec![0; length as usize];
        let read = segment.file.read_at(u64::from(offset), &mut bytes);
        read.map_err(|source| ReadError::Io { segment: number, source })?;
        let header = RecordHeader::read_at(&bytes, offset, segment.seed).ok_or_else(corrupt)?;
        match header.record(&bytes, 0) {
            Some((LogRecord::Entry { index: found, term, kind, .. }, _))
                if (found, term, kind) == (index, slot.term, slot.kind) => {}
            _ => return Err(corrupt()),
        }
        Ok(Bytes::from(bytes).slice(record::payload_range(slot.placed)))
    }
}
