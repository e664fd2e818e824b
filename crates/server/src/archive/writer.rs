//! Writes the archive: appends records, syncs, shows them, and removes what is too much or too old.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tenure_core::{Compacted, RevisionRecords};
use tenure_types::Revision;

use super::frame::{ArchiveFrame, RevisionRange};
use super::margin::Margins;
use super::segment::{ArchiveSegment, parts};
use super::{Archive, ArchiveItem, ArchiveSettings};
use crate::member::MemberEnded;
use crate::os;

/// How long records gather before they are written and synced together. Until then readers get them from the
/// replicated history.
const GATHER: Duration = Duration::from_millis(500);
/// How long they gather before the thread takes them, if there are many: their memory is then used again while it is in
/// the cache.
const GATHER_MANY: Duration = Duration::from_millis(10);
/// The thread has many records if it took at least this many bytes at once.
const MANY_BYTES: usize = 64 * 1024;
/// The pause after the disk has failed or is nearly full.
const RETRY: Duration = Duration::from_secs(10);
/// The most bytes of records in one frame.
const FRAME_BYTES: usize = 1024 * 1024;
/// The largest segment. Retention works by segments, so a small archive has small ones.
const SEGMENT_BYTES: u64 = 8 * 1024 * 1024;
const SEGMENT_BYTES_MIN: u64 = 16 * 1024;
/// The space that the archive leaves free on the disk, for the log.
const FREE_BYTES: u64 = 256 * 1024 * 1024;
/// How often the age of segments is checked.
const AGE_EVERY_US: u64 = 60_000_000;

/// The end of the names of segments.
const SUFFIX: &str = ".events";
/// The suffix of a segment that was set aside.
const DAMAGED: &str = ".damaged";

/// Reads a part of the replicated history; none if the member has ended.
pub(super) type ReadHistory =
    Box<dyn Fn(Revision) -> Option<Result<RevisionRecords, Compacted>> + Send>;

/// The thread's state.
pub(super) struct ArchiveWriter {
    pub(super) dir: PathBuf,
    pub(super) keep: ArchiveSettings,
    pub(super) sealed: Vec<Arc<ArchiveSegment>>,
    open: Option<ArchiveSegment>,
    /// Frames of the open segment that are not written yet.
    pending: Vec<u8>,
    /// The first revision that the archive does not have; none if it has nothing yet.
    next: Option<Revision>,
    pub(super) archive: Arc<Archive>,
    read_history: ReadHistory,
    margins: Margins,
    aged_at_us: u64,
}

/// Why writing stopped for now.
enum WriterStop {
    Disk(io::Error),
    Ended,
}

impl From<io::Error> for WriterStop {
    fn from(error: io::Error) -> Self {
        Self::Disk(error)
    }
}

impl From<MemberEnded> for WriterStop {
    fn from(_: MemberEnded) -> Self {
        Self::Ended
    }
}

impl ArchiveWriter {
    pub(super) fn new(
        dir: PathBuf,
        keep: ArchiveSettings,
        archive: Arc<Archive>,
        read_history: ReadHistory,
    ) -> Self {
        Self {
            dir,
            keep,
            sealed: Vec::new(),
            open: None,
            pending: Vec::new(),
            next: None,
            archive,
            read_history,
            margins: Margins::default(),
            aged_at_us: 0,
        }
    }

    /// Writes until the member ends. A disk that fails costs events of the archive, and nothing else.
    pub(super) fn run(mut self) {
        loop {
            match self.write() {
                Ok(()) => return,
                // What is in memory is worth a last sync; a failure costs no more than the member's end does.
                Err(WriterStop::Ended) => return drop(self.flush()),
                Err(WriterStop::Disk(error)) => {
                    tracing::warn!(cause = %error, "cannot write the event archive; trying again later");
                    // Queries are answered from the history of the machine meanwhile.
                    self.archive.set_loaded();
                    self.archive.pause(RETRY);
                    if self.archive.lock().closed {
                        return;
                    }
                }
            }
        }
    }

    fn write(&mut self) -> Result<(), WriterStop> {
        self.load()?;
        self.show();
        self.catch_up()?;
        self.settle()?;
        let (mut settle_at_us, mut is_settled) = (0, true);
        while let Some(items) = self.archive.take(is_settled) {
            let mut bytes = 0;
            for item in items {
                match item {
                    ArchiveItem::Part(records) => {
                        bytes += records.bytes();
                        self.add(&records)?;
                    }
                    ArchiveItem::Behind => self.catch_up()?,
                    ArchiveItem::Fill(filling) => self.fill(&filling)?,
                }
            }
            let (are_many, now_us) = (bytes >= MANY_BYTES, os::now_us());
            is_settled = !are_many || now_us >= settle_at_us;
            if is_settled {
                self.settle()?;
                settle_at_us = now_us.saturating_add(os::micros(GATHER));
            }
            self.archive.pause(if are_many { GATHER_MANY } else { GATHER });
        }
        Ok(())
    }

