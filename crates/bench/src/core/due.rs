//! Measures how long it takes to end very many leases that are due at once, and the longest single pause.

use tenure_core::codec::seal_entry;
use tenure_core::request::AskWait;
use tenure_types::Term;

use super::load::{Load, acquire, encoded};
use crate::clock::timed;
use crate::run_results::RunResults;

const TTL_MS: u64 = 10_000;

pub(crate) fn measure(scale: u64, results: &mut RunResults) {
    let leases = 1_000_000 / scale;
    let (total_s, pause_ms) = end(leases, false);
    results.add(
        "end_leases_s",
        total_s,
        format!("s to end {leases} leases in slices (to reach: below 3)"),
    );
    results.add("end_leases_pause_ms", pause_ms, "ms, the longest slice (to reach: below 50)");
    let (total_s, pause_ms) = end(leases, true);
    results.add(
        "end_holders_s",
        total_s,
        format!("s to end {leases} leases that each hold a lock"),
    );
    results.add("end_holders_pause_ms", pause_ms, "ms, the longest slice");
}

fn end(count: u64, holding: bool) -> (f64, f64) {
    let mut load = Load::new();
    let leases = load.leases(count, TTL_MS);
    if holding {
        let names: Vec<String> = (0..count).map(|lock| format!("jobs/import/{lock:08}")).collect();
        let asks: Vec<Vec<u8>> = leases
            .iter()
            .zip(&names)
            .map(|(&lease, name)| encoded(acquire(lease, name, AskWait::No)))
            .collect();
        load.apply_all(&asks);
    }
    // The leader ticks until nothing is due any more; the first tick is one ttl later.
    let tick = seal_entry(Term(1), load.clock_ms + TTL_MS, []);
    let mut longest = 0.0_f64;
    let mut total = 0.0;
    while load.machine.next_due_ms().is_some() {
        let ((), took) = timed(|| load.apply(&tick));
        longest = longest.max(took.as_secs_f64());
        total += took.as_secs_f64();
    }
    let stats = load.machine.stats();
    assert_eq!((stats.leases, stats.locks), (0, 0), "everything ended");
    (total, longest * 1e3)
}
