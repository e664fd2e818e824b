//! Queues the work of many sources and serves them in turn, by cost.
//!
//! A source is a principal or an address, with one or more connections. The queue serves sources by deficit round
//! robin, and within a source its connections in the same way. So a source that has queued ten thousand commands delays
//! another by one quantum for each round, and a connection its neighbours likewise. Work of one connection keeps its
//! order.
//!
//! All values are in one slab, in linked lists: a source without work takes no memory for values, and the queue
//! allocates nothing once it has been as long and has had as many sources as now.

use std::collections::{BTreeMap, VecDeque};

/// The cost that a source is served for before the next one: a few commands.
const QUANTUM: i64 = 4 * 1024;
/// The same, for those who check the queue.
pub const FAIR_QUANTUM: u64 = 4 * 1024;
/// The most debt of a source: what one very large answer costs. A source with debt is served less until it is paid.
const DEBT_MAX: i64 = 4 * 1024 * 1024;
/// Connections without work that the queue remembers, beyond as many as have some, before it forgets all of these.
const IDLE_MAX: usize = 1_024;

/// After how many values of one source in a row it counts as alone: many times what is under way at once. A client that
/// waits for each answer has nothing queued most of the time.
const ALONE_AFTER: u32 = 8_192;

/// Where a command or a read comes from. Work that the member does for itself comes from the default source.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Source {
    /// The number of the principal or of the address.
    pub share: u64,
    /// The number of the connection.
    pub connection: u64,
}

/// Work of many sources, served in turns.
#[derive(Debug)]
pub struct FairQueue<T> {
    values: SourceSlab<QueuedValue<T>>,
    connections: SourceSlab<Connection>,
    shares: SourceSlab<Share>,
    by_source: BTreeMap<Source, usize>,
    by_share: BTreeMap<u64, usize>,
    /// The shares that have work, in the order of service.
    waiting: VecDeque<usize>,
    /// How many connections have work.
    busy: usize,
    len: usize,
    /// The source that was served last, without the member itself, and how often in a row.
    last: Option<(u64, u32)>,
    /// Whether several sources were served lately.
    is_shared: bool,
}

#[derive(Debug)]
struct QueuedValue<T> {
    value: T,
    cost: u64,
    next: Option<usize>,
}

/// The work of one connection.
#[derive(Debug)]
struct Connection {
    source: Source,
    share: usize,
    first_last: Option<(usize, usize)>,
    /// What the connection may still cost in this round. At or below zero it is the turn of the next one.
    credit: i64,
}

/// The connections of one source.
#[derive(Debug, Default)]
struct Share {
    /// Those that have work, in the order of service.
    waiting: VecDeque<usize>,
    credit: i64,
    /// How many connections are known.
    connections: usize,
}

/// One value that was queued, as [`FairQueue::pop`] returns it.
#[derive(Debug, PartialEq, Eq)]
pub struct Served<T> {
    /// Its source.
    pub source: Source,
    /// Its cost.
    pub cost: u64,
    /// The value.
    pub value: T,
}

impl<T> Default for FairQueue<T> {
    fn default() -> Self {
        Self {
            values: SourceSlab::default(),
            connections: SourceSlab::default(),
            shares: SourceSlab::default(),
            by_source: BTreeMap::new(),
            by_share: BTreeMap::new(),
            waiting: VecDeque::new(),
            busy: 0,
            len: 0,
            last: None,
            is_shared: false,
        }
    }
}

impl<T> FairQueue<T> {
    /// How many values are queued.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing is queued.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many sources have work.
    pub fn sources(&self) -> usize {
        self.waiting.len()
    }

    /// Whether several sources have work, or had some lately.
    pub fn is_shared(&self) -> bool {
        self.is_shared || self.waiting.len() > 1
    }

    /// Whether work of this connection is queued.
    pub fn waits(&self, source: Source) -> bool {
        let at = self.by_source.get(&source);
        at.is_some_and(|at| self.connections[*at].first_last.is_some())
    }

