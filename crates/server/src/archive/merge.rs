//! Reads the archives of several members as one sequence of revisions, and checks that they agree.
//!
//! Each archive is read one frame at a time. A revision is taken from an archive that has all of its events, if there
//! is one: what one member lacks, another one may have.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use tenure_core::event::{Batch, Event, Subject};
use tenure_types::Revision;

use super::frame::{ArchiveFrame, MAGIC, RevisionRange};
use super::segment::{ArchiveSegment, UnreadTail, prefix_of};
use super::verify::{ArchiveSummary, DamagedSegment, Promise, Verifier, VerifyReport};
use super::writer::{damaged_files, segment_files};

/// The most differences that are reported: archives of two clusters differ in every revision.
const DIFFERENCES_MAX: usize = 1_000;

/// An archive that could not be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the archive {}", .dir.display())]
pub struct UnreadableArchive {
    /// The directory of the archive.
    pub dir: PathBuf,
    /// Why it could not be read.
    #[source]
    pub cause: io::Error,
}

/// Checks the archives in some directories, each of one member of the same cluster. A directory without a segment is no
/// archive.
pub fn verify_dirs(dirs: &[PathBuf]) -> Result<VerifyReport, UnreadableArchive> {
    let mut readers = Vec::with_capacity(dirs.len());
    for dir in dirs {
        let reader = ArchiveReader::open(dir);
        readers.push(reader.map_err(|cause| UnreadableArchive { dir: dir.clone(), cause })?);
    }
    let mut merge = Merge::default();
    loop {
        let mut lowest: Option<Revision> = None;
        for reader in &mut readers {
            let dir = reader.summary.dir.clone();
            let next = reader.peek(&mut merge.verifier);
            let next = next.map_err(|cause| UnreadableArchive { dir, cause })?;
            lowest = lowest.into_iter().chain(next).min();
        }
        let Some(revision) = lowest else { break };
        let taken = readers.iter_mut().enumerate().filter_map(|(number, reader)| {
            Some((number, reader.take(revision, &mut merge.verifier)?))
        });
        let records: Vec<_> = taken.collect();
        merge.add(revision, records, dirs);
    }
    let mut report = merge.finish();
    for reader in readers {
        report.archives.push(reader.summary);
        report.damaged.extend(reader.damaged);
    }
    Ok(report)
}

/// A revision of one archive.
struct ReadRecord {
    batch: Batch,
    /// The segment that it comes from.
    segment: usize,
    /// Whether events of some prefixes were removed from it.
    is_cut: bool,
}

/// Reads one archive, from its oldest revision on.
struct ArchiveReader {
    segments: std::vec::IntoIter<(Revision, PathBuf)>,
    segment: usize,
    /// The revision up to which events of some prefixes were removed from the segment.
    cut_before: Revision,
    frames: VecDeque<ArchiveFrame>,
    records: VecDeque<ReadRecord>,
    /// The revision after the last one that was read; none before the first.
    next: Option<Revision>,
    /// Where the segment being read ends.
    segment_end: Option<Revision>,
    /// The revision after the last one that was taken or is marked as missing.
    at: Option<Revision>,
    /// The segments that a start of the member has set aside.
    set_aside: Vec<(Revision, PathBuf)>,
    damaged: Vec<DamagedSegment>,
    /// Whether the segment that was read last, or one after it, is damaged.
    has_damage: bool,
    summary: ArchiveSummary,
}

impl ArchiveReader {
    fn open(dir: &Path) -> io::Result<Self> {
        let segments = segment_files(dir)?;
        if segments.is_empty() {
            let text =
                "it has no segment (REVISION.events); an archive that has just begun has none yet";
            return Err(io::Error::new(io::ErrorKind::NotFound, text));
        }
        Ok(Self {
            segments: segments.into_iter(),
            segment: 0,
            cut_before: Revision(0),
            frames: VecDeque::new(),
            records: VecDeque::new(),
            next: None,
            segment_end: None,
            at: None,
            set_aside: damaged_files(dir)?,
            damaged: Vec::new(),
            has_damage: false,
            summary: ArchiveSummary { dir: dir.to_owned(), ..ArchiveSummary::default() },
        })
    }

