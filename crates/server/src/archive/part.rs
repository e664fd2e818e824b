//! Carries a part of one member's archive to another, and checks that it is complete.

use std::io;
use std::sync::Arc;

use tenure_core::RevisionRecords;
use tenure_types::Revision;

use super::Archive;
use super::frame::{ArchiveFrame, RevisionRange};

/// The size at which a part ends. It is about half of a segment, so a segment is read two or three times.
const PART_BYTES: usize = 4 * 1024 * 1024;
/// The longest part that is accepted: the frame that exceeds the size above may itself be long.
pub(crate) const PART_BYTES_MAX: usize = 32 * 1024 * 1024;

/// What an archive has of consecutive revisions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ArchivePart {
    range: RevisionRange,
    frames: Vec<ArchiveFrame>,
}

impl ArchivePart {
    /// The revisions about which the part tells everything that the archive has.
    pub(crate) fn range(&self) -> RevisionRange {
        self.range
    }

    /// The frames, in the order of their revisions.
    pub(super) fn frames(&self) -> &[ArchiveFrame] {
        &self.frames
    }

    /// How many of the revisions it knows: those that are in no hole.
    pub(super) fn known(&self) -> u64 {
        let missing = |frame: &ArchiveFrame| match frame {
            ArchiveFrame::Hole(hole) => hole.next.0 - hole.from.0,
            ArchiveFrame::Records { .. } | ArchiveFrame::Covers { .. } => 0,
        };
        let missing = self.frames.iter().map(missing).sum();
        (self.range.next.0 - self.range.from.0).saturating_sub(missing)
    }

    /// The bytes that [`ArchivePart::decode`] reads.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.frames.iter().for_each(|frame| frame.put(&mut bytes));
        bytes
    }

    /// Reads a part that another member has sent for these revisions. None if a frame is damaged, if a revision is
    /// outside the range or out of order, or if one is missing without a mark.
    pub(crate) fn decode(range: RevisionRange, mut bytes: &[u8]) -> Option<Self> {
        let mut frames = Vec::new();
        while let Some((frame, len)) = ArchiveFrame::get(bytes).ok()? {
            frames.push(frame);
            bytes = &bytes[len..];
        }
        let part = Self { range, frames };
        part.is_whole().then_some(part)
    }

    /// Whether every revision of the range is there, is in a hole, or was removed by the sender's retention.
    fn is_whole(&self) -> bool {
        let (mut at, mut cut_before) = (self.range.from, self.range.from);
        // A revision may be missing only where events were removed.
        let mut pass = |from: Revision, next: Revision, cut_before: Revision| {
            let fits = from == at || (from > at && from <= cut_before);
            at = next;
            fits && next <= self.range.next
        };
        for frame in &self.frames {
            let fits = match frame {
                ArchiveFrame::Records { records, .. } => records
                    .iter()
                    .all(|record| pass(record.revision, record.revision.next(), cut_before)),
                ArchiveFrame::Hole(hole) => pass(hole.from, hole.next, cut_before),
                ArchiveFrame::Covers { range, cuts } => {
                    if !cuts.is_empty() {
                        cut_before = cut_before.max(range.next);
                    }
                    range.from >= self.range.from && range.next <= self.range.next
                }
            };
            if !fits {
                return false;
            }
        }
        at.max(cut_before) == self.range.next
    }
}

impl Archive {
    /// What the archive has of some revisions, from the first one on, up to a bounded size. Reads files: not for the
    /// event loop.
    pub(crate) fn part(&self, asked: RevisionRange) -> io::Result<ArchivePart> {
        let segments = self.segments();
        let durable = segments.last().map_or(asked.from, |last| last.range.next);
        let end = asked.next.min(durable).max(asked.from);
        let (mut frames, mut bytes, mut at) = (Vec::new(), 0, asked.from);
        'segments: for segment in segments.iter().filter(|it| it.range.next > asked.from) {
            if at < segment.range.from {
                let next = segment.range.from.min(end);
                frames.push(ArchiveFrame::Hole(RevisionRange { from: at, next }));
                at = next;
            }
            if at >= end || bytes >= PART_BYTES {
                break;
            }
            let within = RevisionRange { from: at, next: segment.range.next.min(end) };
            let here = match segment.frames() {
                Ok(frames) => frames,
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    vec![ArchiveFrame::Hole(segment.range)]
                }
                Err(error) => return Err(error),
            };
            at = within.next;
            for frame in here.into_iter().filter_map(|frame| clipped(frame, within)) {
                if bytes >= PART_BYTES
                    && let Some(first) = first_of(&frame)
                {
                    at = first;
                    break 'segments;
                }
                if let ArchiveFrame::Records { records, .. } = &frame {
                    bytes += records.bytes();
                }
                frames.push(frame);
            }
        }
        let range = RevisionRange { from: asked.from, next: at };
        let frames = frames.into_iter().filter_map(|frame| clipped(frame, range)).collect();
        Ok(ArchivePart { range, frames })
    }
}

/// The first revision of a frame that has some of its own.
pub(super) fn first_of(frame: &ArchiveFrame) -> Option<Revision> {
    match frame {
        ArchiveFrame::Records { records, .. } => Some(records.from()),
        ArchiveFrame::Hole(hole) => Some(hole.from),
        ArchiveFrame::Covers { .. } => None,
    }
}

/// The part of a frame that tells of these revisions; none if it tells nothing of them.
pub(super) fn clipped(frame: ArchiveFrame, within: RevisionRange) -> Option<ArchiveFrame> {
    let both = |range: RevisionRange| {
        let from = range.from.max(within.from);
        let next = range.next.min(within.next);
        (from < next).then_some(RevisionRange { from, next })
    };
    match frame {
        ArchiveFrame::Records { written_ms, records } => {
            if records.from() >= within.from && records.next() <= within.next {
                return Some(ArchiveFrame::Records { written_ms, records });
            }
            let mut left = Vec::new();
            let inside = |revision| revision >= within.from && revision < within.next;
            for record in records.iter().filter(|record| inside(record.revision)) {
                record.put_some(&mut left, |_| true);
            }
            let records = Arc::new(RevisionRecords::decode(&left).ok()?);
            Some(ArchiveFrame::Records { written_ms, records })
        }
        ArchiveFrame::Hole(range) => both(range).map(ArchiveFrame::Hole),
        ArchiveFrame::Covers { range, cuts } => {
            let range = both(range)?;
            let cuts = cuts.into_iter().filter(|(_, upto)| *upto > range.from);
            let cuts = cuts.map(|(prefix, upto)| (prefix, upto.min(range.next))).collect();
            Some(ArchiveFrame::Covers { range, cuts })
        }
    }
}
