//! Syncs the log on a thread of its own, so that the event loop goes on during a slow sync.

use std::sync::mpsc::{Sender, channel};

use tenure_store::SyncJob;

use crate::inbox::Inbox;
use crate::log_writer::spawn_for;
use crate::member::LoopEvent;

/// A thread that syncs the log, one job at a time. It starts when it is first needed, and ends with this value.
#[derive(Default)]
pub(crate) struct SyncThread {
    jobs: Option<Sender<SyncJob>>,
}

impl SyncThread {
    /// Hands the job to the thread, which reports the result as [`LoopEvent::Synced`]. Returns the job if there is no
    /// thread for it.
    pub(crate) fn hand(&mut self, job: SyncJob, inbox: &Inbox) -> Result<(), SyncJob> {
        if self.jobs.is_none() {
            let (jobs, taken) = channel::<SyncJob>();
            let told = inbox.clone();
            let started = spawn_for(inbox, "tenure-sync", move || {
                while let Ok(job) = taken.recv() {
                    // An event loop that has ended needs no report.
                    if told.send(LoopEvent::Synced(job.run())).is_err() {
                        return;
                    }
                }
            });
            self.jobs = started.then_some(jobs);
        }
        match &self.jobs {
            Some(jobs) => jobs.send(job).map_err(|unsent| unsent.0),
            None => Err(job),
        }
    }
}