    /// The next revision; none at the end.
    fn peek(&mut self, verifier: &mut Verifier) -> io::Result<Option<Revision>> {
        while self.records.is_empty() {
            match self.frames.pop_front() {
                Some(frame) => self.open_frame(&frame),
                None if self.open_segment(verifier)? => {}
                None => return Ok(None),
            }
        }
        Ok(self.records.front().map(|record| record.batch.revision))
    }

    /// Takes the next revision if it is this one.
    fn take(&mut self, revision: Revision, verifier: &mut Verifier) -> Option<ReadRecord> {
        self.records.front().filter(|it| it.batch.revision == revision)?;
        let record = self.records.pop_front()?;
        if let Some(at) = self.at.filter(|at| *at < revision && revision > self.cut_before) {
            let (dir, last) = (self.summary.dir.display(), revision.0 - 1);
            let detail = format!("revisions {at} to {last} are missing in {dir} without a mark");
            verifier.broke(Promise::NothingUnmarked, revision, detail);
        }
        self.at = Some(revision.next());
        self.summary.revisions += 1;
        let first = self.summary.range.map_or(revision, |(first, _)| first);
        self.summary.range = Some((first, revision));
        Some(record)
    }

    fn open_frame(&mut self, frame: &ArchiveFrame) {
        match frame {
            ArchiveFrame::Records { records, .. } => {
                for record in records.iter() {
                    let revision = record.revision;
                    let events = record.events().map(|event| event.to_event()).collect();
                    let batch = Batch { revision, label: record.label(), events };
                    let (segment, is_cut) = (self.segment, revision < self.cut_before);
                    self.records.push_back(ReadRecord { batch, segment, is_cut });
                }
            }
            ArchiveFrame::Hole(hole) => self.mark(*hole),
            ArchiveFrame::Covers { .. } => {}
        }
    }

    /// Notes that revisions are missing here. All records before them were taken.
    fn mark(&mut self, hole: RevisionRange) {
        self.summary.holes.push(hole);
        self.at = self.at.map(|at| at.max(hole.next));
    }

    /// Opens the next segment. Returns whether there was one.
    fn open_segment(&mut self, verifier: &mut Verifier) -> io::Result<bool> {
        if let Some(end) = self.segment_end.take() {
            self.at = self.at.map(|at| if end <= self.cut_before { at.max(end) } else { at });
            self.next = Some(end);
        }
        while let Some((from, path)) = self.segments.next() {
            if self.next.is_some_and(|next| from < next) {
                // A merge was about to remove it: the segment before it has its events.
                continue;
            }
            let file = File::open(&path)?;
            let is_last = self.segments.len() == 0;
            let Some(segment) = ArchiveSegment::open(&path, file, from)? else {
                let bytes = std::fs::metadata(&path)?.len();
                if is_last && bytes < MAGIC.len() as u64 {
                    self.summary.incomplete_bytes = bytes;
                } else {
                    self.note_damage(path, "it does not begin as a segment does".to_owned());
                }
                continue;
            };
            if let Some(next) = self.next.filter(|next| *next < from) {
                self.miss(RevisionRange { from: next, next: from }, verifier);
            }
            self.has_damage = false;
            self.note_tail(path, segment.unread_tail()?, is_last);
            self.segment += 1;
            self.cut_before = segment.cuts.values().copied().max().unwrap_or_default();
            self.frames = segment.frames()?.into();
            self.segment_end = Some(segment.range.next);
            return Ok(true);
        }
        Ok(false)
    }

    /// Notes that no segment has some revisions: retention removes the oldest segments only.
    fn miss(&mut self, range: RevisionRange, verifier: &mut Verifier) {
        let (from, last) = (range.from, range.next.0 - 1);
        let mut set_aside = self.set_aside.iter();
        if let Some((_, path)) = set_aside.find(|(at, _)| range.from <= *at && *at < range.next) {
            let detail =
                format!("was set aside at a start: revisions {from} to {last} are missing");
            self.damaged.push(DamagedSegment { path: path.clone(), detail });
        } else if !self.has_damage {
            let dir = self.summary.dir.display();
            let detail =
                format!("revisions {from} to {last} are missing in {dir}: no segment has them");
            verifier.broke(Promise::NothingUnmarked, range.from, detail);
        }
        self.mark(range);
    }

