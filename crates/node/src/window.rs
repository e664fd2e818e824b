//! Bounds how much queued work is under way at a time, so that the rest waits where it is served fairly.
//!
//! Behind the fair queue there is no order by source: the log, a link and the leader take commands as they come. A
//! command that has left the queue delays all that follow, whose it may be. So while several sources send
//! work, little is under way, and the delay is short; a source that is alone delays only itself, and may fill the
//! pipeline.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The cost that may be under way while several sources send work: about 400 commands, or 2 pages of a list.
const SHARED_MAX: u64 = 256 * 1024;
/// The same for a source that is alone.
const ALONE_MAX: u64 = 1024 * 1024;
/// The cost of each command and of each read, besides its bytes.
pub const COMMAND_COST: u64 = 512;
/// The cost of a read that walks over many records: it takes the event loop about a millisecond.
pub const PAGE_COST: u64 = 128 * 1024;

/// The cost of the work that is under way. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Window(Arc<WindowUsed>);

#[derive(Debug, Default)]
struct WindowUsed {
    cost: AtomicU64,
    /// How often work has ended.
    ended: AtomicU64,
}

/// Work that is under way until this is dropped.
#[derive(Debug)]
pub struct WindowPart {
    of: Window,
    cost: u64,
}

impl Window {
    /// Whether more work may begin, for several sources or for one that is alone.
    pub fn is_open(&self, is_shared: bool) -> bool {
        self.cost() < if is_shared { SHARED_MAX } else { ALONE_MAX }
    }

    /// Counts work of this cost until the part is dropped.
    pub fn begin(&self, cost: u64) -> WindowPart {
        self.0.cost.fetch_add(cost, Ordering::Relaxed);
        WindowPart { of: self.clone(), cost }
    }

    /// The cost that is under way.
    pub fn cost(&self) -> u64 {
        self.0.cost.load(Ordering::Relaxed)
    }

    /// A number that changes whenever work ends.
    pub fn ended(&self) -> u64 {
        self.0.ended.load(Ordering::Relaxed)
    }
}

impl Drop for WindowPart {
    fn drop(&mut self) {
        self.of.0.cost.fetch_sub(self.cost, Ordering::Relaxed);
        self.of.0.ended.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_is_under_way_for_several_sources_than_for_one() {
        let window = Window::default();
        let all: Vec<_> = (0..SHARED_MAX / 1_024).map(|_| window.begin(1_024)).collect();
        assert!(window.is_open(false) && !window.is_open(true));
        let _more = window.begin(ALONE_MAX);
        assert!(!window.is_open(false));
        let before = window.ended();
        drop(all);
        assert_ne!(window.ended(), before);
        assert_eq!(window.cost(), ALONE_MAX);
    }
}
