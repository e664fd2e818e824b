//! Frames the messages on a connection between members.
//!
//! Each message is preceded by its length in four bytes, little-endian.

use std::io::{self, Read, Write};

use bytes::Bytes;
use tenure_node::PeerMessage;

/// The longest frame that is accepted from a link. A Raft message has about 1 MiB of entries, or one larger entry. A
/// batch of forwarded commands has at most 8 MiB, the budget of its member.
pub(crate) const FRAME_BYTES_MAX: usize = 64 * 1024 * 1024;
/// The longest frame with a text message outside of a link, such as a request to join.
pub(crate) const CONTROL_BYTES_MAX: usize = 256 * 1024;
/// The bytes of a snapshot in one frame, on a connection to a member that takes no snapshots over its link.
pub(crate) const CHUNK_BYTES: usize = 1024 * 1024;

/// Which queue of a link a frame uses, and what happens to the frame if that queue has no room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Class {
    /// If there is no room, the link closes the connection: the message is not sent again, and the other end must
    /// notice the loss.
    Urgent,
    /// If there is no room, the link drops the frame. It carries entries, which the leader sends again.
    Entries,
    /// If there is no room, the link drops the frame. It carries a part of a snapshot, which the sender sends again.
    /// All other frames are sent first.
    Bulk,
}

/// A message with its length before it.
pub(crate) struct Frame {
    pub(crate) bytes: Vec<u8>,
    /// Decides the order of sending, and what happens if the link has no room.
    pub(crate) class: Class,
}

impl Frame {
    pub(crate) fn new(message: &PeerMessage, class: Class) -> Self {
        let mut bytes = vec![0; 4];
        message.encode_into(&mut bytes);
        let length = u32::try_from(bytes.len() - 4).unwrap_or(u32::MAX);
        bytes[..4].copy_from_slice(&length.to_le_bytes());
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
        let is_http = length == u32::from_le_bytes(*b"HTTP") as usize;
        let text = if is_http {
            "that port speaks HTTP: it is the clients' port, and members use another".to_owned()
        } else {
            format!("a frame of {length} bytes, at most {max} are allowed")
        };
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
    use tenure_raft::Message;

    #[test]
    fn a_message_of_a_link_reads_back() {
        let message = PeerMessage::Raft(Message::Hello);
        let frame = Frame::new(&message, Class::Urgent);
        let mut from = &frame.bytes[..];
        let read = read(&mut from, 64).unwrap();
        assert!(from.is_empty());
        assert_eq!(PeerMessage::decode(&read), Some(message));
    }

    #[test]
    fn frames_read_back_and_long_or_cut_ones_are_errors() {
        let mut bytes = Vec::new();
        write(&mut bytes, b"hello").unwrap();
        write(&mut bytes, b"").unwrap();
        let mut from = &bytes[..];
        assert_eq!(&read(&mut from, 5).unwrap()[..], b"hello");
        assert_eq!(&read(&mut from, 5).unwrap()[..], b"");
        assert!(read(&mut from, 5).is_err());
        assert_eq!(read(&mut &bytes[..], 4).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert!(read(&mut &bytes[..7], 64).is_err());
    }
}
