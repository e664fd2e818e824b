//! Writes a snapshot chunk by chunk and makes it complete.

use std::sync::Arc;
use std::time::Duration;

use super::{
    SnapshotError, SnapshotId, Snapshots, TEMPORARY_SUFFIX, failed,
    format::{self, CHUNK_BYTES_MAX, Footer},
    name, path,
};
use crate::{Fatal, LogId, disk::File};

/// The most bytes that are written between two syncs. A sync of the log may have to wait for what the disk has in its
/// queue, so that must never be a whole state.
pub(super) const SYNC_BYTES: u64 = 4 * 1024 * 1024;

/// A snapshot being written. If it is dropped before [`SnapshotWriter::finish`], no trace of it remains.
#[derive(Debug)]
pub struct SnapshotWriter {
    snapshots: Snapshots,
    temporary: String,
    file: Arc<dyn File>,
    point: LogId,
    /// The checksum of the header, which all other checksums include.
    seed: u32,
    /// Data that does not fill a chunk yet.
    buffer: Vec<u8>,
    offset: u64,
    /// How much of the file is synced.
    synced: u64,
    footer: Footer,
    finished: bool,
}

impl SnapshotWriter {
    pub(super) fn begin(
        snapshots: Snapshots,
        point: LogId,
        meta: &[u8],
    ) -> Result<Self, SnapshotError> {
        let (header, seed) = format::header(point, meta)?;
        let temporary = format!("{}{TEMPORARY_SUFFIX}", name(point));
        snapshots.remove(&temporary)?;
        let temporary = path(&temporary);
        let file = snapshots.disk.create(&temporary).map_err(failed("create", &temporary))?;
        let footer = Footer { data_bytes: 0, chunks: 0, data_checksum: 0 };
        let buffer = Vec::new();
        let mut writer = Self {
            snapshots,
            temporary,
            file,
            point,
            seed,
            buffer,
            offset: 0,
            synced: 0,
            footer,
            finished: false,
        };
        writer.put(&header)?;
        Ok(writer)
    }

    /// Adds data, and syncs it every few megabytes. After an error the snapshot cannot be finished; drop it.
    ///
    /// Returns how long the disk was busy with these syncs. A caller that lets the disk rest for as long before it adds
    /// more leaves at least half of the disk's time to the log, however slow the disk is.
    pub fn append(&mut self, mut data: &[u8]) -> Result<Duration, SnapshotError> {
        let mut busy = Duration::ZERO;
        while !data.is_empty() {
            let step = data.len().min(CHUNK_BYTES_MAX - self.buffer.len());
            self.buffer.extend_from_slice(&data[..step]);
            data = &data[step..];
            if self.buffer.len() == CHUNK_BYTES_MAX {
                self.put_chunk()?;
                if self.offset - self.synced >= SYNC_BYTES {
                    busy += self.sync()?;
                }
            }
        }
        Ok(busy)
    }

    /// Makes the snapshot complete and durable, and removes those that it makes unnecessary.
    pub fn finish(mut self) -> Result<SnapshotId, SnapshotError> {
        if !self.buffer.is_empty() {
            self.put_chunk()?;
        }
        let footer = format::footer(self.seed, self.footer);
        self.put(&footer)?;
        self.snapshots.publish(&*self.file, &self.temporary, self.point)?;
        self.finished = true;
        let header = format::read_header(&*self.file);
        header
            .and_then(|header| format::read_footer(&*self.file, &header))
            .map(|(_, id)| id)
            .map_err(|bad| super::bad_at(&self.temporary, bad))
    }

    fn put_chunk(&mut self) -> Result<(), SnapshotError> {
        let header = format::chunk_header(self.seed, self.footer.chunks, &self.buffer);
        self.footer.data_checksum = crc32c::crc32c_append(self.footer.data_checksum, &self.buffer);
        self.footer.data_bytes += self.buffer.len() as u64;
        self.footer.chunks += 1;
        self.put(&header)?;
        let data = std::mem::take(&mut self.buffer);
        self.put(&data)?;
        self.buffer = data;
        self.buffer.clear();
        Ok(())
    }

    fn sync(&mut self) -> Result<Duration, SnapshotError> {
        let fatal = |source| Fatal::Disk { doing: "sync a snapshot", source };
        let busy = self.file.sync().map_err(fatal)?;
        self.synced = self.offset;
        Ok(busy)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), SnapshotError> {
        self.file.write_at(self.offset, bytes).map_err(failed("write", &self.temporary))?;
        self.offset += bytes.len() as u64;
        Ok(())
    }
}

impl Drop for SnapshotWriter {
    fn drop(&mut self) {
        if !self.finished {
            // Free the space of the unfinished file, which may be what was missing. If this fails, the next open
            // removes it.
            let _ = self.snapshots.disk.remove(&self.temporary);
        }
    }
}
