//! Orders the events of a member's event loop: those of members first, then renewals and releases, then the rest, each
//! in turns by source.
//!
//! A member that hears its leader late starts an election, and a client whose renewal is late loses its locks. So
//! neither waits behind the commands and reads of other clients. Each turn still takes some events of every kind, and
//! the kinds have bounds of their own: a flood of one kind does not keep the others out.
//!
//! What clients ask for waits in two [`FairQueue`]s, which serve their sources in turns: a source that floods the
//! member with renewals delays its own. A [`Window`] bounds how much of the rest is under way, so that what cannot be
//! done at once waits here and not where the order is that of arrival.
//!
//! The events of one connection keep their order, except that renewals may overtake: a release goes first only if
//! nothing of its connection waits, and nothing that came after a release goes ahead of it.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::fair_queue::{FairQueue, Served, Source};
use crate::io::CommandBatch;
use crate::window::{COMMAND_COST, PAGE_COST, Window};

/// The most events of members, of this member's own threads and of its disk. A thread that sends more waits.
pub const MEMBERS_MAX: usize = 7_168;
/// The most events of clients. Clients have at most 16,384 commands and reads in flight; the rest is for the queries
/// that the member makes for itself.
const CLIENTS_MAX: usize = 17_408;
/// The most of these that are neither renewals nor releases: as many as admission lets in, and the member's own.
pub const REST_MAX: usize = 13_312;
/// The most events that wait for the event loop: about as many as three turns take.
pub const INBOX_MAX: usize = MEMBERS_MAX + CLIENTS_MAX;
/// How long nothing of what is under way may end before the window is opened for one turn. Commands that wait for a
/// leader do not end, and those behind them have deadlines of their own.
pub const STALLED_US: u64 = 100_000;
/// The same if what is under way is answered and only its callers have not taken it, which are slow and not stuck.
const UNTAKEN_US: u64 = 20 * STALLED_US;
/// The cost of what that turn takes: four pages. A turn must not last as long as an election timeout.
const STALLED_COST: u64 = 4 * PAGE_COST;

/// The order in which kinds of events are taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InboxClass {
    /// What other members, this member's own threads and its disk send.
    Members,
    /// Renewals and releases, and what operators ask of the member itself.
    Keeps {
        /// The principal or address that sent it.
        source: Source,
        /// Its cost, which counts in the window.
        cost: u64,
    },
    /// Everything else.
    Rest {
        /// The principal or address that sent it.
        source: Source,
        /// Its cost, which counts in the window.
        cost: u64,
    },
}

/// How much of the rest a turn may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RestLimit {
    /// As much as the window has room for.
    Window,
    /// A little at this time, although the window is full: what is under way does not end.
    Stalled {
        /// The time of this turn.
        now_us: u64,
    },
    /// No event of this class.
    Nothing,
}

/// The events that wait for a member's event loop.
#[derive(Debug)]
pub struct InboxQueue<E> {
    members: VecDeque<E>,
    keeps: FairQueue<E>,
    rest: FairQueue<E>,
    /// What of the rest was taken and is not answered yet.
    window: Window,
    /// The time since which nothing has ended while the window is closed, and how often something had ended then.
    closed: Option<(u64, u64)>,
}

impl<E> Default for InboxQueue<E> {
    fn default() -> Self {
        Self::new(Window::default())
    }
}

impl<E> InboxQueue<E> {
    /// An empty queue. The window bounds what is under way.
    pub fn new(window: Window) -> Self {
        let (keeps, rest) = (FairQueue::default(), FairQueue::default());
        Self { members: VecDeque::new(), keeps, rest, window, closed: None }
    }

    /// The class of a batch of commands.
    pub fn class_of(&self, batch: &CommandBatch) -> InboxClass {
        // Only renewals may wait for others.
        let is_renewal = batch.linger_us > 0;
        let (source, cost) = (batch.permit.source(), commands_cost(&batch.requests));
        if is_renewal || batch.permit.keeps_all() && !self.rest.waits(source) {
            return InboxClass::Keeps { source, cost };
        }
        InboxClass::Rest { source, cost }
    }

    /// Whether an event of this class may be queued.
    pub fn has_room(&self, class: InboxClass) -> bool {
        let clients = self.keeps.len() + self.rest.len();
        match class {
            InboxClass::Members => self.members.len() < MEMBERS_MAX,
            InboxClass::Keeps { .. } => clients < CLIENTS_MAX,
            InboxClass::Rest { .. } => clients < CLIENTS_MAX && self.rest.len() < REST_MAX,
        }
    }

    /// Queues an event. What its source owes for earlier answers is paid before the event has its turn.
    pub fn push(&mut self, class: InboxClass, owed: u64, event: E) {
        match class {
            InboxClass::Members => self.members.push_back(event),
            InboxClass::Keeps { source, cost } => self.keeps.push(source, cost, event),
            InboxClass::Rest { source, cost } => {
                if owed > 0 {
                    self.rest.charge(source, owed);
                }
                self.rest.push(source, cost, event);
            }
        }
    }

    /// The number of sources that have something queued, and of events that are queued for their turn.
    pub fn waiting(&self) -> (usize, usize) {
        (self.rest.sources(), self.rest.len())
    }

