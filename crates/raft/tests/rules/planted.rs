//! Leaves out one rule after the other and shows that its check notices.

use std::panic;

use tenure_raft::mutants::{SHOWN_BY_TESTS, select, select_by_name};

use crate::{own_term, removed, reuse, snapshot, vote};

/// Each planted bug and a check that must catch it. Some have more than one.
const CAUGHT_BY: &[(&str, &str, fn())] = &[
    (
        "members_changed_before_own_term",
        "a_new_leader_changes_no_members_before_it_has_committed_an_entry_of_its_own",
        own_term::a_new_leader_changes_no_members_before_it_has_committed_an_entry_of_its_own,
    ),
    (
        "removed_id_added_again",
        "the_id_of_a_removed_member_is_refused_by_every_later_leader",
        reuse::the_id_of_a_removed_member_is_refused_by_every_later_leader,
    ),
    (
        "removed_member_stops_at_once",
        "a_removed_leader_votes_until_the_others_know_of_the_removal",
        removed::a_removed_leader_votes_until_the_others_know_of_the_removal,
    ),
    (
        "removed_member_stops_at_once",
        "the_other_of_two_voters_learns_that_its_leader_was_removed",
        removed::the_other_of_two_voters_learns_that_its_leader_was_removed,
    ),
    (
        "vote_forgotten",
        "a_member_whose_disk_forgot_its_vote_gives_no_other_in_that_term",
        vote::a_member_whose_disk_forgot_its_vote_gives_no_other_in_that_term,
    ),
    (
        "damaged_snapshot_sent_again",
        "a_damaged_snapshot_is_written_again",
        snapshot::a_damaged_snapshot_is_written_again,
    ),
    (
        "stale_snapshot_replaces_a_newer_one",
        "a_stale_snapshot_behind_a_newer_one_is_left_alone",
        snapshot::a_stale_snapshot_behind_a_newer_one_is_left_alone,
    ),
    (
        "skipped_change_is_no_effect",
        "a_membership_change_that_a_snapshot_skipped_is_unknown",
        snapshot::a_membership_change_that_a_snapshot_skipped_is_unknown,
    ),
];

// One test, because the chosen bug belongs to the whole process.
#[test]
fn every_planted_bug_is_caught() {
    let mut caught = 0;
    for name in SHOWN_BY_TESTS {
        let checks: Vec<_> = CAUGHT_BY.iter().filter(|(planted, ..)| planted == name).collect();
        if checks.is_empty() {
            println!("missed {name}: no check is named for it");
        }
        let mut by_all = !checks.is_empty();
        for (_, check, run) in checks {
            select(0);
            run();
            select_by_name(name);
            let failed = panic::catch_unwind(run).is_err();
            by_all &= failed;
            println!("{} {name} by {check}", if failed { "caught" } else { "missed" });
        }
        caught += usize::from(by_all);
    }
    select_by_name("removed_id_added_again");
    reuse::without_that_rule_the_new_member_stops_instead_of_being_sent_entries_for_ever();
    select(0);
    println!("raft-mutants caught={caught}/{}", SHOWN_BY_TESTS.len());
    assert_eq!(caught, SHOWN_BY_TESTS.len(), "a planted bug was not caught");
}
