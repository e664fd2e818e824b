//! Parses the paging parameters of lists.

use serde::Deserialize;
use utoipa::IntoParams;

use super::answer::HttpError;
use crate::api::decode;

/// Which of the things that have names to show.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct NamePage {
    /// Only names that begin with this text.
    pub(super) prefix: Option<String>,
    /// How many at most, up to 1000; else 100.
    #[param(minimum = 1)]
    pub(super) limit: Option<u32>,
    /// Go on after this name.
    pub(super) after: Option<String>,
    /// `true`: the member may answer from its own state, which can be old.
    pub(super) stale: Option<bool>,
}

/// The number of records in a page.
pub(super) fn page(limit: Option<u32>) -> Result<u32, HttpError> {
    match limit {
        Some(0) => Err(decode::invalid("limit", "must be 1 or more").into()),
        limit => Ok(limit.unwrap_or(0)),
    }
}

/// The position from which a list goes on, if there is more.
pub(super) fn more(next: String) -> Option<String> {
    (!next.is_empty()).then_some(next)
}
