//! Generates traces of inputs in any order, even in orders that no client produces: the lease state must treat them the
//! same in every language.

use super::super::Cause;
use super::record::{RecordedTimes, Trace};

const SEQUENCES: u64 = 130;
const STEPS: usize = 18;

/// A generator of its own (SplitMix64), so that the files do not depend on the version of a library.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `bound`.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % bound.max(1)
    }

    /// One of the given values.
    pub(super) fn one_of<T: Copy, const N: usize>(&mut self, all: [T; N]) -> T {
        let at = usize::try_from(self.below(N as u64)).expect("an array fits into memory");
        all[at]
    }
}

pub(super) fn all() -> Vec<Trace> {
    (0..SEQUENCES).map(sequence).collect()
}

fn sequence(seed: u64) -> Trace {
    let mut random = Random::new(1_000_000 + seed);
    let ttl = random.one_of([100_000, 1_000_000, 15_000_000]);
    let mut trace = Trace::new(format!("sequence {seed}"), RecordedTimes::of(ttl));
    trace.send_grant().after(random.below(ttl / 5)).grant();
    let (mut sent, mut granted) = (0, 0);
    for _ in 0..STEPS {
        step(&mut random, &mut trace, ttl, &mut sent, &mut granted);
    }
    trace
}

fn step(random: &mut Random, trace: &mut Trace, ttl: u64, sent: &mut u64, granted: &mut u64) {
    match random.below(12) {
        0..=7 => trace.after(random.below(ttl / 24)),
        8..=9 => trace.after(random.below(ttl / 8)),
        10 => trace.suspend(random.below(ttl / 8)),
        _ => trace,
    };
    let number = 1 + random.below(*sent);
    let token = 1 + random.below(*granted + 1);
    let cause = random.one_of([Cause::Forced, Cause::MaxHold, Cause::Revoked, Cause::Expired]);
    match random.below(24) {
        0..=3 => {
            trace.poll();
        }
        4..=6 => *sent = trace.renewing(),
        7..=9 => {
            let (lives, changed) = (random.below(12) != 0, random.below(3) * random.below(12));
            trace.renewed(number, lives, changed);
        }
        10 => {
            trace.not_renewed(number);
        }
        11 | 12 => {
            let (revision, changed) = (random.below(16), random.below(12));
            let holds: Vec<u64> = (1..=*granted).filter(|_| random.below(3) != 0).collect();
            trace.holdings(revision, changed, &holds);
        }
        13..=15 => {
            *granted += 1;
            trace.lock(*granted, random.below(16));
        }
        16 => {
            trace.taken(token, cause);
        }
        17 | 18 => {
            trace.check_lock(token);
        }
        19 => {
            trace.stopped(token);
        }
        20 => {
            trace.farewells();
        }
        21 => {
            trace.give_back(token);
        }
        22 if random.below(2) == 0 => {
            trace.end_if_idle();
        }
        22 => {
            trace.credentials_refused();
        }
        _ if random.below(4) == 0 => {
            trace.ended(cause);
        }
        _ => {
            trace.check();
        }
    }
}
