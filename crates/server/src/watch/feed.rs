//! How does what a turn added get from the loop to the hub?
//!
//! The loop copies the turn's records once and leaves them here, and with those who count; it decodes nothing, and
//! waits for nobody: the hub holds the lock only to take what is there.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tenure_core::{Machine, Most, Records};
use tenure_types::Revision;
use tokio::sync::Notify;

/// What the loop copies in one turn, at most: some tens of microseconds. A turn that adds more, and a
/// snapshot that is installed, leave a gap, which the hub's watches read from the history themselves.
const TURN: Most = Most { revisions: 16_384, bytes: 1024 * 1024 };

/// What may wait for the hub, at most; beyond, it is given up and leaves a gap.
const WAITING_BYTES: usize = 4 * 1024 * 1024;

/// The place where the loop leaves records for the hub.
#[derive(Default)]
pub(crate) struct Feed {
    watches: AtomicUsize,
    left: Mutex<Left>,
    news: Notify,
}

/// What the loop has left.
#[derive(Default)]
pub(super) struct Left {
    /// Consecutive parts of the history, each after the other or after a gap.
    pub(super) parts: Vec<Arc<Records>>,
    /// The revision after the newest one that was given up.
    pub(super) given_up: Option<Revision>,
    /// The loop has ended.
    pub(super) closed: bool,
    bytes: usize,
    /// A hub takes from here.
    taken: bool,
}

impl Feed {
    /// Leaves what was added after `told` and moves it on; shows it to those who count, if any. Called by the
    /// loop, once per turn.
    pub(crate) fn offer(
        &self,
        told: &mut Revision,
        machine: &Machine,
        counted: Option<impl FnOnce(Option<Arc<Records>>)>,
    ) {
        let from = told.next();
        if machine.revision() < from {
            return;
        }
        *told = machine.revision();
        // A watch counts itself before it first asks the machine anything, and is answered by this
        // very thread: whatever it was not shown then is offered after this sees it.
        let watched = self.watches.load(Ordering::SeqCst) > 0;
        if !watched && counted.is_none() {
            return;
        }
        let copied = machine.records(from, TURN).ok().filter(Records::is_complete).map(Arc::new);
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

    /// Nothing will be offered any more.
    pub(crate) fn close(&self) {
        self.left().closed = true;
        self.news.notify_one();
    }

    /// Counts a watch.
    pub(super) fn enter(&self) {
        self.watches.fetch_add(1, Ordering::SeqCst);
    }

    /// Does not count a watch any more.
    pub(super) fn leave(&self) {
        self.watches.fetch_sub(1, Ordering::SeqCst);
    }

    pub(super) fn watches(&self) -> usize {
        self.watches.load(Ordering::SeqCst)
    }

    /// Makes the caller the one who takes; `false` if there is one.
    pub(super) fn adopt(&self) -> bool {
        !std::mem::replace(&mut self.left().taken, true)
    }

    /// Waits until there is something, and takes it.
    pub(super) async fn take(&self) -> Left {
        loop {
            let left = {
                let mut left = self.left();
                let rest = Left { taken: true, closed: left.closed, ..Left::default() };
                std::mem::replace(&mut *left, rest)
            };
            if !left.parts.is_empty() || left.given_up.is_some() || left.closed {
                return left;
            }
            self.news.notified().await;
        }
    }

    fn left(&self) -> MutexGuard<'_, Left> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
