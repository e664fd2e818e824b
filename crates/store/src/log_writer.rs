//! Decides when the log is written, synced, rolled over, marked and compacted, and what happens on a full disk.
//!
//! A [`LogWriter`] runs no thread and reads no clock. A driver calls it from its loop, and runs the jobs that it hands
//! out where the loop does not wait for them:
//!
//! ```text
//! loop {
//!     take inputs; if there were none: mark_if_quiet(now)
//!     write(batch)                              for what the turn persists
//!     begin_sync(leads): run the job here, or on another thread; then finish_sync(report)
//!     prepare() after a write: run the job on another thread; then adopt(segment)
//!     compact_to(index)
//!     check_space(now): reports whether there is room, and runs the job that takes the reserve again
//! }
//! close()
//! ```

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::{
    Fatal, Free, Gauge, Log, LogBatch, Preparation, PreparedSegment, Reserve, SyncJob, SyncReport,
    WriteError, WrittenBatch,
};

/// The time between two checks of the free space. A write that finds the disk full causes another check.
const SPACE_CHECK_US: u64 = 1_000_000;
/// A leader does not wait in its loop for a disk whose syncs take longer than this.
const SLOWISH: Duration = Duration::from_millis(2);
/// The number of syncs for which a disk counts as slow after one that took longer than [`SLOWISH`].
const SLOW_FOR: u32 = 256;
/// How long the log must not have been written before its end is marked.
const QUIET_US: u64 = 500_000;

/// The log, and the reserved space that is released when the disk is full.
pub struct LogWriter {
    log: Log,
    reserve: Arc<Mutex<Reserve>>,
    gauge: Gauge,
    short: bool,
    checked_at_us: Option<u64>,
    /// Whether something was written and not yet handed to a sync.
    unsynced: bool,
    /// The number of the last write.
    newest: u64,
    written_at_us: u64,
    /// The last write that the running sync covers, if one runs.
    under_way: Option<u64>,
    /// The number of syncs for which the disk still counts as slow.
    slow_left: u32,
    /// Whether something was written after the last mark.
    unmarked: bool,
    preparing: bool,
    gave_reserve: bool,
}

/// What has to be done so that what was written becomes durable.
#[derive(Debug)]
pub enum SyncStep {
    /// Nothing: nothing was written, or a sync is under way.
    Nothing,
    /// Everything up to this write is durable.
    Durable(u64),
    /// Run this job in the loop, which waits for it.
    Here(SyncJob),
    /// Run this job while the loop goes on.
    Aside(SyncJob),
}

/// What a sync has achieved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SyncEnd {
    /// Everything up to this write is durable.
    pub durable: Option<u64>,
    /// The time that the disk took.
    pub took: Duration,
}

/// The space on the disk at one moment.
#[derive(Debug)]
pub struct SpaceCheck {
    /// Bytes that can still be allocated.
    pub free_bytes: u64,
    /// The size of the log.
    pub log_bytes: u64,
    /// The size of the reserve, if it is held.
    pub reserve_bytes: u64,
    /// Whether there is too little room for the state to grow.
    pub is_short: bool,
    /// Whether that has changed since the last check.
    pub changed: bool,
    /// Takes the reserve again; to be run where the loop does not wait for it.
    pub restore: Option<ReserveJob>,
}

/// The work of taking the reserve again.
#[derive(Debug)]
pub struct ReserveJob {
    reserve: Arc<Mutex<Reserve>>,
}

impl ReserveJob {
    /// Takes the reserve, if there is room for it.
    pub fn run(self) -> io::Result<()> {
        lock(&self.reserve).restore().map(|_| ())
    }
}

/// The work of making the next segment.
#[derive(Debug)]
pub struct PrepareJob {
    preparation: Preparation,
    /// Takes the reserve again once the segment is there.
    pub restore: ReserveJob,
}

impl PrepareJob {
    /// Makes the segment. Returns it for [`LogWriter::adopt`], and the work that follows. If it fails, the log makes
    /// the segment itself when it must, and reports an error if it cannot.
    pub fn run(self) -> (io::Result<PreparedSegment>, ReserveJob) {
        (self.preparation.run(), self.restore)
    }
}

impl LogWriter {
    /// A writer of this log, whose segments have this size.
    pub fn new(log: Log, reserve: Reserve, segment_bytes: u32) -> Self {
        let gauge = Gauge::new(segment_bytes, reserve.bytes());
        Self {
            log,
            reserve: Arc::new(Mutex::new(reserve)),
            gauge,
            short: false,
            checked_at_us: None,
            unsynced: false,
            newest: 0,
            written_at_us: 0,
            under_way: None,
            slow_left: 0,
            unmarked: false,
            preparing: false,
            gave_reserve: false,
        }
    }

    /// Writes a batch under a number of the caller, which grows. It is durable after a sync. A full disk is given the
    /// reserve back once; if that does not help, the member must stop.
    pub fn write(
        &mut self,
        batch: &LogBatch<'_>,
        number: u64,
        now_us: u64,
    ) -> Result<WrittenBatch, WriteError> {
        let written = match self.log.write(batch) {
            Err(WriteError::NoSpace) => {
                self.give_reserve()?;
                self.log.write(batch)?
            }
            written => written?,
        };
        self.unsynced = true;
        self.unmarked = true;
        self.newest = number;
        self.written_at_us = now_us;
        // If the last preparation failed, a new segment may succeed.
        self.preparing &= !written.rolled;
        Ok(written)
    }