    /// Queues a value behind all others of its connection.
    pub fn push(&mut self, source: Source, cost: u64, value: T) {
        let at = self.connection(source);
        let new = self.values.insert(QueuedValue { value, cost, next: None });
        self.len += 1;
        let connection = &mut self.connections[at];
        match &mut connection.first_last {
            Some((_, last)) => {
                let before = std::mem::replace(last, new);
                self.values[before].next = Some(new);
            }
            none => {
                *none = Some((new, new));
                self.busy += 1;
                let at_share = connection.share;
                let share = &mut self.shares[at_share];
                if share.waiting.is_empty() {
                    self.waiting.push_back(at_share);
                }
                share.waiting.push_back(at);
            }
        }
    }

    /// Takes the value whose turn it is.
    pub fn pop(&mut self) -> Option<Served<T>> {
        let at_share = next(&mut self.waiting, &mut self.shares, |share| &mut share.credit)?;
        let share = &mut self.shares[at_share];
        let at = next(&mut share.waiting, &mut self.connections, |it| &mut it.credit)?;
        let connection = &mut self.connections[at];
        let (first, last) = connection.first_last?;
        let QueuedValue { value, cost, next } = self.values.remove(first);
        self.len -= 1;
        let paid = i64::try_from(cost).unwrap_or(DEBT_MAX);
        connection.credit = (connection.credit - paid).max(-DEBT_MAX);
        share.credit = (share.credit - paid).max(-DEBT_MAX);
        connection.first_last = next.map(|next| (next, last));
        let source = connection.source;
        if next.is_none() {
            // Credit is for this round and ends with it; debt stays.
            connection.credit = connection.credit.min(0);
            share.waiting.pop_front();
            self.busy -= 1;
            if share.waiting.is_empty() {
                share.credit = share.credit.min(0);
                self.waiting.pop_front();
            }
        }
        self.note_served(source);
        Some(Served { source, cost, value })
    }

    fn note_served(&mut self, source: Source) {
        if source.share == Source::default().share {
            return;
        }
        match &mut self.last {
            Some((share, times)) if *share == source.share => {
                *times = times.saturating_add(1);
                self.is_shared &= *times < ALONE_AFTER;
            }
            last => self.is_shared = last.replace((source.share, 0)).is_some(),
        }
    }

    /// Adds a cost that was found out after the work was served, as the length of an answer. The source is served less
    /// until it is paid.
    pub fn charge(&mut self, source: Source, cost: u64) {
        let at = self.connection(source);
        let cost = i64::try_from(cost).unwrap_or(DEBT_MAX);
        let connection = &mut self.connections[at];
        connection.credit = connection.credit.saturating_sub(cost).max(-DEBT_MAX);
        let share = &mut self.shares[connection.share];
        share.credit = share.credit.saturating_sub(cost).max(-DEBT_MAX);
    }

    /// The place of a connection, which is known from now on.
    fn connection(&mut self, source: Source) -> usize {
        if let Some(at) = self.by_source.get(&source) {
            return *at;
        }
        if self.connections.len() > 2 * self.busy + IDLE_MAX {
            self.forget_idle();
        }
        let shares = &mut self.shares;
        let share =
            *self.by_share.entry(source.share).or_insert_with(|| shares.insert(Share::default()));
        self.shares[share].connections += 1;
        let connection = Connection { source, share, first_last: None, credit: 0 };
        let at = self.connections.insert(connection);
        self.by_source.insert(source, at);
        at
    }

    /// Forgets connections without work, and with them their debt. Takes as many steps as connections came since the
    /// last time, so a constant number for each.
    fn forget_idle(&mut self) {
        let Self { connections, shares, by_source, by_share, .. } = self;
        by_source.retain(|_, at| {
            let Connection { source, share, first_last, .. } = connections[*at];
            if first_last.is_some() {
                return true;
            }
            connections.remove(*at);
            shares[share].connections -= 1;
            if shares[share].connections == 0 {
                shares.remove(share);
                by_share.remove(&source.share);
            }
            false
        });
    }
}

