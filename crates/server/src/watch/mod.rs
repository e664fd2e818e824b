//! Delivers every event to each watch, once and in order.
//!
//! ```text
//! event loop ─once per turn─► Feed ──► hub's task ──► groups ──► buffer of each watch ──► WatchReader::next
//!      ▲                                                                                           │
//!      └────────────────── bounded parts of the history, while a watch is behind ──────────────────┘
//! ```
//!
//! A watch is a cursor: the next revision. It reads the history until there is nothing newer, then joins the hub's
//! stream at its cursor. When the hub cannot deliver something, because a turn was too large, a snapshot was installed,
//! or the watch's buffer was full, the watch reads the history again from the same cursor. So one rule covers a start
//! in the past, a jump and a slow reader: below the floor the answer is [`WatchStep::Compacted`], else it goes on.
//!
//! Start reading at [`Hub::watch`], then `reader.rs` and `serve.rs`.

mod feed;
mod index;
mod library;
mod permitted;
mod reader;
mod serve;
mod shared;
mod slot;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::RevisionRecords;
use tenure_types::Revision;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

pub(crate) use feed::Feed;
pub use reader::{WatchReader, WatchStep};
pub use shared::{BatchForm, OwnedFilter, SharedBatch};

use crate::member::MemberHandle;
use index::Index;
use library::HistoryQuestion;

/// How long nothing may be taken from a watch's full buffer before the watch is ended, by default.
const TIMEOUT: Duration = Duration::from_secs(1);

/// The revision at which a watch starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// After everything that was acknowledged before; see [`WatchReader::started`].
    Now,
    /// At this revision. If the member has not reached it, the watch waits.
    From(Revision),
}

/// The options of a watch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WatchOptions {
    /// The time without any step after which the watch reports its progress.
    pub progress: Option<Duration>,
    /// Whether events carry the previous value.
    pub previous: bool,
    /// How long a full buffer may stay untouched before the watch is ended as too slow.
    pub unread_max: Duration,
}

impl Default for WatchOptions {
    fn default() -> Self {
        Self { progress: None, previous: false, unread_max: TIMEOUT }
    }
}

/// The metrics of a hub.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HubMetrics {
    /// The number of watches.
    pub watches: usize,
    /// How many revisions the slowest watch is behind.
    pub lag_worst: u64,
    /// The number of watches ended because they were too slow.
    pub slow: u64,
}

/// A handle to the hub of one member.
#[derive(Clone)]
pub struct Hub {
    inner: Arc<HubShared>,
}

struct HubShared {
    member: MemberHandle,
    stage: Mutex<HubState>,
    slow: AtomicU64,
    /// The queries to the task that asks the machine for all watches.
    asks: UnboundedSender<HistoryQuestion>,
}

/// The state that the hub's task and the watches share.
#[derive(Default)]
struct HubState {
    index: Index,
    /// The next revision to be served: a watch that joins gets it and all after it.
    next: Revision,
    /// Everything before this revision is in the buffers of all live watches.
    served: Revision,
    /// The parts that were served last, in order, for watches that join a little late.
    recent: VecDeque<Arc<RevisionRecords>>,
    recent_bytes: usize,
    closed: bool,
}

impl Hub {
    /// Starts the hub of a member. A member has one.
    ///
    /// # Panics
    ///
    /// If the member already has one.
    pub fn start(member: MemberHandle, runtime: &Handle) -> Self {
        assert!(member.feed().adopt(), "a member has one hub");
        // Each watch has at most one query in flight, so the number of watches bounds the channel.
        let (asks, asked) = unbounded_channel();
        let inner =
            Arc::new(HubShared { member, stage: Mutex::default(), slow: AtomicU64::new(0), asks });
        runtime.spawn(library::run(inner.member.clone(), asked));
        runtime.spawn(serve::serve(inner.clone()));
        Self { inner }
    }

    /// Creates a watch. It does nothing before its first step is requested.
    pub fn watch(&self, filter: OwnedFilter, start: Start, options: WatchOptions) -> WatchReader {
        WatchReader::new(self.inner.clone(), filter, start, options)
    }

    /// The current metrics.
    pub fn metrics(&self) -> HubMetrics {
        let stage = self.inner.stage();
        let newest = Revision(stage.next.0.saturating_sub(1));
        let lag_worst = stage.index.slots().map(|slot| slot.lag(newest)).max().unwrap_or(0);
        let watches = self.inner.member.feed().watches();
        HubMetrics { watches, lag_worst, slow: self.inner.slow.load(Ordering::Relaxed) }
    }
}

impl HubShared {
    fn stage(&self) -> MutexGuard<'_, HubState> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
