//! How does a part of the history leave the machine cheaply, to be read elsewhere?
//!
//! [`Machine::records`] copies bytes and decodes nothing, so that whoever must not be held up can
//! hand them to whoever has time.

use alloc::vec::Vec;
use tenure_types::{LeaseId, Mode, PlaceNumber, Revision};

use super::events::{Compacted, Filter};
use crate::codec::{EventRef, Reader, SubjectRef, get_event};
use crate::event::{Cause, Event};
use crate::machine::Machine;
use crate::state::history;

/// How much is copied at once, at most. One record is always whole, however large.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Most {
    /// So many revisions.
    pub revisions: usize,
    /// So many bytes; the last record may go beyond.
    pub bytes: usize,
}

/// Consecutive revisions of the history, in the form they are kept in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Records {
    bytes: Vec<u8>,
    from: Revision,
    next: Revision,
    newest: Revision,
}

/// All events of one revision, unread.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Which revision.
    pub revision: Revision,
    events: &'a [u8],
}

/// One event of a record: read, but not copied.
#[derive(Clone, Copy, Debug)]
pub struct Recorded<'a> {
    event: EventRef<'a>,
    bytes: usize,
}

impl Machine {
    /// A copy of the history from a revision on.
    ///
    /// A revision that has not been reached is answered with nothing, and itself as the one to go on
    /// from.
    pub fn records(&self, from: Revision, most: Most) -> Result<Records, Compacted> {
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
        Ok(Records { bytes, from, next, newest: self.revision })
    }
}

impl Records {
    /// The revision that was asked for.
    pub fn from(&self) -> Revision {
        self.from
    }

    /// The revision to go on from.
    pub fn next(&self) -> Revision {
        self.next
    }

    /// The newest revision when they were copied.
    pub fn newest(&self) -> Revision {
        self.newest
    }

    /// Whether nothing newer was there.
    pub fn is_complete(&self) -> bool {
        self.next > self.newest
    }

    /// How many bytes were copied.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The records, in order.
    pub fn iter(&self) -> impl Iterator<Item = Record<'_>> {
        history::read_records(&self.bytes).map(|(revision, events)| Record { revision, events })
    }
}

impl<'a> Record<'a> {
    /// Its events, in order.
    pub fn events(self) -> impl Iterator<Item = Recorded<'a>> {
        let mut left = self.events;
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
    /// The name of the lock or key that it is about.
    pub fn name(&self) -> Option<&'a str> {
        let name = match self.event.subject {
            SubjectRef::Lock(name) | SubjectRef::Key(name) => name,
            SubjectRef::Lease(_) | SubjectRef::Settings => return None,
        };
        Some(core::str::from_utf8(name).expect("names in history are names"))
    }

    /// The name of the lock that it is about.
    pub fn lock(&self) -> Option<&'a str> {
        self.name().filter(|_| matches!(self.event.subject, SubjectRef::Lock(_)))
    }

    /// Why it happened.
    pub fn cause(&self) -> Cause {
        self.event.cause
    }

    /// The lease that holds, held, waits or owns.
    pub fn lease(&self) -> Option<LeaseId> {
        self.event.lease
    }

    /// How a lock is held or asked for.
    pub fn mode(&self) -> Option<Mode> {
        self.event.mode
    }

    /// Which place in the queue.
    pub fn place(&self) -> Option<PlaceNumber> {
        self.event.place
    }

    /// Whether a filter lets it through.
    pub fn is_admitted(&self, filter: Filter<'_>) -> bool {
        filter.admits(&self.event)
    }

    /// How many bytes it has in this form.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The event.
    pub fn to_event(&self) -> Event {
        self.event.to_owned().expect("names in history are names")
    }
}
