//! Encodes and verifies the parts of a snapshot file.
//!
//! ```text
//! header   8 bytes "tenursnp", u32 format, u32 length of meta, u64 index, u64 term, meta, u32 checksum
//! chunk    u32 length (1 to 1 MiB), u32 checksum, data                     as many as needed
//! footer   u32 zero, u64 data bytes, u64 chunks, u32 checksum of all data, u32 checksum
//! ```
//!
//! Numbers are little-endian. The checksums of chunks and footer also cover the header's checksum, and a chunk's
//! checksum covers its position, so chunks cannot be moved within or between snapshots.

use std::io;

use bytes::Bytes;

use super::{SnapshotError, SnapshotId};
use crate::{LogId, disk::File};

/// The largest size of meta: a member list and some numbers fit many times over.
pub const META_BYTES_MAX: usize = 1024 * 1024;

/// The largest chunk: a reader must hold a whole chunk in memory.
pub(super) const CHUNK_BYTES_MAX: usize = 1024 * 1024;

pub(super) const CHUNK_HEADER_BYTES: usize = 8;
pub(super) const FOOTER_BYTES: usize = 28;

const MAGIC: &[u8; 8] = b"tenursnp";
const FORMAT: u32 = 1;
const FIXED_BYTES: usize = 32;
const CHECKSUM_BYTES: usize = 4;

/// The verified fields of a snapshot's header.
#[derive(Debug, Clone)]
pub(super) struct SnapshotHeader {
    pub(super) point: LogId,
    pub(super) meta: Bytes,
    pub(super) checksum: u32,
    pub(super) bytes: u64,
}

/// The verified fields of a snapshot's footer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Footer {
    pub(super) data_bytes: u64,
    pub(super) chunks: u64,
    pub(super) data_checksum: u32,
}

/// Why bytes are not the expected part of a snapshot.
#[derive(Debug)]
pub(super) enum Bad {
    Io(io::Error),
    Format(u32),
    Corrupt(u64),
}

pub(super) fn header(point: LogId, meta: &[u8]) -> Result<(Vec<u8>, u32), SnapshotError> {
    if meta.len() > META_BYTES_MAX {
        return Err(SnapshotError::MetaTooLarge { bytes: meta.len(), max: META_BYTES_MAX });
    }
    let length = u32::try_from(meta.len()).expect("the length of meta is bounded");
    let mut bytes = Vec::with_capacity(FIXED_BYTES + meta.len() + CHECKSUM_BYTES);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&FORMAT.to_le_bytes());
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(&point.index.to_le_bytes());
    bytes.extend_from_slice(&point.term.to_le_bytes());
    bytes.extend_from_slice(meta);
    let checksum = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    Ok((bytes, checksum))
}

pub(super) fn read_header(file: &dyn File) -> Result<SnapshotHeader, Bad> {
    let mut fixed = [0; FIXED_BYTES];
    read(file, 0, &mut fixed)?;
    if fixed[..8] != *MAGIC {
        return Err(Bad::Corrupt(0));
    }
    // Read the version before the checksum: a later version may have another header.
    if word(&fixed, 8) != FORMAT {
        return Err(Bad::Format(word(&fixed, 8)));
    }
    let length = word(&fixed, 12) as usize;
    if length > META_BYTES_MAX {
        return Err(Bad::Corrupt(12));
    }
    let mut rest = vec![0; length + CHECKSUM_BYTES];
    read(file, FIXED_BYTES as u64, &mut rest)?;
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&fixed), &rest[..length]);
    if checksum != word(&rest, length) {
        return Err(Bad::Corrupt(0));
    }
    rest.truncate(length);
    Ok(SnapshotHeader {
        point: LogId { index: long(&fixed, 16), term: long(&fixed, 24) },
        meta: rest.into(),
        checksum,
        bytes: (FIXED_BYTES + length + CHECKSUM_BYTES) as u64,
    })
}

