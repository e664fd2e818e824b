//! Reads the bytes of a snapshot file to send them to another member, and verifies them on the way.
//!
//! Every byte that this reader returns lies in a part whose checksum it verified in the same read. So the member that
//! has a damaged snapshot notices the damage, and not each member that receives it.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use super::{
    SnapshotError, SnapshotId, Snapshots, bad_at,
    format::{self, FOOTER_BYTES, Footer, SnapshotHeader},
};
use crate::disk::File;

/// The bytes of a snapshot's file, to be sent to another member. They include its checksums.
#[derive(Debug)]
pub struct RawSnapshot {
    snapshots: Snapshots,
    name: String,
    file: Arc<dyn File>,
    id: SnapshotId,
    header: SnapshotHeader,
    footer: Footer,
    /// The chunk read last. Transfers go forward, so the next chunk to read is this one or a later one.
    last: Mutex<ChunkPlace>,
}

/// One chunk of the file.
#[derive(Debug)]
struct ChunkPlace {
    offset: u64,
    number: u64,
    /// The verified chunk with its header; empty before the first read.
    bytes: Bytes,
}

impl RawSnapshot {
    pub(super) fn new(
        snapshots: Snapshots,
        name: String,
        file: Arc<dyn File>,
        id: SnapshotId,
        header: SnapshotHeader,
        footer: Footer,
    ) -> Self {
        let last = Mutex::new(ChunkPlace { offset: header.bytes, number: 0, bytes: Bytes::new() });
        Self { snapshots, name, file, id, header, footer, last }
    }

    /// The id of this snapshot.
    pub fn id(&self) -> SnapshotId {
        self.id
    }

    /// Up to `max` verified bytes from an offset; none at the end.
    ///
    /// If they are damaged, the snapshot is set aside: [`Snapshots::complete`] no longer lists it, and the member must
    /// write another one. If the disk failed to read them, a later attempt may succeed.
    pub fn read_at(&self, offset: u64, max: usize) -> Result<Bytes, SnapshotError> {
        let end = offset.saturating_add(max as u64).min(self.id.bytes);
        let mut found =
            Vec::with_capacity(usize::try_from(end.saturating_sub(offset)).unwrap_or(0));
        let mut at = offset;
        while at < end {
            let (start, part) = self.part(at).inspect_err(|error| self.set_aside_if(error))?;
            let from = usize::try_from(at - start).unwrap_or(usize::MAX);
            let to = usize::try_from(end - start).unwrap_or(usize::MAX).min(part.len());
            found.extend_from_slice(&part[from..to]);
            at = start + to as u64;
        }
        Ok(found.into())
    }

    /// The verified part of the file that contains an offset, and the offset at which that part begins.
    fn part(&self, at: u64) -> Result<(u64, Bytes), SnapshotError> {
        if mutant!("raw_snapshot_not_verified") {
            let mut bytes = vec![0; usize::try_from(self.id.bytes).unwrap_or(0)];
            let _ = self.file.read_at(0, &mut bytes);
            return Ok((0, bytes.into()));
        }
        let footer_at = self.id.bytes - FOOTER_BYTES as u64;
        if at < self.header.bytes {
            let (header, _) = format::header(self.id.point, &self.header.meta)?;
            return Ok((0, header.into()));
        }
        if at >= footer_at {
            let footer = format::footer(self.header.checksum, self.footer);
            return Ok((footer_at, Bytes::copy_from_slice(&footer)));
        }
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if at < last.offset {
            *last = ChunkPlace { offset: self.header.bytes, number: 0, bytes: Bytes::new() };
        }
        self.go_to(at, footer_at, &mut last)?;
        Ok((last.offset, last.bytes.clone()))
    }

    /// Moves to the chunk that contains an offset, and reads it if it has not been read.
    fn go_to(&self, at: u64, footer_at: u64, place: &mut ChunkPlace) -> Result<(), SnapshotError> {
        let bad = |bad| bad_at(&self.name, bad);
        loop {
            let corrupt =
                || SnapshotError::Corrupt { name: self.name.clone(), offset: place.offset };
            let length = match place.bytes.len() {
                // A wrong length leads to a chunk whose checksum does not match.
                0 => format::chunk_length(&*self.file, place.offset).map_err(bad)?,
                length => Some(length),
            };
            let after = place.offset + length.ok_or_else(corrupt)? as u64;
            if after > footer_at {
                return Err(corrupt());
            }
            if at < after {
                break;
            }
            *place = ChunkPlace { offset: after, number: place.number + 1, bytes: Bytes::new() };
        }
        if place.bytes.is_empty() {
            let read =
                format::read_whole_chunk(&*self.file, &self.header, place.offset, place.number);
            let corrupt =
                || SnapshotError::Corrupt { name: self.name.clone(), offset: place.offset };
            let whole = read.map_err(bad)?.ok_or_else(corrupt)?;
            // The second read of the length may have given another value.
            if at >= place.offset + whole.len() as u64 {
                return Err(corrupt());
            }
            place.bytes = whole;
        }
        Ok(())
    }

    fn set_aside_if(&self, error: &SnapshotError) {
        if let SnapshotError::Corrupt { .. } = error
            && !mutant!("damaged_snapshot_kept")
        {
            // The caller gets the error either way. The file under this name may have been replaced by now, so verify
            // it before setting it aside.
            let _ = self.snapshots.verify(self.id);
        }
    }
}
