//! What does the machine remember, and how are its parts linked?

pub(crate) mod due;
pub(crate) mod history;
pub(crate) mod list;
pub(crate) mod names;
pub(crate) mod record;
pub(crate) mod slab;
