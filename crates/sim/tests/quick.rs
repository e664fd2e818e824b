//! Tests that machine and model agree over a few hundred sequences.

use tenure_sim::campaign::{self, ModelPlan};

#[test]
fn two_hundred_sequences_run_clean() {
    let plan = ModelPlan { from: 0, sequences: 200, commands: 120, threads: 2 };
    let report = campaign::run(plan, &|| {});
    if let Some((seed, failure)) = report.failure {
        panic!(
            "violation {} seed={seed} step={}: {}\nreplay: cargo xtask model --seed {seed} --commands 120",
            failure.violation.invariant, failure.step, failure.violation.detail
        );
    }
    assert_eq!(report.sequences, 200);
}
