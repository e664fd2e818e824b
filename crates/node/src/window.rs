//! Bounds how much queued work is under way at a time, so that the rest waits where it is served fairly.
//!
//! Behind the fair queue there is no order by source: the log, a link and the leader take commands as they come. A
//! command that has left the queue delays all that follow, whose it may be. So while several sources send
//! work, little is under way, and the delay is short; a source that is alone delays only itself, and may fill the
//! pipeline.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The cost that may be under way while several sources send work: about 170 commands, 2 large values, or a page of a
/// list. All wait for the same writes to disk, so large values of one source delay the commands of others.
const SHARED_MAX: u64 = 64 * 1024;
/// The same for a source that is alone.
const ALONE_MAX: u64 = 512 * 1024;
/// The cost of each command and of each read, besides its bytes.
pub const COMMAND_COST: u64 = 256;
/// The cost of a read that walks over many records: it takes the event loop about a millisecond.
pub const PAGE_COST: u64 = 64 * 1024;

/// The cost of the work that is under way. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Window(Arc<WindowUsed>);

#[derive(Debug, Default)]
struct WindowUsed {
    bounds: WindowBounds,
    cost: AtomicU64,
    /// The part of the cost that is answered, and that its callers have not taken yet.
    answered: AtomicU64,
    /// How often work has ended.
    ended: AtomicU64,
}

/// The cost that may be under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WindowBounds {
    /// While several sources send work.
    pub shared: u64,
    /// While one source is alone.
    pub alone: u64,
}

impl Default for WindowBounds {
    fn default() -> Self {
        Self { shared: SHARED_MAX, alone: ALONE_MAX }
    }
}

/// Work that is under way until this is dropped.
#[derive(Debug)]
pub struct WindowPart {
    of: Window,
    cost: u64,
    is_answered: AtomicBool,
}

impl Window {
    /// A window with other bounds.
    pub fn new(bounds: WindowBounds) -> Self {
        Self(Arc::new(WindowUsed { bounds, ..WindowUsed::default() }))
    }

    /// Whether more work may begin, for several sources or for one that is alone.
    pub fn is_open(&self, is_shared: bool) -> bool {
        self.cost() < self.bound(is_shared)
    }

    /// Whether the window would be open if callers took their answers.
    pub fn waits_for_callers(&self, is_shared: bool) -> bool {
        let unanswered = self.cost().saturating_sub(self.0.answered.load(Ordering::Relaxed));
        unanswered < self.bound(is_shared)
    }

    fn bound(&self, is_shared: bool) -> u64 {
        let WindowBounds { shared, alone } = self.0.bounds;
        if is_shared { shared } else { alone }
    }

    /// Counts work of this cost until the part is dropped.
    pub fn begin(&self, cost: u64) -> WindowPart {
        self.0.cost.fetch_add(cost, Ordering::Relaxed);
        WindowPart { of: self.clone(), cost, is_answered: AtomicBool::new(false) }
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

impl WindowPart {
    /// The member has done its work: from now on only the caller, which takes the answer, delays the end.
    pub fn answer(&self) {
        if !self.is_answered.swap(true, Ordering::Relaxed) {
            self.of.0.answered.fetch_add(self.cost, Ordering::Relaxed);
        }
    }
}

impl Drop for WindowPart {
    fn drop(&mut self) {
        if mutant!("window_leaked") {
            return;
        }
        if *self.is_answered.get_mut() {
            self.of.0.answered.fetch_sub(self.cost, Ordering::Relaxed);
        }
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

    #[test]
    fn answers_that_are_not_taken_are_told_from_work_that_does_not_end() {
        let window = Window::default();
        let (page, command) = (window.begin(ALONE_MAX), window.begin(COMMAND_COST));
        assert!(!window.is_open(false) && !window.waits_for_callers(false));
        page.answer();
        page.answer();
        assert!(!window.is_open(false) && window.waits_for_callers(false));
        drop(page);
        assert!(window.is_open(false));
        drop(command);
        assert_eq!(window.cost(), 0);
    }
}
