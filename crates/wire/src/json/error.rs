//! Defines the JSON body of every response that is not a success.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Decimal, Holder, signed, some};
use crate::{reason, v1};

/// The body of every answer that is not success.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// The error.
    pub error: Error,
}

/// Why something was not done, and what may be concluded.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Error {
    /// The stable word for programs; the reference has the table.
    #[schema(example = "HELD")]
    pub reason: String,
    /// The sentence for people.
    pub message: String,
    /// `none`: it did not happen. `unknown`: it may have, or may still.
    pub effect: Effect,
    /// The lock it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lock: Option<String>,
    /// The lease that holds that lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holder: Option<Holder>,
    /// The number of waiters for that lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ahead: Option<u64>,
    /// How many slots it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<u32>,
    /// The lease it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<Decimal>,
    /// For a deadlock: the ring, starting with the asker.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ring: Vec<RingLink>,
    /// The limit that was met, or the field that cannot be as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// The lower end of what is allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub least: Option<u64>,
    /// The upper end of what is allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound: Option<u64>,
    /// The value that the request asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked: Option<u64>,
    /// For a quota: the principal that set it. For a drained prefix: who drained it. For a superseded request: the
    /// client of the newer one, whose lease is in `lease`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set_by: Option<String>,
    /// For a quota: when it was set, by a leader's wall clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "2026-03-02T03:14:07.112Z")]
    pub set_at: Option<String>,
    /// For a drained prefix: the prefix; empty if it is that of every lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drained_prefix: Option<String>,
    /// For a drained prefix: why it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain_reason: Option<String>,
    /// The oldest retained revision, where to resume, when a key last changed, or the newest revision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<Decimal>,
    /// The time after which a retry makes sense.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// The leader, where that helps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leader: Option<Leader>,
    /// The next step, in a few words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Whether a request may have taken effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// It did not happen and will not.
    None,
    /// It may have happened, or may still.
    Unknown,
}

/// One step of a ring of waits.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RingLink {
    /// The name of the client that waits.
    pub client: String,
    /// The lease with which it waits.
    pub lease: Decimal,
    /// The name of the lock that it waits for.
    pub lock: String,
}

/// The leader and its address.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Leader {
    /// The leader.
    pub member_id: Decimal,
    /// Its name.
    pub name: String,
    /// The address of its APIs.
    pub address: String,
}

impl From<v1::LeaderHint> for Leader {
    fn from(hint: v1::LeaderHint) -> Self {
        Self { member_id: Decimal(hint.member_id), name: hint.name, address: hint.address }
    }
}

impl From<v1::Error> for Error {
    fn from(error: v1::Error) -> Self {
        let text = |text: String| (!text.is_empty()).then_some(text);
        let number = |number: u64| (number > 0).then_some(number);
        let effect = match error.effect() {
            v1::Effect::None => Effect::None,
            v1::Effect::Unknown => Effect::Unknown,
        };
        let lower = error.asked > 0 || error.bound > 0;
        Self {
            effect,
            ahead: (error.reason == "HELD").then_some(error.ahead),
            drained_prefix: (error.reason == "DRAINING").then_some(error.drained_prefix),
            drain_reason: text(error.drain_reason),
            reason: error.reason,
            message: error.message,
            lock: text(error.lock),
            holder: error.holder.map(|holder| (*holder).into()),
            slots: error.slots,
            lease: some(error.lease),
            ring: error.ring.into_iter().map(Into::into).collect(),
            limit: text(error.limit),
            least: number(error.least),
            bound: lower.then_some(error.bound),
            asked: number(error.asked),
            set_by: text(error.set_by),
            set_at: number(error.set_at_ms).map(crate::wall::utc),
            revision: error.revision.map(signed),
            retry_after_ms: number(error.retry_after_ms),
            leader: error.leader.map(|leader| (*leader).into()),
            next: text(error.next),
        }
    }
}

impl From<v1::RingLink> for RingLink {
    fn from(link: v1::RingLink) -> Self {
        Self { client: link.client, lease: signed(link.lease), lock: link.lock }
    }
}

impl ErrorBody {
    /// Returns the body and its HTTP status.
    pub fn new(error: v1::Error) -> (u16, Self) {
        let status = reason::row(&error.reason).map_or(500, |row| row.http);
        (status, Self { error: error.into() })
    }
}
