//! Lists the bugs that a test can plant to show that the checks find them.
//!
//! Only a build with `--cfg mutants` contains them; the test selects one at run time. In every other build `mutant!` is
//! the constant `false`.

#[cfg(mutants)]
use std::sync::atomic::{AtomicUsize, Ordering};

#[cfg(mutants)]
static CHOSEN: AtomicUsize = AtomicUsize::new(0);

/// The name of each planted bug and the invariants that may catch it, by number from 1.
#[cfg(mutants)]
pub const ALL: &[(&str, &[&str])] = &[
    ("log_truncated_in_the_middle", &["S8"]),
    ("running_sync_covers_later_writes", &["S8", "S12"]),
];

/// The name of each planted bug that the tests of this crate must catch and cluster runs need not. They are numbered
/// after those of [`ALL`]. `tests/planted.rs` names the check that catches each.
#[cfg(mutants)]
pub const IN_TESTS: &[&str] = &[
    "cut_batch_not_said",
    "chunk_accepted_twice",
    "raw_snapshot_not_verified",
    "part_trusted_unverified",
    "late_sync_covers_all",
    "damaged_snapshot_kept",
    "resumed_part_not_rewritten",
];

/// Selects a planted bug by number; 0 selects none.
#[cfg(mutants)]
pub fn select(number: usize) {
    CHOSEN.store(number, Ordering::Relaxed);
}

/// Whether the planted bug with this name is selected.
#[cfg(mutants)]
pub(crate) fn chosen(name: &str) -> bool {
    let number = CHOSEN.load(Ordering::Relaxed);
    let mut names = ALL.iter().map(|(name, _)| *name).chain(IN_TESTS.iter().copied());
    number > 0 && names.nth(number - 1) == Some(name)
}

/// Whether the planted bug with this name is selected; `false` in every ordinary build.
macro_rules! mutant {
    ($name:literal) => {{
        #[cfg(mutants)]
        let chosen = $crate::plant::chosen($name);
        #[cfg(not(mutants))]
        let chosen = false;
        chosen
    }};
}
