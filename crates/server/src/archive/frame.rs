//! Encodes and decodes the frames of an archive segment.
//!
//! A segment is a magic number and frames: `length · checksum · kind · payload`. The checksum covers kind and payload.
//! A frame that a crash has cut ends the segment.

use std::sync::Arc;

use tenure_core::RevisionRecords;
use tenure_types::Revision;

/// The beginning of every segment, with the version of the format.
pub(super) const MAGIC: &[u8; 8] = b"TENARC\0\x01";

/// The length and checksum ahead of a frame's kind.
const HEAD: usize = 4 + 4;

const RECORDS: u8 = 1;
const HOLE: u8 = 2;
const COVERS: u8 = 3;

/// Revisions from one on, up to the last one before another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct RevisionRange {
    /// The first revision.
    pub from: Revision,
    /// The revision after the last.
    pub next: Revision,
}

/// One frame of a segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum ArchiveFrame {
    /// Consecutive revisions, or what retention has left of them.
    Records {
        /// The wall clock of the member when it wrote them, by which they age.
        written_ms: u64,
        /// Shared with the turn that left them: they are copied once, into the segment.
        records: Arc<RevisionRecords>,
    },
    /// Revisions that this member could not record.
    Hole(RevisionRange),
    /// The segment was written again: these are the revisions that it stands for.
    Covers {
        range: RevisionRange,
        /// The prefixes whose events were removed, each with the revision up to which.
        cuts: Vec<(Box<str>, Revision)>,
    },
}

/// A frame that is not one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct BadFrame;

impl ArchiveFrame {
    /// Appends the frame.
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; HEAD]);
        match self {
            Self::Records { written_ms, records } => {
                out.push(RECORDS);
                out.extend_from_slice(&written_ms.to_le_bytes());
                out.extend_from_slice(records.encoded());
            }
            Self::Hole(range) => {
                out.push(HOLE);
                put_range(out, *range);
            }
            Self::Covers { range, cuts } => {
                out.push(COVERS);
                put_range(out, *range);
                for (prefix, upto) in cuts {
                    let len = u16::try_from(prefix.len()).expect("a prefix is shorter than a name");
                    out.extend_from_slice(&len.to_le_bytes());
                    out.extend_from_slice(prefix.as_bytes());
                    out.extend_from_slice(&upto.0.to_le_bytes());
                }
            }
        }
        let body = &out[start + HEAD..];
        let (len, sum) = (body.len(), crc32c::crc32c(body));
        let len = u32::try_from(len).expect("frames are small");
        out[start..start + 4].copy_from_slice(&len.to_le_bytes());
        out[start + 4..start + HEAD].copy_from_slice(&sum.to_le_bytes());
    }

    /// Whether a frame may begin here, by its kind: told without its checksum.
    pub(super) fn may_begin(bytes: &[u8]) -> bool {
        bytes.get(HEAD).is_some_and(|kind| [RECORDS, HOLE, COVERS].contains(kind))
    }

    /// Reads the first frame. Returns it with its length; none at the end.
    pub(super) fn get(bytes: &[u8]) -> Result<Option<(Self, usize)>, BadFrame> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let (len, rest) = bytes.split_first_chunk::<4>().ok_or(BadFrame)?;
        let (sum, rest) = rest.split_first_chunk::<4>().ok_or(BadFrame)?;
        let len = u32::from_le_bytes(*len) as usize;
        // A revision is never split, and one that ends many keys with their values is large: only the file bounds it.
        let body = rest.get(..len).ok_or(BadFrame)?;
        if crc32c::crc32c(body) != u32::from_le_bytes(*sum) {
            return Err(BadFrame);
        }
        let (kind, payload) = body.split_first().ok_or(BadFrame)?;
        let frame = match *kind {
            RECORDS => {
                let (written_ms, records) = payload.split_first_chunk::<8>().ok_or(BadFrame)?;
                let written_ms = u64::from_le_bytes(*written_ms);
                let records = Arc::new(RevisionRecords::decode(records).map_err(|_| BadFrame)?);
                Self::Records { written_ms, records }
            }
            HOLE => Self::Hole(get_range(payload)?.0),
            COVERS => {
                let (range, mut rest) = get_range(payload)?;
                let mut cuts = Vec::new();
                while !rest.is_empty() {
                    let (len, after) = rest.split_first_chunk::<2>().ok_or(BadFrame)?;
                    let len = usize::from(u16::from_le_bytes(*len));
                    let (prefix, after) = after.split_at_checked(len).ok_or(BadFrame)?;
                    let prefix = std::str::from_utf8(prefix).map_err(|_| BadFrame)?;
                    let (upto, after) = after.split_first_chunk::<8>().ok_or(BadFrame)?;
                    cuts.push((prefix.into(), Revision(u64::from_le_bytes(*upto))));
                    rest = after;
                }
                Self::Covers { range, cuts }
            }
            _ => return Err(BadFrame),
        };
        Ok(Some((frame, HEAD + len)))
    }
}

fn put_range(out: &mut Vec<u8>, range: RevisionRange) {
    out.extend_from_slice(&range.from.0.to_le_bytes());
    out.extend_from_slice(&range.next.0.to_le_bytes());
}

fn get_range(bytes: &[u8]) -> Result<(RevisionRange, &[u8]), BadFrame> {
    let (from, rest) = bytes.split_first_chunk::<8>().ok_or(BadFrame)?;
    let (next, rest) = rest.split_first_chunk::<8>().ok_or(BadFrame)?;
    let [from, next] = [from, next].map(|it| Revision(u64::from_le_bytes(*it)));
    if from > next { Err(BadFrame) } else { Ok((RevisionRange { from, next }, rest)) }
}

#[cfg(test)]
mod tests {
    use super::super::tests::records;
    use super::*;

    #[test]
    fn frames_go_there_and_back_and_any_changed_byte_is_noticed() {
        let range = RevisionRange { from: Revision(3), next: Revision(9) };
        let cuts = vec![("jobs/".into(), Revision(7)), ("".into(), Revision(8))];
        let frames = [
            ArchiveFrame::Records { written_ms: 77, records: Arc::new(records(1, &["a/x", "b"])) },
            ArchiveFrame::Hole(range),
            ArchiveFrame::Covers { range, cuts },
        ];
        for frame in frames {
            let mut bytes = Vec::new();
            frame.put(&mut bytes);
            assert_eq!(ArchiveFrame::get(&bytes), Ok(Some((frame.clone(), bytes.len()))));
            for at in 0..bytes.len() {
                let mut bad = bytes.clone();
                bad[at] ^= 0x20;
                assert_ne!(ArchiveFrame::get(&bad), Ok(Some((frame.clone(), bytes.len()))));
                assert_eq!(ArchiveFrame::get(&bytes[..at]).is_ok(), at == 0, "cut at {at}");
            }
        }
    }
}
