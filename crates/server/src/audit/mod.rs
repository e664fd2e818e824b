//! Writes the audit log: what administrators did and what callers were denied, one JSON object per line.
//!
//! Acts that change the cluster are taken from the history of applied commands ([`follow`]), so an act is recorded
//! whichever member and API it came through, and also if this member applies it later. Acts that are not in the
//! history, such as backups, are recorded where they happen, and their callers get the answer once the record is
//! durable. Denied calls never wait: if too many wait for the file, more are dropped and counted. The newest records
//! are also kept in memory.
//!
//! Records that the file does not take are written again until it takes them ([`writer`]). Until then the position does
//! not move.

mod denied;
mod follow;
mod position;
mod queue;
mod recent;
mod record;
mod target;
mod writer;

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use tenure_node::Lineage;
use tenure_types::Revision;
use tokio::sync::{Notify, oneshot};

use crate::os;
use denied::DeniedLimit;
pub(crate) use follow::follow;
use position::{AuditResume, PositionFile};
use queue::{AuditKind, WaitingRecords};
pub(crate) use recent::RECENT_MAX;
use recent::RecentRecords;
pub(crate) use record::{AuditOutcome, AuditRecord};
use target::AuditTarget;
use writer::{AuditItem, AuditWriter, PendingSync};

/// How long a caller waits at most until its act is on disk. A file that takes no records must not keep an operator
/// from repairing the member.
const SYNC_WAIT: Duration = Duration::from_secs(1);

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
    recent: Mutex<RecentRecords>,
    /// The queue of the thread that writes. `waiting` bounds its records.
    sink: OnceLock<Sender<AuditItem>>,
    waiting: Arc<WaitingRecords>,
    /// Notified when the history has changed.
    news: Notify,
    /// The newest revision when everything was applied that was in the log at the start.
    live_after: OnceLock<Revision>,
    recorded: Counter,
    dropped: Counter,
    denied: DeniedLimit,
    left_out: Counter,
}

/// Whether a record was put into the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum AuditPut {
    Taken,
    /// Too many of its kind wait.
    Full,
    /// The thread that writes has ended.
    Ended,
}

impl AuditLog {
    /// Writes records from now on. The position is kept in the data directory. Returns where the acts of the history
    /// continue. The first call decides; later calls change nothing.
    pub(crate) fn write_to(
        &self,
        to: &AuditTo,
        data: &Path,
        lineage: &Lineage,
    ) -> io::Result<AuditResume> {
        let position = PositionFile::new(data, lineage);
        let (resume, target) = match to {
            // What is kept in memory begins anew, with what the history still has.
            AuditTo::Memory => return Ok(AuditResume::default()),
            AuditTo::Stderr => (position.resume(None)?, AuditTarget::Stderr(Vec::new())),
            AuditTo::File(path) => {
                let resume = position.resume(Some(path))?;
                (resume, AuditTarget::open(path)?)
            }
        };
        let (sender, items) = channel();
        let (waiting, dropped) = (self.waiting.clone(), self.dropped.clone());
        let pending = PendingSync::default();
        let writer = AuditWriter { items, target, position, waiting, dropped, pending };
        let run = move || writer.run();
        std::thread::Builder::new().name("tenure-audit".to_owned()).spawn(run)?;
        let _ = self.sink.set(sender);
        Ok(resume)
    }

    /// Whether to record another denied call of this source. Returns how many calls were left out since its last
    /// record.
    pub(crate) fn pass_denied(&self, from: Option<IpAddr>, principal: &str) -> Option<u64> {
        let passed = self.denied.pass(os::now_us(), from, principal);
        if passed.is_none() {
            self.left_out.inc();
        }
        passed
    }

    /// Records a denied call, or an act that is not in the history. Never waits. Returns whether it will be written.
    pub(crate) fn record(&self, record: &AuditRecord<'_>) -> bool {
        let kind = match record.outcome() {
            AuditOutcome::Done | AuditOutcome::Unknown => AuditKind::Local,
            AuditOutcome::Refused(_) => AuditKind::Denial,
        };
        let line: Arc<str> = record.line().into();
        let is_taken = self.try_put(&line, kind) == AuditPut::Taken;
        if !is_taken {
            self.keep(line, kind);
            self.dropped.inc();
        }
        is_taken
    }

    /// Records an act that is not in the history, and waits until the record is on disk, at most [`SYNC_WAIT`].
    pub(crate) async fn record_durably(&self, record: &AuditRecord<'_>) {
        if self.record(record) {
            self.recorded_durably().await;
        }
    }

    /// Waits until what was recorded before is on disk, at most [`SYNC_WAIT`].
    pub(crate) async fn recorded_durably(&self) {
        let Some(sink) = self.sink.get() else { return };
        let (done, synced) = oneshot::channel();
        let done = Box::new(move || {
            let _ = done.send(());
        });
        if sink.send(AuditItem::Sync(done)).is_ok()
            && tokio::time::timeout(SYNC_WAIT, synced).await.is_err()
        {
            tracing::warn!("a caller was answered before the audit log had the act on disk");
        }
    }

