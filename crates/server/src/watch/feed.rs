//! Passes the records of each turn from the event loop to the hub.
//!
//! The event loop copies the turn's records once and leaves the copy here and with the metrics. It decodes nothing and
//! does not wait: the hub holds the lock only to take the records.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tenure_core::{Machine, Most, RevisionRecords};
use tenure_types::Revision;
use tokio::sync::Notify;

use crate::archive::Archive;

/// The most that the event loop copies in one turn: some tens of microseconds. A turn that adds more, and an installed
/// snapshot, leave a gap; the hub's watches read its revisions from the history themselves.
const TURN: Most = Most { revisions: 16_384, bytes: 1024 * 1024 };

/// The most bytes that may wait for the hub; records beyond that are dropped and leave a gap.
const WAITING_BYTES: usize = 4 * 1024 * 1024;

/// The queue in which the event loop leaves records for the hub.
#[derive(Default)]
pub(crate) struct Feed {
    watches: AtomicUsize,
    left: Mutex<FeedState>,
    news: Notify,
}

/// The records that the event loop has left.
#[derive(Default)]
pub(super) struct FeedState {
    /// Consecutive parts of the history, each directly after the one before or after a gap.
    pub(super) parts: Vec<Arc<RevisionRecords>>,
    /// The revision after the newest one that was dropped.
    pub(super) given_up: Option<Revision>,
    /// Whether the event loop has ended.
    pub(super) closed: bool,
    bytes: usize,
    /// Whether a hub takes from here.
    taken: bool,
}

impl Feed {
    /// Leaves the records after `told` and advances it; passes them to `counted` and to the archive, if given. The
    /// event loop calls this once per turn.
    pub(crate) fn offer(
        &self,
        told: &mut Revision,
        machine: &Machine,
        counted: Option<impl FnOnce(Option<Arc<RevisionRecords>>)>,
        archive: Option<&Archive>,
    ) {
        let from = told.next();
        if machine.revision() < from {
            return;
        }
        *told = machine.revision();
        // A watch registers itself before its first query of the machine, and this thread answers that query. So every
        // record that the answer lacked is offered after this load sees the watch.
        let watched = self.watches.load(Ordering::SeqCst) > 0;
        if !watched && counted.is_none() && archive.is_none() {
            return;
        }
        let copied =
            machine.records(from, TURN).ok().filter(RevisionRecords::is_complete).map(Arc::new);
        if let Some(archive) = archive {
            archive.leave(copied.as_ref());
        }
        if let Some(counted) = counted {
            counted(copied.clone());
        }
        if !watched {
            return;
        }
        let mut left = self.left();
        match copied {
            Some(records) if left.bytes + records.bytes() <= WAITING_BYTES => {
                left.bytes += records.bytes();
                left.parts.push(records);
            }
            _ => {
                left.parts.clear();
                left.bytes = 0;
                left.given_up = Some(told.next());
            }
        }
        drop(left);
        self.news.notify_one();
    }

    /// Declares that no records follow.
    pub(crate) fn close(&self) {
        self.left().closed = true;
        self.news.notify_one();
    }

    /// Registers a watch.
    pub(super) fn enter(&self) {
        self.watches.fetch_add(1, Ordering::SeqCst);
    }

    /// Unregisters a watch.
    pub(super) fn leave(&self) {
        self.watches.fetch_sub(1, Ordering::SeqCst);
    }

    pub(crate) fn watches(&self) -> usize {
        self.watches.load(Ordering::SeqCst)
    }

    /// Registers the caller as the only hub; `false` if there already is one.
    pub(super) fn adopt(&self) -> bool {
        !std::mem::replace(&mut self.left().taken, true)
    }

    /// Waits until there is something, and takes it.
    pub(super) async fn take(&self) -> FeedState {
        loop {
            let left = {
                let mut left = self.left();
                let rest = FeedState { taken: true, closed: left.closed, ..FeedState::default() };
                std::mem::replace(&mut *left, rest)
            };
            if !left.parts.is_empty() || left.given_up.is_some() || left.closed {
                return left;
            }
            self.news.notified().await;
        }
    }

    fn left(&self) -> MutexGuard<'_, FeedState> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
