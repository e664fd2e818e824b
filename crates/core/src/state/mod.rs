//! Defines the records of the state and the structures that link them.
//!
//! Functions that search a tree or a list are marked `#[inline(never)]` for the reason in `command/mod.rs`. The checks
//! whether there is something to search are inlined.

pub(crate) mod drain;
pub(crate) mod due;
pub(crate) mod history;
pub(crate) mod list;
pub(crate) mod names;
pub(crate) mod owner;
pub(crate) mod rank;
pub(crate) mod record;
pub(crate) mod shares;
pub(crate) mod slab;
pub(crate) mod tokens;
pub(crate) mod touched;
