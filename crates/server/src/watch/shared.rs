//! Holds the events of one revision that all watches with the same filter share.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use tenure_core::event::{Event, TimeLabel};
use tenure_core::{Filter, Recorded, RevisionRecord};
use tenure_types::Revision;

/// The events that a watch receives.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum OwnedFilter {
    /// All events.
    All,
    /// Events of locks and keys with exactly this name.
    Exact(String),
    /// Events of locks and keys whose names begin with this prefix, and of drained prefixes that have names in common
    /// with it.
    Prefix(String),
}

impl OwnedFilter {
    /// The filter, borrowed.
    pub fn filter(&self) -> Filter<'_> {
        match self {
            Self::All => Filter::All,
            Self::Exact(name) => Filter::Exact(name),
            Self::Prefix(prefix) => Filter::Prefix(prefix),
        }
    }
}

/// The encoding in which a batch leaves a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BatchForm {
    /// Protocol buffers.
    Proto,
    /// JSON, for HTTP and WebSocket.
    Json,
}

/// The events of one revision that a filter admits. All watches with the same filter share one value, so that the first
/// one that needs an encoding makes it for all.
#[derive(Debug)]
pub struct SharedBatch {
    /// The revision of the events.
    pub revision: Revision,
    /// The wall-clock time of the revision, if it is known.
    pub label: Option<TimeLabel>,
    /// The events, in order; never empty.
    pub events: Vec<Event>,
    bytes: usize,
    proto: OnceLock<Bytes>,
    json: OnceLock<Bytes>,
}

impl SharedBatch {
    /// The batch in an encoding; encodes it unless that was done before.
    pub fn form(&self, form: BatchForm, encode: impl FnOnce(&Self) -> Bytes) -> Bytes {
        let cell = match form {
            BatchForm::Proto => &self.proto,
            BatchForm::Json => &self.json,
        };
        cell.get_or_init(|| encode(self)).clone()
    }

    /// The batch with only some of its events; none if that leaves none.
    pub(super) fn only(&self, kept: impl Fn(&Event) -> bool) -> Option<Arc<Self>> {
        let events = self.events.iter().filter(|event| kept(event)).cloned().collect();
        Gathered { events, bytes: self.bytes }.share(self.revision, self.label)
    }

    /// Its size in a watch's buffer, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Collects the events of a [`SharedBatch`].
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

    /// The batch; none if the filter admitted no event.
    pub(super) fn share(
        self,
        revision: Revision,
        label: Option<TimeLabel>,
    ) -> Option<Arc<SharedBatch>> {
        let Self { events, bytes } = self;
        let (proto, json) = (OnceLock::new(), OnceLock::new());
        let batch = SharedBatch { revision, label, events, bytes, proto, json };
        (!batch.events.is_empty()).then(|| Arc::new(batch))
    }
}

/// The events of a record that a filter admits.
pub(super) fn admitted(
    record: RevisionRecord<'_>,
    filter: Filter<'_>,
    previous: bool,
) -> Option<Arc<SharedBatch>> {
    let mut gathered = Gathered::default();
    for recorded in record.events().filter(|recorded| recorded.is_admitted(filter)) {
        gathered.add(&recorded, previous);
    }
    gathered.share(record.revision, record.label())
}
