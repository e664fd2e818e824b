//! Writes the audit log: what administrators did and what callers were denied, one JSON object per line.
//!
//! Acts that change the cluster are taken from the history of applied commands ([`follow`]), so an act is recorded
//! whichever member and API it came through, and also if this member applies it later. Denied calls and acts that are
//! not in the history, such as backups, are recorded where they happen. These never wait for the file: they go into a
//! bounded queue, and are dropped and counted if the queue is full. The newest records are also kept in memory.
//!
//! Records that the file does not take are written again until it takes them. Until then nothing is taken out of the
//! queue, and the position does not move.

mod follow;
mod position;
mod recent;
mod record;
mod target;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use tenure_node::Lineage;
use tenure_types::Revision;
use tokio::sync::Notify;

use crate::os;
pub(crate) use follow::follow;
use position::{AuditResume, PositionFile};
pub(crate) use recent::RECENT_MAX;
use recent::{RecentKind, RecentRecords};
pub(crate) use record::{AuditOutcome, AuditRecord};
use target::AuditTarget;

/// The most records that wait for the file.
const WAITING_MAX: usize = 8_192;
/// How often the records are synced and the position is saved. After a crash, what is in the file beyond the position
/// is recognised there.
const SAVE: Duration = Duration::from_secs(1);
/// The pause before records that the file did not take are written again.
const RETRY: Duration = Duration::from_millis(200);

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
    sink: OnceLock<SyncSender<AuditItem>>,
    /// Notified when the history has changed.
    news: Notify,
    /// The newest revision when everything was applied that was in the log at the start.
    live_after: OnceLock<Revision>,
    recorded: Counter,
    dropped: Counter,
}

/// What the thread that writes gets, in order.
#[derive(Debug)]
enum AuditItem {
    Line(Arc<str>),
    /// All acts up to this revision came before.
    Reached(Revision),
}

impl AuditLog {
    /// Writes records from now on. The position is kept in the data directory. Returns where the acts of the history
    /// continue. The first call decides; later calls change nothing.
    pub(crate) fn write_to(
        self: &Arc<Self>,
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
        let (sender, items) = sync_channel(WAITING_MAX);
        let log = self.clone();
        let write = move || log.write(&items, target, &position);
        std::thread::Builder::new().name("tenure-audit".to_owned()).spawn(write)?;
        let _ = self.sink.set(sender);
        Ok(resume)
    }

    /// Records a denied call, or an act that is not in the history. Never waits.
    pub(crate) fn record(&self, record: &AuditRecord<'_>) {
        let line: Arc<str> = record.line().into();
        let kind = RecentKind::of(record);
        if !self.try_put(&line, kind) {
            self.keep(line, kind);
            self.dropped.inc();
        }
    }

    /// Records a line if there is room for it, and returns whether there was.
    fn try_put(&self, line: &Arc<str>, kind: RecentKind) -> bool {
        if let Some(sink) = self.sink.get()
            && sink.try_send(AuditItem::Line(line.clone())).is_err()
        {
            return false;
        }
        self.keep(line.clone(), kind);
        true
    }

    /// Keeps a record in memory and counts it.
    fn keep(&self, line: Arc<str>, kind: RecentKind) {
        self.recorded.inc();
        self.recent.lock().unwrap_or_else(PoisonError::into_inner).add(kind, line);
    }

    /// Declares that all acts up to this revision were recorded.
    fn reached(&self, revision: Revision) {
        if let Some(sink) = self.sink.get() {
            // If there is no room, a later position follows.
            let _ = sink.try_send(AuditItem::Reached(revision));
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
    }

    /// The work of the thread that writes.
    fn write(&self, items: &Receiver<AuditItem>, mut target: AuditTarget, position: &PositionFile) {
        let (mut unsaved, mut saved_at_us) = (None, 0);
        loop {
            let first = match unsaved {
                None => items.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(_) => items.recv_timeout(SAVE),
            };
            let first = match first {
                Ok(item) => Some(item),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            for item in first.into_iter().chain(items.try_iter().take(WAITING_MAX)) {
                match item {
                    AuditItem::Line(line) => target.add(&line),
                    AuditItem::Reached(revision) => unsaved = Some(revision),
                }
            }
            self.dropped.inc_by(target.write(RETRY));
            let now_us = os::now_us();
            let is_due = now_us.saturating_sub(saved_at_us) >= os::micros(SAVE);
            if let Some(reached) = unsaved.filter(|_| is_due) {
                (unsaved, saved_at_us) = (None, now_us);
                // The position must not be ahead of the records that a power loss leaves.
                if let Err(error) = target.sync().and_then(|()| position.save(reached)) {
                    tracing::warn!(cause = %error, "cannot save the position of the audit log");
                }
            }
        }
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
        let (sender, _lines) = sync_channel(WAITING_MAX);
        log.sink.set(sender).unwrap();
        (0..WAITING_MAX + 7).for_each(|at| denied(&log, at));
        assert_eq!((log.dropped.get(), log.recorded.get()), (7, WAITING_MAX as u64 + 7));
    }

    #[test]
    fn records_reach_the_file_one_per_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit");
        let log = Arc::new(AuditLog::default());
        let (epoch, incarnation) = (Epoch::default(), Incarnation::default());
        let lineage = Lineage { cluster: "c1".to_owned(), epoch, incarnation };
        // A crash has cut the last line.
        std::fs::write(&path, "{\"act\":\"for").unwrap();
        log.write_to(&AuditTo::File(path.clone()), dir.path(), &lineage).unwrap();
        (0..3).for_each(|at| denied(&log, at));
        let until_us = crate::os::now_us() + 10_000_000;
        while std::fs::read_to_string(&path).unwrap().lines().count() < 4 {
            assert!(crate::os::now_us() < until_us, "the records are not written");
            std::thread::yield_now();
        }
    }
}
