//! Groups the commands that inspect locks: list, queue, explanation and history.

mod at_time;
mod explain;
mod history;
mod locks;
mod queue;
mod stale;
mod verify;

pub(crate) use explain::{ExplainArgs, explain, text as explain_text};
pub(crate) use history::{HistoryArgs, event_line, history, text as history_text};
pub(crate) use locks::{LocksArgs, held_for, holder_cell, locks, mode_words, page};
pub(crate) use queue::{QueueArgs, queue};
