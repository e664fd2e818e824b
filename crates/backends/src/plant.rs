//! Plants bugs in the handle over other stores, to show that its tests would find them.
//!
//! Only this crate's tests contain them. A test chooses one for its thread. In every other build `mutant!` is the
//! constant `false`, so the shipped code has none.

#[cfg(test)]
use std::cell::Cell;

#[cfg(test)]
thread_local! {
    static CHOSEN: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// Chooses a planted bug for this thread, or none.
#[cfg(test)]
pub(crate) fn select(name: Option<&'static str>) {
    CHOSEN.set(name);
}

/// Whether the planted bug of this name is chosen.
#[cfg(test)]
pub(crate) fn chosen(name: &str) -> bool {
    CHOSEN.get() == Some(name)
}

/// Whether the planted bug of this name is chosen; `false` in every ordinary build.
macro_rules! mutant {
    ($name:literal) => {{
        #[cfg(test)]
        let chosen = $crate::plant::chosen($name);
        #[cfg(not(test))]
        let chosen = false;
        chosen
    }};
}
