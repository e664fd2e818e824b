//! Writes what a turn persists to the log, syncs it, and watches the free space of the disk.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tenure_raft::{Persist, Space};
use tenure_store::{
    Fatal, Free, Gauge, Log, Preparation, PreparedSegment, Reserve, Snapshots, SyncReport, Synced,
    WriteError,
};

use crate::inbox::Inbox;
use crate::member::{End, LoopEvent};
use crate::node_metrics::{DiskSpace, NodeMeters, Syncs};
use crate::sync_thread::SyncThread;

/// The time between two looks at the disk; a write that finds the disk full causes another one.
const LOOK_US: u64 = 1_000_000;
/// A leader does not wait in the event loop for a disk whose syncs take longer than this.
const SLOWISH: Duration = Duration::from_millis(2);
/// The number of syncs for which a disk counts as slow after one that took longer than [`SLOWISH`].
const SLOW_FOR: u32 = 256;
/// A sync that takes at least this long is logged.
const SLOW: Duration = Duration::from_millis(500);

/// The log, and the reserved space that is released when the disk is full.
pub(crate) struct LogWriter {
    log: Log,
    reserve: Arc<Mutex<Reserve>>,
    /// Whether something was written and not yet handed to a sync.
    unsynced: bool,
    /// The number of the last write.
    newest: u64,
    sync_thread: SyncThread,
    /// The last write that the running sync of the sync thread covers, if one runs.
    under_way: Option<u64>,
    /// The number of syncs for which the disk still counts as slow.
    slow_left: u32,
    /// Whether something was written after the last mark.
    unmarked: bool,
    preparing: bool,
    gauge: Gauge,
    space: Space,
    looked_at_us: Option<u64>,
    syncs: Syncs,
    meters: Arc<NodeMeters>,
}

/// The place where a sync runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Where {
    /// In the event loop, which waits for it.
    Here,
    /// On the sync thread, while the event loop goes on.
    Aside,
}

impl LogWriter {
    pub(crate) fn new(log: Log, reserve: Reserve, segment_bytes: u32) -> Self {
        let gauge = Gauge::new(segment_bytes, reserve.bytes());
        Self {
            log,
            reserve: Arc::new(Mutex::new(reserve)),
            unsynced: false,
            newest: 0,
            sync_thread: SyncThread::default(),
            under_way: None,
            slow_left: 0,
            unmarked: false,
            preparing: false,
            gauge,
            space: Space::Enough,
            looked_at_us: None,
            syncs: Syncs::default(),
            meters: Arc::default(),
        }
    }

    /// Sends the measurements to `meters` from now on.
    pub(crate) fn measure(&mut self, meters: Arc<NodeMeters>) {
        self.meters = meters;
    }

    /// Writes what a turn persists. It is durable after [`LogWriter::sync`].
    pub(crate) fn write(&mut self, persist: &Persist) -> Result<(), WriteError> {
        let batch = &persist.batch();
        let written = match self.log.write(batch) {
            Err(WriteError::NoSpace) => {
                self.give_reserve()?;
                self.log.write(batch)?
            }
            written => written?,
        };
        self.unsynced = true;
        self.unmarked = true;
        self.newest = persist.number;
        // If the last preparation failed, a new segment may succeed.
        self.preparing &= !written.rolled;
        Ok(())
    }

    /// Makes what was written durable. Returns the number of the last durable write, if the sync ended at once. With
    /// [`Where::Aside`] the sync may end later; see [`LogWriter::finish`]. On an error the process must stop at once.
    pub(crate) fn sync(&mut self, wanted: Where, inbox: &Inbox) -> Result<Option<u64>, Fatal> {
        // One sync at a time, so that writes become durable in order.
        if !self.unsynced || self.under_way.is_some() {
            return Ok(None);
        }
        self.unsynced = false;
        // There is nothing to sync if a new segment was begun: the log has synced the old one.
        let Some(job) = self.log.begin_sync()? else { return Ok(Some(self.newest)) };
        let job = match wanted {
            Where::Aside => match self.sync_thread.hand(job, inbox) {
                Ok(()) => {
                    self.under_way = Some(self.newest);
                    return Ok(None);
                }
                Err(job) => job,
            },
            Where::Here => job,
        };
        let synced = self.log.finish_sync(job.run())?;
        self.note_sync(&synced);
        Ok(Some(self.newest))
    }

    /// Records the result of the sync thread's job. Returns the number of the last write that is durable.
    pub(crate) fn finish(&mut self, report: SyncReport) -> Result<Option<u64>, Fatal> {
        let synced = self.log.finish_sync(report)?;
        self.note_sync(&synced);
        Ok(self.under_way.take())
    }

    /// Whether the disk has been slow recently, so that a leader should not wait for it in the event loop.
    pub(crate) fn is_slow(&self) -> bool {
        self.slow_left > 0
    }

    fn note_sync(&mut self, synced: &Synced) {
        self.slow_left = self.slow_left.saturating_sub(1);
        if synced.took > SLOWISH {
            self.slow_left = SLOW_FOR;
        }
        self.syncs.add(synced.took);
        self.meters.synced(synced.took);
        if synced.took >= SLOW {
            let took_ms = synced.took.as_millis();
            tracing::warn!(sync_ms = took_ms, "disk is slow");
        }
    }

