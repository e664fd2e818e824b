//! Which bytes is the payload of an entry made of?
//!
//! `version · term · count · (length · request)*`. The requests were written at the edge; sealing
//! only joins them, and nothing looks inside before apply.

use alloc::vec::Vec;
use tenure_types::Term;

use super::{Malformed, Reader, Writer};

/// The only version of this format so far.
const VERSION: u8 = 1;

/// The payload of an entry, its requests still in log form.
#[derive(Clone, Debug)]
pub struct Entry<'a> {
    /// The term of the leader that sealed it.
    pub term: Term,
    /// How long that leader had counted.
    pub count_ms: u64,
    requests: Reader<'a>,
}

/// Joins requests in log form into the payload of one entry.
pub fn seal_entry<'a>(
    term: Term,
    count_ms: u64,
    requests: impl IntoIterator<Item = &'a [u8]>,
) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_u8(VERSION);
    out.put(term.0);
    out.put(count_ms);
    requests.into_iter().for_each(|request| out.put_bytes(request));
    out
}

/// Opens a payload. All its lengths are checked here, so that either all of its requests are there
/// or none.
pub fn open_entry(bytes: &[u8]) -> Result<Entry<'_>, Malformed> {
    let mut reader = Reader::new(bytes);
    if reader.u8()? != VERSION {
        return Err(Malformed);
    }
    let term = Term(reader.number()?);
    let count_ms = reader.number()?;
    let mut lengths = reader.clone();
    while !lengths.is_empty() {
        lengths.bytes()?;
    }
    Ok(Entry { term, count_ms, requests: reader })
}

impl<'a> Iterator for Entry<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.requests.is_empty() {
            return None;
        }
        Some(self.requests.bytes().expect("the lengths were checked when the entry was opened"))
    }
}
