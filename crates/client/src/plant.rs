//! Plants bugs in the lease state, to show that its schedule tests would find them.
//!
//! Only this crate's tests contain them; one is chosen for a thread at run time. In every other build `mutant!` is the
//! constant `false`, so the shipped code has none.

tenure_types::plant_for_thread!();

/// Every planted bug that the schedules must catch. One more, `timer_on_runtime`, is caught by the watchdog's tests.
#[cfg(test)]
pub(crate) const ALL: &[&str] = &[
    "count_from_reply",
    "count_from_resend",
    "release_before_stop",
    "ignore_changed",
    "holdings_after_moving",
    "late_answer_revives",
    "clock_stops_in_suspend",
    "check_without_clock",
    "late_grant_is_held",
    "window_without_drift",
    "held_when_given_back",
    "held_after_farewell",
];
