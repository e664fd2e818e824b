//! Measures how long requests wait under constant load, and holds it against the bounds that the queue promises.
//!
//! The machine is the real one, time is that of its log, so every run gives the same figures. They are in
//! `docs/internals/fairness.md`: `TENURE_FIX=1 cargo test -p tenure-core --test scripts fairness` writes them there.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use tenure_core::codec::{encode_request, seal_entry};
use tenure_core::outcome::{Acquired, Answer, Effects, Notice};
use tenure_core::request::{
    Acquire, Ask, AskLease, AskWait, Asks, Command, LeaseRef, NewLease, PRIORITY_MAX,
    PRIORITY_STEP_MS, Purpose, Request, RequestId, Revoker,
};
use tenure_core::{LEVEL_MAX, Machine};
use tenure_types::{Epoch, LeaseId, Mode, PlaceNumber, Term};

const SLOTS: u32 = 10;
const SECOND_MS: u64 = 1_000;
/// How long requests keep coming. Then every waiter is served.
const LOAD_MS: u64 = 2 * 3_600 * SECOND_MS;
/// The shortest and the longest time for which a request holds its slots.
const HOLD_MS: (u64, u64) = (10 * SECOND_MS, 30 * SECOND_MS);

/// Requests that are alike.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Class {
    take: u32,
    priority: u8,
}

const SMALL: Class = Class { take: 1, priority: 0 };
const LARGE: Class = Class { take: 8, priority: 0 };
const SMALL_URGENT: Class = Class { take: 1, priority: PRIORITY_MAX };
const LARGE_URGENT: Class = Class { take: 8, priority: PRIORITY_MAX };

impl Class {
    /// For how long after a request others may ask that pass it.
    fn passable_ms(self) -> u64 {
        u64::from(PRIORITY_MAX - self.priority) * PRIORITY_STEP_MS
    }
}

/// A load: every how many milliseconds a request of each class comes, on average.
struct Load {
    name: &'static str,
    every_ms: &'static [(Class, u64)],
}

/// The slots are busy nearly all the time, and the queue is hardly ever empty.
const BUSY: Load = Load {
    name: "busy",
    every_ms: &[(SMALL, 10_000), (LARGE, 120_000), (SMALL_URGENT, 10_000), (LARGE_URGENT, 240_000)],
};

/// Urgent requests alone ask for more than there is. Without ageing, no other one would be served while they come.
const OVERLOADED: Load = Load {
    name: "overloaded",
    every_ms: &[(SMALL, 20_000), (LARGE, 300_000), (SMALL_URGENT, 2_000), (LARGE_URGENT, 240_000)],
};

/// What was measured of the requests of one class.
#[derive(Default)]
struct Measured {
    requests: u64,
    /// The longest time from the request to the grant, and the sum of all.
    longest_ms: u64,
    sum_ms: u64,
    /// How much later than a request another one came that was granted before it.
    passed_within_ms: u64,
    /// How many of the same priority passed.
    passed_by_equals: u64,
    /// The longest time from being the first of the queue, with none to come that passes, to the grant.
    first_ms: u64,
}

/// A request that waits.
struct Waiting {
    class: Class,
    asked_ms: u64,
    lease: LeaseId,
    /// Since when it has been the first.
    first_ms: Option<u64>,
    /// The latest request that was granted while this one waited, by the time when it came.
    passed_by_ms: u64,
}

struct Measurement {
    machine: Machine,
    clock_ms: u64,
    seed: u64,
    leases: u64,
    waiting: BTreeMap<PlaceNumber, Waiting>,
    /// When each holder gives its slots back.
    holding: BTreeMap<(u64, LeaseId), u32>,
    measured: BTreeMap<Class, Measured>,
}

impl Measurement {
    fn new() -> Self {
        let machine = Machine::new(Epoch::default());
        let (waiting, holding, measured) = Default::default();
        let (clock_ms, seed, leases) = (0, 1, 0);
        let mut new = Self { machine, clock_ms, seed, leases, waiting, holding, measured };
        new.apply(Command::RaiseLevel { level: LEVEL_MAX });
        new
    }

    fn run(load: &Load) -> BTreeMap<Class, Measured> {
        let mut this = Self::new();
        while this.clock_ms < LOAD_MS || !this.waiting.is_empty() {
            this.clock_ms += SECOND_MS;
            this.give_back();
            for (class, every_ms) in load.every_ms {
                if this.clock_ms < LOAD_MS && this.random(*every_ms) < SECOND_MS {
                    this.ask(*class);
                }
            }
            this.note_the_first();
        }
        this.measured
    }

