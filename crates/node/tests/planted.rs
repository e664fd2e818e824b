//! Shows that bugs planted in the node that whole clusters do not show are caught by the tests of this crate.
//!
//! Only a build with `--cfg mutants` contains them. `cargo xtask test cluster-mutants` runs it.

#![cfg(mutants)]

#[path = "forwarding.rs"]
mod forwarding;
#[path = "transfer.rs"]
mod transfer;

use std::panic;

use tenure_node::mutants::{SHOWN_BY_TESTS, select, select_by_name};

/// Each planted bug and the check that must catch it.
const CAUGHT_BY: &[(&str, &str, fn())] = &[
    (
        "chunk_accepted_twice",
        "a_snapshot_arrives_whole_and_every_transfer_ends_in_one_report",
        transfer::a_snapshot_arrives_whole_and_every_transfer_ends_in_one_report,
    ),
    (
        "answer_to_an_earlier_start",
        "an_answer_to_an_earlier_start_is_not_taken_for_a_later_one",
        forwarding::an_answer_to_an_earlier_start_is_not_taken_for_a_later_one,
    ),
    (
        "commands_of_an_earlier_start",
        "a_command_of_an_earlier_start_is_not_answered_to_a_later_one",
        forwarding::a_command_of_an_earlier_start_is_not_answered_to_a_later_one,
    ),
    (
        "lost_link_ignored",
        "an_answer_that_did_not_fit_the_link_gives_the_budget_back",
        forwarding::an_answer_that_did_not_fit_the_link_gives_the_budget_back,
    ),
];

// One test, because the chosen bug belongs to the whole process.
#[test]
fn every_planted_bug_is_caught() {
    let mut caught = 0;
    for name in SHOWN_BY_TESTS {
        let Some((_, check, run)) = CAUGHT_BY.iter().find(|(planted, ..)| planted == name) else {
            println!("missed {name}: no check is named for it");
            continue;
        };
        select(0);
        run();
        select_by_name(name);
        let failed = panic::catch_unwind(run).is_err();
        select(0);
        caught += usize::from(failed);
        println!("{} {name} by {check}", if failed { "caught" } else { "missed" });
    }
    println!("node-mutants caught={caught}/{}", SHOWN_BY_TESTS.len());
    assert_eq!(caught, SHOWN_BY_TESTS.len(), "a planted bug was not caught");
}
