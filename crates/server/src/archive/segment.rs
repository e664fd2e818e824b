//! Describes one segment of the archive: what it stands for, whose events it has, when they happened.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tenure_core::event::TimeLabel;
use tenure_core::{Recorded, RevisionRecord, RevisionRecords};
use tenure_types::Revision;

use super::frame::{ArchiveFrame, MAGIC, RevisionRange};

/// The prefix under which events of leases are counted. No name has a control character.
const OF_LEASES: &str = "\u{1}leases";
/// The prefix under which events of settings are counted.
const OF_SETTINGS: &str = "\u{1}settings";
/// The prefix under which further prefixes are counted once a segment has too many.
pub(super) const OTHERS: &str = "\u{1}others";
/// The most prefixes that are counted apart in one segment: names are chosen by clients.
const PREFIXES_MAX: usize = 1_024;

/// How much of a segment belongs to a prefix.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct PrefixUse {
    pub(super) events: u64,
    pub(super) bytes: u64,
}

/// Successive events of one prefix, which are added to the segment's counts together.
#[derive(Default)]
struct PrefixRun<'a> {
    prefix: &'a str,
    used: PrefixUse,
}

/// One segment.
#[derive(Clone, Debug)]
pub(super) struct ArchiveSegment {
    pub(super) path: PathBuf,
    pub(super) file: Arc<File>,
    /// The revisions that it stands for.
    pub(super) range: RevisionRange,
    /// How many bytes of the file are valid and synced.
    pub(super) len: u64,
    /// The earliest and the latest label.
    pub(super) labels: Option<(u64, u64)>,
    /// The newest wall clock of the member that wrote it.
    pub(super) written_ms: u64,
    pub(super) uses: BTreeMap<Box<str>, PrefixUse>,
    pub(super) holes: Vec<RevisionRange>,
    /// The prefixes whose events retention has removed up to a revision.
    pub(super) cuts: BTreeMap<Box<str>, Revision>,
}

/// What follows the last valid frame of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct UnreadTail {
    pub(super) bytes: u64,
    /// Whether there is a valid frame in it: then it is damage, and not a frame that was being written.
    pub(super) goes_on: bool,
}

/// The part of a name that retention counts by: up to its first slash, or all of it.
pub(super) fn prefix_of(name: &str) -> &str {
    name.find('/').map_or(name, |at| &name[..=at])
}

/// The prefix that an event is counted under, before there are too many.
pub(super) fn prefix_of_event<'a>(event: &Recorded<'a>) -> &'a str {
    match event.name() {
        Some(name) => prefix_of(name),
        None if event.lease().is_some() => OF_LEASES,
        None => OF_SETTINGS,
    }
}

