//! Which bugs can be planted, to show that the checks would find them?
//!
//! Only a build with `--cfg mutants` contains them; one is chosen at run time. In every other build
//! `mutant!` is the constant `false`.

#[cfg(mutants)]
use std::sync::atomic::{AtomicUsize, Ordering};

#[cfg(mutants)]
static CHOSEN: AtomicUsize = AtomicUsize::new(0);

/// Name and the invariants that may catch each planted bug, by number from 1.
#[cfg(mutants)]
pub const ALL: &[(&str, &[&str])] = &[("log_truncated_in_the_middle", &["S8"])];

/// Chooses a planted bug by number; 0 for none.
#[cfg(mutants)]
pub fn select(number: usize) {
    CHOSEN.store(number, Ordering::Relaxed);
}

/// Whether the planted bug of this name is chosen.
#[cfg(mutants)]
pub(crate) fn chosen(name: &str) -> bool {
    let number = CHOSEN.load(Ordering::Relaxed);
    number > 0 && ALL.get(number - 1).is_some_and(|(chosen, _)| *chosen == name)
}

/// Whether the planted bug of this name is chosen; `false` in every ordinary build.
macro_rules! mutant {
    ($name:literal) => {{
        #[cfg(mutants)]
        let chosen = $crate::plant::chosen($name);
        #[cfg(not(mutants))]
        let chosen = false;
        chosen
    }};
}
