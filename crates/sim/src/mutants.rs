//! Is every planted bug caught, and by a check that names it rightly?

use tenure_core::mutants;

use crate::campaign::{self, Plan};
use crate::cluster;

/// How many sequences the machine without a planted bug must survive first.
const CLEAN: u64 = 200;

/// Runs all planted bugs; whether each was caught as expected.
pub fn run(plan: Plan) -> bool {
    mutants::select(0);
    let clean = campaign::run(Plan { sequences: CLEAN, ..plan }, &|| {});
    if let Some((seed, failure)) = clean.failure {
        let violation = failure.violation;
        println!(
            "violation {} seed={seed} step={}: {} (no bug was planted)",
            violation.invariant, failure.step, violation.detail
        );
        return false;
    }
    let mut caught = 0;
    for (index, (name, expected)) in mutants::ALL.iter().enumerate() {
        mutants::select(index + 1);
        let report = campaign::run(plan, &|| {});
        match report.failure {
            None => println!("missed {name}"),
            Some((seed, failure)) => {
                let by = failure.violation.invariant;
                let sequences = seed.wrapping_sub(plan.from) + 1;
                if expected.contains(&by.as_str()) {
                    caught += 1;
                    println!("caught {name} by {by} after {sequences} sequences");
                } else {
                    let detail = failure.violation.detail;
                    println!("caught {name} by {by}, expected {expected:?}: {detail}");
                }
            }
        }
    }
    mutants::select(0);
    println!("mutants caught={caught}/{}", mutants::ALL.len());
    caught == mutants::ALL.len()
}

/// How many seeds clusters without a planted bug must survive first.
const CLEAN_SEEDS: u64 = 20;

/// Runs all bugs planted in the replicated log; whether each was caught as expected.
pub fn run_clusters(plan: cluster::campaign::Plan) -> bool {
    use tenure_raft::mutants;
    mutants::select(0);
    let clean = cluster::campaign::Plan { seeds: CLEAN_SEEDS, ..plan };
    if let Some((seed, violation)) = cluster::campaign::run(clean, &|| {}).failure {
        println!(
            "violation {} seed={seed}: {} (no bug was planted)",
            violation.invariant, violation.detail
        );
        return false;
    }
    let mut caught = 0;
    for (index, (name, expected)) in mutants::ALL.iter().enumerate() {
        mutants::select(index + 1);
        match cluster::campaign::run(plan, &|| {}).failure {
            None => println!("missed {name}"),
            Some((seed, violation)) => {
                let by = violation.invariant;
                let seeds = seed.wrapping_sub(plan.from) + 1;
                if expected.contains(&by.as_str()) {
                    caught += 1;
                    println!("caught {name} by {by} after {seeds} seeds");
                } else {
                    let detail = violation.detail;
                    println!("caught {name} by {by}, expected {expected:?}, seed {seed}: {detail}");
                }
            }
        }
    }
    mutants::select(0);
    println!("cluster-mutants caught={caught}/{}", mutants::ALL.len());
    caught == mutants::ALL.len()
}
