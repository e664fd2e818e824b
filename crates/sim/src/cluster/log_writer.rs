//! Drives a member's [`tenure_store::LogWriter`], as the server does, and follows what is durable.

use std::time::Duration;

use anyhow::{Context, Result};
use tenure_raft::{Persist, Space};
use tenure_store::sim::{SimDisk, StartedSync};
use tenure_store::{
    Fatal, Log, LogWriter, PrepareJob, Reserve, ReserveJob, SyncReport, SyncStep, WriteError,
};

use super::member::SEGMENT_BYTES;

/// The size of the reserve for a full disk.
pub(super) const RESERVE_BYTES: u64 = SEGMENT_BYTES as u64;

/// The log writer of a member, and its jobs.
pub(super) struct SimLogWriter {
    writer: LogWriter,
    pub(super) started: Option<StartedSync>,
    pub(super) report: Option<SyncReport>,
    pub(super) preparation: Option<PrepareJob>,
    pub(super) restore: Option<ReserveJob>,
    /// What the sync that is under way covers.
    under_way: Option<Covered>,
    /// The last durable index.
    pub(super) durable: u64,
    /// The last index that even a damaged log proves: a durable record marks it as durable.
    pub(super) proven: u64,
    /// The last index that the newest write marks as durable.
    said: u64,
    /// How often the log was rolled over while a sync was under way.
    pub(super) rolled_under_sync: u64,
    /// How often the log was compacted while a sync was under way.
    pub(super) compacted_under_sync: u64,
}

/// What a sync makes durable.
struct Covered {
    last: u64,
    said: u64,
}

/// The result of a write.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum WriteResult {
    Done,
    /// The process must stop.
    Stop,
}

/// The result of an attempt to begin a sync.
pub(super) enum Syncing {
    /// There is nothing to sync, or a sync is under way.
    Nothing,
    /// Everything up to this write is durable.
    Durable(u64),
    /// There is a job to run, for which the loop waits.
    Here,
    /// There is a job to run while the loop goes on.
    Aside,
}

impl SimLogWriter {
    pub(super) fn new(log: Log, reserve: Reserve, proven: u64) -> Self {
        let durable = log.last_index();
        Self {
            writer: LogWriter::new(log, reserve, SEGMENT_BYTES),
            started: None,
            report: None,
            preparation: None,
            restore: None,
            under_way: None,
            durable,
            proven: proven.min(durable),
            said: 0,
            rolled_under_sync: 0,
            compacted_under_sync: 0,
        }
    }

    /// Writes what a turn wants kept; a batch that the log refuses is a bug of ours.
    pub(super) fn write(&mut self, persist: &Persist, now_us: u64) -> Result<WriteResult> {
        let written = match self.writer.write(&persist.batch(), persist.number, now_us) {
            Ok(written) => written,
            Err(error) => return stop(error),
        };
        self.rolled_under_sync += u64::from(written.rolled && self.writer.is_syncing());
        let kept = [
            persist.entries.first().map(|entry| entry.index - 1),
            persist.snapshot.map(|at| at.index),
        ];
        for kept in kept.into_iter().flatten() {
            // The write replaces what comes after `kept`, and the replacement is not durable yet.
            self.durable = self.durable.min(kept);
            self.proven = self.proven.min(kept);
            if let Some(under_way) = &mut self.under_way {
                under_way.last = under_way.last.min(kept);
            }
        }
        self.said = self.durable;
        Ok(WriteResult::Done)
    }

    pub(super) fn compact_to(&mut self, index: u64) -> Result<WriteResult> {
        match self.writer.compact_to(index) {
            Ok(()) => {
                self.compacted_under_sync += u64::from(self.writer.is_syncing());
                Ok(WriteResult::Done)
            }
            Err(error) => stop(error),
        }
    }

