//! Is every planted bug caught, and by a check that names it rightly?

use tenure_core::mutants;

use crate::campaign::{self, Plan};

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
