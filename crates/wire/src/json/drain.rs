//! Defines the JSON of `/v1/drains`.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Decimal, Header, is_false, signed};
use crate::v1;

/// `POST /v1/drains`: a prefix to be closed to new grants.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Drain {
    /// The beginning of the names of the locks; empty for all of them.
    pub prefix: String,
    /// The name of the operator, for the history and for waiters.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub by: String,
    /// The reason, for those who wait.
    pub reason: String,
}

impl From<Drain> for v1::DrainRequest {
    fn from(drain: Drain) -> Self {
        let Drain { prefix, by, reason } = drain;
        Self { prefix: Some(prefix), reason, by }
    }
}

/// `undrain` on a session: a prefix to be opened.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Undrain {
    /// The prefix, exactly as it was closed.
    pub prefix: String,
    /// The name of the operator, for the history.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub by: String,
}

impl From<Undrain> for v1::UndrainRequest {
    fn from(undrain: Undrain) -> Self {
        let Undrain { prefix, by } = undrain;
        Self { prefix: Some(prefix), by }
    }
}

/// The prefix is closed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Drained {
    /// The prefix.
    pub prefix: String,
    /// The member that answers, and its revision.
    pub header: Header,
}

/// `DELETE /v1/drains?prefix=`: the prefix is open.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Undrained {
    /// The prefix.
    pub prefix: String,
    /// Whether it was closed before.
    pub existed: bool,
    /// The member that answers, and its revision.
    pub header: Header,
}

/// `GET /v1/drains`: the prefixes that are closed to new grants.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Drains {
    /// The prefixes, in order.
    pub drains: Vec<DrainShown>,
    /// The member that answers, and its revision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<Header>,
}

/// A prefix that is closed to new grants.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct DrainShown {
    /// The prefix; empty if it is that of every lock.
    pub prefix: String,
    /// How long ago it was closed.
    pub drained_ms: u64,
    /// The name that the operator gave.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The authenticated caller that closed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    /// The reason that the operator gave.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The revision that closed it.
    pub created: Decimal,
    /// How many holders below it may still be at work. Not in explanations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holders: Option<u64>,
    /// There are more holders than one answer counts.
    #[serde(default, skip_serializing_if = "is_false")]
    pub more_holders: bool,
}

impl DrainShown {
    /// The prefix as an explanation shows it: without the holders, which it does not count.
    pub(super) fn of_explanation(drain: v1::DrainView) -> Self {
        Self { holders: None, ..drain.into() }
    }
}

impl From<v1::DrainView> for DrainShown {
    fn from(drain: v1::DrainView) -> Self {
        let text = |text: String| (!text.is_empty()).then_some(text);
        Self {
            prefix: drain.prefix,
            drained_ms: drain.drained_ms,
            by: text(drain.by),
            principal: text(drain.principal),
            reason: text(drain.reason),
            created: signed(drain.created),
            holders: Some(drain.holders),
            more_holders: drain.more_holders,
        }
    }
}

impl From<v1::ListDrainsResponse> for Drains {
    fn from(listed: v1::ListDrainsResponse) -> Self {
        Self {
            drains: listed.drains.into_iter().map(Into::into).collect(),
            header: listed.header.map(Into::into),
        }
    }
}
