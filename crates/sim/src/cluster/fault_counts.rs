//! Counts how often each kind of fault has occurred.

use std::collections::BTreeMap;

/// Every kind of fault and of rare event that a long run must have seen.
const KINDS: &[&str] = &[
    // The network.
    "drop",
    "duplicate",
    "delay",
    "reorder",
    "partition",
    "one_way",
    "bridge",
    // Processes.
    "kill",
    "power_loss",
    "power_loss_some",
    "crash_of_all",
    "pause",
    "long_pause",
    // Disks.
    "lost_write",
    "torn_write",
    "overlapping_sync",
    "rolled_under_sync",
    "compacted_under_sync",
    "lost_directory_change",
    "slow_sync",
    "sync_aside",
    "loop_waited",
    "marked",
    "write_error",
    "sync_error",
    "no_space",
    "nearly_full",
    "refused_full",
    "done_while_full",
    "read_error",
    "read_only",
    "device_error",
    "damage_while_running",
    "misdirected_write",
    "stale_sector",
    "lying_sync",
    "lie_forgot",
    "lie_harmless",
    "flip_in_log",
    "flip_in_snapshot",
    "backed_up",
    "restored",
    "restored_again",
    "held_after_restore",
    "survivor",
    "survivor_refused",
    "rolled_back",
    "rolled_back_leader",
    "rolled_back_leader_under_another",
    "rolled_back_under_another",
    "newest_lost",
    "newest_lost_leader",
    // Forged messages.
    "forged_by_stranger",
    "forged_by_removed",
    "forged_term",
    // Clocks.
    "clock_rate",
    // Members and snapshots.
    "add",
    "promote",
    "remove",
    "reuse",
    "joint",
    "transfer",
    "remove_leader",
    "remove_of_two",
    "operation_done",
    "operation_failed",
    "snapshot_saved",
    "snapshot_cut",
    "snapshot_installed",
    // Clients.
    "dies_holding",
    "retry",
    "not_done",
    "unknown",
    "lease_lost",
    // Callers without a session.
    "call",
    "call_abandoned",
    "call_retried",
    "call_not_told",
    "call_reply_lost",
    "call_lost",
    "call_taken_back",
    "call_left_to_a_retry",
    "call_left_nothing",
    "call_told",
    "call_told_a_retry",
    // Links between members.
    "link_break",
    "link_overflow",
    "forward_lost",
    "forward_expired",
    "older_build",
    "upgrade",
    "upgrade_of_all",
    "raise_level",
    "raise_refused",
    "level_raised",
    "outgrown",
    // Sessions, and the links of clients.
    "session_cut",
    "session_full",
    "session_ended",
    "mail_overflow",
    "told_unknown",
    "leader_told",
    "learned_late",
    "client_link_one_way",
    "client_sleeps",
    "duplicate_batch",
    "expired_on_arrival",
    "asked_again",
    "forced",
    "too_large",
    // Single threads, machines and budgets.
    "router_stall",
    "backlog_lost",
    "router_swept",
    "route_forgotten",
    "sync_stall",
    "snapshot_stall",
    "save_stalled",
    "transfer_stalled",
    "log_sink_stalled",
    "log_sink_failed",
    "log_line_dropped",
    "log_gap_reported",
    "suspend",
    "overload",
    "overloaded",
    "flood",
    "rate_limited",
    "window_closed",
    "left_in_inbox",
    "leave",
    // Strangers, and changes of identities.
    "stranger_frame",
    "removed_member_frame",
    "forged_commands",
    "forged_admin",
    "forged_answers",
    "forged_admin_answer",
    "forged_join",
    "join_answered",
    "rename",
    "initial_member_late",
    "initial_member_crash",
    "initial_member_moved",
    "join",
    "joined",
    "invite",
    "invitation_shared",
    "join_uninvited",
    "stranger_uninvited",
    "stranger_guessed",
    "stranger_used",
    "stranger_expired",
    "join_answer_lost",
    "join_given_up",
    "join_rejected",
    "wiped",
    "standing_asked",
    "standing_late",
    "standing_lost",
    "standing_wrong",
    "standing_retired",
    // Events that the checks depend on.
    "forwarded",
    "snapshot_chunk",
    "snapshot_resumed",
    "transfer_ended",
    "batch_of_several",
    "expired",
    "queued",
    "granted_by_notice",
    "given_back",
    "lost_by_notice",
    "admin_unknown",
    "sessions_skipped",
    "read_failed",
    "term",
    "entry",
    "held",
    "read",
    "watch_hop",
    "watch_event",
    "watch_compacted",
];

/// How often each kind of fault has happened.
#[derive(Clone, Debug, Default)]
pub struct FaultCounts {
    counts: BTreeMap<&'static str, u64>,
}

impl FaultCounts {
    pub(super) fn count(&mut self, kind: &'static str) {
        self.count_by(kind, 1);
    }

    pub(super) fn count_by(&mut self, kind: &'static str, times: u64) {
        debug_assert!(KINDS.contains(&kind), "{kind} is listed");
        if times > 0 {
            *self.counts.entry(kind).or_default() += times;
        }
    }

    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Self) {
        for (kind, times) in &other.counts {
            *self.counts.entry(kind).or_default() += times;
        }
    }

    /// The number of kinds, and those that never occurred.
    pub fn missing(&self) -> (usize, Vec<&'static str>) {
        let missing = KINDS.iter().filter(|kind| !self.counts.contains_key(*kind));
        (KINDS.len(), missing.copied().collect())
    }

    /// All counts on one line.
    pub fn line(&self) -> String {
        let counts = KINDS.iter().map(|kind| {
            let count = self.counts.get(kind).copied().unwrap_or(0);
            format!("{kind}={count}")
        });
        counts.collect::<Vec<_>>().join(" ")
    }
}
