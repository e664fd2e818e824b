//! Encodes and decodes the payload of an entry.
//!
//! The format is `version · term · count · (length · request)*`, and in version 2 the wall clock follows the count. The
//! member that received the requests has encoded them already; sealing only joins them, and their content is first
//! decoded in apply.

use alloc::vec::Vec;
use tenure_types::Term;

use super::{Malformed, Reader, Writer};
use crate::event::WallClock;

/// The first version of this format.
const VERSION: u8 = 1;

/// The version with the leader's wall clock, from [`LEVEL_RECORDS`](crate::request::LEVEL_RECORDS) on.
const VERSION_LABELLED: u8 = 2;

/// The payload of an entry, with its requests still encoded.
#[derive(Clone, Debug)]
pub struct EntryPayload<'a> {
    /// The term of the leader that sealed the entry.
    pub term: Term,
    /// How many milliseconds that leader had counted.
    pub count_ms: u64,
    /// That leader's wall clock. A label for people; no decision uses it.
    pub wall: Option<WallClock>,
    requests: Reader<'a>,
}

/// The most bytes ahead of the requests: the version, two numbers and the wall clock.
const HEAD_BYTES_MAX: usize = 1 + 10 + 10 + 8;

/// Joins encoded requests into the payload of one entry.
pub fn seal_entry<'a>(
    term: Term,
    count_ms: u64,
    requests: impl IntoIterator<Item = &'a [u8]>,
) -> Vec<u8> {
    seal_entry_of(0, term, count_ms, None, requests)
}

/// Joins encoded requests into the payload of one entry that carries the leader's wall clock, if one is given.
pub fn seal_labelled<'a>(
    term: Term,
    count_ms: u64,
    wall: Option<WallClock>,
    requests: impl IntoIterator<Item = &'a [u8]>,
) -> Vec<u8> {
    seal_entry_of(0, term, count_ms, wall, requests)
}

/// The same for requests of so many bytes together with their lengths. Their memory is taken at once.
pub fn seal_entry_of<'a>(
    bytes: usize,
    term: Term,
    count_ms: u64,
    wall: Option<WallClock>,
    requests: impl IntoIterator<Item = &'a [u8]>,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEAD_BYTES_MAX + bytes);
    out.put_u8(if wall.is_some() { VERSION_LABELLED } else { VERSION });
    out.put(term.0);
    out.put(count_ms);
    if let Some(WallClock { unix_ms }) = wall {
        out.put_raw(&unix_ms.to_le_bytes());
    }
    requests.into_iter().for_each(|request| out.put_bytes(request));
    out
}

/// Opens a payload. This checks all its lengths, so that either all of its requests are readable or none.
pub fn open_entry(bytes: &[u8]) -> Result<EntryPayload<'_>, Malformed> {
    let mut reader = Reader::new(bytes);
    let version = reader.u8()?;
    if !(VERSION..=VERSION_LABELLED).contains(&version) {
        return Err(Malformed);
    }
    let term = Term(reader.number()?);
    let count_ms = reader.number()?;
    let wall = if version == VERSION_LABELLED {
        Some(WallClock { unix_ms: reader.u64_raw()? })
    } else {
        None
    };
    let mut lengths = reader.clone();
    while !lengths.is_empty() {
        lengths.bytes()?;
    }
    Ok(EntryPayload { term, count_ms, wall, requests: reader })
}

impl<'a> Iterator for EntryPayload<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.requests.is_empty() {
            return None;
        }
        Some(self.requests.bytes().expect("the lengths were checked when the entry was opened"))
    }
}
