//! Receives a snapshot from another member, if need be in several attempts.
//!
//! The bytes of the sender's file are written to a file that is named after the snapshot's id. When
//! the stream breaks, or the process dies, what is there is kept; a later attempt for the same id
//! verifies it chunk by chunk and asks for the rest. A sender that repeats itself does no harm: bytes
//! that are there already are compared, not written again.

use std::{io, sync::Arc};

use super::{
    PART_SUFFIX, SnapshotError, SnapshotId, SnapshotReader, Snapshots, bad_at, failed,
    format::{self, Bad},
    name, path,
};
use crate::disk::File;

/// A snapshot being received.
#[derive(Debug)]
pub struct SnapshotReceiver {
    snapshots: Snapshots,
    /// The file's name: that of the part, or of the snapshot if it is complete already.
    name: String,
    file: Arc<dyn File>,
    id: SnapshotId,
    have: u64,
    complete: bool,
}

/// What became of bytes that were received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Appended {
    /// They follow what was there.
    Added,
    /// They were there already, the same ones. Nothing changed.
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
        Ok(Self { snapshots, name: part, file, id, have, complete: false })
    }

    /// A process may die after a snapshot became complete and before its sender was told.
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
        Ok(Some(Self { snapshots, name, file, id, have: id.bytes, complete: true }))
    }

    /// Which snapshot this is.
    pub fn id(&self) -> SnapshotId {
        self.id
    }

    /// How many bytes are there: where the sender goes on.
    pub fn have(&self) -> u64 {
        self.have
    }

    /// Takes the bytes that belong at `offset`.
    ///
    /// They must begin at [`SnapshotReceiver::have`], or lie before it and be the same as those there:
    /// then nothing changes. After [`SnapshotError::Offset`] the sender goes on at `have`; after
    /// [`SnapshotError::Conflict`] one of the two copies is damaged, so the receiver is to be discarded.
    pub fn append(&mut self, offset: u64, bytes: &[u8]) -> Result<Appended, SnapshotError> {
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
        Ok(Appended::Added)
    }

    /// Verifies the whole and makes it complete and durable. If it is not what the id promises, it
    /// is removed: the next attempt starts from nothing.
    pub fn finish(self) -> Result<SnapshotId, SnapshotError> {
        if self.have != self.id.bytes {
            return Err(SnapshotError::Length { expected: self.id.bytes, found: self.have });
        }
        if self.complete {
            return Ok(self.id);
        }
        let verified = SnapshotReader::begin(self.file.clone(), self.name.clone(), self.id)
            .and_then(SnapshotReader::verify);
        if let Err(SnapshotError::Corrupt { .. } | SnapshotError::Format { .. }) = verified {
            self.snapshots.remove(&part_name(self.id))?;
        }
        verified?;
        self.snapshots.publish(&*self.file, &self.name, self.id.point)?;
        Ok(self.id)
    }

    /// Gives up, and gives the space back. A snapshot that is complete stays.
    pub fn discard(self) -> Result<(), SnapshotError> {
        self.snapshots.remove(&part_name(self.id))
    }

    /// Bytes that were received again must be those that are there.
    fn compare(&self, offset: u64, bytes: &[u8]) -> Result<Appended, SnapshotError> {
        let mut there = vec![0; bytes.len()];
        self.file.read_at(offset, &mut there).map_err(failed("read", &self.name))?;
        if there == bytes {
            Ok(Appended::Duplicate)
        } else {
            Err(SnapshotError::Conflict { offset })
        }
    }
}

fn part_name(id: SnapshotId) -> String {
    let SnapshotId { point, bytes, checksum } = id;
    format!("{:016x}-{:016x}-{bytes:x}-{checksum:08x}{PART_SUFFIX}", point.index, point.term)
}

/// How much of a part can be trusted: its header and the chunks that verify, without a gap.
///
/// That much is written again. A sync of the run before may have failed; then the kernel shows pages
/// that it calls clean and that never reached the disk, and a sync of this run would not write them.
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
