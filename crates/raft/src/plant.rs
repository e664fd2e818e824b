//! Lists the bugs that a mutant build plants to show that the checks detect them.
//!
//! Only a build with `--cfg mutants` contains them, all of them; the test selects one at run time. In every other build
//! `mutant!` is the constant `false`.

tenure_types::plant_for_process!(ALL, SHOWN_BY_TESTS);

/// The name of each planted bug and the invariants that may detect it. Bugs are numbered from 1.
#[cfg(mutants)]
pub const ALL: &[(&str, &[&str])] = &[
    ("acknowledge_before_fsync", &["S8", "S12"]),
    ("vote_not_durable", &["S12", "S8"]),
    ("read_before_own_term", &["S6"]),
    ("read_context_reused", &["S6"]),
    ("stall_is_charged", &["T3"]),
    ("count_kept_over_election", &["S5"]),
    ("no_checkpoint", &["L2", "L1"]),
    ("clock_read_before_input", &["S5"]),
    ("applied_twice_after_restart", &["S9", "S11"]),
    ("commit_on_minority", &["S8", "S12"]),
    ("answer_when_proposed", &["S13"]),
    ("snapshot_behind_state", &["S9", "S11"]),
    ("other_term_is_success", &["S13"]),
    ("leads_before_its_vote_is_durable", &["S12", "S8"]),
    ("growth_on_a_full_disk", &["S14"]),
    ("promise_compared_by_index", &["S8", "S9", "S12"]),
    ("leader_not_remembered", &["S8", "S9", "S12"]),
    ("unbounded_term", &["N17"]),
    ("removed_member_heard", &["S12", "S8", "L1"]),
    ("stranger_heard", &["S12", "S8", "L1"]),
    ("removed_id_added_again", &["N18"]),
];

/// Planted bugs that a test in `tests/rules` shows. Clusters show `removed_id_added_again` too, and meet the others too
/// rarely.
#[cfg(mutants)]
pub const SHOWN_BY_TESTS: &[&str] = &[
    "members_changed_before_own_term",
    "removed_id_added_again",
    "removed_member_stops_at_once",
    "vote_forgotten",
    "damaged_snapshot_sent_again",
    "stale_snapshot_replaces_a_newer_one",
    "skipped_change_is_no_effect",
];
