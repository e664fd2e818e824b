//! Lists the bugs that a mutant build plants to show that the checks detect them.
//!
//! Only a build with `--cfg mutants` contains them, all of them; the test selects one at run time. In every other build
//! `mutant!` is the constant `false`.

tenure_types::plant_for_process!(ALL, &[]);

/// The name of each planted bug and the invariants that may detect it. Bugs are numbered from 1.
#[cfg(mutants)]
pub const ALL: &[(&str, &[&str])] = &[
    ("expire_holders_before_waiters", &["S3", "Q1", "T1"]),
    ("token_from_revision", &["S2"]),
    ("token_counter_not_in_snapshot", &["S10", "S2"]),
    ("requests_not_in_snapshot", &["S10", "S7"]),
    ("clock_base_not_in_snapshot", &["S10"]),
    ("clock_not_in_snapshot", &["S10"]),
    ("queue_not_in_snapshot", &["S10"]),
    ("grant_to_dead_waiter", &["S3"]),
    ("compaction_off_by_one", &["W3"]),
    ("release_without_token_check", &["S2", "S4"]),
    // Detected by comparison with another replica or with the model; chance decides which comparison sees the wrong
    // order first.
    ("hash_order", &["S9", "T1", "model"]),
    ("second_exclusive_holder", &["S1", "T2"]),
    ("writer_overtaken", &["Q1", "Q7", "Q8"]),
    ("wait_limit_forgotten", &["Q2"]),
    ("release_forgets_waiters", &["Q2"]),
    ("reask_takes_second_place", &["Q3", "Q4"]),
    // The lease that is revived may belong to another principal.
    ("renewal_revives_ended_lease", &["S5", "T1", "A2"]),
    ("handle_ignores_generation", &["S5"]),
    ("repeated_request_runs_again", &["S7"]),
    ("full_ttl_on_new_term", &["T1"]),
    ("wrong_term_entry_counts", &["T1", "T2"]),
    // It may end the cooling of another grant.
    ("stopped_without_token_check", &["S4", "T2"]),
    ("force_frees_at_once", &["T2"]),
    ("lock_delay_forgotten", &["T2"]),
    ("false_deadlock_for_shared_holders", &["Q4"]),
    ("deadlock_missed", &["Q4", "Q3"]),
    ("guard_ignores_token", &["S4"]),
    ("restore_keeps_epoch", &["S2"]),
    ("quiet_from_backup_leases_only", &["T1", "T2"]),
    ("grant_given_back_although_a_retry_was_told", &["Q5"]),
    ("lease_rounded_down", &["T1"]),
    ("clock_from_the_label", &["T1"]),
    ("permission_not_checked_in_apply", &["A1"]),
    ("lease_of_another_principal_renewed", &["A2"]),
    ("revoked_principal_keeps_leases", &["A3"]),
    ("quota_checked_after_the_fact", &["A4"]),
    ("min_hold_ends_with_the_hold", &["T5"]),
    ("min_hold_since_the_end", &["T5"]),
    ("drain_holds_back_new_asks_only", &["S15"]),
    ("undrain_forgets_waiters", &["Q2"]),
    ("no_progress_is_not_noticed", &["T6"]),
    ("any_report_counts_as_progress", &["T6"]),
    ("progress_not_in_snapshot", &["S10", "T6"]),
    ("priority_does_not_age", &["Q7"]),
    ("priority_forgotten_in_queue", &["Q7"]),
    ("passed_waiters_not_searched", &["Q4"]),
    ("places_ahead_not_searched", &["Q4"]),
    ("upgrade_beside_other_holders", &["S1", "Q8"]),
    ("upgrade_behind_the_queue", &["Q8", "Q1", "Q4"]),
    ("second_upgrade_waits", &["Q4", "Q8"]),
    ("upgrade_not_in_snapshot", &["S10", "Q8"]),
    ("handed_on_to_the_first_waiter", &["S4", "S16"]),
    ("giver_keeps_its_hold", &["S16", "S1", "S5"]),
    ("hand_on_forgets_the_min_hold", &["T5"]),
    ("priority_not_in_snapshot", &["S10"]),
    ("supersede_ignores_the_group", &["Q6"]),
    ("supersede_ignores_the_principal", &["Q6"]),
    ("superseded_waiter_stays", &["Q6"]),
    ("drains_not_in_snapshot", &["S10", "S15"]),
    ("one_free_slot_is_enough", &["S1", "S17"]),
    ("last_slot_not_granted", &["S17"]),
    ("small_request_passes_a_large_one", &["Q1", "Q7"]),
    ("grown_semaphore_forgets_waiters", &["Q2"]),
    ("too_large_waiter_stays", &["Q9"]),
    ("size_not_in_snapshot", &["S10"]),
    ("held_answer_remembered_whole", &["S18", "S7"]),
    ("resting_grant_costs_nothing", &["A4"]),
    ("metadata_in_every_event", &["S18"]),
    ("upgrade_at_once_not_searched", &["Q4"]),
    ("resized_request_not_recognised", &["Q3"]),
    ("handed_min_hold_abandoned", &["T5"]),
    ("upgrade_forgotten_when_alone", &["Q2"]),
    ("closed_prefix_of_a_long_name_stays", &["S15"]),
    ("lost_upgrade_is_a_timeout", &["Q8"]),
    ("any_waits_for_all", &["Q2"]),
    ("any_is_granted_all", &["S19", "S1", "Q1", "S15"]),
    ("any_ignores_the_queue", &["Q1", "Q7"]),
    ("choice_is_not_told", &["S19"]),
    ("false_deadlock_for_a_choice", &["Q4"]),
    ("any_not_in_snapshot", &["S10"]),
    ("new_slot_forgets_waiters", &["Q10", "Q3"]),
    ("reopening_forgets_the_rest", &["Q2", "T1"]),
    ("reopening_not_in_snapshot", &["S10", "Q2"]),
    ("one_owner_takes_all_records", &["S7"]),
    ("numbered_request_costs_nothing", &["A4"]),
    ("reopening_puts_off_what_is_due", &["T7"]),
    ("slice_for_each_undrain", &["Q11"]),
    ("reopening_does_not_begin_again", &["Q2"]),
    ("compaction_keeps_nothing", &["W3"]),
    ("compaction_is_not_recorded", &["W3"]),
    ("priority_of_a_rule_for_other_locks", &["A1"]),
    ("priority_of_one_lock_is_enough", &["A1"]),
    ("priority_of_rules_not_in_snapshot", &["S10", "A1"]),
];

#[cfg(mutants)]
impl crate::Machine {
    /// Planted bug: iterates in an order that differs between processes.
    pub(crate) fn shuffle<T: Copy>(&self, grants: &mut [(T, crate::state::slab::SlabIndex)]) {
        let salt = core::ptr::from_ref(self).addr() as u64;
        let hash = |slot: crate::state::slab::SlabIndex| {
            xxhash_rust::xxh3::xxh3_64_with_seed(&slot.number().to_le_bytes(), salt)
        };
        grants.sort_by_key(|(_, slot)| hash(*slot));
    }

    /// Planted bug: gives every lease its full ttl at each election, as some lease systems do.
    pub(crate) fn renew_all(&mut self) {
        let leases: alloc::vec::Vec<_> = self.leases.iter().map(|(slot, _)| slot).collect();
        for slot in leases {
            let lease = self.leases.at(slot);
            let (id, old) = (lease.id.get(), lease.deadline_ms);
            let new = self.deadline(u64::from(lease.ttl_ms));
            self.due.remove(old, crate::state::due::DueKind::Lease, id);
            self.due.insert(new, crate::state::due::DueKind::Lease, id, Some(slot));
            self.leases.at_mut(slot).deadline_ms = new;
        }
    }
}
