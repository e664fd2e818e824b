//! Receives a snapshot from another member, if necessary in several attempts.
//!
//! The receiver writes the bytes of the sender's file to a file that is named after the snapshot's id. When the stream
//! breaks or the process dies, the file stays; a later attempt for the same id verifies it chunk by chunk and asks for
//! the rest. A sender that repeats itself does no harm: the receiver compares bytes that it already has and does not
//! write them again.

use std::{io, sync::Arc, time::Duration};

use super::write::SYNC_BYTES;
use super::{
    PART_SUFFIX, SnapshotError, SnapshotFileReader, SnapshotId, Snapshots, bad_at, failed,
    format::{self, Bad},
    name, path,
};
use crate::{Fatal, disk::File};

/// A snapshot being received.
#[derive(Debug)]
pub struct SnapshotReceiver {
    snapshots: Snapshots,
    /// The file's name: that of the part, or of the snapshot if it is already complete.
    name: String,
    file: Arc<dyn File>,
    id: SnapshotId,
    have: u64,
    /// How much of the file is synced.
    synced: u64,
    complete: bool,
}

/// The effect of received bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReceivedBytes {
    /// The bytes continued those received before.
    Added,
    /// The same bytes had been received before. Nothing changed.
    Duplicate,
}

impl SnapshotReceiver {
    pub(super) fn begin(snapshots: Snapshots, id: SnapshotId) -> Result<Self, SnapshotError> {
        let part = part_name(id);
        for name in snapshots.names()? {
            if name.ends_with(PART_SUFFIX) && name != part {
                snapshots.remove(&name)?;
            }
        }
        if let Some(receiver) = Self::complete(&snapshots, id)? {
            snapshots.remove(&part)?;
            return Ok(receiver);
        }
        let part = path(&part);
        let (file, have) = match snapshots.disk.open(&part) {
            Ok(file) => {
                let have = keep_verified(&*file, &part)?.min(id.bytes);
                (file, have)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                (snapshots.disk.create(&part).map_err(failed("create", &part))?, 0)
            }
            Err(error) => return Err(failed("open", &part)(error)),
        };
        Ok(Self { snapshots, name: part, file, id, have, synced: have, complete: false })
    }

    /// The snapshot if it is already complete: a process may die after that and before it tells the sender.
    fn complete(snapshots: &Snapshots, id: SnapshotId) -> Result<Option<Self>, SnapshotError> {
        if !snapshots.complete()?.contains(&id) {
            return Ok(None);
        }
        match snapshots.verify(id) {
            Ok(()) => {}
            Err(SnapshotError::Corrupt { .. }) => return Ok(None),
            Err(error) => return Err(error),
        }
        let name = path(&name(id.point));
        let file = snapshots.disk.open(&name).map_err(failed("open", &name))?;
        let snapshots = snapshots.clone();
        let have = id.bytes;
        Ok(Some(Self { snapshots, name, file, id, have, synced: have, complete: true }))
    }

    /// The id of this snapshot.
    pub fn id(&self) -> SnapshotId {
        self.id
    }

    /// The number of bytes received, which is the offset at which the sender continues.
    pub fn have(&self) -> u64 {
        self.have
    }

    /// Adds the bytes that belong at `offset`.
    ///
    /// They must begin at [`SnapshotReceiver::have`], or lie before it and equal those already received: then nothing
    /// changes. After [`SnapshotError::Offset`] the sender continues at `have`. After [`SnapshotError::Conflict`] one
    /// of the two copies is damaged, so the caller must discard the receiver.
    pub fn append(&mut self, offset: u64, bytes: &[u8]) -> Result<ReceivedBytes, SnapshotError> {
        let offset = if mutant!("chunk_accepted_twice") { self.have } else { offset };
        let end = offset.saturating_add(bytes.len() as u64);
        if end <= self.have {
            return self.compare(offset, bytes);
        }
        if offset != self.have {
            return Err(SnapshotError::Offset { expected: self.have, found: offset });
        }
        if end > self.id.bytes {
            return Err(SnapshotError::Length { expected: self.id.bytes, found: end });
        }
        self.file.write_at(offset, bytes).map_err(failed("write", &self.name))?;
        self.have = end;
        Ok(ReceivedBytes::Added)
    }

