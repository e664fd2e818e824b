//! Drives the [`tenure_store::LogWriter`] of the event loop: runs its jobs on threads, and measures and logs what the
//! disk does.

use std::sync::Arc;
use std::time::Duration;

use tenure_raft::{Persist, Space};
use tenure_store::{
    Fatal, Log, LogWriter as Writer, PrepareJob, PreparedSegment, Reserve, ReserveJob, Snapshots,
    SyncEnd, SyncReport, SyncStep, WriteError,
};

use crate::inbox::Inbox;
use crate::member::{End, LoopEvent};
use crate::node_metrics::{DiskSpace, NodeMeters, Syncs};
use crate::sync_thread::SyncThread;

/// A sync that takes at least this long is logged.
const SLOW: Duration = Duration::from_millis(500);

/// The log writer of a member, with its threads and measurements.
pub(crate) struct LogWriter {
    writer: Writer,
    sync_thread: SyncThread,
    syncs: Syncs,
    meters: Arc<NodeMeters>,
}

impl LogWriter {
    pub(crate) fn new(log: Log, reserve: Reserve, segment_bytes: u32) -> Self {
        Self {
            writer: Writer::new(log, reserve, segment_bytes),
            sync_thread: SyncThread::default(),
            syncs: Syncs::default(),
            meters: Arc::default(),
        }
    }

    /// Sends the measurements to `meters` from now on.
    pub(crate) fn measure(&mut self, meters: Arc<NodeMeters>) {
        self.meters = meters;
    }

    /// Writes what a turn persists. It is durable after [`LogWriter::sync`].
    pub(crate) fn write(&mut self, persist: &Persist, now_us: u64) -> Result<(), WriteError> {
        let written = self.writer.write(&persist.batch(), persist.number, now_us);
        self.log_reserve();
        written.map(|_| ())
    }

    fn log_reserve(&mut self) {
        if self.writer.gave_reserve() {
            tracing::warn!("disk is full; released the disk reserve to write once more");
        }
    }

    /// Makes what was written durable. Returns the number of the last durable write, if the sync ended at once. A
    /// member that leads may get it later, by [`LogWriter::finish`]. On an error the process must stop at once.
    pub(crate) fn sync(&mut self, leads: bool, inbox: &Inbox) -> Result<Option<u64>, Fatal> {
        let job = match self.writer.begin_sync(leads)? {
            SyncStep::Nothing => return Ok(None),
            SyncStep::Durable(number) => return Ok(Some(number)),
            SyncStep::Here(job) => job,
            SyncStep::Aside(job) => match self.sync_thread.hand(job, inbox) {
                Ok(()) => return Ok(None),
                Err(job) => job,
            },
        };
        self.finish(job.run())
    }

    /// Records the result of a sync. Returns the number of the last write that is durable.
    pub(crate) fn finish(&mut self, report: SyncReport) -> Result<Option<u64>, Fatal> {
        let SyncEnd { durable, took } = self.writer.finish_sync(report)?;
        self.syncs.add(took);
        self.meters.synced(took);
        if took >= SLOW {
            tracing::warn!(sync_ms = took.as_millis(), "disk is slow");
        }
        Ok(durable)
    }

    /// Checks the free space once a second. Returns whether there is room, if that has changed.
    pub(crate) fn check_space(
        &mut self,
        now_us: u64,
        snapshots: &Snapshots,
        inbox: &Inbox,
    ) -> Option<Space> {
        let check = match self.writer.check_space(now_us) {
            Ok(check) => check?,
            Err(error) => {
                tracing::warn!(cause = %error, "cannot read the free space of the disk");
                return None;
            }
        };
        let free_bytes = check.free_bytes;
        // The error of a directory that cannot be listed is reported by the code that needs it.
        let data_bytes = check.log_bytes + check.reserve_bytes + snapshots.bytes().unwrap_or(0);
        let log_bytes = check.log_bytes;
        let sizes = DiskSpace { disk_free_bytes: free_bytes, data_bytes, log_bytes };
        self.meters.set_disk(sizes, &self.syncs);
        self.meters.short(check.is_short);
        if let Some(job) = check.restore {
            spawn_for(inbox, "tenure-reserve", move || restore(job));
        }
        if !check.changed {
            return None;
        }
        if check.is_short {
            let effect = "commands that grow the state are refused, all others work";
            tracing::warn!(free_bytes, effect, "disk is nearly full");
            return Some(Space::Short);
        }
        tracing::info!(free_bytes, "disk has room again");
        self.prepare(inbox);
        Some(Space::Enough)
    }

