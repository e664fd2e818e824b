//! Counts grants and times waits, holds and handovers of locks, by the first segment of their names.
//!
//! The event loop leaves a copy of each turn's records with the time of the turn and does not wait until they are
//! counted. A task counts them periodically, and a reader of the metrics counts them first. Times are of this member's
//! clock, from apply to apply.

mod ended;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::{Registry, Unit};
use tenure_core::event::Cause;
use tenure_core::{Recorded, RevisionRecord, RevisionRecords};
use tenure_types::{LeaseId, Mode, PlaceNumber, Revision};
use tokio::sync::Notify;
use xxhash_rust::xxh3::xxh3_64;

use super::{Histogram, Scale};
use crate::os;

/// The most first segments that have metrics of their own; all others count as `other`.
pub(crate) const PREFIXES_MAX: usize = 100;
pub(crate) const OTHER: &str = "other";
/// How long records may gather before they are counted.
const GATHER: Duration = Duration::from_millis(50);
/// The most bytes of records that may wait. Records beyond that are not counted; the gap is.
const WAITING_BYTES: usize = 4 * 1024 * 1024;
/// The most holds and waits that are timed at once: some ten megabytes.
const TIMED_MAX: usize = 1 << 18;
/// The most locks whose last holds are remembered, and the most holds of each.
const REMEMBERED_MAX: usize = 16_384;
const HOLDS_MAX: usize = 20;

/// A command that may have made room for waiters: its revision, and when it reached this member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FreedAt {
    pub(crate) revision: Revision,
    pub(crate) asked_at_us: u64,
}

/// The records of one turn.
struct TurnCounts {
    at_us: u64,
    records: Arc<RevisionRecords>,
    freed: Vec<FreedAt>,
}

/// The records that the event loop has left.
#[derive(Default)]
struct PendingCounts {
    /// The parts in order; `None` marks a gap.
    parts: Vec<Option<TurnCounts>>,
    bytes: usize,
    closed: bool,
}

/// What this member has counted since it started.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct LockTotals {
    pub(crate) granted: u64,
    /// Grants to a client that had waited.
    pub(crate) handed_over: u64,
    /// Holds that the holder ended.
    pub(crate) released: u64,
    /// Holds that ended otherwise.
    pub(crate) lost: u64,
    pub(crate) deadlocks: u64,
    /// For how long it has counted.
    pub(crate) counted_us: u64,
}

/// The metrics of locks.
pub(crate) struct LockMetrics {
    began_us: u64,
    /// Whether a task counts the records.
    attended: AtomicBool,
    left: Mutex<PendingCounts>,
    news: Notify,
    counts: Mutex<TimedHolds>,
    shown: LockReading,
}

impl Default for LockMetrics {
    fn default() -> Self {
        let shown = LockReading::default();
        let counts = Mutex::new(TimedHolds { shown: shown.clone(), ..TimedHolds::default() });
        let (attended, left, news) = (AtomicBool::default(), Mutex::default(), Notify::new());
        Self { began_us: os::now_us(), attended, left, news, counts, shown }
    }
}

impl LockMetrics {
    /// Declares that a task runs [`count`] from now on.
    pub(crate) fn attend(&self) {
        self.attended.store(true, Ordering::Release);
    }

    pub(crate) fn is_attended(&self) -> bool {
        self.attended.load(Ordering::Acquire)
    }

    /// Leaves the records of a turn; `None` if there were more than a turn copies.
    pub(crate) fn leave(
        &self,
        at_us: u64,
        records: Option<Arc<RevisionRecords>>,
        freed: &[FreedAt],
    ) {
        let mut left = self.left();
        let first = left.parts.is_empty();
        match records {
            Some(records) if left.bytes + records.bytes() <= WAITING_BYTES => {
                left.bytes += records.bytes();
                left.parts.push(Some(TurnCounts { at_us, records, freed: freed.to_vec() }));
            }
            _ if left.parts.last().is_some_and(Option::is_none) => {}
            _ => left.parts.push(None),
        }
        drop(left);
        if first {
            self.news.notify_one();
        }
    }

    /// Declares that no records follow.
    pub(crate) fn close(&self) {
        self.left().closed = true;
        self.news.notify_one();
    }