    fn random(&mut self, below: u64) -> u64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        self.seed % below
    }

    fn ask(&mut self, class: Class) {
        self.leases += 1;
        let lease = LeaseId::new(self.leases).unwrap();
        let new = NewLease { id: lease, ttl_ms: 3_600_000, client: "load", metadata: b"" };
        let mode = Mode::Slot { of: SLOTS, take: class.take };
        let acquire = Acquire {
            lease: AskLease::New(new),
            locks: Asks::One(Ask { lock: "pool", mode }),
            any: false,
            wait: AskWait::Unlimited,
            metadata: b"",
            lock_delay_ms: 0,
            max_hold_ms: None,
            min_hold_ms: 0,
            progress_within_ms: 0,
            supersede: None,
            resume: false,
            priority: class.priority,
            purpose: Purpose::Lock,
            independent: false,
        };
        let effects = self.apply(Command::Acquire(acquire));
        let (asked_ms, passed_by_ms) = (self.clock_ms, 0);
        let waiting = Waiting { class, asked_ms, lease, first_ms: None, passed_by_ms };
        match &effects.outcomes[0].result {
            Ok(Answer::Queued(queued)) => drop(self.waiting.insert(queued.place, waiting)),
            Ok(Answer::Acquired(Acquired { place, .. })) => self.granted(*place, &waiting),
            other => panic!("{other:?}"),
        }
    }

    /// Ends the leases whose time to hold is over.
    fn give_back(&mut self) {
        while let Some(entry) = self.holding.first_entry()
            && entry.key().0 <= self.clock_ms
        {
            let ((_, lease), _) = entry.remove_entry();
            let lease = LeaseRef::Id(lease);
            let effects = self.apply(Command::Revoke { lease, by: Revoker::Holder });
            for notice in effects.notices {
                let Notice::Granted { place, .. } = notice else { continue };
                let waiting = self.waiting.remove(&place).expect("a waiter is granted");
                self.granted(place, &waiting);
            }
        }
    }

    fn granted(&mut self, place: PlaceNumber, granted: &Waiting) {
        let Waiting { class, asked_ms, lease, first_ms, passed_by_ms } = *granted;
        let until_ms = self.clock_ms + HOLD_MS.0 + self.random(HOLD_MS.1 - HOLD_MS.0 + 1);
        self.holding.insert((until_ms, lease), class.take);
        let held: u32 = self.holding.values().sum();
        assert!(held <= SLOTS, "{held} slots are held");
        let measured = self.measured.entry(class).or_default();
        let waited_ms = self.clock_ms - asked_ms;
        measured.requests += 1;
        measured.longest_ms = measured.longest_ms.max(waited_ms);
        measured.sum_ms += waited_ms;
        measured.passed_within_ms =
            measured.passed_within_ms.max(passed_by_ms.saturating_sub(asked_ms));
        if let Some(first_ms) = first_ms {
            measured.first_ms = measured.first_ms.max(self.clock_ms - first_ms);
        }
        // Whom it has passed.
        for (other, waiting) in &mut self.waiting {
            if *other < place {
                waiting.passed_by_ms = waiting.passed_by_ms.max(asked_ms);
                waiting.first_ms = None;
                if waiting.class.priority == class.priority {
                    self.measured.entry(waiting.class).or_default().passed_by_equals += 1;
                }
            }
        }
    }

    /// Records since when the first of the queue is it. One that another one passes begins anew.
    fn note_the_first(&mut self) {
        let first = self.machine.queue("pool", None, 1).first().map(|it| it.place);
        for (place, waiting) in &mut self.waiting {
            waiting.first_ms = match waiting.first_ms {
                _ if Some(*place) != first => None,
                None => Some(self.clock_ms),
                since => since,
            };
        }
    }

    fn apply(&mut self, command: Command<'_>) -> Effects {
        let (mut bytes, mut effects) = (Vec::new(), Effects::default());
        encode_request(&Request { principal: "", id: RequestId::None, command }, &mut bytes);
        let payload = seal_entry(Term(1), self.clock_ms, [bytes.as_slice()]);
        self.machine.apply(Term(1), Some(&payload), &mut effects);
        effects
    }
}

#[test]
fn the_bounds_on_waiting_hold_under_constant_load() {
    let mut table = String::from(
        "| load | slots | priority | requests | mean wait | longest wait \
         | passed by what came at most | bound | first for at most | bound |\n\
         |---|---|---|---|---|---|---|---|---|---|\n",
    );
    for load in [BUSY, OVERLOADED] {
        for (class, it) in Measurement::run(&load) {
            let (bound_ms, first_bound_ms) = (class.passable_ms(), HOLD_MS.1);
            writeln!(
                table,
                "| {} | {} | {} | {} | {} | {} | {} later | {} | {} | {} |",
                load.name,
                class.take,
                class.priority,
                it.requests,
                span(it.sum_ms / it.requests),
                span(it.longest_ms),
                span(it.passed_within_ms),
                span(bound_ms),
                span(it.first_ms),
                span(first_bound_ms),
            )
            .unwrap();
            let who = format!("{} {class:?}", load.name);
            assert!(it.passed_within_ms <= bound_ms, "{who}: passed {} later", it.passed_within_ms);
            assert_eq!(it.passed_by_equals, 0, "{who}: passed by its like");
            assert!(it.first_ms <= first_bound_ms, "{who}: first for {} ms", it.first_ms);
        }
    }
    println!("{table}");
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/internals/fairness.md");
    let page = std::fs::read_to_string(path).expect("the page can be read");
    let (before, rest) = page.split_once("| load |").expect("the page has the table");
    let after = rest.split_once("\n\n").map_or("", |(_, after)| after);
    let new = format!("{before}{table}\n{after}");
    if std::env::var_os("TENURE_FIX").is_some() {
        std::fs::write(path, &new).expect("the page can be written");
    } else {
        assert!(page == new, "docs/internals/fairness.md is old: run with TENURE_FIX=1");
    }
}

/// A time as people write it.
fn span(ms: u64) -> String {
    let seconds = ms.div_ceil(1_000);
    match (seconds / 60, seconds % 60) {
        (0, seconds) => format!("{seconds} s"),
        (minutes, 0) => format!("{minutes} min"),
        (minutes, seconds) => format!("{minutes} min {seconds} s"),
    }
}