    /// Whether nothing is queued.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty() && self.keeps.is_empty() && self.rest.is_empty()
    }

    /// Whether an event can be taken.
    pub fn has_some(&self, limit: RestLimit) -> bool {
        let takes_rest = limit != RestLimit::Nothing && !self.rest.is_empty();
        !self.members.is_empty() || !self.keeps.is_empty() || takes_rest
    }

    /// How much of the rest may be taken now. Asks for the time only if the window is closed: the event loop looks into
    /// its inbox once for each event that arrives alone.
    pub fn rest_limit(&mut self, now_us: impl FnOnce() -> u64) -> RestLimit {
        let is_shared = self.rest.is_shared();
        if self.rest.is_empty() || self.window.is_open(is_shared) {
            self.closed = None;
            return RestLimit::Window;
        }
        let (ended, now_us) = (self.window.ended(), now_us());
        let since_us = match self.closed {
            Some((since_us, before)) if before == ended => since_us,
            _ => self.closed.insert((now_us, ended)).0,
        };
        let most_us =
            if self.window.waits_for_callers(is_shared) { UNTAKEN_US } else { STALLED_US };
        if now_us.saturating_sub(since_us) < most_us || mutant!("stalled_window_stays_closed") {
            return RestLimit::Nothing;
        }
        RestLimit::Stalled { now_us }
    }

    /// Takes at most so many events and adds them to `taken`. `begin` is called with each event of the rest and its
    /// cost, to count it as under way until it is answered.
    pub fn take(
        &mut self,
        most: usize,
        limit: RestLimit,
        mut begin: impl FnMut(&mut Served<E>, &Window),
        taken: &mut Vec<E>,
    ) {
        // No kind takes the whole turn from another.
        let share = most / 4;
        let rest = if limit == RestLimit::Nothing { 0 } else { self.rest.len() };
        let rest_share = rest.min(share);
        let keeps_share = self.keeps.len().min(share);
        let members = self.members.len().min(most - rest_share - keeps_share);
        let keeps = self.keeps.len().min(most - members - rest_share);
        let rest = rest.min(most - members - keeps);
        taken.reserve(members + keeps + rest);
        taken.extend(self.members.drain(..members));
        taken.extend(std::iter::from_fn(|| self.keeps.pop()).take(keeps).map(|it| it.value));
        let mut cost_left = STALLED_COST;
        for _ in 0..rest {
            let has_room = match limit {
                RestLimit::Window => self.window.is_open(self.rest.is_shared()),
                RestLimit::Stalled { .. } => cost_left > 0,
                RestLimit::Nothing => false,
            };
            if !has_room {
                break;
            }
            let Some(mut served) = self.rest.pop() else { break };
            cost_left = cost_left.saturating_sub(served.cost);
            begin(&mut served, &self.window);
            let Served { source, cost, value } = served;
            if !self.keeps.is_empty() && self.keeps.waits(source) {
                // A release of its connection did not fit into this turn: it goes first.
                self.keeps.push(source, cost, value);
            } else {
                taken.push(value);
            }
            // What does not move may be slow and not stuck: the next turns must not pile up more behind it.
            if let RestLimit::Stalled { now_us } = limit {
                self.closed = Some((now_us, self.window.ended()));
            }
        }
    }

    /// Takes everything, whatever is under way.
    pub fn take_all(&mut self) -> Vec<E> {
        let mut taken: Vec<_> = self.members.drain(..).collect();
        taken.extend(std::iter::from_fn(|| self.keeps.pop()).map(|served| served.value));
        taken.extend(std::iter::from_fn(|| self.rest.pop()).map(|served| served.value));
        taken
    }

    /// The work that was taken and is not answered.
    pub fn window(&self) -> &Window {
        &self.window
    }
}

/// The cost of commands: a fixed part each, and their bytes.
pub fn commands_cost(requests: &[Bytes]) -> u64 {
    requests.iter().map(|request| COMMAND_COST + request.len() as u64).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::WindowPart;

    /// Queues pages, and takes what may be taken at a time.
    #[derive(Default)]
    struct InboxHarness {
        queue: InboxQueue<u64>,
        under_way: Vec<WindowPart>,
    }

    impl InboxHarness {
        fn with_pages(count: u64) -> Self {
            let mut stage = Self::default();
            let class = InboxClass::Rest { source: Source::default(), cost: PAGE_COST };
            (0..count).for_each(|page| stage.queue.push(class, 0, page));
            stage
        }

        fn take(&mut self, now_us: u64) -> usize {
            let limit = self.queue.rest_limit(|| now_us);
            let under_way = &mut self.under_way;
            let begin = |served: &mut Served<u64>, window: &Window| {
                under_way.push(window.begin(served.cost));
            };
            let mut taken = Vec::new();
            self.queue.take(8_192, limit, begin, &mut taken);
            taken.len()
        }
    }

    #[test]
    fn slow_answers_do_not_let_every_turn_take_more() {
        let mut stage = InboxHarness::with_pages(1_000);
        assert!(stage.take(0) > 0);
        assert_eq!(stage.take(1), 0, "the window is full");
        assert_eq!(stage.take(1 + STALLED_US), 4);
        for turn in 2..STALLED_US / 1_000 {
            assert_eq!(stage.take(STALLED_US + turn * 1_000), 0, "turn {turn}");
        }
        assert_eq!(stage.take(1 + 2 * STALLED_US), 4);
        // As soon as something ends, the window alone decides.
        stage.under_way.clear();
        assert!(stage.take(2 + 2 * STALLED_US) > 4);
    }

    #[test]
    fn answers_that_callers_take_slowly_are_not_taken_for_work_that_is_stuck() {
        let mut stage = InboxHarness::with_pages(1_000);
        assert!(stage.take(0) > 0);
        stage.under_way.iter().for_each(WindowPart::answer);
        assert_eq!(stage.take(1), 0, "the window is full");
        assert_eq!(stage.take(UNTAKEN_US), 0);
        assert_eq!(stage.take(1 + UNTAKEN_US), 4);
    }
}
