//! What has happened since a revision?

use alloc::vec::Vec;
use tenure_types::Revision;

use crate::codec::{EventRef, Reader, SubjectRef, get_event};
use crate::event::{Batch, Event};
use crate::machine::Machine;

/// Which events a question is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Filter<'a> {
    /// All.
    All,
    /// Those of locks and keys of exactly this name.
    Exact(&'a str),
    /// Those of locks and keys whose names begin so.
    Prefix(&'a str),
}

impl Filter<'_> {
    pub(super) fn admits(self, event: &EventRef<'_>) -> bool {
        let name = match event.subject {
            SubjectRef::Lock(name) | SubjectRef::Key(name) => name,
            SubjectRef::Lease(_) | SubjectRef::Settings => return self == Filter::All,
        };
        match self {
            Filter::All => true,
            Filter::Exact(exact) => name == exact.as_bytes(),
            Filter::Prefix(prefix) => name.starts_with(prefix.as_bytes()),
        }
    }
}

/// Part of the history.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Events {
    /// Whole revisions in which something matches, with what does.
    pub batches: Vec<Batch>,
    /// The revision to go on from: everything before it was looked at.
    pub next: Revision,
}

/// The revision asked for is older than the history.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("history begins at revision {floor}")]
pub struct Compacted {
    /// The oldest revision that can be asked for.
    pub floor: Revision,
}

impl Machine {
    /// The events from a revision on, looking at `max` revisions at most.
    ///
    /// A revision that has not been reached is answered with nothing, and itself as the one to go on
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
            let events: Vec<Event> = matching(bytes, filter);
            if !events.is_empty() {
                batches.push(Batch { revision, events });
            }
            next = revision.next();
        }
        Ok(Events { batches, next })
    }
}

fn matching(bytes: &[u8], filter: Filter<'_>) -> Vec<Event> {
    let mut reader = Reader::new(bytes);
    let mut events = Vec::new();
    while !reader.is_empty() {
        let event = get_event(&mut reader).expect("history has only what was written or checked");
        if filter.admits(&event) {
            events.push(event.to_owned().expect("names in history are names"));
        }
    }
    events
}
