//! Keeps the events of the past on this member's disk, for longer than the replicated history does.
//!
//! The event loop leaves the records of each turn in a bounded queue and never waits. One thread (`tenure-archive`)
//! writes them to segments, syncs, and then shows them to readers: a reader never sees what a crash can take away. If
//! the queue is full, the thread reads what was left out from the replicated history; if that does not have it any
//! more, it marks a hole, and another thread asks the other members for the missing events. Neither snapshots nor
//! backups contain the archive.
//!
//! `docs/internals/archive.md` has the format, the bounds and what is guaranteed.

mod fill;
mod frame;
mod margin;
mod merge;
mod part;
mod retain;
mod search;
mod segment;
mod verified_queue;
pub mod verify;
mod writer;

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tenure_core::{Compacted, Most, RevisionRecords};
use tenure_types::Revision;
use tokio::sync::watch;

use crate::log_writer::{spawn, spawn_for};
use crate::member::{LoopEvent, MemberHandle, TrySubmitError};
pub(crate) use fill::OtherArchives;
use fill::{Filling, Holes};
pub use frame::RevisionRange;
use margin::MarginMetrics;
pub(crate) use part::{ArchivePart, PART_BYTES_MAX};
pub(crate) use search::{ArchiveQuery, ArchiveSubject, FoundPart};
use segment::ArchiveSegment;
use writer::ArchiveWriter;

/// The directory of the segments, in the data directory.
pub const ARCHIVE_DIR: &str = "archive";

/// The most bytes that wait for the thread: some seconds of events under full load.
const WAITING_BYTES: usize = 32 * 1024 * 1024;
/// The most that is read from the replicated history at a time: the event loop copies it in some tens of microseconds.
const PART: Most = Most { revisions: 4_096, bytes: 256 * 1024 };
/// The pause before another attempt when the inbox of the event loop is full.
const FULL: Duration = Duration::from_millis(20);

/// How much of the past a member keeps on its disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArchiveSettings {
    /// The most bytes; 0 keeps no archive.
    pub bytes_max: u64,
    /// The age at which events are removed.
    pub age_max: Duration,
}

impl Default for ArchiveSettings {
    fn default() -> Self {
        Self { bytes_max: 1 << 30, age_max: Duration::from_secs(30 * 24 * 3_600) }
    }
}

/// The archive of a member. Without a thread that writes it, it is empty.
#[derive(Default)]
pub(crate) struct Archive {
    running: AtomicBool,
    queue: Mutex<ArchiveQueue>,
    news: Condvar,
    /// The segments, oldest first, with what of them is synced.
    shown: Mutex<Arc<Vec<Arc<ArchiveSegment>>>>,
    /// Whether the thread has read the segments that a former process has left.
    is_loaded: watch::Sender<bool>,
    /// The revisions that the segments lack.
    holes: Holes,
    /// The most bytes of the archive, for the metric.
    bytes_max: AtomicU64,
    metrics: ArchiveMetrics,
}

/// What the event loop has left for the thread.
#[derive(Default)]
struct ArchiveQueue {
    items: VecDeque<ArchiveItem>,
    bytes: usize,
    /// Whether the thread waits for something to do.
    sleeping: bool,
    /// Whether the event loop has closed the queue.
    closed: bool,
    /// Whether the thread has written everything and ended.
    ended: bool,
}

/// Something for the thread to do.
enum ArchiveItem {
    Part(Arc<RevisionRecords>),
    /// Something was left out: the replicated history has it, perhaps.
    Behind,
    /// Another member has what is missing here.
    Fill(Filling),
}

#[derive(Default)]
struct ArchiveMetrics {
    bytes: Gauge,
    revisions: Counter,
    skipped: Counter,
    holes: Counter,
    filled: Counter,
    margins: MarginMetrics,
}

impl Archive {
    /// Starts the thread that writes the archive of a member below its data directory, and the one that fills its holes
    /// from the archives of others.
    pub(crate) fn start(
        self: &Arc<Self>,
        data: &Path,
        keep: ArchiveSettings,
        member: &MemberHandle,
        others: impl OtherArchives + 'static,
    ) -> bool {
        if keep.bytes_max == 0 {
            return true;
        }
        self.bytes_max.store(keep.bytes_max, Ordering::Relaxed);
        let inbox = member.inbox();
        let member = member.clone();
        let read = move |from| read_history(&member, from);
        let writer = ArchiveWriter::new(data.join(ARCHIVE_DIR), keep, self.clone(), Box::new(read));
        self.running.store(true, Ordering::Release);
        let archive = self.clone();
        let run = move || {
            writer.run();
            archive.lock().ended = true;
            archive.news.notify_all();
        };
        let archive = self.clone();
        // Without the second one holes stay, and nothing else depends on it.
        spawn_for(inbox, "tenure-archive", run)
            && spawn("tenure-archive-fill", move || fill::run(&archive, &others))
    }

