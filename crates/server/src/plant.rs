//! Names the bugs that can be planted around a member, to show that its unit tests would find them.
//!
//! Only the tests of this crate contain them; one is chosen for a thread at run time. In every other build `mutant!` is
//! the constant `false`, so what ships has none.

tenure_types::plant_for_thread!();

/// Runs something with a planted bug chosen for this thread.
#[cfg(test)]
pub(crate) fn with<T>(name: &'static str, run: impl FnOnce() -> T) -> T {
    select(Some(name));
    let result = run();
    select(None);
    result
}
