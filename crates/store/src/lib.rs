//! Keeps the durable data of one member on its disk: log, snapshots and identity.
//!
//! A member of the cluster promises others that it will not lose an entry, a vote or a term. This crate keeps those
//! promises on one disk: [`Log`] holds entries and hard state, [`Snapshots`] the whole state at a point, [`Reserve`]
//! some space for a full disk, and [`DataDir`] the directory that contains them. [`LogWriter`] decides when the log is
//! written, synced, marked and compacted. The crate knows bytes, checksums and syncs; the crates above give the bytes
//! their meaning.
//!
//! ```
//! use std::sync::Arc;
//! use tenure_store::{HardState, Log, LogBatch, LogEntry, LogOptions, sim::SimDisk};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let disk = Arc::new(SimDisk::new(42));
//! let (mut log, recovered) = Log::open(disk, LogOptions { segment_bytes: 8192, ..LogOptions::default() })?;
//! assert_eq!(recovered.last.index, 0);
//!
//! let entries = [LogEntry { index: 1, term: 1, kind: 0, payload: "hello".into() }];
//! let hard_state = Some(HardState { term: 1, vote: Some(3), commit: 0 });
//! log.write(&LogBatch { entries: &entries, hard_state, ..LogBatch::default() })?;
//! log.sync()?; // Only from here on may the member acknowledge the batch.
//! # Ok(())
//! # }
//! ```
//!
//! **Order of an installed snapshot:** [`SnapshotReceiver::finish`] (the file is durable), then a
//! [`LogBatch`] with `snapshot` and [`Log::sync`], then [`Log::compact_to`]. A crash between any two
//! leaves a log that some durable snapshot continues into.
//!
//! Nothing here reads a clock or draws a random number, except that the real disk reports how long a sync took. The
//! crate starts no thread: it hands out slow work ([`SyncJob`], [`Preparation`]) for the caller to run on a thread of
//! its choice.

#[macro_use]
mod plant;

mod data_dir;
mod disk;
mod error;
mod gauge;
mod identity;
mod log;
mod log_writer;
mod real;
mod reserve;
#[cfg(feature = "sim")]
pub mod sim;
mod snapshot;

pub use data_dir::{DataDir, DataDirError, Warning};
pub use disk::{Disk, File};
pub use error::{Damage, Fatal, OpenError, ReadError, Rejection, WriteError};
pub use gauge::{Free, Gauge};
pub use identity::{DirectoryIdentity, IdentityError};
pub use log::{
    Cut, CutCause, HardState, Log, LogBatch, LogEntry, LogId, LogOptions, NOTES_BYTES_MAX,
    Position, Preparation, PreparedSegment, Presence, Recovered, Room, SEGMENT_BYTES_MAX,
    SEGMENT_BYTES_MIN, SyncJob, SyncReport, Synced, WrittenBatch,
};
#[cfg(mutants)]
pub mod mutants {
    //! Planted bugs, which show that the checks would find them.
    pub use crate::plant::{ALL, SHOWN_BY_TESTS, select, select_by_name};
}
pub use log_writer::{LogWriter, PrepareJob, ReserveJob, SpaceCheck, SyncEnd, SyncStep};
pub use real::RealDisk;
pub use reserve::{RESERVE_BYTES_DEFAULT, Reserve};
pub use snapshot::{
    META_BYTES_MAX, RawSnapshot, ReceivedBytes, SnapshotError, SnapshotFileReader, SnapshotId,
    SnapshotReceiver, SnapshotWriter, Snapshots,
};
