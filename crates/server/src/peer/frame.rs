//! Frames the messages on a connection between members.
//!
//! Each message is preceded by its length in four bytes, little-endian.

use std::io::{self, Read, Write};

use bytes::Bytes;

/// The longest frame taken from a link. A message holds about a mebibyte of entries, or one command.
pub(crate) const FRAME_BYTES_MAX: usize = 64 * 1024 * 1024;
/// The longest frame outside a link: a few lines of text.
pub(crate) const CONTROL_BYTES_MAX: usize = 256 * 1024;
/// The size of the part of a snapshot in one frame.
pub(crate) const CHUNK_BYTES: usize = 1024 * 1024;

/// What happens to a frame for which a link has no room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Class {
    /// The connection is closed: the message is not sent again, and the other end must know that it is lost.
    Urgent,
    /// The frame is dropped: it carries entries, which are sent again.
    Entries,
    /// The frame is dropped: it carries a part of a snapshot, which is sent again. All other frames go first.
    Bulk,
}

/// A message with its length before it.
pub(crate) struct Frame {
    pub(crate) bytes: Vec<u8>,
    /// Whether it is sent again if it is lost, and whether others go first.
    pub(crate) class: Class,
}

impl Frame {
    pub(crate) fn new(message: &[u8], class: Class) -> Self {
        let mut bytes = Vec::with_capacity(4 + message.len());
        put(&mut bytes, message);
        Self { bytes, class }
    }
}

fn put(out: &mut Vec<u8>, message: &[u8]) {
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(message);
}

/// Writes one frame.
pub(crate) fn write(to: &mut impl Write, message: &[u8]) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(4 + message.len());
    put(&mut bytes, message);
    to.write_all(&bytes)
}

/// Reads one frame of at most `max` bytes. Allocates memory as the bytes arrive, not as the length announces them.
pub(crate) fn read(from: &mut impl Read, max: usize) -> io::Result<Bytes> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > max {
        let text = format!("a frame of {length} bytes, at most {max} are allowed");
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    let mut bytes = Vec::with_capacity(length.min(CHUNK_BYTES));
    if from.take(length as u64).read_to_end(&mut bytes)? < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(bytes.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_read_back_and_long_or_cut_ones_are_errors() {
        let mut bytes = Frame::new(b"hello", Class::Urgent).bytes;
        write(&mut bytes, b"").unwrap();
        let mut from = &bytes[..];
        assert_eq!(&read(&mut from, 5).unwrap()[..], b"hello");
        assert_eq!(&read(&mut from, 5).unwrap()[..], b"");
        assert!(read(&mut from, 5).is_err());
        assert_eq!(read(&mut &bytes[..], 4).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert!(read(&mut &bytes[..7], 64).is_err());
    }
}
