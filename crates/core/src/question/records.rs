//! Copies a part of the history out of the machine, to be decoded elsewhere.
//!
//! [`Machine::records`] copies bytes and decodes nothing, so that a latency-sensitive thread can pass them to another
//! one.

use alloc::vec::Vec;
use tenure_types::{LeaseId, Mode, PlaceNumber, Revision};

use super::events::{Compacted, Filter};
use crate::codec::{EventRef, Reader, SubjectRef, get_event, get_label};
use crate::event::{Cause, Event, TimeLabel};
use crate::machine::Machine;
use crate::state::history;

/// The bounds on one copy. It always holds at least one whole record, however large.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Most {
    /// The most revisions.
    pub revisions: usize,
    /// The most bytes; the last record may exceed them.
    pub bytes: usize,
}

/// Consecutive revisions of the history, in encoded form.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RevisionRecords {
    bytes: Vec<u8>,
    from: Revision,
    next: Revision,
    newest: Revision,
}

/// All events of one revision, not yet decoded.
#[derive(Clone, Copy, Debug)]
pub struct RevisionRecord<'a> {
    /// The revision.
    pub revision: Revision,
    events: &'a [u8],
}

/// One event of a record: decoded, but not copied.
#[derive(Clone, Copy, Debug)]
pub struct Recorded<'a> {
    event: EventRef<'a>,
    bytes: usize,
}

impl Machine {
    /// Copies the history from a revision on.
    ///
    /// For a revision that has not been reached, the result is empty and names that revision as the one to continue
    /// from.
    pub fn records(&self, from: Revision, most: Most) -> Result<RevisionRecords, Compacted> {
        let floor = self.history.floor();
        if from < floor {
            return Err(Compacted { floor });
        }
        let mut bytes = Vec::new();
        let mut next = from;
        for (revision, events) in self.history.records(from).take(most.revisions) {
            if bytes.len() >= most.bytes {
                break;
            }
            history::put_record(&mut bytes, revision, events);
            next = revision.next();
        }
        Ok(RevisionRecords { bytes, from, next, newest: self.revision })
    }
}

impl RevisionRecords {
    /// The revision that the caller requested.
    pub fn from(&self) -> Revision {
        self.from
    }

    /// The revision to continue from.
    pub fn next(&self) -> Revision {
        self.next
    }

    /// The newest revision at the time of the copy.
    pub fn newest(&self) -> Revision {
        self.newest
    }

    /// Whether the copy reaches the newest revision.
    pub fn is_complete(&self) -> bool {
        self.next > self.newest
    }

    /// How many bytes were copied.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The records, in order.
    pub fn iter(&self) -> impl Iterator<Item = RevisionRecord<'_>> {
        history::read_records(&self.bytes)
            .map(|(revision, events)| RevisionRecord { revision, events })
    }
}

impl<'a> RevisionRecord<'a> {
    /// When it happened; `None` for entries without a label.
    pub fn label(self) -> Option<TimeLabel> {
        self.split().0
    }

    /// Its label, and its events in encoded form.
    fn split(self) -> (Option<TimeLabel>, &'a [u8]) {
        let mut reader = Reader::new(self.events);
        let label = get_label(&mut reader).expect("history has only what was written or checked");
        (label, &self.events[self.events.len() - reader.remaining()..])
    }

    /// Its events, in order.
    pub fn events(self) -> impl Iterator<Item = Recorded<'a>> {
        let mut left = self.split().1;
        core::iter::from_fn(move || {
            if left.is_empty() {
                return None;
            }
            let mut reader = Reader::new(left);
            let event =
                get_event(&mut reader).expect("history has only what was written or checked");
            let bytes = left.len() - reader.remaining();
            left = &left[bytes..];
            Some(Recorded { event, bytes })
        })
    }
}

impl<'a> Recorded<'a> {
    /// The name of the lock or key that the event is about.
    pub fn name(&self) -> Option<&'a str> {
        let name = match self.event.subject {
            SubjectRef::Lock(name) | SubjectRef::Key(name) => name,
            SubjectRef::Lease(_) | SubjectRef::Settings => return None,
        };
        Some(core::str::from_utf8(name).expect("names in history are names"))
    }

    /// The name of the lock that the event is about.
    pub fn lock(&self) -> Option<&'a str> {
        self.name().filter(|_| matches!(self.event.subject, SubjectRef::Lock(_)))
    }

    /// The cause of the event.
    pub fn cause(&self) -> Cause {
        self.event.cause
    }

    /// The lease that holds, held, waits for or owns the subject.
    pub fn lease(&self) -> Option<LeaseId> {
        self.event.lease
    }

    /// The mode in which a lock is held or requested.
    pub fn mode(&self) -> Option<Mode> {
        self.event.mode
    }

    /// The place in the queue.
    pub fn place(&self) -> Option<PlaceNumber> {
        self.event.place
    }

    /// Whether the event passes a filter.
    pub fn is_admitted(&self, filter: Filter<'_>) -> bool {
        filter.admits(&self.event)
    }

    /// How many bytes the encoded event has.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Converts to an owned event.
    pub fn to_event(&self) -> Event {
        self.event.to_owned().expect("names in history are names")
    }
}