/// The one whose turn it is: the first that has credit. Those without get a quantum and wait for the next round.
fn next<E>(
    waiting: &mut VecDeque<usize>,
    all: &mut SourceSlab<E>,
    credit: impl Fn(&mut E) -> &mut i64,
) -> Option<usize> {
    loop {
        let at = *waiting.front()?;
        let credit = credit(&mut all[at]);
        if *credit > 0 || mutant!("source_keeps_its_turn") {
            return Some(at);
        }
        *credit += QUANTUM;
        // A source that is alone needs no rounds to pay its debt.
        if waiting.len() == 1 {
            *credit = (*credit).max(1);
        }
        waiting.rotate_left(1);
    }
}

/// Values in places that are used again.
#[derive(Debug)]
struct SourceSlab<E> {
    places: Vec<Option<E>>,
    free: Vec<usize>,
}

impl<E> Default for SourceSlab<E> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }
}

impl<E> SourceSlab<E> {
    fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    fn insert(&mut self, value: E) -> usize {
        if let Some(at) = self.free.pop() {
            self.places[at] = Some(value);
            return at;
        }
        self.places.push(Some(value));
        self.places.len() - 1
    }

    fn remove(&mut self, at: usize) -> E {
        self.free.push(at);
        self.places[at].take().expect("a place that is referred to is in use")
    }
}

impl<E> std::ops::Index<usize> for SourceSlab<E> {
    type Output = E;

    fn index(&self, at: usize) -> &E {
        self.places[at].as_ref().expect("a place that is referred to is in use")
    }
}

