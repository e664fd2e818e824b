//! Keeps a member's snapshots and tells which are complete, which is the newest and which are damaged.
//!
//! A snapshot is written under a temporary name and gets its real name when it is whole and synced, so a crash leaves
//! no half of one. The newest two are kept: if the newest turns out to be damaged, the one before may still serve, as
//! long as the log reaches back to it. A snapshot whose body turns out to be damaged is set aside under another name,
//! so that it is neither sent nor counted. It is removed when a snapshot at its point or later is complete.

mod format;
mod raw;
mod read;
mod receive;
mod write;

use std::{io, sync::Arc};

pub use format::META_BYTES_MAX;
pub use raw::RawSnapshot;
pub use read::SnapshotFileReader;
pub use receive::{ReceivedBytes, SnapshotReceiver};
pub use write::SnapshotWriter;

use crate::{
    Fatal, LogId,
    disk::{Disk, is_full},
};
use format::Bad;

const DIR: &str = "snapshots";
const SUFFIX: &str = ".snap";
const TEMPORARY_SUFFIX: &str = ".tmp";
const PART_SUFFIX: &str = ".part";
/// The suffix after the name of a snapshot that was set aside.
const DAMAGED_SUFFIX: &str = ".damaged";

/// The number of complete snapshots to keep.
const KEPT: usize = 2;

/// The identity of a snapshot across all members: two files with the same id hold the same bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SnapshotId {
    /// The last entry that the snapshot includes.
    pub point: LogId,
    /// The length of the file.
    pub bytes: u64,
    /// The checksum of its checksums.
    pub checksum: u32,
}

/// Why a snapshot could not be written, read or found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// The disk failed. Complete snapshots are untouched.
    #[error("cannot {doing} `{name}`")]
    Io {
        /// The operation that failed, for the message.
        doing: &'static str,
        /// The file or directory.
        name: String,
        /// The error of the disk.
        #[source]
        source: io::Error,
    },
    /// There is no space. Complete snapshots are untouched; the one being written is given up.
    #[error("no space left on the disk")]
    NoSpace,
    /// The bytes differ from what was written.
    #[error("snapshot `{name}` is corrupt at offset {offset}")]
    Corrupt {
        /// The file.
        name: String,
        /// The first byte that cannot be trusted.
        offset: u64,
    },
    /// A later version wrote the snapshot.
    #[error("snapshot `{name}` has format {found}, this program knows format 1")]
    Format {
        /// The file.
        name: String,
        /// The version that it names.
        found: u32,
    },
    /// The log starts after a point that no snapshot reaches: entries in between are lost.
    #[error("no snapshot reaches index {index}, where the log starts")]
    Absent {
        /// The point after which the log starts.
        index: u64,
    },
    /// The meta is too long.
    #[error("meta has {bytes} bytes, at most {max} are allowed")]
    MetaTooLarge {
        /// The length of the meta.
        bytes: usize,
        /// The largest length allowed.
        max: usize,
    },
    /// The received bytes do not continue those received before.
    #[error("received bytes for offset {found}, expected {expected}")]
    Offset {
        /// The number of bytes received so far.
        expected: u64,
        /// The offset of the given bytes.
        found: u64,
    },
    /// Bytes were received again and differ from those received first.
    #[error("received other bytes for offset {offset} than before")]
    Conflict {
        /// The offset of the given bytes.
        offset: u64,
    },
    /// More or fewer bytes were received than the id promises.
    #[error("received {found} of {expected} bytes")]
    Length {
        /// The length that the id promises.
        expected: u64,
        /// The length received.
        found: u64,
    },
    /// The process must stop.
    #[error(transparent)]
    Fatal(#[from] Fatal),
}

impl SnapshotError {
    /// Whether a snapshot that was durable is damaged or missing.
    pub fn is_corrupt(&self) -> bool {
        match self {
            Self::Corrupt { .. } | Self::Absent { .. } => true,
            Self::Io { .. }
            | Self::NoSpace
            | Self::Format { .. }
            | Self::MetaTooLarge { .. }
            | Self::Offset { .. }
            | Self::Conflict { .. }
            | Self::Length { .. }
            | Self::Fatal(_) => false,
        }
    }
}

/// The snapshots of one member.
#[derive(Debug, Clone)]
pub struct Snapshots {
    disk: Arc<dyn Disk>,
}

