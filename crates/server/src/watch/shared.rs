//! What is handed to everyone who watches the same?

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use tenure_core::event::Event;
use tenure_core::{Filter, Record, Recorded};
use tenure_types::Revision;

/// Which events a watch is about.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum OwnedFilter {
    /// All.
    All,
    /// Those of locks and keys of exactly this name.
    Exact(String),
    /// Those of locks and keys whose names begin so.
    Prefix(String),
}

impl OwnedFilter {
    /// The same, borrowed.
    pub fn filter(&self) -> Filter<'_> {
        match self {
            Self::All => Filter::All,
            Self::Exact(name) => Filter::Exact(name),
            Self::Prefix(prefix) => Filter::Prefix(prefix),
        }
    }
}

/// A form in which a batch leaves a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// Protocol buffers.
    Proto,
    /// JSON.
    Json,
}

/// The events of one revision that a filter lets through. There is one for all who watch with the same
/// filter, so that it is encoded once in each form, by whoever needs it first.
#[derive(Debug)]
pub struct Shared {
    /// Which revision.
    pub revision: Revision,
    /// The events, in order; never none.
    pub events: Vec<Event>,
    bytes: usize,
    proto: OnceLock<Bytes>,
    json: OnceLock<Bytes>,
}

impl Shared {
    /// The batch in a form, encoded unless somebody already has.
    pub fn form(&self, form: Form, encode: impl FnOnce(&Self) -> Bytes) -> Bytes {
        let cell = match form {
            Form::Proto => &self.proto,
            Form::Json => &self.json,
        };
        cell.get_or_init(|| encode(self)).clone()
    }

    /// What it counts for in a watch's buffer, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Gathers what goes into a [`Shared`].
#[derive(Default)]
pub(super) struct Gathered {
    events: Vec<Event>,
    bytes: usize,
}

impl Gathered {
    pub(super) fn add(&mut self, recorded: &Recorded<'_>, previous: bool) {
        let mut event = recorded.to_event();
        let mut bytes = recorded.bytes();
        if !previous && let Some(before) = event.previous.take() {
            bytes -= before.value.len();
        }
        self.events.push(event);
        self.bytes += bytes;
    }

    /// Nothing if nothing was let through.
    pub(super) fn share(self, revision: Revision) -> Option<Arc<Shared>> {
        let Self { events, bytes } = self;
        let (proto, json) = (OnceLock::new(), OnceLock::new());
        (!events.is_empty()).then(|| Arc::new(Shared { revision, events, bytes, proto, json }))
    }
}

/// What a filter lets through of a record.
pub(super) fn admitted(
    record: Record<'_>,
    filter: Filter<'_>,
    previous: bool,
) -> Option<Arc<Shared>> {
    let mut gathered = Gathered::default();
    for recorded in record.events().filter(|recorded| recorded.is_admitted(filter)) {
        gathered.add(&recorded, previous);
    }
    gathered.share(record.revision)
}
