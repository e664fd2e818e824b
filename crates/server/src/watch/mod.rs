//! How do those who watch hear of every event, once and in order?
//!
//! ```text
//! loop ──once per turn──► Feed ──► hub's task ──► groups ──► buffer of each watch ──► Watch::next
//!   ▲                                                                                     │
//!   └──────────── bounded parts of the history, while a watch is behind ──────────────────┘
//! ```
//!
//! A watch is a cursor: the next revision. It reads the history until there is nothing newer, then
//! joins the hub's stream at its cursor; whatever the hub cannot give it — because a turn was too
//! large, a snapshot was installed, or its buffer was full — it reads from the history again, from the
//! same cursor. So there is one rule for a start in the past, a jump and a slow reader: below the floor
//! the answer is [`Step::Compacted`], else it goes on.
//!
//! Start reading at [`Hub::watch`], then `reader.rs` and `serve.rs`.

mod feed;
mod index;
mod library;
mod reader;
mod serve;
mod shared;
mod slot;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::Records;
use tenure_types::Revision;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

pub(crate) use feed::Feed;
pub use reader::{Step, Watch};
pub use shared::{Form, OwnedFilter, Shared};

use crate::member::Member;
use index::Index;
use library::Ask;

/// A watch whose buffer is full is not waited for once nothing was taken from it for so long.
const PATIENCE: Duration = Duration::from_secs(1);

/// Where a watch starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// After everything that was acknowledged before; see [`Watch::started`].
    Now,
    /// At this revision. One that the member has not reached is waited for.
    From(Revision),
}

/// What a watch may choose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// A mark of progress whenever nothing was handed out for so long.
    pub progress: Option<Duration>,
    /// Whether events carry what was there before.
    pub previous: bool,
    /// How long a full buffer may stay untouched before the watch is ended as too slow.
    pub patience: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { progress: None, previous: false, patience: PATIENCE }
    }
}

/// Figures of a hub.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Figures {
    /// How many watches there are.
    pub watches: usize,
    /// How many revisions the last of them is behind.
    pub lag_worst: u64,
    /// How many were ended because they were too slow.
    pub slow: u64,
}

/// A handle to the hub of one member.
#[derive(Clone)]
pub struct Hub {
    inner: Arc<Inner>,
}

struct Inner {
    member: Member,
    stage: Mutex<Stage>,
    slow: AtomicU64,
    /// To the one who asks the machine for all.
    asks: UnboundedSender<Ask>,
}

/// What the hub's task and those who come and go share.
#[derive(Default)]
struct Stage {
    index: Index,
    /// The revision that is next to be served: whoever joins gets it and all after it.
    next: Revision,
    /// Everything before this is in the buffers of all who are live.
    served: Revision,
    /// What was served last, one part after the other, for those who join a little late.
    recent: VecDeque<Arc<Records>>,
    recent_bytes: usize,
    closed: bool,
}

impl Hub {
    /// Starts the hub of a member. A member has one.
    ///
    /// # Panics
    ///
    /// If it already has one.
    pub fn start(member: Member, runtime: &Handle) -> Self {
        assert!(member.feed().adopt(), "a member has one hub");
        // One question per watch at most, so watches bound it.
        let (asks, asked) = unbounded_channel();
        let inner =
            Arc::new(Inner { member, stage: Mutex::default(), slow: AtomicU64::new(0), asks });
        runtime.spawn(library::run(inner.member.clone(), asked));
        runtime.spawn(serve::serve(inner.clone()));
        Self { inner }
    }

    /// Starts a watch. Nothing happens before it is first asked for a step.
    pub fn watch(&self, filter: OwnedFilter, start: Start, options: Options) -> Watch {
        Watch::new(self.inner.clone(), filter, start, options)
    }

    /// What can be shown of it.
    pub fn figures(&self) -> Figures {
        let stage = self.inner.stage();
        let newest = Revision(stage.next.0.saturating_sub(1));
        let lag_worst = stage.index.slots().map(|slot| slot.lag(newest)).max().unwrap_or(0);
        let watches = self.inner.member.feed().watches();
        Figures { watches, lag_worst, slow: self.inner.slow.load(Ordering::Relaxed) }
    }
}

impl Inner {
    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
