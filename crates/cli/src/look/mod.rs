//! What can be seen of locks: which there are, who waits, why, and what happened before?

mod explain;
mod history;
mod locks;
mod queue;

pub(crate) use explain::{Explain, explain};
pub(crate) use history::{History, event_words, history};
pub(crate) use locks::{Locks, locks};
pub(crate) use queue::{Queue, queue};
