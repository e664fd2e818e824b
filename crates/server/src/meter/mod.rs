//! What is counted, and by whom?
//!
//! The loop bumps plain numbers and leaves copies of what it applied; whoever has time makes figures with labels of
//! those. Nothing here decides anything, and nothing that is decided looks here.
//!
//! ```text
//! loop ──numbers──► Meters                                    ─┐
//! loop ──records──► Tally: by prefix, mode, and how long       ├─► /metrics
//! doors ─requests─► Asked: by door and command, refusals by reason ─┘
//! ```

mod asked;
mod histogram;
mod tally;

pub(crate) use asked::{Asked, Class, Door};
pub(crate) use histogram::{Histogram, Scale};
pub(crate) use tally::{Freed, OTHER, PREFIXES_MAX, Tally, count};