    /// Counts the waiting records; returns whether none follow.
    pub(crate) fn catch_up(&self) -> bool {
        // Lock the counts first, so that parts are counted in order.
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let left = {
            let mut left = self.left();
            let rest = PendingCounts { closed: left.closed, ..PendingCounts::default() };
            std::mem::replace(&mut *left, rest)
        };
        for part in left.parts {
            match part {
                Some(part) => counts.add(&part),
                None => counts.skip(),
            }
        }
        left.closed
    }

    /// How long a lock is usually held: the median of its last released holds in milliseconds, and their number.
    pub(crate) fn usually(&self, lock: &str) -> Option<(u64, u32)> {
        self.catch_up();
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let mut holds_us = counts.remembered.get(&hash(lock))?.clone();
        let middle = holds_us.len() / 2;
        let (_, median_us, _) = holds_us.select_nth_unstable(middle);
        Some((*median_us / 1_000, u32::try_from(holds_us.len()).unwrap_or(u32::MAX)))
    }

    /// The counts since the start, and for how long that is.
    pub(crate) fn totals(&self) -> LockTotals {
        self.catch_up();
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let counted_us = os::now_us().saturating_sub(self.began_us);
        LockTotals { counted_us, ..counts.totals }
    }

    /// Registers the metrics.
    pub(crate) fn register(&self, to: &mut Registry) {
        let LockReading { grants, waits, holds, handovers, gaps } = &self.shown;
        to.register("grants", "Locks granted, by the first segment of their names", grants.clone());
        let help = "From an ask to its grant; a lock that was free was not waited for";
        to.register_with_unit("lock_wait", help, Unit::Seconds, waits.clone());
        let help = "From a grant to its end";
        to.register_with_unit("lock_hold", help, Unit::Seconds, holds.clone());
        let help = "From the arrival of a release to the grant to the next waiter";
        to.register_with_unit("handover", help, Unit::Seconds, handovers.clone());
        let help = "How often more happened at once than is counted by prefix";
        to.register("uncounted_gaps", help, gaps.clone());
    }