pub(super) fn chunk_header(snapshot: u32, chunk: u64, data: &[u8]) -> [u8; CHUNK_HEADER_BYTES] {
    let length = u32::try_from(data.len()).expect("the length of a chunk is bounded");
    let mut bytes = [0; CHUNK_HEADER_BYTES];
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    bytes[4..].copy_from_slice(&chunk_checksum(snapshot, chunk, data).to_le_bytes());
    bytes
}

/// Reads the data of the chunk at an offset; `None` if the footer lies there.
pub(super) fn read_chunk(
    file: &dyn File,
    header: &SnapshotHeader,
    offset: u64,
    chunk: u64,
) -> Result<Option<Bytes>, Bad> {
    let whole = read_whole_chunk(file, header, offset, chunk)?;
    Ok(whole.map(|bytes| bytes.slice(CHUNK_HEADER_BYTES..)))
}

/// The unverified length of the chunk at an offset, including its header; `None` if the footer lies there.
pub(super) fn chunk_length(file: &dyn File, offset: u64) -> Result<Option<usize>, Bad> {
    let mut length = [0; 4];
    read(file, offset, &mut length)?;
    match u32::from_le_bytes(length) as usize {
        0 => Ok(None),
        length if length > CHUNK_BYTES_MAX => Err(Bad::Corrupt(offset)),
        length => Ok(Some(CHUNK_HEADER_BYTES + length)),
    }
}

/// Reads the chunk at an offset with its header; `None` if the footer lies there.
pub(super) fn read_whole_chunk(
    file: &dyn File,
    header: &SnapshotHeader,
    offset: u64,
    chunk: u64,
) -> Result<Option<Bytes>, Bad> {
    let Some(length) = chunk_length(file, offset)? else { return Ok(None) };
    let mut bytes = vec![0; length];
    read(file, offset, &mut bytes)?;
    let data = &bytes[CHUNK_HEADER_BYTES..];
    // Verify the length from this second read: the first one only decided how much to read.
    if word(&bytes, 0) as usize != data.len()
        || word(&bytes, 4) != chunk_checksum(header.checksum, chunk, data)
    {
        return Err(Bad::Corrupt(offset));
    }
    Ok(Some(bytes.into()))
}

pub(super) fn footer(snapshot: u32, footer: Footer) -> [u8; FOOTER_BYTES] {
    let mut bytes = [0; FOOTER_BYTES];
    bytes[4..12].copy_from_slice(&footer.data_bytes.to_le_bytes());
    bytes[12..20].copy_from_slice(&footer.chunks.to_le_bytes());
    bytes[20..24].copy_from_slice(&footer.data_checksum.to_le_bytes());
    let checksum = crc32c::crc32c_append(snapshot, &bytes[..24]);
    bytes[24..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// Reads the end of a file: the footer, and the id of the snapshot that it completes.
pub(super) fn read_footer(
    file: &dyn File,
    header: &SnapshotHeader,
) -> Result<(Footer, SnapshotId), Bad> {
    let size = file.size().map_err(Bad::Io)?;
    let at = size.checked_sub(FOOTER_BYTES as u64).filter(|at| *at >= header.bytes);
    let at = at.ok_or(Bad::Corrupt(size))?;
    let mut bytes = [0; FOOTER_BYTES];
    read(file, at, &mut bytes)?;
    let checksum = crc32c::crc32c_append(header.checksum, &bytes[..24]);
    if word(&bytes, 0) != 0 || word(&bytes, 24) != checksum {
        return Err(Bad::Corrupt(at));
    }
    let found = Footer {
        data_bytes: long(&bytes, 4),
        chunks: long(&bytes, 12),
        data_checksum: word(&bytes, 20),
    };
    Ok((found, SnapshotId { point: header.point, bytes: size, checksum }))
}

fn chunk_checksum(snapshot: u32, chunk: u64, data: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c_append(snapshot, &chunk.to_le_bytes()), data)
}

fn read(file: &dyn File, offset: u64, buffer: &mut [u8]) -> Result<(), Bad> {
    file.read_at(offset, buffer).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => Bad::Corrupt(offset),
        _ => Bad::Io(error),
    })
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes make a word"))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes make a long"))
}
