//! Tests that machine and model agree over a few hundred sequences.

use tenure_sim::campaign::{self, ModelPlan};

/// Sequences that once failed. They are others when the generator changes, and cost little.
#[test]
fn sequences_that_failed_once_run_clean() {
    for from in [45_255, 536_063, 774_715, 1_034_307, 1_079_026, 1_504_513] {
        let plan = ModelPlan { from, sequences: 1, commands: 200, threads: 1 };
        let report = campaign::run(plan, &|| {});
        assert!(report.failure.is_none(), "seed {from}");
    }
}

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