impl<E> std::ops::IndexMut<usize> for SourceSlab<E> {
    fn index_mut(&mut self, at: usize) -> &mut E {
        self.places[at].as_mut().expect("a place that is referred to is in use")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(share: u64, connection: u64) -> Source {
        Source { share, connection }
    }

    /// How much cost of others is served before the first value of `who`.
    fn ahead(queue: &mut FairQueue<u64>, who: Source) -> u64 {
        let others = std::iter::from_fn(|| queue.pop()).take_while(|it| it.source != who);
        others.map(|it| it.cost).sum()
    }

    #[test]
    fn work_of_one_connection_keeps_its_order() {
        let mut queue = FairQueue::default();
        (0..100).for_each(|number| queue.push(source(1, 1), number * 977 % 9_000, number));
        let all: Vec<u64> = std::iter::from_fn(|| queue.pop()).map(|it| it.value).collect();
        assert_eq!(all, (0..100).collect::<Vec<_>>());
        assert!(queue.is_empty() && queue.pop().is_none());
    }

    #[test]
    fn ten_thousand_commands_of_one_source_delay_another_by_one_quantum() {
        let mut queue = FairQueue::default();
        (0..10_000).for_each(|number| queue.push(source(1, number % 7), 700, number));
        queue.push(source(2, 100), 700, 0);
        assert!(ahead(&mut queue, source(2, 100)) <= QUANTUM as u64 + 700);
        // Also when it comes later, and when the others are many.
        for other in 3..20 {
            (0..1_000).for_each(|number| queue.push(source(other, other), 700, number));
        }
        queue.push(source(2, 100), 700, 0);
        assert!(ahead(&mut queue, source(2, 100)) <= 18 * (QUANTUM as u64 + 700));
    }

    #[test]
    fn a_connection_delays_others_of_its_source_by_one_quantum() {
        let mut queue = FairQueue::default();
        (0..10_000).for_each(|number| queue.push(source(1, 1), 700, number));
        queue.push(source(1, 2), 700, 0);
        assert!(ahead(&mut queue, source(1, 2)) <= 2 * (QUANTUM as u64 + 700));
    }

    #[test]
    fn sources_get_equal_cost_whatever_the_size_of_their_work() {
        let mut queue = FairQueue::default();
        let sizes = [700_u64, 30_000, 4_000];
        for (share, size) in sizes.into_iter().enumerate() {
            (0..60_000_000 / size / 10)
                .for_each(|it| queue.push(source(share as u64, 0), size, it));
        }
        let mut served = [0_u64; 3];
        while served.iter().sum::<u64>() < 3_000_000 {
            let it = queue.pop().unwrap();
            served[usize::try_from(it.source.share).unwrap()] += it.cost;
        }
        let (least, most) = (served.iter().min().unwrap(), served.iter().max().unwrap());
        assert!(most - least <= 2 * 30_000, "{served:?}");
    }

    #[test]
    fn a_late_cost_is_paid_while_others_wait_and_forgiven_to_a_source_that_is_alone() {
        let mut queue = FairQueue::default();
        queue.charge(source(1, 1), 100_000);
        (0..1_000).for_each(|number| queue.push(source(1, 1), 1_000, number));
        (0..1_000).for_each(|number| queue.push(source(2, 1), 1_000, number));
        let served = ahead(&mut queue, source(1, 1));
        assert!((90_000..110_000).contains(&served), "{served}");
        let mut queue = FairQueue::default();
        queue.charge(source(1, 1), u64::MAX);
        queue.push(source(1, 1), 1, 7);
        assert_eq!(queue.pop().map(|it| it.value), Some(7));
    }

    #[test]
    fn one_source_allocates_nothing_once_it_has_been_as_long() {
        let mut queue = FairQueue::default();
        for _ in 0..100 {
            (0..50).for_each(|number| queue.push(source(1, 1), 700, number));
            while queue.pop().is_some() {}
        }
        assert_eq!((queue.values.places.len(), queue.connections.places.len()), (50, 1));
    }

    #[test]
    fn the_queue_is_shared_until_one_source_was_served_for_long() {
        let mut queue = FairQueue::default();
        let mut serve = |share| {
            queue.push(source(share, 1), 1, 0);
            queue.pop();
            queue.is_shared()
        };
        assert!(!serve(1) && !serve(0) && !serve(1), "the member itself does not count");
        assert!(serve(2) && serve(1));
        assert!((1..ALONE_AFTER).all(|_| serve(1)));
        assert!(!serve(1) && serve(3));
    }

    #[test]
    fn connections_without_work_are_forgotten() {
        let mut queue = FairQueue::default();
        queue.push(source(5, 5), 1, 5);
        for connection in 0..100_000 {
            queue.push(source(connection / 3 + 10, connection), 1, 0);
            if connection % 2 == 0 {
                assert!(queue.pop().is_some());
                assert!(queue.pop().is_some());
                queue.push(source(5, 5), 1, 5);
            }
        }
        assert!(queue.connections.len() <= 2 * queue.busy + IDLE_MAX + 1);
        assert!(queue.shares.len() <= queue.connections.len());
        assert_eq!(
            (queue.by_share.len(), queue.by_source.len()),
            (queue.shares.len(), queue.connections.len())
        );
        let left = queue.len();
        assert_eq!(std::iter::from_fn(|| queue.pop()).count(), left);
    }

    #[test]
    fn any_order_of_work_loses_none_of_it() {
        let (mut queue, mut state, mut inside, mut out) =
            (FairQueue::default(), 7_u64, 0_u64, 0_u64);
        for _ in 0..50_000 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let random = state >> 33;
            if random % 5 < 3 {
                queue.push(source(random % 11, random % 23), random % 40_000, random);
                inside += 1;
            } else if queue.pop().is_some() {
                out += 1;
            }
            assert_eq!(queue.len() as u64, inside - out);
        }
        assert_eq!(std::iter::from_fn(|| queue.pop()).count() as u64, inside - out);
        assert_eq!((queue.busy, queue.sources()), (0, 0));
    }
}