    /// Marks the end of the log, if nothing was written for a while.
    pub(crate) fn mark_if_quiet(&mut self, now_us: u64) -> Result<(), WriteError> {
        self.writer.mark_if_quiet(now_us).map(|_| ())
    }

    /// Makes everything durable and marks it in the log, now.
    pub(crate) fn close(&mut self) -> Result<(), WriteError> {
        self.writer.close()
    }

    pub(crate) fn compact_to(&mut self, index: u64) -> Result<(), WriteError> {
        let compacted = self.writer.compact_to(index);
        self.log_reserve();
        compacted
    }

    /// Starts the preparation of the next segment on another thread, unless the segment is ready or in preparation.
    pub(crate) fn prepare(&mut self, inbox: &Inbox) {
        let Some(job) = self.writer.prepare() else { return };
        let told = inbox.clone();
        spawn_for(inbox, "tenure-segment", move || prepare(job, &told));
    }

    pub(crate) fn adopt(&mut self, prepared: PreparedSegment) -> Result<(), WriteError> {
        self.writer.adopt(prepared)
    }

    pub(crate) fn last_index(&self) -> u64 {
        self.writer.last_index()
    }
}

/// Prepares a segment, then takes the reserve again if there is room.
fn prepare(job: PrepareJob, inbox: &Inbox) {
    let (prepared, reserve) = job.run();
    match prepared {
        Ok(prepared) => {
            let _ = inbox.send(LoopEvent::Prepared(Box::new(prepared)));
        }
        Err(error) => tracing::warn!(cause = %error, "cannot prepare a segment"),
    }
    restore(reserve);
}

/// Takes the reserve again if there is room.
fn restore(job: ReserveJob) {
    if let Err(error) = job.run() {
        tracing::warn!(cause = %error, "cannot allocate the disk reserve");
    }
}

/// Starts a thread on whose reports an event loop relies. A panic in it ends the member: by itself in a release build,
/// which aborts, and by [`ReportPanic`] in the debug builds of the test layers, which unwind. Otherwise the loop would
/// wait for a report that never comes. Returns as [`spawn`] does.
pub(crate) fn spawn_for(
    inbox: &Inbox,
    name: &'static str,
    work: impl FnOnce() + Send + 'static,
) -> bool {
    let guard = ReportPanic { name, inbox: inbox.clone() };
    spawn(name, move || {
        let guard = guard;
        work();
        drop(guard);
    })
}

/// Reports a panic of its thread to the event loop.
struct ReportPanic {
    name: &'static str,
    inbox: Inbox,
}

impl Drop for ReportPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // An event loop that has ended needs no report.
            let _ = self.inbox.send(LoopEvent::Die(End::Panic { thread: self.name }));
        }
    }
}

/// Starts a named thread and returns whether that succeeded. If not, `work` is dropped without being called.
pub(crate) fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> bool {
    let started = std::thread::Builder::new().name(name.to_owned()).spawn(work);
    if let Err(error) = &started {
        tracing::error!(thread = name, cause = %error, "cannot start a thread");
    }
    started.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_in_a_thread_reaches_the_event_loop() {
        let (inbox, events) = crate::inbox::inbox();
        assert!(spawn_for(&inbox, "tenure-test", || panic!("planted")));
        let mut taken = Vec::new();
        events.wait(Duration::from_secs(60), &mut Vec::new());
        events.take(1, &mut taken);
        let thread = "tenure-test";
        assert!(
            matches!(&taken[..], [LoopEvent::Die(End::Panic { thread: name })] if *name == thread)
        );
    }
}