    /// Waits until what was recorded before is on disk, at most this long; for the end of the member.
    pub(crate) fn flush(&self, within: Duration) {
        let Some(sink) = self.sink.get() else { return };
        let (done, synced) = channel();
        let done = Box::new(move || {
            let _ = done.send(());
        });
        if sink.send(AuditItem::Sync(done)).is_ok() && synced.recv_timeout(within).is_err() {
            tracing::warn!("the member stops before the audit log has taken all records");
        }
    }

    /// Records a line if there is room for it.
    fn try_put(&self, line: &Arc<str>, kind: AuditKind) -> AuditPut {
        if let Some(sink) = self.sink.get() {
            if !self.waiting.add(kind, os::now_us()) {
                return AuditPut::Full;
            }
            if sink.send(AuditItem::Line(line.clone(), kind)).is_err() {
                return AuditPut::Ended;
            }
        }
        self.keep(line.clone(), kind);
        AuditPut::Taken
    }

    /// Keeps a record in memory and counts it.
    fn keep(&self, line: Arc<str>, kind: AuditKind) {
        self.recorded.inc();
        self.recent.lock().unwrap_or_else(PoisonError::into_inner).add(kind, line);
    }

    /// Declares that all acts up to this revision were recorded.
    fn reached(&self, revision: Revision) {
        if let Some(sink) = self.sink.get() {
            // Without its thread the log takes no records either.
            let _ = sink.send(AuditItem::Reached(revision));
        }
    }

    /// Declares that the history has changed; `live` once everything is applied that was in the log at the start.
    pub(crate) fn news(&self, live: bool, newest: Revision) {
        if live {
            let _ = self.live_after.set(newest);
        }
        self.news.notify_one();
    }

    /// Whether a revision was in the log at the start.
    fn is_from_before(&self, revision: Revision) -> bool {
        self.live_after.get().is_none_or(|newest| revision <= *newest)
    }

    async fn changed(&self) {
        self.news.notified().await;
    }

    /// The newest records, oldest first, at most `most`.
    pub(crate) fn recent(&self, most: usize) -> Vec<Arc<str>> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner).newest(most)
    }

    /// Registers its metrics.
    pub(crate) fn register(&self, to: &mut Registry) {
        let help = "Administrative acts and denied calls that were recorded";
        to.register("audit_records", help, self.recorded.clone());
        let help = "Audit records that were not written because too many waited for the file";
        to.register("audit_records_dropped", help, self.dropped.clone());
        let help = "Denied calls that were not recorded because their source made too many";
        to.register("audit_denied_left_out", help, self.left_out.clone());
    }

    /// For how long the oldest record has waited to be on disk, in microseconds; zero if none waits.
    pub(crate) fn oldest_waits_us(&self, now_us: u64) -> u64 {
        self.waiting.oldest_waits_us(now_us)
    }
}

#[cfg(test)]
mod tests {
    use tenure_node::Incarnation;
    use tenure_types::Epoch;

    use super::*;

    fn denied(log: &AuditLog, number: usize) {
        let what = format!("call {number}");
        log.record(&AuditRecord::new("denied", AuditOutcome::Refused("TEST")).target(&what));
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
        let (sender, _lines) = channel();
        log.sink.set(sender).unwrap();
        let max = AuditKind::Denial.waiting_max();
        (0..max + 7).for_each(|at| denied(&log, at));
        assert_eq!((log.dropped.get(), log.recorded.get()), (7, max as u64 + 7));
        // Denials leave room for acts, and tell that records wait.
        assert!(log.record(&AuditRecord::new("backup", AuditOutcome::Done)));
        assert_eq!(log.dropped.get(), 7);
        assert!(log.oldest_waits_us(u64::MAX) > 0);
    }

    #[tokio::test]
    async fn a_durable_record_is_in_the_file_before_its_caller_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit");
        let log = AuditLog::default();
        log.write_to(&AuditTo::File(path.clone()), dir.path(), &lineage()).unwrap();
        log.record_durably(&AuditRecord::new("backup", AuditOutcome::Done)).await;
        let written = || std::fs::read_to_string(&path).unwrap().lines().count();
        assert_eq!(written(), 1);
        denied(&log, 1);
        log.flush(Duration::from_secs(60));
        assert_eq!(written(), 2);
    }

    fn lineage() -> Lineage {
        let (epoch, incarnation) = (Epoch::default(), Incarnation::default());
        Lineage { cluster: "c1".to_owned(), epoch, incarnation }
    }

    #[test]
    fn records_reach_the_file_one_per_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit");
        let log = AuditLog::default();
        // A crash has cut the last line.
        std::fs::write(&path, "{\"act\":\"for").unwrap();
        log.write_to(&AuditTo::File(path.clone()), dir.path(), &lineage()).unwrap();
        (0..3).for_each(|at| denied(&log, at));
        let until_us = crate::os::now_us() + 10_000_000;
        while std::fs::read_to_string(&path).unwrap().lines().count() < 4 {
            assert!(crate::os::now_us() < until_us, "the records are not written");
            std::thread::yield_now();
        }
    }
}
