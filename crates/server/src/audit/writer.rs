//! Runs the thread that writes audit records to their target, and saves the position behind them.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use tenure_types::Revision;

use super::position::PositionFile;
use super::queue::{AuditCounts, AuditKind, WaitingRecords};
use super::target::{AuditTarget, SyncData};
use crate::os;

/// How often the records are synced and the position is saved. After a crash, what is in the file beyond the position
/// is recognised there.
const SAVE: Duration = Duration::from_secs(1);
/// The most bytes that are written before a sync: what a failed sync makes the writer write again.
const UNSYNCED_MAX: usize = 1024 * 1024;
/// The most items taken at a time.
const TAKEN_MAX: usize = 8_192;
/// The first and the longest pause before records that the file did not take are written again.
const RETRY: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(5);

/// What the thread gets, in order.
pub(super) enum AuditItem {
    Line(Arc<str>, AuditKind),
    /// All acts up to this revision came before.
    Reached(Revision),
    /// Call this once all records before are durable.
    Sync(Box<dyn FnOnce() + Send>),
}

/// The work of the thread.
pub(super) struct AuditWriter<F> {
    pub(super) items: Receiver<AuditItem>,
    pub(super) target: AuditTarget<F>,
    pub(super) position: PositionFile,
    pub(super) waiting: Arc<WaitingRecords>,
    pub(super) dropped: Counter,
    pub(super) pending: PendingSync,
}

/// What the next sync is for.
#[derive(Default)]
pub(super) struct PendingSync {
    /// When the first record or position came that it is for.
    since_us: Option<u64>,
    reached: Option<Revision>,
    callers: Vec<Box<dyn FnOnce() + Send>>,
    ends: bool,
    position_failed: bool,
}

impl<F: Write + SyncData> AuditWriter<F> {
    /// Writes until the audit log is dropped.
    pub(super) fn run(mut self) {
        while !self.pending.ends {
            let first = match self.pending.since_us {
                None => self.items.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(since_us) => {
                    self.items.recv_timeout(os::until(since_us.saturating_add(os::micros(SAVE))))
                }
            };
            let first = match first {
                Ok(item) => Some(item),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => {
                    self.pending.ends = true;
                    None
                }
            };
            let taken_us = os::now_us();
            self.take(first, taken_us);
            if self.pending.is_due(taken_us) || self.target.unsynced_bytes() >= UNSYNCED_MAX {
                self.sync(taken_us);
            }
        }
    }

    /// Takes what waits, and writes it.
    fn take(&mut self, first: Option<AuditItem>, now_us: u64) {
        let mut counts = AuditCounts::default();
        for item in first.into_iter().chain(self.items.try_iter().take(TAKEN_MAX)) {
            match item {
                AuditItem::Line(line, kind) => {
                    counts[kind as usize] += 1;
                    self.target.add(&line);
                }
                AuditItem::Reached(revision) => self.pending.reached = Some(revision),
                AuditItem::Sync(done) => self.pending.callers.push(done),
            }
            self.pending.since_us.get_or_insert(now_us);
        }
        let lost = retried(RETRY, || self.target.write());
        self.dropped.inc_by(lost);
        self.waiting.remove(&counts);
    }

    /// Makes durable what was written before, tells those that wait for it, and saves the position.
    fn sync(&mut self, taken_us: u64) {
        retried(RETRY, || self.target.sync());
        self.waiting.synced(taken_us);
        self.pending.since_us = None;
        self.pending.callers.drain(..).for_each(|done| done());
        // The position must not be ahead of the records that a power loss leaves.
        let Some(reached) = self.pending.reached else { return };
        match self.position.save(reached) {
            Ok(()) => (self.pending.reached, self.pending.position_failed) = (None, false),
            Err(error) => {
                if !self.pending.position_failed {
                    tracing::warn!(cause = %error, "cannot save the position of the audit log; trying again");
                }
                (self.pending.since_us, self.pending.position_failed) = (Some(taken_us), true);
            }
        }
    }
}

impl PendingSync {
    fn is_due(&self, now_us: u64) -> bool {
        let is_late = |since_us| now_us.saturating_sub(since_us) >= os::micros(SAVE);
        self.ends || !self.callers.is_empty() || self.since_us.is_some_and(is_late)
    }
}