impl ArchiveSegment {
    /// Creates the file of a segment that begins at a revision.
    pub(super) fn create(path: PathBuf, from: Revision) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(true).open(&path)?;
        file.write_all_at(MAGIC, 0)?;
        Ok(Self::empty(path, Arc::new(file), from))
    }

    /// Writes a whole segment: into a temporary file, which is synced and then renamed. The caller syncs the directory.
    pub(super) fn write(path: &Path, from: Revision, frames: &[ArchiveFrame]) -> io::Result<Self> {
        let temporary = path.with_extension("tmp");
        let mut segment = Self::create(temporary.clone(), from)?;
        let mut bytes = Vec::new();
        for frame in frames {
            frame.put(&mut bytes);
            segment.count(frame, |_, _, _| {});
        }
        segment.file.write_all_at(&bytes, segment.len)?;
        segment.file.sync_data()?;
        segment.len += bytes.len() as u64;
        std::fs::rename(&temporary, path)?;
        segment.path = path.to_owned();
        Ok(segment)
    }

    fn empty(path: PathBuf, file: Arc<File>, from: Revision) -> Self {
        Self {
            path,
            file,
            range: RevisionRange { from, next: from },
            len: MAGIC.len() as u64,
            labels: None,
            written_ms: 0,
            uses: BTreeMap::new(),
            holes: Vec::new(),
            cuts: BTreeMap::new(),
        }
    }

    /// Opens a segment and reads all of it. What follows the last valid frame does not belong to it. None if not even
    /// its beginning is valid.
    pub(super) fn open(path: &Path, file: File, from: Revision) -> io::Result<Option<Self>> {
        let mut segment = Self::empty(path.to_owned(), Arc::new(file), from);
        let mut bytes = Vec::new();
        let mut reader = &*segment.file;
        reader.seek(SeekFrom::Start(0))?;
        reader.read_to_end(&mut bytes)?;
        if !bytes.starts_with(MAGIC) {
            return Ok(None);
        }
        let mut at = MAGIC.len();
        while let Ok(Some((frame, len))) = ArchiveFrame::get(&bytes[at..]) {
            segment.count(&frame, |_, _, _| {});
            at += len;
        }
        segment.len = at as u64;
        Ok(Some(segment))
    }

    /// Reads what follows the last valid frame. A member that is running may have written frames since this segment was
    /// opened: these are no part of the tail.
    pub(super) fn unread_tail(&self) -> io::Result<UnreadTail> {
        let mut tail = Vec::new();
        let mut reader = &*self.file;
        reader.seek(SeekFrom::Start(self.len))?;
        reader.read_to_end(&mut tail)?;
        let mut tail = &tail[..];
        while let Ok(Some((_, len))) = ArchiveFrame::get(tail) {
            tail = &tail[len..];
        }
        let is_frame = |at: usize| {
            let rest = &tail[at..];
            ArchiveFrame::may_begin(rest) && matches!(ArchiveFrame::get(rest), Ok(Some(_)))
        };
        Ok(UnreadTail { bytes: tail.len() as u64, goes_on: (1..tail.len()).any(is_frame) })
    }

    /// Reads the frames, for as long as they are valid.
    pub(super) fn frames(&self) -> io::Result<Vec<ArchiveFrame>> {
        let mut bytes = vec![0; usize::try_from(self.len).unwrap_or(usize::MAX)];
        self.file.read_exact_at(&mut bytes, 0)?;
        let mut frames = Vec::new();
        let mut at = MAGIC.len();
        while let Some((frame, len)) = ArchiveFrame::get(&bytes[at..])
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "a frame is damaged"))?
        {
            frames.push(frame);
            at += len;
        }
        Ok(frames)
    }

    /// Adds the contents of a frame and returns how many revisions it has. `also` is called with every event, so that
    /// the caller does not decode them again.
    pub(super) fn count(
        &mut self,
        frame: &ArchiveFrame,
        mut also: impl FnMut(&RevisionRecord<'_>, Option<TimeLabel>, &Recorded<'_>),
    ) -> u64 {
        let mut revisions = 0;
        match frame {
            ArchiveFrame::Records { written_ms, records } => {
                self.written_ms = self.written_ms.max(*written_ms);
                let mut run = PrefixRun::default();
                for record in records.iter() {
                    revisions += 1;
                    self.count_record(record, &mut run, &mut also);
                }
                self.add_run(run);
                self.range.next = self.range.next.max(records.next());
            }
            ArchiveFrame::Hole(range) => {
                self.holes.push(*range);
                self.range.next = self.range.next.max(range.next);
            }
            ArchiveFrame::Covers { range, cuts } => {
                self.range.next = self.range.next.max(range.next);
                for (prefix, upto) in cuts {
                    let cut = self.cuts.entry(prefix.clone()).or_insert(*upto);
                    *cut = (*cut).max(*upto);
                }
            }
        }
        revisions
    }

    fn count_record<'a>(
        &mut self,
        record: RevisionRecord<'a>,
        run: &mut PrefixRun<'a>,
        also: &mut impl FnMut(&RevisionRecord<'_>, Option<TimeLabel>, &Recorded<'_>),
    ) {
        let label = record.label();
        if let Some(label) = label {
            let at = label.wall.unix_ms;
            let (oldest, newest) = self.labels.unwrap_or((at, at));
            self.labels = Some((oldest.min(at), newest.max(at)));
        }
        for event in record.events() {
            let prefix = prefix_of_event(&event);
            if prefix != run.prefix {
                self.add_run(std::mem::take(run));
                run.prefix = prefix;
            }
            run.used.events += 1;
            // With its share of what surrounds the events of a revision.
            run.used.bytes += event.bytes() as u64 + 32;
            also(&record, label, &event);
        }
    }

    fn add_run(&mut self, run: PrefixRun<'_>) {
        if run.used.events > 0 {
            let used = self.use_of(run.prefix);
            used.events += run.used.events;
            used.bytes += run.used.bytes;
        }
    }

    fn use_of(&mut self, prefix: &str) -> &mut PrefixUse {
        // Nearly all events are of prefixes that are known: those are not copied.
        let is_known = self.uses.contains_key(prefix);
        let prefix = if is_known || self.uses.len() < PREFIXES_MAX { prefix } else { OTHERS };
        if !is_known {
            self.uses.entry(prefix.into()).or_default();
        }
        self.uses.get_mut(prefix).expect("it was there or was added")
    }

    /// Whether events of a name, or of names with this prefix, may be in it.
    pub(super) fn may_have(&self, name: &str) -> bool {
        let at = prefix_of(name);
        self.uses.contains_key(OTHERS)
            || self.uses.keys().any(|prefix| **prefix == *at || prefix.starts_with(name))
    }
}

/// Splits records into parts of a bounded size, each for one frame.
pub(super) fn parts(records: Arc<RevisionRecords>, bytes_max: usize) -> Vec<Arc<RevisionRecords>> {
    if records.bytes() <= bytes_max {
        return vec![records];
    }
    let (mut parts, mut part) = (Vec::new(), Vec::new());
    for record in records.iter() {
        record.put_some(&mut part, |_| true);
        if part.len() >= bytes_max {
            parts.extend(RevisionRecords::decode(&std::mem::take(&mut part)).ok().map(Arc::new));
        }
    }
    parts.extend(RevisionRecords::decode(&part).ok().map(Arc::new));
    parts
}
