//! Lists the bugs that a test can plant in a node, to show that the checks would find them.
//!
//! Only a build with `--cfg mutants` contains them, all at once; one is chosen at run time. In every
//! other build `mutant!` is the constant `false`.

tenure_types::plant_for_process!(ALL, SHOWN_BY_TESTS);

/// The name of each planted bug and the invariants that may catch it, by number from 1.
#[cfg(mutants)]
pub const ALL: &[(&str, &[&str])] = &[
    ("admission_counted_after_the_fact", &["N2"]),
    ("admission_leaked", &["N2"]),
    ("answer_routed_to_an_older_session", &["N1"]),
    ("forwarded_answer_dropped", &["N3"]),
    ("forwarded_deadline_ignored", &["N4"]),
    ("notice_lost_on_reconnect", &["N5"]),
    ("welcome_attaches_nothing", &["N5"]),
    ("unread_session_kept", &["N2"]),
    ("sweep_forgets_unseen_leases", &["N5"]),
    ("answers_in_another_order", &["S13"]),
    ("given_up_as_without_effect", &["S13"]),
    ("session_room_leaked", &["N2"]),
    ("early_loss_not_told", &["N5"]),
    ("skipped_entries_not_told", &["N5"]),
    ("retried_without_an_id", &["S7"]),
    ("doubt_forgotten", &["S13"]),
    ("stranger_may_command", &["N6"]),
    ("removed_member_may_command", &["N6"]),
    ("read_answered_before_its_index", &["S6"]),
    ("join_takes_over_a_member", &["N7"]),
    ("chunk_accepted_twice", &["N8"]),
    ("initial_members_decide_alone", &["N10"]),
    ("epoch_of_another_restore", &["S2"]),
    ("log_line_blocks_the_loop", &["N13"]),
    ("told_grant_taken_back", &["N11", "S1"]),
    ("untold_grant_kept", &["N11"]),
    ("failed_abandon_is_no_effect", &["N11"]),
    ("failed_removal_reported_as_done", &["N12"]),
    ("unknown_removal_reported_as_no_effect", &["N12"]),
    ("invitation_used_twice", &["N14"]),
    ("lineage_ignored", &["N10"]),
    ("source_keeps_its_turn", &["N16"]),
    ("window_leaked", &["N2"]),
    ("stalled_window_stays_closed", &["N3"]),
];

/// Planted bugs that `tests/planted.rs` shows. Clusters show the first one too (N8), and the others too rarely: a
/// leader's answer must still be on its way when the member that it is for has started again and has forwarded as many
/// commands as before.
#[cfg(mutants)]
pub const SHOWN_BY_TESTS: &[&str] = &[
    "chunk_accepted_twice",
    "answer_to_an_earlier_start",
    "commands_of_an_earlier_start",
    "lost_link_ignored",
];
