//! Reads the events since a revision.

use alloc::vec::Vec;
use tenure_types::Revision;

use crate::codec::{EventRef, Reader, SubjectRef, get_event, get_label};
use crate::event::{Batch, Cause, Event, TimeLabel};
use crate::machine::Machine;

/// Selects events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Filter<'a> {
    /// Every event.
    All,
    /// Events of locks and keys with exactly this name.
    Exact(&'a str),
    /// Events of locks and keys whose names begin with this prefix, and of drained prefixes that have names in common
    /// with it.
    Prefix(&'a str),
}

impl Filter<'_> {
    pub(super) fn admits(self, event: &EventRef<'_>) -> bool {
        let name = match event.subject {
            SubjectRef::Lock(name) | SubjectRef::Key(name) => name,
            SubjectRef::Settings => return self.admits_settings(event),
            SubjectRef::Lease(_) => return self == Filter::All,
        };
        match self {
            Filter::All => true,
            Filter::Exact(exact) => name == exact.as_bytes(),
            Filter::Prefix(prefix) => name.starts_with(prefix.as_bytes()),
        }
    }

    /// A watch of a prefix gets the event of a drain if one of the two prefixes begins with the other.
    fn admits_settings(self, event: &EventRef<'_>) -> bool {
        let (Cause::Drained | Cause::Undrained, Some(drained)) = (event.cause, event.value) else {
            return self == Filter::All;
        };
        match self {
            Filter::All => true,
            Filter::Exact(_) => false,
            Filter::Prefix(prefix) => {
                let prefix = prefix.as_bytes();
                prefix.starts_with(drained) || drained.starts_with(prefix)
            }
        }
    }
}

/// Part of the history.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Events {
    /// Whole revisions with a matching event, each with its matching events.
    pub batches: Vec<Batch>,
    /// The revision to continue from: everything before it was searched.
    pub next: Revision,
}

/// The requested revision is older than the history.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("history begins at revision {floor}")]
pub struct Compacted {
    /// The oldest revision that can be read.
    pub floor: Revision,
}

impl Machine {
    /// The matching events from a revision on, searching at most `max` revisions.
    ///
    /// For a revision that has not been reached, the result is empty and names that revision as the one to continue
    /// from.
    pub fn events(
        &self,
        from: Revision,
        filter: Filter<'_>,
        max: usize,
    ) -> Result<Events, Compacted> {
        let floor = self.history.floor();
        if from < floor {
            return Err(Compacted { floor });
        }
        let mut next = from;
        let mut batches = Vec::new();
        for (revision, bytes) in self.history.records(from).take(max) {
            let (label, events) = matching(bytes, filter);
            if !events.is_empty() {
                batches.push(Batch { revision, label, events });
            }
            next = revision.next();
        }
        Ok(Events { batches, next })
    }
}

fn matching(bytes: &[u8], filter: Filter<'_>) -> (Option<TimeLabel>, Vec<Event>) {
    let mut reader = Reader::new(bytes);
    let label = get_label(&mut reader).expect("history has only what was written or checked");
    let mut events = Vec::new();
    while !reader.is_empty() {
        let event = get_event(&mut reader).expect("history has only what was written or checked");
        if filter.admits(&event) {
            events.push(event.to_owned().expect("names in history are names"));
        }
    }
    (label, events)
}
