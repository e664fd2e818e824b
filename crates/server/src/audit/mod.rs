//! Writes the audit log: what administrators did and what callers were denied, one JSON object per line.
//!
//! Acts that change the cluster are taken from the events that this member applies, so an act is recorded whichever
//! member and API it came through. Denied calls and acts that are not in the log, such as backups, are recorded where
//! they happen. A record never waits for the file: it goes into a bounded queue, and is dropped and counted if the
//! queue is full. The newest records are also kept in memory.

mod record;

use std::collections::VecDeque;
use std::fs::OpenOptions;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;

pub(crate) use record::{AuditRecord, Outcome};

/// The most records that wait for the file.
const WAITING_MAX: usize = 8_192;
/// The most records that are kept in memory, for readers of the health listener.
const RECENT_MAX: usize = 1_000;

/// Where the audit log is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AuditTo {
    /// Nowhere: only the newest records are kept, in memory.
    #[default]
    Memory,
    /// To stderr, among the lines of the log.
    Stderr,
    /// To the end of this file.
    File(PathBuf),
}

/// The audit log of a member.
#[derive(Debug, Default)]
pub(crate) struct AuditLog {
    recent: Mutex<VecDeque<Arc<str>>>,
    sink: OnceLock<AuditSink>,
    recorded: Counter,
    dropped: Counter,
}

#[derive(Debug)]
enum AuditSink {
    Stderr,
    File(SyncSender<Arc<str>>),
}

impl AuditLog {
    /// Writes records from now on. The first call decides; later calls change nothing.
    pub(crate) fn write_to(self: &Arc<Self>, to: &AuditTo) -> io::Result<()> {
        let sink = match to {
            AuditTo::Memory => return Ok(()),
            AuditTo::Stderr => AuditSink::Stderr,
            AuditTo::File(path) => {
                // Only the owner may read it: reasons and names are not for everyone.
                let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
                let (sender, lines) = sync_channel(WAITING_MAX);
                let log = self.clone();
                let write = move || log.write(&lines, BufWriter::new(file));
                std::thread::Builder::new().name("tenure-audit".to_owned()).spawn(write)?;
                AuditSink::File(sender)
            }
        };
        let _ = self.sink.set(sink);
        Ok(())
    }

    /// Records an act or a denied call. Never waits.
    pub(crate) fn record(&self, record: &AuditRecord<'_>) {
        let line: Arc<str> = record.line().into();
        self.recorded.inc();
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if recent.len() == RECENT_MAX {
            recent.pop_front();
        }
        recent.push_back(line.clone());
        drop(recent);
        let taken = match self.sink.get() {
            None => true,
            Some(AuditSink::Stderr) => crate::log::print(&line),
            Some(AuditSink::File(sender)) => sender.try_send(line).is_ok(),
        };
        if !taken {
            self.dropped.inc();
        }
    }

    /// The newest records, oldest first, at most `most`.
    pub(crate) fn recent(&self, most: usize) -> Vec<Arc<str>> {
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.iter().skip(recent.len().saturating_sub(most)).cloned().collect()
    }

    /// Registers its metrics.
    pub(crate) fn register(&self, to: &mut Registry) {
        let help = "Administrative acts and denied calls that were recorded";
        to.register("audit_records", help, self.recorded.clone());
        let help = "Audit records that were not written because the file did not take them";
        to.register("audit_records_dropped", help, self.dropped.clone());
    }

    /// The work of the thread that writes the file.
    fn write(&self, lines: &Receiver<Arc<str>>, mut file: impl Write) {
        while let Ok(first) = lines.recv() {
            let mut batch = vec![first];
            batch.extend(lines.try_iter().take(WAITING_MAX));
            let written = batch.iter().try_for_each(|line| file.write_all(line.as_bytes()));
            if let Err(error) = written.and_then(|()| file.flush()) {
                // Some of the batch may be in the file; count all of it, so that the loss is never too small.
                self.dropped.inc_by(batch.len() as u64);
                tracing::error!(cause = %error, records = batch.len(), "cannot write the audit log");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denied(log: &AuditLog, number: usize) {
        let what = format!("call {number}");
        log.record(&AuditRecord::new("denied", Outcome::Refused("TEST")).target(&what));
    }

    #[test]
    fn the_newest_records_are_kept_and_the_oldest_forgotten() {
        let log = AuditLog::default();
        (0..RECENT_MAX + 5).for_each(|at| denied(&log, at));
        let recent = log.recent(RECENT_MAX * 2);
        assert_eq!(recent.len(), RECENT_MAX);
        assert!(recent[0].contains("\"call 5\""), "{}", recent[0]);
        assert!(log.recent(1)[0].contains(&format!("call {}", RECENT_MAX + 4)));
    }

    #[test]
    fn a_file_that_does_not_take_records_never_blocks_and_drops_are_counted() {
        let log = AuditLog::default();
        // Nothing reads from the queue, as if the disk hung.
        let (sender, _lines) = sync_channel(WAITING_MAX);
        log.sink.set(AuditSink::File(sender)).unwrap();
        (0..WAITING_MAX + 7).for_each(|at| denied(&log, at));
        assert_eq!((log.dropped.get(), log.recorded.get()), (7, WAITING_MAX as u64 + 7));
    }

    #[test]
    fn records_reach_the_file_one_per_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit");
        let log = Arc::new(AuditLog::default());
        log.write_to(&AuditTo::File(path.clone())).unwrap();
        (0..3).for_each(|at| denied(&log, at));
        let until_us = crate::os::now_us() + 10_000_000;
        while std::fs::read_to_string(&path).unwrap().lines().count() < 3 {
            assert!(crate::os::now_us() < until_us, "the records are not written");
            std::thread::yield_now();
        }
    }
}
