//! Names the bugs that can be planted around a member, to show that its unit tests would find them.
//!
//! Only the tests of this crate contain them; one is chosen for a thread at run time. In every other build `mutant!` is
//! the constant `false`, so what ships has none.

#[cfg(test)]
use std::cell::Cell;

#[cfg(test)]
thread_local! {
    static CHOSEN: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// Runs something with a planted bug chosen for this thread.
#[cfg(test)]
pub(crate) fn with<T>(name: &'static str, run: impl FnOnce() -> T) -> T {
    CHOSEN.set(Some(name));
    let result = run();
    CHOSEN.set(None);
    result
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
