//! Writes the code by which a crate chooses one of its planted bugs at run time.
//!
//! A planted bug is an `if mutant!("name")` where the bug would be (`docs/internals/planted-bugs.md`). A crate that has
//! some calls one of these macros in its module `plant`, which its `lib.rs` declares first and with `#[macro_use]`. The
//! macro writes `mutant!` and the functions into the calling crate: whether a build contains planted bugs is known only
//! there, because `cfg(test)` is set for no other crate than the one that is tested.

/// Plants bugs in builds with `--cfg mutants`, and chooses one for the whole process.
///
/// The arguments are two lists of names: the bugs that simulations must show, each with the invariants that may detect
/// it, and those that only tests show. In every other build `mutant!` is the constant `false`.
#[doc(hidden)]
#[macro_export]
#[allow(clippy::crate_in_macro_def, reason = "the calling crate has the module `plant`")]
macro_rules! plant_for_process {
    ($all:expr, $shown_by_tests:expr) => {
        #[cfg(mutants)]
        static CHOSEN: core::sync::atomic::AtomicUsize = core::sync::atomic::AtomicUsize::new(0);

        /// Every name, in the order of the numbers, which begin with 1.
        #[cfg(mutants)]
        fn names() -> impl Iterator<Item = &'static str> {
            let (all, shown_by_tests): (&[(&str, &[&str])], &[&str]) = ($all, $shown_by_tests);
            all.iter().map(|(name, _)| *name).chain(shown_by_tests.iter().copied())
        }

        /// Chooses a planted bug by number; 0 for none.
        #[cfg(mutants)]
        pub fn select(number: usize) {
            CHOSEN.store(number, core::sync::atomic::Ordering::Relaxed);
        }

        /// Chooses a planted bug by name.
        #[cfg(mutants)]
        pub fn select_by_name(name: &str) {
            let at = names().position(|known| known == name);
            select(at.expect("a planted bug of this name") + 1);
        }

        /// Whether the planted bug of this name is chosen.
        #[cfg(mutants)]
        pub(crate) fn chosen(name: &str) -> bool {
            let number = CHOSEN.load(core::sync::atomic::Ordering::Relaxed);
            number > 0 && names().nth(number - 1) == Some(name)
        }

        /// Whether the planted bug of this name is chosen; `false` in every ordinary build.
        macro_rules! mutant {
            ($name:literal) => {{
                #[cfg(mutants)]
                let chosen = crate::plant::chosen($name);
                #[cfg(not(mutants))]
                let chosen = false;
                chosen
            }};
        }
    };
}

/// Plants bugs in the unit tests of the calling crate, and chooses one for a thread: tests run side by side.
///
/// In every other build `mutant!` is the constant `false`.
#[doc(hidden)]
#[macro_export]
#[allow(clippy::crate_in_macro_def, reason = "the calling crate has the module `plant`")]
macro_rules! plant_for_thread {
    () => {
        #[cfg(test)]
        std::thread_local! {
            static CHOSEN: core::cell::Cell<Option<&'static str>> =
                const { core::cell::Cell::new(None) };
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
                let chosen = crate::plant::chosen($name);
                #[cfg(not(test))]
                let chosen = false;
                chosen
            }};
        }
    };
}
