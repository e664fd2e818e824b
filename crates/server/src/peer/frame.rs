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

/// The bytes of the length before a message.
const LENGTH_BYTES: usize = 4;

/// Which queue of a link a frame uses, and what happens to the frame if that queue has no room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FrameClass {
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
    pub(crate) class: FrameClass,
}

impl Frame {
    pub(crate) fn new(message: &PeerMessage, class: FrameClass) -> Self {
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

/// Assembles frames from the parts in which they arrive.
#[derive(Default)]
pub(crate) struct FrameAssembler {
    /// The beginning of a frame that has not arrived as a whole.
    partial: Vec<u8>,
}

impl FrameAssembler {
    /// Takes the next bytes and passes on every message that is complete with them. Ends with the first error.
    pub(crate) fn take(
        &mut self,
        mut bytes: &[u8],
        mut each: impl FnMut(Bytes) -> io::Result<()>,
    ) -> io::Result<()> {
        while !bytes.is_empty() {
            if self.partial.is_empty()
                && let Some((length, rest)) = bytes.split_first_chunk()
                && let Some((message, rest)) = rest.split_at_checked(checked(*length)?)
            {
                each(Bytes::copy_from_slice(message))?;
                bytes = rest;
                continue;
            }
            let (more, rest) = bytes.split_at(self.lacks()?.min(bytes.len()));
            self.partial.extend_from_slice(more);
            bytes = rest;
            if self.lacks()? == 0 {
                each(Bytes::from(std::mem::take(&mut self.partial)).slice(LENGTH_BYTES..))?;
            }
        }
        Ok(())
    }

    /// The bytes that are needed to complete the frame, or at first its length.
    fn lacks(&self) -> io::Result<usize> {
        match self.partial.first_chunk() {
            Some(length) => Ok(LENGTH_BYTES + checked(*length)? - self.partial.len()),
            None => Ok(LENGTH_BYTES - self.partial.len()),
        }
    }
}

/// The length of a message on a link.
fn checked(length: [u8; LENGTH_BYTES]) -> io::Result<usize> {
    let length = u32::from_le_bytes(length) as usize;
    if length > FRAME_BYTES_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_raft::Message;

    #[test]
    fn a_message_of_a_link_reads_back() {
        let message = PeerMessage::Raft(Message::Hello);
        let frame = Frame::new(&message, FrameClass::Urgent);
        let mut from = &frame.bytes[..];
        let read = read(&mut from, 64).unwrap();
        assert!(from.is_empty());
        assert_eq!(PeerMessage::decode(&read), Some(message));
    }

    #[test]
    fn frames_are_assembled_from_parts_of_any_size() {
        let mut bytes = Vec::new();
        let messages: [&[u8]; 4] = [b"hello", b"", b"member", &[7; 1_000]];
        messages.iter().for_each(|message| write(&mut bytes, message).unwrap());
        for size in [1, 2, 3, 5, 8, 13, 21, 400, 5_000] {
            let (mut assembler, mut whole) = (FrameAssembler::default(), Vec::new());
            for part in bytes.chunks(size) {
                let taken = assembler.take(part, |message| {
                    whole.push(message);
                    Ok(())
                });
                assert!(taken.is_ok());
            }
            assert_eq!(whole, messages, "in parts of {size}");
            assert!(assembler.partial.is_empty());
        }
        let too_long = [0xff; LENGTH_BYTES];
        assert!(FrameAssembler::default().take(&too_long, |_| Ok(())).is_err());
        let mut in_parts = FrameAssembler::default();
        assert!(in_parts.take(&too_long[..2], |_| Ok(())).is_ok());
        assert!(in_parts.take(&too_long[2..], |_| Ok(())).is_err());
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
