//! Copies a part of the history out of the machine, to be decoded elsewhere.
//!
//! [`Machine::records`] copies bytes and decodes nothing, so that a latency-sensitive thread can pass them to another
//! one.

use alloc::vec::Vec;
use tenure_types::{LeaseId, Mode, PlaceNumber, Revision, Token};

use super::events::{Compacted, Filter};
use crate::codec::{
    EventRef, Malformed, Reader, SubjectRef, get_event, get_label, put_event, put_label,
};
use crate::event::{Batch, Cause, Event, HOLDER_STOPPED, TimeLabel};
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
        let revisions = self.revision.0.saturating_sub(from.0).saturating_add(1);
        let are_few = usize::try_from(revisions).is_ok_and(|revisions| revisions <= most.revisions);
        if are_few && let Some((bytes, last)) = self.history.copy_from(from, most.bytes) {
            let next = if bytes.is_empty() { from } else { last.next() };
            return Ok(RevisionRecords { bytes, from, next, newest: self.revision });
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

    /// The records in encoded form, which [`RevisionRecords::decode`] reads.
    pub fn encoded(&self) -> &[u8] {
        &self.bytes
    }

    /// Reads encoded records, and checks all of them.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut read = 0;
        let mut range: Option<(Revision, Revision)> = None;
        for (revision, events) in history::read_records(bytes) {
            if range.is_some_and(|(_, last)| last >= revision) {
                return Err(Malformed);
            }
            history::check_events(events)?;
            range = Some((range.map_or(revision, |(first, _)| first), revision));
            read += history::HEAD + events.len();
        }
        if read != bytes.len() {
            return Err(Malformed);
        }
        let (from, newest) = range.ok_or(Malformed)?;
        Ok(Self { bytes: bytes.to_vec(), from, next: newest.next(), newest })
    }

    /// Encodes batches in the order of their revisions, for tools that build records which no machine wrote.
    pub fn of(batches: &[Batch]) -> Result<Self, Malformed> {
        let mut bytes = Vec::new();
        for batch in batches {
            let mut events = Vec::new();
            if let Some(label) = batch.label {
                put_label(&mut events, label);
            }
            batch.events.iter().for_each(|event| put_event(&mut events, &EventRef::of(event)));
            history::put_record(&mut bytes, batch.revision, &events);
        }
        Self::decode(&bytes)
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

    /// Appends the record in encoded form with only some of its events; nothing if none is kept. Returns how many were.
    pub fn put_some(self, out: &mut Vec<u8>, kept: impl Fn(&Recorded<'a>) -> bool) -> usize {
        let (label, mut left) = self.split();
        let mut events = Vec::with_capacity(self.events.len());
        if let Some(label) = label {
            put_label(&mut events, label);
        }
        let mut count = 0;
        for event in self.events() {
            let (bytes, rest) = left.split_at(event.bytes);
            left = rest;
            if kept(&event) {
                events.extend_from_slice(bytes);
                count += 1;
            }
        }
        if count > 0 {
            history::put_record(out, self.revision, &events);
        }
        count
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

    /// The prefix that the event drains or opens.
    pub fn drained(&self) -> Option<&'a str> {
        let is_drain = matches!(self.event.cause, Cause::Drained | Cause::Undrained);
        let prefix = self.event.value.filter(|_| is_drain)?;
        core::str::from_utf8(prefix).ok()
    }

    /// The name of the lock that the event is about.
    pub fn lock(&self) -> Option<&'a str> {
        self.name().filter(|_| matches!(self.event.subject, SubjectRef::Lock(_)))
    }

    /// The client of the lease.
    pub fn client(&self) -> Option<&'a [u8]> {
        self.event.client
    }

    /// The token of the grant.
    pub fn token(&self) -> Option<Token> {
        self.event.token
    }

    /// The cause of the event.
    pub fn cause(&self) -> Cause {
        self.event.cause
    }

    /// Whether the event names a caller that had it happen, or a reason other than that the holder has stopped.
    pub fn is_by_caller(&self) -> bool {
        let event = &self.event;
        let reason = event.reason.filter(|reason| *reason != HOLDER_STOPPED);
        event.by.is_some() || reason.is_some() || event.principal.is_some()
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
