//! Encodes and decodes commands, entries, events and snapshots.
//!
//! One versioned format, written by hand because it is a compatibility promise: the same bytes are hashed, kept on disk
//! and sent between members. Numbers are little-endian base-128; texts and lists are preceded by their length. Decoding
//! never allocates more than a small multiple of the input's size.

mod access;
mod acquire;
mod answer;
mod entry;
mod event;
mod read;
mod request;
mod snapshot;
mod write;

pub use answer::{decode_outcome, encode_outcome};
pub(crate) use answer::{get_outcome, put_outcome};
pub use entry::{EntryPayload, open_entry, seal_entry, seal_entry_of, seal_labelled};
pub(crate) use event::{EventRef, SubjectRef, get_event, get_label, put_event, put_label};
pub use read::Malformed;
pub(crate) use read::Reader;
pub(crate) use request::decode_with_command;
pub use request::{decode_request, encode_request, raised_level};
pub use snapshot::{BadSnapshot, Frozen, SnapshotReader, snapshot_hash};
pub(crate) use write::Writer;