    /// Begins a sync of what was written.
    pub(super) fn begin(&mut self, disk: &SimDisk, leads: bool) -> Result<Syncing, Fatal> {
        let (job, syncing) = match self.writer.begin_sync(leads)? {
            SyncStep::Nothing => return Ok(Syncing::Nothing),
            SyncStep::Durable(number) => {
                self.settle(&Covered { last: self.writer.last_index(), said: self.said });
                return Ok(Syncing::Durable(number));
            }
            SyncStep::Here(job) => (job, Syncing::Here),
            SyncStep::Aside(job) => (job, Syncing::Aside),
        };
        self.under_way = Some(Covered { last: self.writer.last_index(), said: self.said });
        self.started = Some(disk.start_sync(job));
        Ok(syncing)
    }

    /// Ends the sync that is under way, after this time.
    pub(super) fn end_sync(&mut self, took_us: u64) {
        let took = Duration::from_micros(took_us);
        self.report = self.started.take().map(|started| started.end_after(took));
    }

    /// Takes in the result of a sync, and returns the write up to which everything is durable.
    pub(super) fn finish(&mut self, report: SyncReport) -> Result<Option<u64>, Fatal> {
        let end = self.writer.finish_sync(report)?;
        if let Some(covered) = self.under_way.take() {
            self.settle(&covered);
        }
        Ok(end.durable)
    }

    fn settle(&mut self, covered: &Covered) {
        self.durable = self.durable.max(covered.last);
        self.proven = self.proven.max(covered.said.min(self.durable));
    }

    /// Marks the end of the log, if nothing was written for a while. Returns whether it did.
    pub(super) fn mark_if_quiet(&mut self, now_us: u64) -> Result<bool, WriteError> {
        let marked = self.writer.mark_if_quiet(now_us)?;
        if marked {
            self.said = self.durable;
        }
        Ok(marked)
    }

    /// Makes everything durable and marks it.
    pub(super) fn close(&mut self) -> Result<(), WriteError> {
        let last = self.writer.last_index();
        self.writer.close()?;
        self.durable = last;
        Ok(())
    }

    /// Whether there is room, as of the last check.
    pub(super) fn space(&self) -> Space {
        if self.writer.is_short() { Space::Short } else { Space::Enough }
    }

    /// Checks the free space once a second. Returns whether there is room, if that has changed, and whether there
    /// is a job that takes the reserve.
    pub(super) fn check_space(&mut self, now_us: u64) -> (Option<Space>, bool) {
        let Ok(Some(check)) = self.writer.check_space(now_us) else { return (None, false) };
        let restores = check.restore.is_some();
        self.restore = check.restore;
        (check.changed.then(|| self.space()), restores)
    }

    /// Schedules the preparation of the next segment, unless it is ready or being made. Returns whether there is work.
    pub(super) fn prepare(&mut self) -> bool {
        let job = self.writer.prepare();
        let is_new = job.is_some();
        if is_new {
            self.preparation = job;
        }
        is_new
    }

    /// Takes the reserve again, on its own thread. A reserve that cannot be taken now is taken later.
    pub(super) fn restore(&mut self) {
        let _ = self.restore.take().map(ReserveJob::run);
    }

    /// Makes the next segment, takes it into use, and takes the reserve again.
    pub(super) fn prepared(&mut self) -> WriteResult {
        let Some(job) = self.preparation.take() else { return WriteResult::Done };
        let (prepared, reserve) = job.run();
        let _ = reserve.run();
        // If it failed, the log makes its own segment when it needs one.
        let Ok(prepared) = prepared else { return WriteResult::Done };
        match self.writer.adopt(prepared) {
            Ok(()) => WriteResult::Done,
            Err(_) => WriteResult::Stop,
        }
    }
}

/// What follows from an error: a member that cannot write stops.
fn stop(error: WriteError) -> Result<WriteResult> {
    match error {
        WriteError::NoSpace | WriteError::Fatal(_) => Ok(WriteResult::Stop),
        error => Err(error).context("S12"),
    }
}