    fn left(&self) -> MutexGuard<'_, PendingCounts> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts records until the member ends.
pub(crate) async fn count(lock_metrics: Arc<LockMetrics>) {
    loop {
        lock_metrics.news.notified().await;
        tokio::time::sleep(GATHER).await;
        if lock_metrics.catch_up() {
            return;
        }
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct OfGrant {
    prefix: Arc<str>,
    mode: &'static str,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct OfLock {
    prefix: Arc<str>,
}

type LockDurations = Family<OfLock, Histogram, fn() -> Histogram>;

/// The registered metrics.
#[derive(Clone)]
struct LockReading {
    grants: Family<OfGrant, Counter>,
    waits: LockDurations,
    holds: LockDurations,
    handovers: LockDurations,
    gaps: Counter,
}

impl Default for LockReading {
    fn default() -> Self {
        Self {
            grants: Family::default(),
            waits: Family::new_with_constructor(|| Histogram::new(Scale::LONG)),
            holds: Family::new_with_constructor(|| Histogram::new(Scale::LONG)),
            handovers: Family::new_with_constructor(|| Histogram::new(Scale::QUICK)),
            gaps: Counter::default(),
        }
    }
}

/// The metrics of one prefix. Those for handovers are created at the first handover.
struct Cells {
    label: Arc<str>,
    grants: [Option<Counter>; 3],
    waits: Histogram,
    holds: Histogram,
    handovers: Option<Histogram>,
}

/// The state kept between parts.
#[derive(Default)]
struct TimedHolds {
    shown: LockReading,
    prefixes: BTreeMap<Arc<str>, Cells>,
    /// The start time of each waiting place.
    waits: BTreeMap<PlaceNumber, u64>,
    /// The start time of each hold.
    holds: BTreeMap<HoldKey, u64>,
    /// The durations of the last holds of locks, by the hash of their names.
    remembered: BTreeMap<u64, Vec<u64>>,
    /// The newest place seen: a later place never waited.
    newest: Option<PlaceNumber>,
    totals: LockTotals,
}

/// A lease and the hash of a lock's name: a lease holds a lock once.
type HoldKey = (u64, u64);

impl TimedHolds {
    fn add(&mut self, part: &TurnCounts) {
        // Both are in the order of their revisions.
        let mut freed = part.freed.iter().peekable();
        for record in part.records.iter() {
            while freed.next_if(|freed| freed.revision < record.revision).is_some() {}
            let of_record = freed.peek().filter(|freed| freed.revision == record.revision);
            let asked_at_us = of_record.map(|freed| freed.asked_at_us);
            self.add_record(record, part.at_us, asked_at_us);
        }
    }

    fn add_record(&mut self, record: RevisionRecord<'_>, at_us: u64, asked_at_us: Option<u64>) {
        // A place in the queues of several locks is granted in all of them at once, so it is removed after all of them.
        let mut over: Vec<PlaceNumber> = Vec::new();
        let mut ends = false;
        for event in record.events() {
            let Some(name) = event.lock() else { continue };
            match (event.cause(), event.place()) {
                (Cause::Queued, Some(place)) => {
                    self.newest = self.newest.max(Some(place));
                    if self.waits.len() < TIMED_MAX {
                        // A request for a pool joins further queues later, and has waited since it joined the first.
                        self.waits.entry(place).or_insert(at_us);
                    }
                }
                (Cause::Granted, Some(place)) => {
                    let waited = self.waited(place, at_us, ends);
                    self.totals.granted += 1;
                    self.totals.handed_over += u64::from(matches!(waited, Some(Waited::For(_))));
                    self.granted(name, &event, waited, at_us, asked_at_us);
                    if matches!(waited, Some(Waited::For(_))) {
                        over.push(place);
                    }
                }
                (Cause::Upgraded, Some(place)) => over.push(place),
                // Both name the end of a hold; the place is that of the receiver.
                (cause, None) | (cause @ Cause::HandedOn, _) if ended::is_end(cause) => {
                    ends = true;
                    self.ended(name, &event, at_us);
                }
                (_, Some(place)) => {
                    ends = true;
                    over.push(place);
                }
                (
                    Cause::Cooled | Cause::DelayOver | Cause::MinHoldOver | Cause::Downgraded,
                    None,
                ) => ends = true,
                (Cause::Deadlock, None) => self.totals.deadlocks += 1,
                _ => {}
            }
        }
        for place in over {
            self.waits.remove(&place);
        }
    }

    /// How long a granted place has waited; none if that is unknown.
    fn waited(&mut self, place: PlaceNumber, at_us: u64, others_ended: bool) -> Option<Waited> {
        if let Some(since_us) = self.waits.get(&place) {
            return Some(Waited::For(at_us.saturating_sub(*since_us)));
        }
        let at_once = match self.newest {
            Some(newest) => place > newest,
            // A waiter that queued before the counting began gets its lock when another holder's ends.
            None => !others_ended,
        };
        if !at_once {
            return None;
        }
        // Several locks of one request share a place, and the request waited for none of them.
        self.newest = self.newest.max(place.0.checked_sub(1).map(PlaceNumber));
        Some(Waited::Not)
    }

    fn granted(
        &mut self,
        name: &str,
        event: &Recorded<'_>,
        waited: Option<Waited>,
        at_us: u64,
        asked_at_us: Option<u64>,
    ) {
        if self.holds.len() < TIMED_MAX {
            self.holds.insert(hold_key(name, event), at_us);
        }
        let Self { shown, prefixes, .. } = self;
        let cells = cells(prefixes, shown, name);
        let (at, mode) = mode(event.mode());
        let label = || OfGrant { prefix: cells.label.clone(), mode };
        let grants = &shown.grants;
        cells.grants[at].get_or_insert_with(|| grants.get_or_create_owned(&label())).inc();
        match waited {
            Some(Waited::Not) => cells.waits.observe(0),
            Some(Waited::For(us)) => cells.waits.observe(us),
            None => {}
        }
        let queued = matches!(waited, Some(Waited::For(_)));
        if let Some(asked_at_us) = asked_at_us.filter(|_| queued) {
            let label = OfLock { prefix: cells.label.clone() };
            let handovers = &shown.handovers;
            cells
                .handovers
                .get_or_insert_with(|| handovers.get_or_create_owned(&label))
                .observe(at_us.saturating_sub(asked_at_us));
        }
    }

    fn remember(&mut self, lock: u64, held_us: u64) {
        if self.remembered.len() >= REMEMBERED_MAX && !self.remembered.contains_key(&lock) {
            // Forget any other lock: one that clients ask about is soon acquired again.
            let other = self.remembered.keys().next().copied();
            other.and_then(|other| self.remembered.remove(&other));
        }
        let holds = self.remembered.entry(lock).or_default();
        if holds.len() == HOLDS_MAX {
            holds.remove(0);
        }
        holds.push(held_us);
    }

    /// Records a gap: what was timed may have ended in it.
    fn skip(&mut self) {
        self.shown.gaps.inc();
        self.waits.clear();
        self.holds.clear();
        self.newest = None;
    }
}

impl LockReading {
    fn cells(&self, prefix: &str) -> Cells {
        let label: Arc<str> = prefix.into();
        let of = OfLock { prefix: label.clone() };
        Cells {
            grants: [const { None }; 3],
            waits: self.waits.get_or_create_owned(&of),
            holds: self.holds.get_or_create_owned(&of),
            handovers: None,
            label,
        }
    }
}

/// The metrics of a lock with this name.
fn cells<'a>(
    prefixes: &'a mut BTreeMap<Arc<str>, Cells>,
    shown: &LockReading,
    name: &str,
) -> &'a mut Cells {
    let first = name.split('/').next().unwrap_or_default();
    let is_known = prefixes.contains_key(first);
    let prefix = if is_known || prefixes.len() < PREFIXES_MAX { first } else { OTHER };
    if !is_known && !prefixes.contains_key(prefix) {
        let cells = shown.cells(prefix);
        prefixes.insert(cells.label.clone(), cells);
    }
    prefixes.get_mut(prefix).expect("it was made if it was not there")
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Waited {
    Not,
    For(u64),
}

fn hold_key(name: &str, event: &Recorded<'_>) -> HoldKey {
    (event.lease().map_or(0, LeaseId::get), hash(name))
}

fn hash(name: &str) -> u64 {
    xxh3_64(name.as_bytes())
}

fn mode(mode: Option<Mode>) -> (usize, &'static str) {
    match mode {
        None | Some(Mode::Exclusive) => (0, "exclusive"),
        Some(Mode::Shared) => (1, "shared"),
        Some(Mode::Slot { .. }) => (2, "slot"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::encoding::text::encode;
    use tenure_core::codec::{encode_request, seal_entry};
    use tenure_core::outcome::Effects;
    use tenure_core::request::{
        Acquire, Ask, AskLease, AskWait, Asks, Command, Hold, LeaseRef, NewLease, Purpose, Request,
        RequestId, Urgency,
    };
    use tenure_core::{Machine, Most};
    use tenure_types::{Epoch, Term, Token};

    /// A machine and its metrics.
    struct LockMetricsHarness {
        machine: Machine,
        lock_metrics: LockMetrics,
        shown: Registry,
    }

    impl LockMetricsHarness {
        fn new() -> Self {
            let mut shown = Registry::default();
            let lock_metrics = LockMetrics::default();
            lock_metrics.register(&mut shown);
            Self { machine: Machine::new(Epoch::default()), lock_metrics, shown }
        }

        /// Runs a command at a given time; leaves a gap instead of its records unless `seen`.
        fn run(&mut self, at_us: u64, command: Command<'_>, seen: bool) {
            let from = self.machine.revision().next();
            let mut bytes = Vec::new();
            let request = Request { principal: "", id: RequestId::None, command };
            encode_request(&request, &mut bytes);
            let entry = seal_entry(Term(1), 1, [&bytes[..]]);
            let mut effects = Effects::default();
            self.machine.apply(Term(1), Some(&entry), &mut effects);
            assert!(effects.outcomes[0].result.is_ok(), "{effects:?}");
            let records = self.machine.records(from, Most { revisions: 9, bytes: 1 << 20 });
            let revision = effects.outcomes[0].revision;
            let freed = [FreedAt { revision, asked_at_us: at_us - 100 }];
            let records = records.ok().filter(|_| seen).map(Arc::new);
            self.lock_metrics.leave(at_us, records, &freed);
        }

        fn lease(&mut self, id: u64) {
            let id = LeaseId::new(id).unwrap();
            let new = NewLease { id, ttl_ms: 60_000, client: "c", metadata: &[] };
            self.run(1_000, Command::GrantLease(new), true);
        }

        /// The value of a metric with its labels.
        fn metric(&self, name: &str) -> Option<f64> {
            self.lock_metrics.catch_up();
            let mut text = String::new();
            encode(&mut text, &self.shown).unwrap();
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.map(|number| number.parse().unwrap())
        }
    }

    fn lease_ref(id: u64) -> LeaseRef {
        LeaseRef::Id(LeaseId::new(id).unwrap())
    }

    fn acquire(lease: u64, lock: &str) -> Command<'_> {
        Command::Acquire(Acquire {
            lease: AskLease::Existing(lease_ref(lease)),
            locks: Asks::One(Ask { lock, mode: Mode::Exclusive }),
            any: false,
            wait: AskWait::Unlimited,
            metadata: &[],
            lock_delay_ms: 0,
            max_hold_ms: None,
            min_hold_ms: 0,
            progress_within_ms: 0,
            supersede: None,
            resume: false,
            priority: 0,
            purpose: Purpose::Lock,
            independent: false,
        })
    }

    fn release(lease: u64, lock: &str, token: u64) -> Command<'_> {
        let token = Token::new(Epoch::default(), token).unwrap();
        Command::Release(Hold { lease: lease_ref(lease), lock, token })
    }

    #[test]
    fn waits_holds_and_hand_overs_are_timed_from_apply_to_apply() {
        let mut stage = LockMetricsHarness::new();
        stage.lease(1);
        stage.lease(2);
        stage.run(10_000, acquire(1, "a/b"), true);
        stage.run(12_000, acquire(2, "a/b"), true);
        stage.run(40_000, release(1, "a/b", 1), true);
        let grants = "grants_total{prefix=\"a\",mode=\"exclusive\"}";
        assert_eq!(stage.metric(grants), Some(2.0));
        let of = |name: &str| stage.metric(&format!("{name}{{prefix=\"a\"}}"));
        assert_eq!(of("lock_wait_seconds_sum"), Some(0.028));
        assert_eq!(of("lock_wait_seconds_count"), Some(2.0), "one did not wait");
        assert_eq!(of("lock_hold_seconds_sum"), Some(0.03));
        assert_eq!(of("handover_seconds_sum"), Some(0.0001));
        assert_eq!(stage.lock_metrics.usually("a/b"), Some((30, 1)));
        assert_eq!(stage.lock_metrics.usually("a/c"), None);
        let (lock, token, urgency) =
            ("a/b", Token::new(Epoch::default(), 2).unwrap(), Urgency::Now);
        stage.run(90_000, Command::Force { lock, token, by: "", reason: "", urgency }, true);
        assert_eq!(stage.lock_metrics.usually("a/b"), Some((30, 1)), "the second was lost");
    }

    #[test]
    fn after_a_gap_nothing_is_timed_that_may_have_ended_in_it() {
        let mut stage = LockMetricsHarness::new();
        stage.lease(1);
        stage.lease(2);
        stage.run(10_000, acquire(1, "a/b"), true);
        stage.run(20_000, acquire(2, "a/b"), false);
        stage.run(30_000, release(1, "a/b", 1), true);
        stage.run(50_000, release(2, "a/b", 2), true);
        assert_eq!(stage.metric("uncounted_gaps_total"), Some(1.0));
        let of = |name: &str| stage.metric(&format!("{name}{{prefix=\"a\"}}"));
        assert_eq!(of("lock_wait_seconds_count"), Some(1.0), "the other's wait is not known");
        assert_eq!(of("lock_hold_seconds_sum"), Some(0.02));
    }

    #[test]
    fn more_prefixes_than_are_told_apart_are_others() {
        let mut stage = LockMetricsHarness::new();
        stage.lease(1);
        let names: Vec<String> = (0..PREFIXES_MAX + 5).map(|at| format!("p{at}/x")).collect();
        for name in &names {
            stage.run(10_000, acquire(1, name), true);
        }
        let grants = |prefix: &str| {
            stage.metric(&format!("grants_total{{prefix=\"{prefix}\",mode=\"exclusive\"}}"))
        };
        assert_eq!((grants("p0"), grants("p99"), grants("p100")), (Some(1.0), Some(1.0), None));
        assert_eq!(grants(OTHER), Some(5.0));
    }
}