    /// Notes that the end of a segment cannot be read. In the last one this may be a frame that was being written.
    fn note_tail(&mut self, path: PathBuf, tail: UnreadTail, is_last: bool) {
        if is_last && !tail.goes_on {
            self.summary.incomplete_bytes = tail.bytes;
        } else if tail.bytes > 0 {
            self.note_damage(path, format!("its last {} bytes cannot be read", tail.bytes));
        }
    }

    fn note_damage(&mut self, path: PathBuf, detail: String) {
        self.damaged.push(DamagedSegment { path, detail });
        self.has_damage = true;
    }
}

/// Checks the revisions of all archives in order.
#[derive(Default)]
struct Merge {
    verifier: Verifier,
    /// The revision after the last one.
    next: Option<Revision>,
    /// Revisions of which no archive has all events.
    unknown: Option<RevisionRange>,
    /// The archive and segment from which revisions are taken of which no archive has all events.
    source: Option<(usize, usize)>,
    differences: usize,
}

impl Merge {
    fn add(&mut self, revision: Revision, records: Vec<(usize, ReadRecord)>, dirs: &[PathBuf]) {
        self.compare(revision, &records, dirs);
        let source = |(number, record): &(usize, ReadRecord)| (*number, record.segment);
        let complete = records.iter().position(|(_, record)| !record.is_cut);
        let known = records.iter().position(|record| Some(source(record)) == self.source);
        let chosen = complete.or(known).unwrap_or(0);
        let now = complete.is_none().then(|| source(&records[chosen]));
        // Within one segment the same prefixes lack events, and nothing is known of these.
        let is_gap = self.next.is_some_and(|next| next < revision);
        let continues = now.is_some() && now == self.source;
        if !continues && (is_gap || now != self.source) {
            self.verifier.forget();
        }
        self.source = now;
        if let Some(from) = self.next.filter(|_| is_gap) {
            self.miss(RevisionRange { from, next: revision });
        }
        if now.is_some() {
            self.miss(RevisionRange { from: revision, next: revision.next() });
        }
        self.next = Some(revision.next());
        if let Some((_, record)) = records.get(chosen) {
            self.verifier.add(&record.batch);
        }
    }

    /// Notes that events of some revisions are missing.
    fn miss(&mut self, range: RevisionRange) {
        match &mut self.unknown {
            Some(unknown) if unknown.next >= range.from => unknown.next = range.next,
            unknown => {
                if let Some(before) = unknown.replace(range) {
                    self.verifier.note_hole(before);
                }
            }
        }
    }

    /// Checks that all archives have the same events of a revision.
    fn compare(&mut self, revision: Revision, records: &[(usize, ReadRecord)], dirs: &[PathBuf]) {
        for pair in records.windows(2) {
            let [(one, first), (other, second)] = pair else { continue };
            if is_same(first, second) || self.differences >= DIFFERENCES_MAX {
                continue;
            }
            self.differences += 1;
            let (one, other) = (dirs[*one].display(), dirs[*other].display());
            let detail = format!("{one} and {other} have different events");
            self.verifier.broke(Promise::SameEverywhere, revision, detail);
        }
    }

    fn finish(mut self) -> VerifyReport {
        if let Some(unknown) = self.unknown.take() {
            self.verifier.note_hole(unknown);
        }
        self.verifier.finish()
    }
}

/// Whether two archives have the same events of a revision. Retention removes all events of a prefix, or none.
fn is_same(one: &ReadRecord, other: &ReadRecord) -> bool {
    if one.batch.label != other.batch.label {
        return false;
    }
    if !one.is_cut && !other.is_cut {
        return one.batch.events == other.batch.events;
    }
    let (ones, others) = (by_prefix(&one.batch), by_prefix(&other.batch));
    let agrees = |(prefix, events): (&&str, &Vec<&Event>)| match others.get(*prefix) {
        Some(there) => there == events,
        None => other.is_cut,
    };
    ones.iter().all(agrees) && (one.is_cut || others.keys().all(|prefix| ones.contains_key(prefix)))
}

fn by_prefix(batch: &Batch) -> BTreeMap<&str, Vec<&Event>> {
    let mut all: BTreeMap<&str, Vec<&Event>> = BTreeMap::new();
    for event in &batch.events {
        let prefix = match &event.subject {
            Subject::Lock(name) | Subject::Key(name) => prefix_of(name.as_str()),
            Subject::Lease(_) | Subject::Settings => "",
        };
        all.entry(prefix).or_default().push(event);
    }
    all
}
