//! Buffers the batches for one watch, and tracks its position.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tenure_types::Revision;
use tokio::sync::Notify;

use super::SharedBatch;
use crate::dispatch::{Caller, Charge};
use crate::os;

/// The most events that wait for one watch. One batch may be larger: a revision is never split.
const EVENTS_MAX: usize = 1_024;
/// The most bytes that wait for one watch; see [`EVENTS_MAX`].
const BYTES_MAX: usize = 1024 * 1024;

/// What the hub and the reader of one watch share: its buffer and its position.
pub(super) struct WatchSlot {
    within: Mutex<Within>,
    pub(super) news: Notify,
    unread_max_us: u64,
}

struct Within {
    batches: VecDeque<Arc<SharedBatch>>,
    events: usize,
    bytes: usize,
    at: WatchPosition,
    /// When the reader last took something.
    taken_at_us: u64,
    /// The bytes of the buffer, charged to the memory budget of the watch's connection.
    charge: Charge,
}

/// The source of a watch's events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WatchPosition {
    /// No source yet: the newest revision is not known.
    Start,
    /// The history, from this revision on, once the buffer is empty. `seen` says that there was nothing newer at the
    /// last read.
    Behind { next: Revision, seen: bool },
    /// The hub: everything from this revision on.
    Live { since: Revision },
    /// The watch was too slow; it can resume at this revision.
    Slow { resume: Revision },
    /// The member has ended.
    Closed,
}

/// The result of a read from the buffer.
pub(super) enum NextBatch {
    Batch(Arc<SharedBatch>),
    Nothing(WatchPosition),
}

/// The result of a [`WatchSlot::put`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PutResult {
    Done,
    /// The buffer was full for too long, and the watch has ended.
    TooSlow,
}

impl WatchSlot {
    pub(super) fn new(at: WatchPosition, unread_max_us: u64) -> Self {
        let (batches, taken_at_us) = (VecDeque::new(), os::now_us());
        let charge = Caller::present_memory().charge(0);
        let within = Within { batches, events: 0, bytes: 0, at, taken_at_us, charge };
        Self { within: Mutex::new(within), news: Notify::new(), unread_max_us }
    }

    fn within(&self) -> MutexGuard<'_, Within> {
        self.within.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a live watch a batch. Other watches read it from the history.
    pub(super) fn put(&self, batch: &Arc<SharedBatch>) -> PutResult {
        let mut within = self.within();
        match within.at {
            WatchPosition::Live { since } if since <= batch.revision => {}
            WatchPosition::Behind { .. } if !within.batches.is_empty() => {
                return self.judge(&mut within);
            }
            _ => return PutResult::Done,
        }
        let fits = within.events + batch.events.len() <= EVENTS_MAX
            && within.bytes + batch.bytes() <= BYTES_MAX
            && within.charge.of().has_room(batch.bytes());
        if !fits && !within.batches.is_empty() {
            // The batches in the buffer stay. The reader gets later ones from the history, unless the watch ends before
            // as too slow.
            within.at = WatchPosition::Behind { next: batch.revision, seen: false };
            return self.judge(&mut within);
        }
        within.events += batch.events.len();
        within.bytes += batch.bytes();
        within.charge.add(batch.bytes());
        within.batches.push_back(batch.clone());
        drop(within);
        self.news.notify_one();
        PutResult::Done
    }

    /// Ends the watch if its reader has taken nothing from the full buffer for `unread_max_us`.
    fn judge(&self, within: &mut Within) -> PutResult {
        if os::now_us().saturating_sub(within.taken_at_us) < self.unread_max_us {
            return PutResult::Done;
        }
        let Some(first) = within.batches.front() else { return PutResult::Done };
        within.at = WatchPosition::Slow { resume: first.revision };
        // Free the memory now: the reader may never take anything again.
        (within.batches, within.events, within.bytes) = (VecDeque::new(), 0, 0);
        within.charge.set(0);
        self.news.notify_one();
        PutResult::TooSlow
    }

    /// Takes the oldest batch.
    pub(super) fn take(&self) -> NextBatch {
        let mut within = self.within();
        within.taken_at_us = os::now_us();
        let Some(batch) = within.batches.pop_front() else { return NextBatch::Nothing(within.at) };
        within.events -= batch.events.len();
        within.bytes -= batch.bytes();
        let bytes = within.bytes;
        within.charge.set(bytes);
        NextBatch::Batch(batch)
    }

    /// Sets the position that the reader has reached, unless the watch has ended or is live.
    pub(super) fn set(&self, at: WatchPosition) {
        let mut within = self.within();
        if matches!(within.at, WatchPosition::Start | WatchPosition::Behind { .. }) {
            within.at = at;
        }
    }

    /// Declares that the hub lacks the revisions from `from` to before `to`. A live watch that needs them reads the
    /// history.
    pub(super) fn skip(&self, from: Revision, to: Revision) {
        let mut within = self.within();
        if let WatchPosition::Live { since } = within.at
            && since.max(from) < to
        {
            within.at = WatchPosition::Behind { next: since.max(from), seen: false };
            drop(within);
            self.news.notify_one();
        }
    }

    /// Marks the member as ended. Batches in the buffer can still be taken.
    pub(super) fn close(&self) {
        let mut within = self.within();
        if !matches!(within.at, WatchPosition::Slow { .. }) {
            within.at = WatchPosition::Closed;
        }
        drop(within);
        self.news.notify_one();
    }

    /// The revision before which every matching event was delivered, given that the hub has served everything before
    /// `served`; none if the watch is not live or its buffer is not empty.
    pub(super) fn done(&self, served: Revision) -> Option<Revision> {
        let within = self.within();
        match within.at {
            WatchPosition::Live { since } if within.batches.is_empty() => Some(since.max(served)),
            _ => None,
        }
    }

    /// How many revisions the reader is behind `newest`.
    pub(super) fn lag(&self, newest: Revision) -> u64 {
        let within = self.within();
        let next = match (within.batches.front(), within.at) {
            (Some(first), _) => first.revision,
            (None, WatchPosition::Behind { next, .. } | WatchPosition::Slow { resume: next }) => {
                next
            }
            (None, WatchPosition::Start | WatchPosition::Live { .. } | WatchPosition::Closed) => {
                return 0;
            }
        };
        newest.next().0.saturating_sub(next.0)
    }
}