    /// Whether a thread writes what is left here.
    pub(crate) fn is_running(&self) -> bool {
        self.running.load(Ordering::Acquire)
    }

    /// Leaves the records of a turn; `None` if there were more than a turn copies. Never waits.
    pub(crate) fn leave(&self, records: Option<&Arc<RevisionRecords>>) {
        let mut queue = self.lock();
        let fits = |it: &&Arc<RevisionRecords>| queue.bytes + it.bytes() <= WAITING_BYTES;
        match records.filter(fits) {
            Some(records) => {
                queue.bytes += records.bytes();
                queue.items.push_back(ArchiveItem::Part(records.clone()));
            }
            None if matches!(queue.items.back(), Some(ArchiveItem::Behind)) => {}
            None => {
                self.metrics.skipped.inc();
                queue.items.push_back(ArchiveItem::Behind);
            }
        }
        // The event loop makes a system call only if the thread has nothing to do.
        if queue.sleeping {
            queue.sleeping = false;
            self.news.notify_all();
        }
    }

    /// Declares that nothing more follows.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.news.notify_all();
        self.holes.close();
    }

    /// Waits until the thread has written everything, for a bounded time.
    pub(crate) fn ended(&self, within: Duration) {
        if self.is_running() {
            let waits = |queue: &mut ArchiveQueue| !queue.ended;
            drop(self.news.wait_timeout_while(self.lock(), within, waits));
        }
    }

    /// Waits until the segments of a former process can be read, or until the disk fails to give them. Returns at
    /// once if there is no archive.
    pub(crate) async fn loaded(&self) {
        if self.is_running() {
            // The sender is here, so the channel is not closed.
            let _ = self.is_loaded.subscribe().wait_for(|is_loaded| *is_loaded).await;
        }
    }

    /// The segments that readers may read.
    fn segments(&self) -> Arc<Vec<Arc<ArchiveSegment>>> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn show(&self, segments: Vec<Arc<ArchiveSegment>>) {
        let bytes: u64 = segments.iter().map(|it| it.len).sum();
        self.metrics.bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
        let segments = Arc::new(segments);
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = segments.clone();
        self.set_loaded();
        self.holes.show(&segments);
    }

    /// Lets readers go on: what can be read of the former process is shown.
    fn set_loaded(&self) {
        self.is_loaded.send_if_modified(|is_loaded| !std::mem::replace(is_loaded, true));
    }

    /// Takes what there is to do, and waits for something if it may; none at the end.
    fn take(&self, may_wait: bool) -> Option<VecDeque<ArchiveItem>> {
        let mut queue = self.lock();
        loop {
            if !queue.items.is_empty() || !may_wait {
                queue.bytes = 0;
                return Some(std::mem::take(&mut queue.items));
            }
            if queue.closed {
                return None;
            }
            queue.sleeping = true;
            queue = self.news.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Pauses, unless the member ends.
    fn pause(&self, time: Duration) {
        let goes_on = |queue: &mut ArchiveQueue| !queue.closed;
        drop(self.news.wait_timeout_while(self.lock(), time, goes_on));
    }

    fn lock(&self) -> MutexGuard<'_, ArchiveQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers its metrics.
    pub(crate) fn register(&self, to: &mut Registry) {
        let it = &self.metrics;
        to.register(
            "archive_bytes",
            "Bytes of the event archive on this member's disk",
            it.bytes.clone(),
        );
        let help = "Revisions that were written to the event archive";
        to.register("archive_revisions", help, it.revisions.clone());
        let help = "Turns whose events did not fit into the archive's queue and were read later";
        to.register("archive_turns_skipped", help, it.skipped.clone());
        let help = "Ranges of revisions that the event archive could not record";
        to.register("archive_holes", help, it.holes.clone());
        let help = "Revisions of such ranges that were filled from the archive of another member";
        to.register("archive_revisions_filled", help, it.filled.clone());
        it.margins.register(to);
    }
}

/// Reads a part of the replicated history; none if the member has ended.
fn read_history(
    member: &MemberHandle,
    from: Revision,
) -> Option<Result<RevisionRecords, Compacted>> {
    loop {
        let (done, found) = std::sync::mpsc::channel();
        let read = LoopEvent::inspect(move |node| {
            let _ = done.send(node.machine().records(from, PART));
        });
        match member.try_tell(read) {
            Ok(()) => return found.recv().ok(),
            Err(TrySubmitError::Full(_)) => std::thread::sleep(FULL),
            Err(TrySubmitError::Ended(_)) => return None,
        }
    }
}

#[cfg(test)]
mod fill_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod verify_tests;