    /// Looks at the free space once per [`LOOK_US`]. Returns whether there is room, if that has changed.
    pub(crate) fn look(
        &mut self,
        now_us: u64,
        snapshots: &Snapshots,
        inbox: &Inbox,
    ) -> Option<Space> {
        if self.looked_at_us.is_some_and(|at_us| now_us < at_us.saturating_add(LOOK_US)) {
            return None;
        }
        // While another thread takes the reserve, part of it is neither free nor held.
        let reserve = self.reserve.clone();
        let reserve = reserve.try_lock().ok()?;
        let reserve_held = reserve.is_held();
        self.looked_at_us = Some(now_us);
        let free_bytes = match self.log.room() {
            Ok(room) => room.on_disk,
            Err(error) => {
                tracing::warn!(cause = %error, "cannot read the free space of the disk");
                return None;
            }
        };
        let log_bytes = self.log.bytes();
        let held = if reserve_held { reserve.bytes() } else { 0 };
        // The error of a directory that cannot be listed is reported by the code that needs it.
        let data_bytes = log_bytes + held + snapshots.bytes().unwrap_or(0);
        let sizes = DiskSpace { disk_free_bytes: free_bytes, data_bytes, log_bytes };
        self.meters.look(sizes, &self.syncs);
        let restores = reserve.is_due(free_bytes);
        drop(reserve);
        let short = self.gauge.look(Free { bytes: free_bytes, reserve_held });
        self.meters.short(short);
        if restores {
            let reserve = self.reserve.clone();
            spawn_for(inbox, "tenure-reserve", move || restore(&reserve));
        }
        let space = if short { Space::Short } else { Space::Enough };
        if std::mem::replace(&mut self.space, space) == space {
            return None;
        }
        match space {
            Space::Short => {
                let effect = "commands that grow the state are refused, all others work";
                tracing::warn!(free_bytes, effect, "disk is nearly full");
            }
            Space::Enough => {
                tracing::info!(free_bytes, "disk has room again");
                // A segment that found no room before may find it now.
                self.preparing = false;
                self.prepare(inbox);
            }
        }
        Some(space)
    }

    /// Whether everything is durable and a mark would tell a later start more than the log does.
    pub(crate) fn is_unmarked(&self) -> bool {
        self.unmarked && !self.unsynced && self.under_way.is_none()
    }

    /// Writes how far the log is durable; the next sync makes the mark itself durable.
    pub(crate) fn mark(&mut self) -> Result<(), WriteError> {
        self.unmarked = false;
        match self.log.write_mark() {
            Ok(marked) => {
                self.unsynced |= marked;
                Ok(())
            }
            // A mark protects against later damage; a full disk is no reason to stop the member.
            Err(WriteError::NoSpace) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Makes everything durable and marks it in the log, now.
    pub(crate) fn close(&mut self) -> Result<(), WriteError> {
        match self.log.mark() {
            // A mark protects against later damage; a full disk is no reason to stop the member.
            Err(WriteError::NoSpace) => Ok(()),
            marked => marked,
        }
    }

    pub(crate) fn compact_to(&mut self, index: u64) -> Result<(), WriteError> {
        match self.log.compact_to(index) {
            Err(WriteError::NoSpace) => {
                self.give_reserve()?;
                self.log.compact_to(index)
            }
            compacted => compacted,
        }
    }

    /// Starts the preparation of the next segment on another thread, unless the segment is ready or in preparation.
    pub(crate) fn prepare(&mut self, inbox: &Inbox) {
        if self.preparing {
            return;
        }
        let Some(preparation) = self.log.preparation() else { return };
        self.preparing = true;
        let (told, reserve) = (inbox.clone(), self.reserve.clone());
        spawn_for(inbox, "tenure-segment", move || prepare(preparation, &reserve, &told));
    }

    pub(crate) fn adopt(&mut self, prepared: PreparedSegment) -> Result<(), WriteError> {
        self.preparing = false;
        self.log.adopt(prepared)
    }

    pub(crate) fn last_index(&self) -> u64 {
        self.log.last_index()
    }

    fn give_reserve(&mut self) -> Result<(), WriteError> {
        self.gauge.refuse();
        self.looked_at_us = None;
        let mut reserve = self.reserve.lock().unwrap_or_else(PoisonError::into_inner);
        if !reserve.is_held() {
            return Err(WriteError::NoSpace);
        }
        tracing::warn!("disk is full, the reserve is given back");
        reserve.release().map_err(|_| WriteError::NoSpace)
    }
}

/// Prepares a segment, then takes the reserve again if there is room.
fn prepare(preparation: Preparation, reserve: &Mutex<Reserve>, inbox: &Inbox) {
    match preparation.run() {
        Ok(prepared) => {
            let _ = inbox.send(LoopEvent::Prepared(prepared));
        }
        // The log creates the segment itself when it must, and reports an error if it cannot.
        Err(error) => tracing::warn!(cause = %error, "cannot prepare a segment"),
    }
    restore(reserve);
}

/// Takes the reserve again if there is room.
fn restore(reserve: &Mutex<Reserve>) {
    let mut reserve = reserve.lock().unwrap_or_else(PoisonError::into_inner);
    if let Err(error) = reserve.restore() {
        tracing::warn!(cause = %error, "cannot allocate the disk reserve");
    }
}

/// Starts a thread on whose reports an event loop relies. A panic in it ends the member, in a build that unwinds as in
/// one that aborts: otherwise the loop would wait for a report that never comes. Returns as [`spawn`] does.
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
        let taken = events.take(Duration::from_secs(60), 1);
        let thread = "tenure-test";
        assert!(
            matches!(&taken[..], [LoopEvent::Die(End::Panic { thread: name })] if *name == thread)
        );
    }
}
