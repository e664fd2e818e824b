//! Creates, names and recognises segment files.
//!
//! A segment is filled with zeros and its header is synced before it gets its name. A file with a segment's name
//! therefore always has a whole header, or it is damaged. The header takes a sector of its own:
//!
//! ```text
//!  0  8 bytes  "tenurlog"
//!  8  u32      format version
//! 12  u32      length of the file
//! 16  u64      number of the segment
//! 24  u64      salt
//! 32           zeros
//! 508 u32      checksum of the bytes before
//! ```

use std::{io, sync::Arc};

use super::record;
use crate::disk::{Disk, File};

/// The directory of the log inside the data directory.
pub(crate) const DIR: &str = "log";

/// Records start after the sector of the header.
pub(crate) const FIRST_RECORD: u32 = 512;

/// The smallest segment: room for a header, a start record, a seal record and some entries.
pub const SEGMENT_BYTES_MIN: u32 = 4 * 1024;

/// The largest segment. Recovery reads a whole segment into memory, and offsets are 32 bits with room for additions.
pub const SEGMENT_BYTES_MAX: u32 = 1024 * 1024 * 1024;

const MAGIC: &[u8; 8] = b"tenurlog";
const FORMAT: u32 = 1;
const SUFFIX: &str = ".seg";
pub(crate) const TEMPORARY_SUFFIX: &str = ".tmp";

/// An open segment with a good header.
#[derive(Debug, Clone)]
pub(crate) struct Segment {
    pub(crate) number: u64,
    pub(crate) seed: u32,
    pub(crate) bytes: u32,
    pub(crate) file: Arc<dyn File>,
}

/// Why a file with a segment's name is not that segment.
#[derive(Debug)]
pub(crate) enum BadSegment {
    Io(io::Error),
    /// Another version of this program may know the format; this one must not touch the file.
    Format(u32),
    Header,
    Size,
    Number(u64),
}

pub(crate) fn name(number: u64) -> String {
    format!("{DIR}/{number:016x}{SUFFIX}")
}

/// The number in a segment's file name: `None` if it is not a segment, an error if it is misnamed.
pub(crate) fn number(file_name: &str) -> Option<Result<u64, ()>> {
    let digits = file_name.strip_suffix(SUFFIX)?;
    let number = u64::from_str_radix(digits, 16).map_err(|_| ());
    // Only one spelling is valid, so that two files can never claim the same number.
    Some(
        number.and_then(
            |number| if digits == format!("{number:016x}") { Ok(number) } else { Err(()) },
        ),
    )
}

/// Creates a segment filled with zeros under a temporary name, and syncs it. The log gives it its real name.
pub(crate) fn create(
    disk: &dyn Disk,
    temporary: &str,
    number: u64,
    salt: u64,
    bytes: u32,
) -> io::Result<Segment> {
    let file = disk.create(temporary)?;
    let made = || {
        file.fill_with_zeros(u64::from(bytes))?;
        file.write_at(0, &header(number, salt, bytes))?;
        file.sync()
    };
    if let Err(error) = made() {
        // If this fails too, the next open removes the temporary file.
        let _ = disk.remove(temporary);
        return Err(error);
    }
    Ok(Segment { number, seed: record::seed(salt, number), bytes, file })
}

pub(crate) fn open(disk: &dyn Disk, number: u64) -> Result<Segment, BadSegment> {
    let file = disk.open(&name(number)).map_err(BadSegment::Io)?;
    let size = file.size().map_err(BadSegment::Io)?;
    if size < u64::from(FIRST_RECORD) || size > u64::from(SEGMENT_BYTES_MAX) {
        return Err(BadSegment::Size);
    }
    let mut header = [0; FIRST_RECORD as usize];
    file.read_at(0, &mut header).map_err(BadSegment::Io)?;
    let word = |at: usize| {
        u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
    };
    let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
    if header[..8] != *MAGIC || word(508) != crc32c::crc32c(&header[..508]) {
        return Err(BadSegment::Header);
    }
    if word(8) != FORMAT {
        return Err(BadSegment::Format(word(8)));
    }
    if u64::from(word(12)) != size || word(12) < SEGMENT_BYTES_MIN {
        return Err(BadSegment::Size);
    }
    if long(16) != number {
        return Err(BadSegment::Number(long(16)));
    }
    Ok(Segment { number, seed: record::seed(long(24), number), bytes: word(12), file })
}

impl Segment {
    /// The content of the whole file. Its size was checked against [`SEGMENT_BYTES_MAX`].
    pub(crate) fn read(&self) -> io::Result<Vec<u8>> {
        let mut image = vec![0; self.bytes as usize];
        self.file.read_at(0, &mut image)?;
        Ok(image)
    }
}

fn header(number: u64, salt: u64, bytes: u32) -> [u8; FIRST_RECORD as usize] {
    let mut header = [0; FIRST_RECORD as usize];
    header[..8].copy_from_slice(MAGIC);
    header[8..12].copy_from_slice(&FORMAT.to_le_bytes());
    header[12..16].copy_from_slice(&bytes.to_le_bytes());
    header[16..24].copy_from_slice(&number.to_le_bytes());
    header[24..32].copy_from_slice(&salt.to_le_bytes());
    let checksum = crc32c::crc32c(&header[..508]);
    header[508..].copy_from_slice(&checksum.to_le_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::SimDisk;

    #[test]
    fn only_one_spelling_names_a_segment() {
        assert_eq!(number("0000000000000010.seg"), Some(Ok(16)));
        assert_eq!(number("10.seg"), Some(Err(())));
        assert_eq!(number("000000000000001A.seg"), Some(Err(())));
        assert_eq!(number("+000000000000001.seg"), Some(Err(())));
        assert_eq!(number("0000000000000010.tmp"), None);
        assert_eq!(name(16), "log/0000000000000010.seg");
    }

    #[test]
    fn no_flipped_bit_of_a_header_goes_unseen() {
        let disk = SimDisk::new(1);
        disk.make_dir(DIR).unwrap();
        create(&disk, "log/a.tmp", 3, 77, SEGMENT_BYTES_MIN).unwrap();
        disk.rename("log/a.tmp", &name(3)).unwrap();
        assert!(open(&disk, 3).is_ok());
        for offset in 0..u64::from(FIRST_RECORD) {
            disk.flip_bit(&name(3), offset, (offset % 8) as u8);
            assert!(open(&disk, 3).is_err(), "byte {offset}");
            disk.flip_bit(&name(3), offset, (offset % 8) as u8);
        }
        disk.rename(&name(3), &name(4)).unwrap();
        assert!(matches!(open(&disk, 4), Err(BadSegment::Number(3))));
    }
}