    /// Syncs what was received, if it is several megabytes, so that the disk never has a whole state in its queue.
    ///
    /// Returns how long the disk was busy with that. A caller that lets the disk rest for as long before it adds more
    /// leaves at least half of the disk's time to the log, as [`SnapshotWriter::append`] does.
    ///
    /// [`SnapshotWriter::append`]: super::SnapshotWriter::append
    pub fn sync_some(&mut self) -> Result<Duration, SnapshotError> {
        if self.have - self.synced < SYNC_BYTES {
            return Ok(Duration::ZERO);
        }
        let fatal = |source| Fatal::Disk { doing: "sync a snapshot", source };
        let busy = self.file.sync().map_err(fatal)?;
        self.synced = self.have;
        Ok(busy)
    }

    /// Verifies the whole and makes it complete and durable. If it is not what the id promises, removes it: the next
    /// attempt starts from nothing.
    pub fn finish(self) -> Result<SnapshotId, SnapshotError> {
        if self.have != self.id.bytes {
            return Err(SnapshotError::Length { expected: self.id.bytes, found: self.have });
        }
        if self.complete {
            return Ok(self.id);
        }
        let verified = SnapshotFileReader::begin(self.file.clone(), self.name.clone(), self.id)
            .and_then(SnapshotFileReader::verify);
        if let Err(SnapshotError::Corrupt { .. } | SnapshotError::Format { .. }) = verified {
            self.snapshots.remove(&part_name(self.id))?;
        }
        verified?;
        self.snapshots.publish(&*self.file, &self.name, self.id.point)?;
        Ok(self.id)
    }

    /// Gives up and frees the space. A complete snapshot stays.
    pub fn discard(self) -> Result<(), SnapshotError> {
        self.snapshots.remove(&part_name(self.id))
    }

    /// Checks that bytes received again equal those already in the file.
    fn compare(&self, offset: u64, bytes: &[u8]) -> Result<ReceivedBytes, SnapshotError> {
        let mut there = vec![0; bytes.len()];
        self.file.read_at(offset, &mut there).map_err(failed("read", &self.name))?;
        if there == bytes {
            Ok(ReceivedBytes::Duplicate)
        } else {
            Err(SnapshotError::Conflict { offset })
        }
    }
}

fn part_name(id: SnapshotId) -> String {
    let SnapshotId { point, bytes, checksum } = id;
    format!("{:016x}-{:016x}-{bytes:x}-{checksum:08x}{PART_SUFFIX}", point.index, point.term)
}

/// Returns how much of a part can be trusted: its header and the chunks that verify, without a gap.
///
/// That much is written again. A sync of the run before may have failed; then the kernel shows pages that it calls
/// clean and that never reached the disk, and a sync of this run would not write them.
fn keep_verified(file: &dyn File, name: &str) -> Result<u64, SnapshotError> {
    if mutant!("part_trusted_unverified") {
        return file.size().map_err(failed("measure", name));
    }
    let header = match format::read_header(file) {
        Ok(header) => header,
        Err(Bad::Io(source)) => return Err(failed("read", name)(source)),
        Err(Bad::Corrupt(_) | Bad::Format(_)) => return Ok(0),
    };
    let rewrite = |offset, bytes: &[u8]| {
        if mutant!("resumed_part_not_rewritten") {
            return Ok(());
        }
        file.write_at(offset, bytes).map_err(failed("write", name))
    };
    let (bytes, _) = format::header(header.point, &header.meta)?;
    rewrite(0, &bytes)?;
    let mut offset = header.bytes;
    let mut chunk = 0;
    loop {
        match format::read_whole_chunk(file, &header, offset, chunk) {
            Ok(Some(bytes)) => {
                rewrite(offset, &bytes)?;
                offset += bytes.len() as u64;
                chunk += 1;
            }
            Err(bad @ Bad::Io(_)) => return Err(bad_at(name, bad)),
            Ok(None) | Err(_) => return Ok(offset),
        }
    }
}
