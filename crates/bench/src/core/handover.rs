//! Measures whether a hand-over costs more in a long queue than in a short one.

use std::time::Duration;

use tenure_core::request::AskWait;

use super::load::{Load, acquire, encoded, release, sealed, token};
use crate::clock::timed;
use crate::run_results::RunResults;

/// The number of hand-overs in each round.
const HANDOVERS: u64 = 200_000;

/// The number of rounds of each measurement, of which the median counts.
const ROUNDS: usize = 5;

pub(crate) fn measure(scale: u64, results: &mut RunResults) {
    let (short, long) = (10, 100_000 / scale);
    let in_short = nanoseconds(short, HANDOVERS / scale);
    let in_long = nanoseconds(long, HANDOVERS / scale);
    results.add(
        "handover_short_ns",
        in_short,
        format!("ns per hand-over and re-ask, {short} waiting"),
    );
    results.add(
        "handover_long_ns",
        in_long,
        format!("ns per hand-over and re-ask, {long} waiting"),
    );
    results.add("handover_ratio", in_long / in_short, "long over short (to reach: below 3)");
}

/// Measures one lock with always `waiting` clients in its queue: the holder releases and queues again.
fn nanoseconds(waiting: u64, handovers: u64) -> f64 {
    let mut load = Load::new();
    let leases = load.leases(waiting + 1, 3_600_000);
    let asks: Vec<Vec<u8>> =
        leases.iter().map(|&lease| encoded(acquire(lease, "deploy", AskWait::Unlimited))).collect();
    load.apply_all(&asks);
    let mut holder = 0;
    let mut granted = 1;
    let mut times: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            let requests: Vec<Vec<u8>> = (0..handovers)
                .flat_map(|_| {
                    let lease = leases[holder];
                    let hand_over = encoded(release(lease, "deploy", token(granted)));
                    holder = (holder + 1) % leases.len();
                    granted += 1;
                    [hand_over, encoded(acquire(lease, "deploy", AskWait::Unlimited))]
                })
                .collect();
            let entries = sealed(load.clock_ms, &requests);
            timed(|| entries.iter().for_each(|entry| load.apply(entry))).1
        })
        .collect();
    times.sort();
    assert_eq!(load.machine.stats().places, waiting, "the queue kept its length");
    let last = load.machine.lock("deploy").and_then(|lock| lock.holders.first().map(|h| h.token));
    assert_eq!(last, Some(token(granted)), "every hand-over happened");
    times[ROUNDS / 2].as_secs_f64() * 1e9 / handovers as f64
}