/// Does something until it succeeds, for example until a disk has room again.
fn retried<T>(mut pause: Duration, mut work: impl FnMut() -> io::Result<T>) -> T {
    let mut has_failed = false;
    loop {
        match work() {
            Ok(done) => {
                if has_failed {
                    tracing::warn!("the file of the audit log takes records again");
                }
                return done;
            }
            Err(error) if !has_failed => {
                tracing::error!(cause = %error, "cannot write the audit log; trying again");
                has_failed = true;
            }
            Err(_) => {}
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(RETRY_MAX);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::mpsc::channel;

    use tenure_node::{Incarnation, Lineage};
    use tenure_types::Epoch;

    use super::super::target::AuditFile;
    use super::super::target::tests::{Fault, FaultyFile};
    use super::*;

    fn position(dir: &Path) -> PositionFile {
        let (epoch, incarnation) = (Epoch::default(), Incarnation::default());
        PositionFile::new(dir, &Lineage { cluster: "c1".to_owned(), epoch, incarnation })
    }

    /// Runs the writer over these items, and returns what a power loss leaves in the file.
    fn written(dir: &Path, faults: &[Fault], items: Vec<AuditItem>) -> Vec<String> {
        let file = FaultyFile::failing(faults);
        let (sender, received) = channel();
        let waiting = Arc::new(WaitingRecords::default());
        for item in items {
            if let AuditItem::Line(_, kind) = &item {
                assert!(waiting.add(*kind, os::now_us()));
            }
            sender.send(item).unwrap();
        }
        drop(sender);
        let writer = AuditWriter {
            items: received,
            target: AuditTarget::File(AuditFile::new(file.clone())),
            position: position(dir),
            waiting: waiting.clone(),
            dropped: Counter::default(),
            pending: PendingSync::default(),
        };
        writer.run();
        assert_eq!(waiting.oldest_waits_us(u64::MAX), 0);
        file.durable()
    }

    fn line(text: &str) -> AuditItem {
        AuditItem::Line(format!("{text}\n").into(), AuditKind::Act)
    }

    #[test]
    fn no_record_is_lost_by_a_file_that_fails_and_the_position_follows_the_records() {
        for faults in [
            vec![],
            vec![Fault::Full, Fault::Full],
            vec![Fault::Short(1), Fault::Short(0)],
            vec![Fault::NotSynced],
            vec![Fault::NotSynced, Fault::Full, Fault::NotSynced, Fault::Short(2)],
        ] {
            let dir = tempfile::tempdir().unwrap();
            let items = vec![line("a"), line("b"), AuditItem::Reached(Revision(7))];
            let lines = written(dir.path(), &faults, items);
            assert!(lines.ends_with(&["a".to_owned(), "b".to_owned()]), "{faults:?}: {lines:?}");
            let resume = position(dir.path()).resume(None).unwrap();
            assert_eq!(resume.next, Revision(8), "{faults:?}");
        }
    }

    #[test]
    fn a_caller_is_told_and_the_position_saved_only_after_the_sync() {
        let dir = tempfile::tempdir().unwrap();
        let file = FaultyFile::failing(&[Fault::NotSynced]);
        let (seen, path) = (file.clone(), dir.path().to_owned());
        let (told, tells) = channel();
        let done = move || {
            let before = position(&path).resume(None).unwrap().next;
            told.send((seen.durable().last().cloned(), before)).unwrap();
        };
        let (sender, items) = channel();
        let waiting = Arc::new(WaitingRecords::default());
        waiting.add(AuditKind::Local, 1);
        sender.send(AuditItem::Line("a\n".into(), AuditKind::Local)).unwrap();
        sender.send(AuditItem::Reached(Revision(7))).unwrap();
        sender.send(AuditItem::Sync(Box::new(done))).unwrap();
        drop(sender);
        let target = AuditTarget::File(AuditFile::new(file));
        let position = position(dir.path());
        let (dropped, pending) = (Counter::default(), PendingSync::default());
        AuditWriter { items, target, position, waiting, dropped, pending }.run();
        assert_eq!(tells.recv().unwrap(), (Some("a".to_owned()), Revision(1)));
    }
}
