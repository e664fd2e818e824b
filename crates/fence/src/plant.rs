//! Plants bugs in the rule, to show that its model would find them.
//!
//! Only this crate's tests contain them; one is chosen for a thread at run time. In every other build `mutant!` is the
//! constant `false`, so the shipped code has none.

tenure_types::plant_for_thread!();

/// Every planted bug.
#[cfg(test)]
pub(crate) const ALL: &[&str] = &[
    "lower_accepted",
    "equal_refused",
    "floor_not_raised",
    "exclusive_ignores_shared",
    "shared_fences_shared",
    "shared_falls",
    "old_epoch_shared",
    "once_accepts_equal",
    "raise_uses_up",
    "incarnation_ignored",
    "incarnation_outlives_epoch",
    "compared_as_doubles",
    "compared_as_unpadded_text",
    "slots_share_a_floor",
];