    /// Makes everything taken so far durable, shows it, and removes what is too much.
    fn settle(&mut self) -> Result<(), WriterStop> {
        self.flush()?;
        self.show();
        let now_us = os::now_us();
        let is_aged = now_us.saturating_sub(self.aged_at_us) >= AGE_EVERY_US;
        if is_aged {
            self.aged_at_us = now_us;
        }
        if self.retain(is_aged)? {
            self.show();
        }
        Ok(())
    }

    /// Reads what is there. A tail that a crash has cut is removed, and so is what a merge has left.
    pub(super) fn load(&mut self) -> io::Result<()> {
        match fs::DirBuilder::new().mode(0o700).create(&self.dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        (self.sealed, self.open, self.next) = (Vec::new(), None, None);
        for entry in fs::read_dir(&self.dir)? {
            let path = entry?.path();
            if path.extension().is_some_and(|it| it == "tmp") {
                fs::remove_file(&path)?;
            }
        }
        self.pending.clear();
        for (from, path) in segment_files(&self.dir)? {
            let last = self.sealed.last();
            let after = last.map(|last| last.range.next);
            if after.is_some_and(|after| from < after) {
                // A merge was about to remove it: the segment before it has its events.
                fs::remove_file(&path)?;
                continue;
            }
            let file = fs::OpenOptions::new().read(true).write(true).open(&path)?;
            let Some(mut segment) = ArchiveSegment::open(&path, file, from)? else {
                fs::rename(&path, path.with_extension(&DAMAGED[1..]))?;
                continue;
            };
            if let Some(after) = after.filter(|after| *after < from) {
                segment.holes.insert(0, RevisionRange { from: after, next: from });
            }
            segment.file.set_len(segment.len)?;
            self.sealed.push(Arc::new(segment));
        }
        self.next = self.sealed.last().map(|last| last.range.next);
        let segment_bytes = self.segment_bytes();
        if let Some(last) = self.sealed.pop_if(|last| last.len < segment_bytes) {
            self.open = Some(ArchiveSegment::clone(&last));
        }
        Ok(())
    }

    /// Adds what the replicated history has and the archive has not.
    fn catch_up(&mut self) -> Result<(), WriterStop> {
        loop {
            let from = self.next.unwrap_or(Revision(1));
            match (self.read_history)(from).ok_or(MemberEnded)? {
                Ok(records) => {
                    let complete = records.is_complete();
                    if records.bytes() > 0 {
                        self.append_records(Arc::new(records))?;
                    }
                    if complete {
                        return Ok(());
                    }
                }
                Err(Compacted { floor }) if self.next.is_none() => self.next = Some(floor),
                Err(Compacted { floor }) => self.append_hole(floor)?,
            }
        }
    }

    /// Adds the records of a turn.
    fn add(&mut self, records: &Arc<RevisionRecords>) -> Result<(), WriterStop> {
        let next = self.next.unwrap_or(records.from());
        if records.next() <= next {
            return Ok(());
        }
        if records.from() > next {
            // This also has the revisions of `records`.
            return self.catch_up();
        }
        if records.from() == next {
            return Ok(self.append_records(records.clone())?);
        }
        let mut rest = Vec::new();
        for record in records.iter().filter(|record| record.revision >= next) {
            record.put_some(&mut rest, |_| true);
        }
        let rest = RevisionRecords::decode(&rest).map_err(|_| malformed())?;
        Ok(self.append_records(Arc::new(rest))?)
    }

    fn append_records(&mut self, records: Arc<RevisionRecords>) -> io::Result<()> {
        let written_ms = os::wall_ms();
        for records in parts(records, FRAME_BYTES) {
            let (from, next) = (records.from(), records.next());
            self.append(&ArchiveFrame::Records { written_ms, records }, from)?;
            self.next = Some(next);
        }
        Ok(())
    }

    fn append_hole(&mut self, next: Revision) -> io::Result<()> {
        let from = self.next.unwrap_or(next);
        tracing::warn!(%from, to = %next, "the event archive has a hole: the history was compacted");
        self.archive.metrics.holes.inc();
        self.margins.forget();
        self.append(&ArchiveFrame::Hole(RevisionRange { from, next }), from)?;
        self.next = Some(next);
        Ok(())
    }

    fn append(&mut self, frame: &ArchiveFrame, from: Revision) -> io::Result<()> {
        let open = match &mut self.open {
            Some(open) => open,
            None => {
                let segment = ArchiveSegment::create(self.dir.join(segment_name(from)), from)?;
                sync_dir(&self.dir)?;
                self.open.insert(segment)
            }
        };
        frame.put(&mut self.pending);
        let (metrics, margins) = (&self.archive.metrics, &mut self.margins);
        let revisions = open.count(frame, |record, label, event| {
            if let Some(label) = label {
                margins.add((record.revision, label.clock_ms), event, &metrics.margins);
            }
        });
        metrics.revisions.inc_by(revisions);
        let full = open.len + self.pending.len() as u64 >= self.segment_bytes();
        if full {
            self.flush()?;
            self.sealed.extend(self.open.take().map(Arc::new));
        } else if self.pending.len() >= 2 * FRAME_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    /// Writes and syncs what is pending. Only then may a reader see it.
    fn flush(&mut self) -> io::Result<()> {
        let Some(open) = self.open.as_mut().filter(|_| !self.pending.is_empty()) else {
            return Ok(());
        };
        check_space(&open.file)?;
        open.file.write_all_at(&self.pending, open.len)?;
        open.file.sync_data()?;
        open.len += self.pending.len() as u64;
        self.pending.clear();
        Ok(())
    }

    /// Shows readers what is durable.
    pub(super) fn show(&self) {
        let open = self.open.iter().map(|open| Arc::new(open.clone()));
        self.archive.show(self.sealed.iter().cloned().chain(open).collect());
    }

    pub(super) fn segment_bytes(&self) -> u64 {
        (self.keep.bytes_max / 64).clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES)
    }

    /// Ends the open segment, if there is one.
    pub(super) fn seal(&mut self) -> io::Result<()> {
        self.flush()?;
        self.sealed.extend(self.open.take().map(Arc::new));
        Ok(())
    }

    pub(super) fn open_segment(&self) -> Option<&ArchiveSegment> {
        self.open.as_ref()
    }
}

/// Fails if writing would take the space that belongs to the log.
pub(super) fn check_space(file: &File) -> io::Result<()> {
    let space = rustix::fs::fstatvfs(file)?;
    if space.f_bavail.saturating_mul(space.f_frsize) < FREE_BYTES {
        return Err(io::Error::new(io::ErrorKind::StorageFull, "the disk is nearly full"));
    }
    Ok(())
}

/// The name of the segment that begins at a revision. Names sort as revisions do.
pub(super) fn segment_name(from: Revision) -> String {
    format!("{:020}{SUFFIX}", from.0)
}

/// The segments in a directory, oldest first.
pub(super) fn segment_files(dir: &Path) -> io::Result<Vec<(Revision, PathBuf)>> {
    files_named(dir, SUFFIX)
}

/// The segments that a start has set aside because it could not read them, oldest first.
pub(super) fn damaged_files(dir: &Path) -> io::Result<Vec<(Revision, PathBuf)>> {
    files_named(dir, DAMAGED)
}

fn files_named(dir: &Path, suffix: &str) -> io::Result<Vec<(Revision, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if let Some(from) = name.strip_suffix(suffix).and_then(|it| it.parse().ok()) {
            found.push((Revision(from), path));
        }
    }
    found.sort_unstable();
    Ok(found)
}

pub(super) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "records of the history cannot be read")
}

#[cfg(test)]
impl ArchiveWriter {
    /// Adds records and makes them durable, as a turn of the thread does.
    pub(super) fn add_now(&mut self, records: RevisionRecords) {
        assert!(self.add(&Arc::new(records)).is_ok() && self.settle().is_ok());
    }

    /// Adds records as a thread does that is killed before it syncs: only some bytes of the frame reach the file.
    pub(super) fn add_torn(&mut self, records: RevisionRecords, bytes: usize) {
        assert!(self.add(&Arc::new(records)).is_ok());
        let open = self.open.as_ref().expect("records make a segment");
        open.file.write_all_at(&self.pending[..bytes.min(self.pending.len())], open.len).unwrap();
    }

    pub(super) fn next(&self) -> Option<Revision> {
        self.next
    }

    pub(super) fn catch_up_now(&mut self) {
        assert!(self.catch_up().is_ok() && self.settle().is_ok());
    }
}