    /// Begins to make durable what was written. One sync at a time, so that writes become durable in order. A member
    /// that follows can do nothing else until its disk is done, so it waits. One that leads has to send heartbeats, so
    /// it does not wait for a slow disk. On an error the process must stop at once.
    pub fn begin_sync(&mut self, leads: bool) -> Result<SyncStep, Fatal> {
        if !self.unsynced || self.under_way.is_some() {
            return Ok(SyncStep::Nothing);
        }
        self.unsynced = false;
        // There is nothing to sync if a new segment was begun: the log has synced the old one.
        let Some(job) = self.log.begin_sync()? else { return Ok(SyncStep::Durable(self.newest)) };
        self.under_way = Some(self.newest);
        Ok(if leads && self.slow_left > 0 { SyncStep::Aside(job) } else { SyncStep::Here(job) })
    }

    /// Takes the result of a sync. On an error the process must stop at once.
    pub fn finish_sync(&mut self, report: SyncReport) -> Result<SyncEnd, Fatal> {
        let took = self.log.finish_sync(report)?.took;
        self.slow_left = self.slow_left.saturating_sub(1);
        if took > SLOWISH {
            self.slow_left = SLOW_FOR;
        }
        let mut durable = self.under_way.take();
        if mutant!("running_sync_covers_later_writes") {
            durable = durable.map(|_| self.newest);
        }
        Ok(SyncEnd { durable, took })
    }

    /// Whether a sync is under way.
    pub fn is_syncing(&self) -> bool {
        self.under_way.is_some()
    }

    /// Whether there was too little room for the state to grow when the writer last checked.
    pub fn is_short(&self) -> bool {
        self.short
    }

    /// Checks the free space, if the last check is long enough ago.
    pub fn check_space(&mut self, now_us: u64) -> io::Result<Option<SpaceCheck>> {
        if self.checked_at_us.is_some_and(|at_us| now_us < at_us.saturating_add(SPACE_CHECK_US)) {
            return Ok(None);
        }
        // While another thread takes the reserve, part of it is neither free nor held.
        let shared = self.reserve.clone();
        let Ok(reserve) = shared.try_lock() else { return Ok(None) };
        self.checked_at_us = Some(now_us);
        let free_bytes = self.log.room()?.on_disk;
        let reserve_held = reserve.is_held();
        let is_short = self.gauge.update(Free { bytes: free_bytes, reserve_held });
        let changed = std::mem::replace(&mut self.short, is_short) != is_short;
        if changed && !is_short {
            // A segment that found no room before may find it now.
            self.preparing = false;
        }
        let restores = reserve.is_due(free_bytes);
        Ok(Some(SpaceCheck {
            free_bytes,
            log_bytes: self.log.bytes(),
            reserve_bytes: if reserve_held { reserve.bytes() } else { 0 },
            is_short,
            changed,
            restore: restores.then(|| self.restore_job()),
        }))
    }

    /// Writes how far the log is durable, if that tells a later start more than the log does and nothing was written
    /// for a while. The next sync makes the mark itself durable. Returns whether it wrote one.
    pub fn mark_if_quiet(&mut self, now_us: u64) -> Result<bool, WriteError> {
        let quiet = now_us.saturating_sub(self.written_at_us) >= QUIET_US;
        if !quiet || !self.unmarked || self.unsynced || self.under_way.is_some() {
            return Ok(false);
        }
        self.unmarked = false;
        match self.log.write_mark() {
            Ok(marked) => {
                self.unsynced |= marked;
                Ok(marked)
            }
            // A mark protects against later damage; a full disk is no reason to stop the member.
            Err(WriteError::NoSpace) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Makes everything durable and marks it in the log, now.
    pub fn close(&mut self) -> Result<(), WriteError> {
        match self.log.mark() {
            // A mark protects against later damage; a full disk is no reason to stop the member.
            Err(WriteError::NoSpace) => Ok(()),
            marked => marked,
        }
    }

    /// Drops entries up to this index. A snapshot at this index or later must be durable.
    pub fn compact_to(&mut self, index: u64) -> Result<(), WriteError> {
        match self.log.compact_to(index) {
            Err(WriteError::NoSpace) => {
                self.give_reserve()?;
                self.log.compact_to(index)
            }
            compacted => compacted,
        }
    }

    /// The work that makes the next segment; none if the segment is ready or in preparation.
    pub fn prepare(&mut self) -> Option<PrepareJob> {
        if self.preparing {
            return None;
        }
        let preparation = self.log.preparation()?;
        self.preparing = true;
        Some(PrepareJob { preparation, restore: self.restore_job() })
    }

    /// Takes a segment that was made.
    pub fn adopt(&mut self, prepared: PreparedSegment) -> Result<(), WriteError> {
        self.preparing = false;
        self.log.adopt(prepared)
    }

    /// Whether the reserve was given back since this was last called.
    pub fn gave_reserve(&mut self) -> bool {
        std::mem::take(&mut self.gave_reserve)
    }

    /// The last index in the log.
    pub fn last_index(&self) -> u64 {
        self.log.last_index()
    }

    fn restore_job(&self) -> ReserveJob {
        ReserveJob { reserve: self.reserve.clone() }
    }

    fn give_reserve(&mut self) -> Result<(), WriteError> {
        self.gauge.refuse();
        self.checked_at_us = None;
        let mut reserve = lock(&self.reserve);
        if !reserve.is_held() {
            return Err(WriteError::NoSpace);
        }
        self.gave_reserve = true;
        reserve.release().map_err(|_| WriteError::NoSpace)
    }
}

fn lock(reserve: &Mutex<Reserve>) -> MutexGuard<'_, Reserve> {
    reserve.lock().unwrap_or_else(PoisonError::into_inner)
}
