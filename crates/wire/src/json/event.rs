//! Defines the JSON of watches and of the history.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Decimal, LockMode, signed, some, text_or_base64};
use crate::convert::cause_word;
use crate::v1;

/// `event: change`: all events of one revision that a watch admits. The SSE `id` is the revision.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Change {
    /// The revision.
    pub revision: Decimal,
    /// Its events, in order.
    pub events: Vec<Event>,
}

/// `event: progress`: everything up to this revision was sent.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Progress {
    /// Up to which.
    pub revision: Decimal,
}

/// `event: compacted`, and the stream ends: the history begins only here.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Compacted {
    /// The oldest revision that is kept.
    pub floor: Decimal,
}

/// `event: slow_consumer`, and the stream ends: start again from here, nothing is missed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct SlowConsumer {
    /// The revision from which to continue.
    pub resume: Decimal,
}

/// One change. Which fields are there depends on its cause.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Why: `granted`, `released`, `expired`, …
    #[schema(example = "granted")]
    pub cause: String,
    /// The lock it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lock: Option<String>,
    /// The key it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The lease that holds, held, waits or owns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<Decimal>,
    /// The name of its client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// The fencing token of the grant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<Decimal>,
    /// How it is held or asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<LockMode>,
    /// With mode `slot`: of how many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<u32>,
    /// With mode `slot`, in events about a place in the queue: how many of them it asks for; absent for one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub take: Option<u32>,
    /// The slot of a semaphore.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slot: Option<u32>,
    /// The queue position.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<Decimal>,
    /// For how much longer the lock is not granted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_ms: Option<u64>,
    /// The name that the caller gave who took a lock away or revoked a lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// What the one who took a lock away gave as reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// In the event that queues a request: its priority, unless it is 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
    /// The prefix that was drained or opened; empty if it is that of every lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// New metadata of a lock, if it is text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<String>,
    /// New metadata of a lock, if it is not text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata_base64: Option<String>,
    /// New value of a key, if it is text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// New value of a key, if it is not text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value_base64: Option<String>,
    /// What was there before, if it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous: Option<Previous>,
    /// When it happened, by the wall clock of the leader of that moment, in UTC. A label: no decision depends on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "2026-03-02T03:14:07.112Z")]
    pub at: Option<String>,
    /// When it happened, by the clock of the cluster, by which leases end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_ms: Option<u64>,
    /// In events that end a hold or a lease: the ttl of the lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    /// In events that end a hold or a lease: the clock of the cluster at the last renewal of the lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renewed_clock_ms: Option<u64>,
}

/// The previous value of a key or of metadata.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Previous {
    /// When it was last changed.
    pub modified: Decimal,
    /// The value or metadata, if it is text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The value or metadata, if it is not text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value_base64: Option<String>,
}

impl From<v1::Event> for Event {
    fn from(event: v1::Event) -> Self {
        let subject = event.subject();
        let drains = matches!(event.cause(), v1::Cause::Drained | v1::Cause::Undrained);
        let mut form = Self {
            cause: cause_word(event.cause()).to_owned(),
            lease: some(event.lease),
            client: (!event.client.is_empty()).then_some(event.client),
            token: (event.token > 0).then_some(Decimal(event.token)),
            mode: event.mode.map(LockMode::from_wire),
            slots: (event.slots > 0).then_some(event.slots),
            take: (event.take > 0).then_some(event.take),
            slot: event.slot,
            place: (event.place > 0).then_some(Decimal(event.place)),
            left_ms: event.left_ms,
            by: event.by,
            reason: event.reason,
            previous: event.prev_kv.map(Into::into),
            at: event.at_unix_ms.map(crate::wall::utc),
            clock_ms: event.clock_ms,
            ttl_ms: event.ttl_ms,
            renewed_clock_ms: event.renewed_clock_ms,
            priority: event.priority,
            ..Self::default()
        };
        let Some(kv) = event.kv else { return form };
        let content = text_or_base64(&kv.value);
        match subject {
            v1::Subject::Key => {
                (form.value, form.value_base64) = content;
                form.key = Some(kv.key);
            }
            v1::Subject::Settings if drains => form.prefix = content.0.or(Some(String::new())),
            // The field `lease` names the lease already.
            v1::Subject::Lease | v1::Subject::Settings => {}
            v1::Subject::Lock => {
                (form.metadata, form.metadata_base64) = content;
                form.lock = Some(kv.key);
            }
        }
        form
    }
}

impl From<v1::KeyValue> for Previous {
    fn from(kv: v1::KeyValue) -> Self {
        let (value, value_base64) = text_or_base64(&kv.value);
        Self { modified: signed(kv.mod_revision), value, value_base64 }
    }
}

impl From<v1::Batch> for Change {
    fn from(batch: v1::Batch) -> Self {
        let events = batch.events.into_iter().map(Into::into).collect();
        Self { revision: signed(batch.revision), events }
    }
}
