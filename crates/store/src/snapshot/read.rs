//! Reads a snapshot to build the state from it.

use std::sync::Arc;

use bytes::Bytes;

use super::{
    RawSnapshot, SnapshotError, SnapshotId, Snapshots, bad_at,
    format::{self, CHUNK_HEADER_BYTES, FOOTER_BYTES, Footer, SnapshotHeader},
};
use crate::{LogId, disk::File};

/// Reads a snapshot chunk by chunk and verifies each before returning it.
///
/// The whole is verified only once [`SnapshotFileReader::next_chunk`] has returned `None`. The caller must build the
/// state aside and use it only then.
#[derive(Debug)]
pub struct SnapshotFileReader {
    name: String,
    file: Arc<dyn File>,
    id: SnapshotId,
    header: SnapshotHeader,
    footer: Footer,
    offset: u64,
    seen: Footer,
}

impl SnapshotFileReader {
    pub(super) fn begin(
        file: Arc<dyn File>,
        name: String,
        id: SnapshotId,
    ) -> Result<Self, SnapshotError> {
        let bad = |bad| bad_at(&name, bad);
        let header = format::read_header(&*file).map_err(bad)?;
        let (footer, found) = format::read_footer(&*file, &header).map_err(bad)?;
        if found != id {
            return Err(SnapshotError::Corrupt { name, offset: 0 });
        }
        let offset = header.bytes;
        let seen = Footer { data_bytes: 0, chunks: 0, data_checksum: 0 };
        Ok(Self { name, file, id, header, footer, offset, seen })
    }

    /// The last entry that the snapshot includes.
    pub fn point(&self) -> LogId {
        self.id.point
    }

    /// The meta given when the snapshot was written.
    pub fn meta(&self) -> &Bytes {
        &self.header.meta
    }

    /// The total size of the data in all chunks.
    pub fn data_bytes(&self) -> u64 {
        self.footer.data_bytes
    }

    /// The next data; `None` once all of it has been read and verified.
    pub fn next_chunk(&mut self) -> Result<Option<Bytes>, SnapshotError> {
        let corrupt = || SnapshotError::Corrupt { name: self.name.clone(), offset: self.offset };
        let end = self.id.bytes - FOOTER_BYTES as u64;
        if self.offset == end {
            return if self.seen == self.footer { Ok(None) } else { Err(corrupt()) };
        }
        let chunk = format::read_chunk(&*self.file, &self.header, self.offset, self.seen.chunks)
            .map_err(|bad| bad_at(&self.name, bad))?;
        let data = chunk.ok_or_else(corrupt)?;
        let after = self.offset + (CHUNK_HEADER_BYTES + data.len()) as u64;
        if after > end {
            return Err(corrupt());
        }
        self.offset = after;
        self.seen.chunks += 1;
        self.seen.data_bytes += data.len() as u64;
        self.seen.data_checksum = crc32c::crc32c_append(self.seen.data_checksum, &data);
        Ok(Some(data))
    }

    /// Reads the rest and verifies that the whole snapshot is what was written.
    pub(super) fn verify(mut self) -> Result<(), SnapshotError> {
        while self.next_chunk()?.is_some() {}
        Ok(())
    }

    pub(super) fn into_raw(self, snapshots: Snapshots) -> RawSnapshot {
        let Self { name, file, id, header, footer, .. } = self;
        RawSnapshot::new(snapshots, name, file, id, header, footer)
    }
}
