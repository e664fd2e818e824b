//! Encodes and decodes the whole state as a snapshot, which is written while the machine goes on.
//!
//! A snapshot is a head, then frames of records, then a last frame with the hash of everything before it. Records refer
//! to each other by slot; lists and indexes are derived and not written. Equal states have equal bytes, whatever their
//! history.
//!
//! `magic · version · (length:8 · section:1 · records)* · length · end · hash:16`

mod drains;
mod head;
mod options;
mod read;
mod rebuild;
mod record;
mod write;

pub use read::{BadSnapshot, SnapshotReader, snapshot_hash};
pub use write::Frozen;

/// The first bytes of every snapshot: a name and the version of the format.
const MAGIC: &[u8; 8] = b"TENURE\x00\x01";

/// The size at which a frame is closed. One record is never split.
const FRAME_BYTES: usize = 64 * 1024;

/// The parts of a snapshot, in the order in which they are written.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
enum Section {
    Head = 1,
    /// The vacant slots of each slab, in the order in which they will be used. They come first, so that the reader
    /// knows the number of slots before it reads any record.
    Vacant = 2,
    Leases = 3,
    Locks = 4,
    Grants = 5,
    Places = 6,
    Waits = 7,
    Keys = 8,
    SeqRequests = 9,
    KeyRequests = 10,
    KeyRequestOrder = 11,
    History = 12,
    End = 13,
}

impl Section {
    const ALL: [Section; 13] = [
        Section::Head,
        Section::Vacant,
        Section::Leases,
        Section::Locks,
        Section::Grants,
        Section::Places,
        Section::Waits,
        Section::Keys,
        Section::SeqRequests,
        Section::KeyRequests,
        Section::KeyRequestOrder,
        Section::History,
        Section::End,
    ];

    fn from_number(number: u8) -> Option<Section> {
        Self::ALL.get(usize::from(number).checked_sub(1)?).copied()
    }
}
