//! How does a snapshot arrive from another member, if need be in several attempts?
//!
//! The bytes of the sender's file are written to a file that is named after the snapshot's id. When
//! the stream breaks, or the process dies, what is there is kept; a later attempt for the same id
//! verifies it chunk by chunk and asks for the rest.

use std::{io, sync::Arc};

use super::{
    PART_SUFFIX, SnapshotError, SnapshotId, SnapshotReader, Snapshots, failed,
    format::{self, CHUNK_HEADER_BYTES},
    path,
};
use crate::disk::File;

/// A snapshot being received.
#[derive(Debug)]
pub struct SnapshotReceiver {
    snapshots: Snapshots,
    part: String,
    file: Arc<dyn File>,
    id: SnapshotId,
    have: u64,
}

impl SnapshotReceiver {
    pub(super) fn begin(snapshots: Snapshots, id: SnapshotId) -> Result<Self, SnapshotError> {
        let part = part_name(id);
        for name in snapshots.names()? {
            if name.ends_with(PART_SUFFIX) && name != part {
                snapshots.remove(&name)?;
            }
        }
        let part = path(&part);
        let (file, have) = match snapshots.disk.open(&part) {
            Ok(file) => {
                let have = verified_bytes(&*file).min(id.bytes);
                (file, have)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                (snapshots.disk.create(&part).map_err(failed("create", &part))?, 0)
            }
            Err(error) => return Err(failed("open", &part)(error)),
        };
        Ok(Self { snapshots, part, file, id, have })
    }

    /// Which snapshot this is.
    pub fn id(&self) -> SnapshotId {
        self.id
    }

    /// How many bytes are there: where the sender goes on.
    pub fn have(&self) -> u64 {
        self.have
    }

    /// Takes the bytes that belong at `offset`, which must be [`SnapshotReceiver::have`].
    pub fn append(&mut self, offset: u64, bytes: &[u8]) -> Result<(), SnapshotError> {
        if offset != self.have {
            return Err(SnapshotError::Offset { expected: self.have, found: offset });
        }
        let found = self.have.saturating_add(bytes.len() as u64);
        if found > self.id.bytes {
            return Err(SnapshotError::Length { expected: self.id.bytes, found });
        }
        self.file.write_at(offset, bytes).map_err(failed("write", &self.part))?;
        self.have = found;
        Ok(())
    }

    /// Verifies the whole and makes it complete and durable. If it is not what the id promises, it
    /// is removed: the next attempt starts from nothing.
    pub fn finish(self) -> Result<SnapshotId, SnapshotError> {
        if self.have != self.id.bytes {
            return Err(SnapshotError::Length { expected: self.id.bytes, found: self.have });
        }
        let verified = self.verify();
        if let Err(SnapshotError::Corrupt { .. } | SnapshotError::Format { .. }) = verified {
            self.snapshots.remove(&part_name(self.id))?;
        }
        verified?;
        self.snapshots.publish(&*self.file, &self.part, self.id.point)?;
        Ok(self.id)
    }

    /// Gives up, and gives the space back.
    pub fn discard(self) -> Result<(), SnapshotError> {
        self.snapshots.remove(&part_name(self.id))
    }

    fn verify(&self) -> Result<(), SnapshotError> {
        let mut reader = SnapshotReader::begin(self.file.clone(), self.part.clone(), self.id)?;
        while reader.next_chunk()?.is_some() {}
        Ok(())
    }
}

fn part_name(id: SnapshotId) -> String {
    let SnapshotId { point, bytes, checksum } = id;
    format!("{:016x}-{:016x}-{bytes:x}-{checksum:08x}{PART_SUFFIX}", point.index, point.term)
}

/// How much of a part can be trusted: its header and the chunks that verify, without a gap.
fn verified_bytes(file: &dyn File) -> u64 {
    let Ok(header) = format::read_header(file) else { return 0 };
    let mut offset = header.bytes;
    let mut chunk = 0;
    while let Ok(Some(data)) = format::read_chunk(file, &header, offset, chunk) {
        offset += (CHUNK_HEADER_BYTES + data.len()) as u64;
        chunk += 1;
    }
    offset
}
