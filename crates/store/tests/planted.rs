//! Tests that the check meant for each bug planted in the store catches it.
//!
//! Only a build with `--cfg mutants` contains them. `cargo xtask test cluster-mutants` runs it.

#![cfg(mutants)]
#![allow(clippy::cast_possible_truncation, reason = "the numbers of these tests are small")]

mod support;

use std::panic;

use support::{
    checks,
    program::{CLASSES, ProgramTotals, run_program},
};
use tenure_store::mutants::{ALL, SHOWN_BY_TESTS, select};

fn random_programs() {
    for class in CLASSES {
        for seed in 0..300 {
            run_program(class, seed, &mut ProgramTotals::default());
        }
    }
}

/// Each planted bug and the checks that must catch it.
const CAUGHT_BY: &[(&str, &[(&str, fn())])] = &[
    (
        "cut_batch_not_said",
        &[
            (
                "a_damaged_newest_batch_is_cut_and_said",
                checks::a_damaged_newest_batch_is_cut_and_said,
            ),
            ("random_programs", random_programs),
        ],
    ),
    (
        "chunk_accepted_twice",
        &[(
            "repeated_and_misplaced_chunks_change_nothing",
            checks::repeated_and_misplaced_chunks_change_nothing,
        )],
    ),
    (
        "raw_snapshot_not_verified",
        &[(
            "a_damaged_snapshot_is_noticed_when_it_is_sent_and_set_aside",
            checks::a_damaged_snapshot_is_noticed_when_it_is_sent_and_set_aside,
        )],
    ),
    (
        "part_trusted_unverified",
        &[(
            "a_transfer_that_crashes_goes_on_from_what_verifies",
            checks::a_transfer_that_crashes_goes_on_from_what_verifies,
        )],
    ),
    (
        "late_sync_covers_all",
        &[
            (
                "a_sync_covers_only_what_was_written_before_it_began",
                checks::a_sync_covers_only_what_was_written_before_it_began,
            ),
            ("random_programs", random_programs),
        ],
    ),
    (
        "damaged_snapshot_kept",
        &[(
            "a_damaged_snapshot_is_noticed_when_it_is_sent_and_set_aside",
            checks::a_damaged_snapshot_is_noticed_when_it_is_sent_and_set_aside,
        )],
    ),
    (
        "resumed_part_not_rewritten",
        &[(
            "a_part_that_never_reached_the_disk_is_written_again",
            checks::a_part_that_never_reached_the_disk_is_written_again,
        )],
    ),
    ("log_truncated_in_the_middle", &[("random_programs", random_programs)]),
];

// One test, because the selected bug applies to the whole process.
#[test]
fn every_planted_bug_is_caught() {
    let names: Vec<&str> =
        ALL.iter().map(|(name, _)| *name).chain(SHOWN_BY_TESTS.iter().copied()).collect();
    let (mut caught, mut planted_here) = (0, 0);
    for (number, name) in names.iter().enumerate() {
        let planted = CAUGHT_BY.iter().find(|(planted, _)| planted == name);
        let checks = planted.map_or(&[][..], |(_, checks)| checks);
        let mut missed = checks.is_empty();
        if missed && !SHOWN_BY_TESTS.contains(name) {
            // Clusters show it.
            continue;
        }
        planted_here += 1;
        for (check, run) in checks {
            select(0);
            run();
            select(number + 1);
            let failed = panic::catch_unwind(run).is_err();
            select(0);
            missed |= !failed;
            println!("{} {name} by {check}", if failed { "caught" } else { "missed" });
        }
        caught += usize::from(!missed);
    }
    println!("store-mutants caught={caught}/{planted_here}");
    assert_eq!(caught, planted_here, "a planted bug was not caught");
}
