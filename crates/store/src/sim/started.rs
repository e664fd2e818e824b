//! Lets the sync of a log begin at one simulated time and end at a later one.

use std::time::Duration;

use super::SimDisk;
use crate::{SyncJob, SyncReport};

/// A sync that has begun and not ended. It does not make durable what is written after it began. A power loss before it
/// ends may lose any of the writes that it covers.
#[derive(Debug)]
#[must_use]
pub struct StartedSync {
    disk: SimDisk,
    job: SyncJob,
    began: u64,
}

impl SimDisk {
    /// Begins a sync now. The log may be written, rolled over and compacted before it ends.
    pub fn start_sync(&self, job: SyncJob) -> StartedSync {
        StartedSync { disk: self.clone(), job, began: self.lock().stamp }
    }
}

impl StartedSync {
    /// Ends the sync now, with success or failure, and reports that it took this long.
    pub fn end_after(self, took: Duration) -> SyncReport {
        self.end().after(took)
    }

    /// Ends the sync now, with success or failure.
    pub fn end(self) -> SyncReport {
        self.disk.lock().sync_began = Some(self.began);
        let report = self.job.run();
        // A job that failed before it reached the file must not limit the sync of another.
        self.disk.lock().sync_began = None;
        report
    }
}
