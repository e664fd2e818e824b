//! Defines what `tenure --version` prints.

/// What `--version` prints; `-V` prints the first line only. It has no time and no path, so that the same sources and
/// the same compiler give the same binary.
pub(crate) const LONG_VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    "\nbuilt by ",
    env!("TENURE_BUILT_BY"),
    "\nfor ",
    env!("TENURE_BUILT_FOR"),
    " as ",
    env!("TENURE_BUILT_AS")
);
