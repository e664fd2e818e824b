//! Lists the bugs that a test can plant to show that the checks find them.
//!
//! Only a build with `--cfg mutants` contains them; the test selects one at run time. In every other build `mutant!` is
//! the constant `false`.

tenure_types::plant_for_process!(ALL, SHOWN_BY_TESTS);

/// The name of each planted bug and the invariants that may catch it, by number from 1.
#[cfg(mutants)]
pub const ALL: &[(&str, &[&str])] = &[
    ("log_truncated_in_the_middle", &["S8"]),
    ("running_sync_covers_later_writes", &["S8", "S12"]),
];

/// The name of each planted bug that the tests of this crate must catch and cluster runs need not. They are numbered
/// after those of [`ALL`]. `tests/planted.rs` names the check that catches each.
#[cfg(mutants)]
pub const SHOWN_BY_TESTS: &[&str] = &[
    "cut_batch_not_said",
    "chunk_accepted_twice",
    "raw_snapshot_not_verified",
    "part_trusted_unverified",
    "late_sync_covers_all",
    "damaged_snapshot_kept",
    "resumed_part_not_rewritten",
];