impl Snapshots {
    /// Opens the directory and removes what a crash left incomplete, except one partly received snapshot.
    pub fn open(disk: Arc<dyn Disk>) -> Result<Self, SnapshotError> {
        let made = disk.make_dir(DIR).and_then(|()| disk.sync_dir(""));
        made.map_err(failed("make directory", DIR))?;
        let snapshots = Self { disk };
        let mut parts = Vec::new();
        for name in snapshots.names()? {
            if name.ends_with(TEMPORARY_SUFFIX) {
                snapshots.remove(&name)?;
            } else if name.ends_with(PART_SUFFIX) {
                parts.push(name);
            }
        }
        // Names begin with the index, so the last in order is the newest and the most worth finishing.
        parts.sort_unstable();
        parts.pop();
        for part in parts {
            snapshots.remove(&part)?;
        }
        // A rename that a process saw before it crashed must be durable before this run relies on it.
        snapshots.disk.sync_dir(DIR).map_err(failed("sync", DIR))?;
        Ok(snapshots)
    }

    /// The newest snapshot whose header and footer are whole.
    pub fn latest(&self) -> Result<Option<SnapshotId>, SnapshotError> {
        Ok(self.complete()?.into_iter().next())
    }

    /// All snapshots whose header and footer are whole, newest first. Passes over one of an unknown format: a member
    /// starts only if there is none ([`Snapshots::covering`]), so its format was damaged since.
    pub fn complete(&self) -> Result<Vec<SnapshotId>, SnapshotError> {
        let mut found = Vec::new();
        for name in self.names()? {
            if let Some(point) = point(&name) {
                match self.check(&name, point) {
                    Ok(id) => found.push(id),
                    // A damaged snapshot is not a candidate; one that cannot be read now may be.
                    Err(SnapshotError::Corrupt { .. } | SnapshotError::Format { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        found.sort_unstable();
        found.reverse();
        Ok(found)
    }

    /// The newest snapshot, which must reach the point after which the log starts. Fails if a later version has written
    /// one of the snapshots.
    pub fn covering(&self, base: LogId) -> Result<Option<SnapshotId>, SnapshotError> {
        for name in self.names()? {
            if let Some(point) = point(&name)
                && let Err(error @ SnapshotError::Format { .. }) = self.check(&name, point)
            {
                return Err(error);
            }
        }
        let latest = self.latest()?;
        if base.index > latest.map_or(0, |id| id.point.index) {
            return Err(SnapshotError::Absent { index: base.index });
        }
        Ok(latest)
    }

    /// Begins to write a snapshot at this point.
    pub fn write(&self, point: LogId, meta: &[u8]) -> Result<SnapshotWriter, SnapshotError> {
        SnapshotWriter::begin(self.clone(), point, meta)
    }

    /// Opens a snapshot to read its data.
    pub fn read(&self, id: SnapshotId) -> Result<SnapshotFileReader, SnapshotError> {
        let name = path(&name(id.point));
        let file = self.disk.open(&name).map_err(failed("open", &name))?;
        SnapshotFileReader::begin(file, name, id)
    }

    /// Opens a snapshot to send the bytes of its file.
    pub fn raw(&self, id: SnapshotId) -> Result<RawSnapshot, SnapshotError> {
        self.read(id).map(|reader| reader.into_raw(self.clone()))
    }

    /// Reads the whole snapshot and verifies it. Sets a damaged snapshot aside, durably: [`Snapshots::complete`] no
    /// longer lists it, and the member must write another one.
    pub fn verify(&self, id: SnapshotId) -> Result<(), SnapshotError> {
        let verified = self.read(id).and_then(SnapshotFileReader::verify);
        // Another snapshot at the same point is a different one, and may be good.
        let is_this = || !self.check(&name(id.point), id.point).is_ok_and(|found| found != id);
        if matches!(verified, Err(SnapshotError::Corrupt { .. })) && is_this() {
            let from = path(&name(id.point));
            let to = format!("{from}{DAMAGED_SUFFIX}");
            self.disk.rename(&from, &to).map_err(failed("set aside", &from))?;
            self.disk.sync_dir(DIR).map_err(failed("sync", DIR))?;
        }
        verified
    }

    /// The points of the snapshots that were set aside and not replaced yet, newest first.
    pub fn damaged(&self) -> Result<Vec<LogId>, SnapshotError> {
        let mut found: Vec<LogId> =
            self.names()?.iter().filter_map(|name| damaged_point(name)).collect();
        found.sort_unstable();
        found.reverse();
        Ok(found)
    }

    /// Begins or continues to receive a snapshot. Gives up other partly received ones.
    pub fn receive(&self, id: SnapshotId) -> Result<SnapshotReceiver, SnapshotError> {
        SnapshotReceiver::begin(self.clone(), id)
    }

    /// Removes all but the newest complete snapshots, and damaged ones that are older than those.
    fn retain_newest(&self) -> Result<(), SnapshotError> {
        let complete = self.complete()?;
        let newest = complete.first().map(|id| id.point);
        let oldest_kept = complete.get(KEPT - 1).map(|id| id.point);
        for name in self.names()? {
            let is_old = point(&name).is_some_and(|point| Some(point) < oldest_kept);
            let is_replaced = damaged_point(&name).is_some_and(|point| Some(point) <= newest);
            if is_old || is_replaced {
                self.remove(&name)?;
            }
        }
        self.disk.sync_dir(DIR).map_err(failed("sync", DIR))
    }

    /// Syncs a whole file and gives it its name. From then on the snapshot is complete.
    fn publish(
        &self,
        file: &dyn crate::File,
        from: &str,
        point: LogId,
    ) -> Result<(), SnapshotError> {
        let fatal = |doing| move |source| Fatal::Disk { doing, source };
        if let Err(source) = file.sync() {
            // Data that did not reach the disk is still readable, and the next run must not take it for a good part.
            let _ = self.disk.remove(from);
            return Err(fatal("sync a snapshot")(source).into());
        }
        self.disk.rename(from, &path(&name(point))).map_err(failed("rename", from))?;
        self.disk.sync_dir(DIR).map_err(fatal("sync the directory of snapshots"))?;
        self.retain_newest()
    }

    fn check(&self, name: &str, point: LogId) -> Result<SnapshotId, SnapshotError> {
        let name = path(name);
        let file = self.disk.open(&name).map_err(failed("open", &name))?;
        let bad = |bad| bad_at(&name, bad);
        let header = format::read_header(&*file).map_err(bad)?;
        if header.point != point {
            return Err(SnapshotError::Corrupt { name, offset: 0 });
        }
        format::read_footer(&*file, &header).map(|(_, id)| id).map_err(bad)
    }

    /// The total size of all snapshot files, including those being written or received.
    pub fn bytes(&self) -> Result<u64, SnapshotError> {
        let mut bytes = 0;
        for name in self.names()? {
            match self.disk.open(&path(&name)).and_then(|file| file.size()) {
                Ok(size) => bytes += size,
                // A file that has just been removed has no size.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(failed("measure", &path(&name))(error)),
            }
        }
        Ok(bytes)
    }

    fn names(&self) -> Result<Vec<String>, SnapshotError> {
        self.disk.list(DIR).map_err(failed("list", DIR))
    }

    fn remove(&self, name: &str) -> Result<(), SnapshotError> {
        let name = path(name);
        match self.disk.remove(&name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(failed("remove", &name)(error))
            }
            _ => Ok(()),
        }
    }
}

fn name(point: LogId) -> String {
    format!("{:016x}-{:016x}{SUFFIX}", point.index, point.term)
}

fn path(file_name: &str) -> String {
    format!("{DIR}/{file_name}")
}

/// The point in the name of a complete snapshot; `None` for any other file.
fn point(file_name: &str) -> Option<LogId> {
    let (index, term) = file_name.strip_suffix(SUFFIX)?.split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    let point = LogId { index: number(index)?, term: number(term)? };
    (name(point) == file_name).then_some(point)
}

/// The point in the name of a snapshot that was set aside; `None` for any other file.
fn damaged_point(file_name: &str) -> Option<LogId> {
    point(file_name.strip_suffix(DAMAGED_SUFFIX)?)
}

fn failed<'a>(doing: &'static str, name: &'a str) -> impl FnOnce(io::Error) -> SnapshotError + 'a {
    move |source| {
        if is_full(&source) {
            SnapshotError::NoSpace
        } else {
            SnapshotError::Io { doing, name: name.into(), source }
        }
    }
}

fn bad_at(name: &str, bad: Bad) -> SnapshotError {
    match bad {
        Bad::Io(source) => SnapshotError::Io { doing: "read", name: name.into(), source },
        Bad::Format(found) => SnapshotError::Format { name: name.into(), found },
        Bad::Corrupt(offset) => SnapshotError::Corrupt { name: name.into(), offset },
    }
}
