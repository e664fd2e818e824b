//! Fills the holes of the archive with what the archives of other members have.
//!
//! One thread (`tenure-archive-fill`) asks the other members, one part at a time, and hands each part to the thread
//! that writes the archive. It asks again with growing pauses for as long as there are holes.

use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_raft::MemberId;
use tenure_types::Revision;

use super::frame::{ArchiveFrame, RevisionRange};
use super::part::{ArchivePart, clipped, first_of};
use super::segment::ArchiveSegment;
use super::writer::{ArchiveWriter, check_space, segment_name, sync_dir};
use super::{Archive, ArchiveItem};
use crate::os;

/// Pauses between two attempts, before jitter. Members that start again together need some seconds; what no member has
/// is asked for seldom.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(600);

/// The archives of the other members.
pub(crate) trait OtherArchives: Send {
    /// The members that can be asked.
    fn members(&self) -> Vec<MemberId>;
    /// What one of them has of some revisions, from the first one on.
    fn ask(&self, member: MemberId, range: RevisionRange) -> io::Result<ArchivePart>;
}

/// The holes that readers see, for the thread that fills them.
#[derive(Default)]
pub(super) struct Holes {
    state: Mutex<HolesState>,
    changed: Condvar,
}

#[derive(Default)]
struct HolesState {
    /// Oldest first.
    ranges: Vec<RevisionRange>,
    /// Whether they have changed since the thread last checked.
    is_new: bool,
    closed: bool,
}

/// A part for the thread that writes.
pub(super) struct Filling {
    part: ArchivePart,
    /// Answered once readers see the part.
    done: Sender<()>,
}

impl Holes {
    /// Takes over the holes of the segments that readers see.
    pub(super) fn show(&self, segments: &[Arc<ArchiveSegment>]) {
        let ranges: Vec<_> = segments.iter().flat_map(|it| it.holes.iter().copied()).collect();
        let mut state = self.lock();
        if state.ranges != ranges {
            state.ranges = ranges;
            state.is_new = true;
            self.changed.notify_all();
        }
    }

    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// The first hole that reaches beyond a revision, from that revision on.
    fn first_after(&self, at: Revision) -> Option<RevisionRange> {
        let state = self.lock();
        let hole = state.ranges.iter().find(|hole| hole.next > at && !state.closed)?;
        Some(RevisionRange { from: hole.from.max(at), next: hole.next })
    }

