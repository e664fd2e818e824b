//! Traces of whole leases under random delays, losses of messages, stalls, suspends and force: a client that behaves as
//! the contract says, and a network that does not.

use std::collections::BTreeMap;

use super::super::Cause;
use super::record::{RecordedTimes, Trace};
use super::sequence::Random;

const SCHEDULES: u64 = 130;
const STEPS_MAX: usize = 24;

/// What arrives later.
enum Arrival {
    Renewed { number: u64, lives: bool, changed: u64 },
    Holdings { revision: u64, changed: u64, held: bool },
    Forced,
}

pub(super) fn all() -> Vec<Trace> {
    (0..SCHEDULES).map(schedule).collect()
}

fn schedule(seed: u64) -> Trace {
    let mut random = Random::new(seed);
    let ttl = random.one_of([1_000_000, 2_000_000, 15_000_000, 30_000_000]);
    let window =
        (random.below(3) == 0).then(|| ttl * (4 + random.below(5)) / 10 + random.below(99));
    let times = RecordedTimes { window_us: window, ..RecordedTimes::of(ttl) };
    let mut trace = Trace::new(format!("schedule {seed}"), times);
    trace.send_grant().after(random.below(ttl / 4)).grant();
    trace.lock(1, 5);
    let mut arrivals = BTreeMap::new();
    if random.below(4) == 0 {
        arrivals.insert(trace.now() + random.below(ttl * 2), Arrival::Forced);
    }
    let (mut revision, mut changed, mut held) = (5, 0, true);
    for _ in 0..STEPS_MAX {
        if !trace.is_held() {
            break;
        }
        let arrival = arrivals.keys().next().copied().unwrap_or(u64::MAX);
        let mut next = trace.due().max(trace.now()).min(arrival.max(trace.now()));
        match random.below(24) {
            0 => next += random.below(ttl),
            1 => {
                let long = random.below(ttl);
                trace.suspend(long);
                next = next.max(trace.now());
            }
            2 => {
                trace.check_lock(1);
            }
            _ => {}
        }
        let now = trace.now();
        trace.to(next.max(now));
        if arrival <= trace.now() {
            match arrivals.remove(&arrival) {
                Some(Arrival::Renewed { number, lives, changed: told }) => {
                    let asks = trace.renewed(number, lives, told);
                    if asks {
                        let at = trace.now() + random.below(ttl / 4);
                        arrivals.insert(at, Arrival::Holdings { revision, changed, held });
                    }
                }
                Some(Arrival::Holdings { revision, changed, held }) => {
                    let holds: &[u64] = if held { &[1] } else { &[] };
                    trace.holdings(revision, changed, holds);
                }
                Some(Arrival::Forced) => {
                    revision += 1;
                    (changed, held) = (revision, false);
                    if random.below(2) == 0 {
                        trace.taken(1, Cause::Forced);
                    }
                }
                None => {}
            }
            continue;
        }
        if trace.poll() {
            let number = trace.renewing();
            let delay = match random.below(8) {
                0 => {
                    trace.not_renewed(number);
                    continue;
                }
                1 => continue,
                2 => random.below(ttl),
                _ => random.below(ttl / 20),
            };
            let lives = random.below(40) != 0;
            arrivals.insert(trace.now() + delay, Arrival::Renewed { number, lives, changed });
        }
    }
    if trace.is_held() {
        let lost_at = trace.lost_at().max(trace.now());
        trace.to(lost_at).check();
    }
    trace.stopped(1).farewells();
    trace
}