    /// Waits until there are other holes, or for a time if there are any. Returns whether there are others; none at the
    /// end.
    fn wait(&self, pause: Duration) -> Option<bool> {
        let mut state = self.lock();
        if state.ranges.is_empty() {
            let waits = |state: &mut HolesState| !state.is_new && !state.closed;
            let waited = self.changed.wait_while(state, waits);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        } else {
            let waits = |state: &mut HolesState| !state.is_new && !state.closed;
            let waited = self.changed.wait_timeout_while(state, pause, waits);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        (!state.closed).then(|| std::mem::take(&mut state.is_new))
    }

    fn lock(&self) -> MutexGuard<'_, HolesState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Fills holes until the member ends.
pub(super) fn run(archive: &Archive, others: &dyn OtherArchives) {
    let mut pause = PAUSE_MIN;
    while let Some(is_new) = archive.holes.wait(os::jittered(pause)) {
        pause = if is_new { PAUSE_MIN } else { (pause * 2).min(PAUSE_MAX) };
        for member in others.members() {
            if let Err(error) = ask_all(archive, others, member) {
                tracing::debug!(%member, cause = %error, "cannot read the event archive of a member");
            }
        }
    }
}

/// Asks one member for everything that is missing.
fn ask_all(archive: &Archive, others: &dyn OtherArchives, member: MemberId) -> io::Result<()> {
    let mut at = Revision(0);
    while let Some(range) = archive.holes.first_after(at) {
        let part = others.ask(member, range)?;
        at = part.range().next;
        if at <= range.from {
            // Its archive does not reach that far yet.
            return Ok(());
        }
        if part.known() > 0 {
            let (done, filled) = channel();
            archive.leave_filling(Filling { part, done });
            // Without an answer the disk has failed, or the member ends.
            filled.recv().map_err(|_| io::Error::other("it could not be written here"))?;
        }
    }
    Ok(())
}

impl Archive {
    fn leave_filling(&self, filling: Filling) {
        let mut queue = self.lock();
        if queue.closed {
            return;
        }
        queue.items.push_back(ArchiveItem::Fill(filling));
        queue.sleeping = false;
        self.news.notify_all();
    }
}

impl ArchiveWriter {
    /// Writes a part in the place of a hole, and shows it.
    pub(super) fn fill(&mut self, filling: &Filling) -> io::Result<()> {
        let part = &filling.part;
        if self.replace_hole(part)? {
            let (RevisionRange { from, next }, known) = (part.range(), part.known());
            tracing::info!(%from, before = %next, known, "filled a hole of the event archive");
            self.archive.metrics.filled.inc_by(known);
            self.show();
        }
        let _ = filling.done.send(());
        Ok(())
    }

    /// Writes the segment with the hole again, as one segment or several. Returns whether there was such a hole.
    fn replace_hole(&mut self, part: &ArchivePart) -> io::Result<bool> {
        let range = part.range();
        let contains = |hole: &&RevisionRange| hole.from <= range.from && range.next <= hole.next;
        if self.open_segment().is_some_and(|open| open.holes.iter().any(|it| contains(&it))) {
            self.seal()?;
        }
        let found = self.sealed.iter().enumerate().find_map(|(number, segment)| {
            segment.holes.iter().find(contains).map(|hole| (number, segment.clone(), *hole))
        });
        let Some((number, segment, hole)) = found else { return Ok(false) };
        // The mark of a segment that is gone lies ahead of the segment after it.
        let is_between = hole.from < segment.range.from;
        if !is_between && segment.holes.iter().filter(|it| **it == hole).count() != 1 {
            return Ok(false);
        }
        check_space(&segment.file)?;
        let filled = filled(hole, part);
        if is_between {
            let new = self.write_packed(hole, filled, None)?;
            let mut after = ArchiveSegment::clone(&segment);
            after.holes.retain(|it| *it != hole);
            self.sealed[number] = Arc::new(after);
            drop(self.sealed.splice(number..number, new));
        } else {
            let mut frames = Vec::new();
            for frame in segment.frames()? {
                match frame {
                    ArchiveFrame::Hole(it) if it == hole => frames.extend(filled.iter().cloned()),
                    other => frames.push(other),
                }
            }
            let mut new = self.write_packed(segment.range, frames, Some(&segment))?;
            // A mark ahead of this segment stays.
            let ahead = segment.holes.iter().filter(|it| it.from < segment.range.from).copied();
            if let Some(first) = new.first_mut() {
                let mut marked = ArchiveSegment::clone(first);
                drop(marked.holes.splice(0..0, ahead));
                *first = Arc::new(marked);
            }
            drop(self.sealed.splice(number..=number, new));
        }
        Ok(true)
    }

    /// Writes frames of consecutive revisions as segments of a bounded size. The first takes the place of the one that
    /// it replaces, last of all: until then a start finds the old one, which covers the new ones.
    fn write_packed(
        &self,
        range: RevisionRange,
        frames: Vec<ArchiveFrame>,
        replaced: Option<&ArchiveSegment>,
    ) -> io::Result<Vec<Arc<ArchiveSegment>>> {
        let packed = pack(range, frames, self.segment_bytes());
        let mut written = Vec::with_capacity(packed.len());
        for (range, frames) in packed.iter().skip(1) {
            let path = self.dir.join(segment_name(range.from));
            written.push(Arc::new(ArchiveSegment::write(&path, range.from, frames)?));
        }
        sync_dir(&self.dir)?;
        if let Some((range, frames)) = packed.first() {
            let new = self.dir.join(segment_name(range.from));
            let path = replaced.map_or(new, |replaced| replaced.path.clone());
            written.insert(0, Arc::new(ArchiveSegment::write(&path, range.from, frames)?));
        }
        sync_dir(&self.dir)?;
        Ok(written)
    }
}

/// What is known of the revisions of a hole, and what is still missing.
fn filled(hole: RevisionRange, part: &ArchivePart) -> Vec<ArchiveFrame> {
    let RevisionRange { from, next } = part.range();
    let mut frames = Vec::new();
    if hole.from < from {
        frames.push(ArchiveFrame::Hole(RevisionRange { from: hole.from, next: from }));
    }
    frames.extend(part.frames().iter().cloned());
    if next < hole.next {
        frames.push(ArchiveFrame::Hole(RevisionRange { from: next, next: hole.next }));
    }
    frames
}

/// Divides frames among segments. Each says which revisions it stands for, and which prefixes lack events there.
fn pack(
    range: RevisionRange,
    frames: Vec<ArchiveFrame>,
    bytes_max: u64,
) -> Vec<(RevisionRange, Vec<ArchiveFrame>)> {
    let mut cuts: BTreeMap<Box<str>, Revision> = BTreeMap::new();
    let mut groups: Vec<(Revision, Vec<ArchiveFrame>)> = vec![(range.from, Vec::new())];
    let mut bytes = 0;
    for frame in frames {
        let Some(first) = first_of(&frame) else {
            let ArchiveFrame::Covers { cuts: more, .. } = frame else { continue };
            for (prefix, upto) in more {
                let cut = cuts.entry(prefix).or_insert(upto);
                *cut = (*cut).max(upto);
            }
            continue;
        };
        let len = match &frame {
            ArchiveFrame::Records { records, .. } => records.bytes() as u64,
            ArchiveFrame::Hole(_) | ArchiveFrame::Covers { .. } => 32,
        };
        if bytes > 0 && bytes + len > bytes_max {
            groups.push((first, Vec::new()));
            bytes = 0;
        }
        bytes += len;
        if let Some((_, group)) = groups.last_mut() {
            group.push(frame);
        }
    }
    let ends: Vec<_> = groups.iter().skip(1).map(|(from, _)| *from).chain([range.next]).collect();
    let cuts: Vec<_> = cuts.into_iter().collect();
    let with_covers = |((from, mut frames), next): ((Revision, Vec<ArchiveFrame>), Revision)| {
        let range = RevisionRange { from, next };
        let covers = ArchiveFrame::Covers { range, cuts: cuts.clone() };
        drop(frames.splice(0..0, clipped(covers, range)));
        (range, frames)
    };
    groups.into_iter().zip(ends).map(with_covers).collect()
}

#[cfg(test)]
impl Filling {
    /// A part for whose insertion no thread waits.
    pub(super) fn unanswered(part: ArchivePart) -> Self {
        Self { part, done: channel().0 }
    }
}
