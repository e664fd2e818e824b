//! Searches the past of all locks below a prefix over HTTP.

use axum::extract::State;
use serde::Deserialize;
use tenure_core::event::Cause;
use tenure_types::Revision;
use tenure_wire::json::Decimal;
use tenure_wire::json::lock::History;
use utoipa::{IntoParams, ToSchema};

use super::Http;
use super::answer::{HttpError, HttpResult, json};
use super::call::HttpCall;
use super::page::page;
use crate::api::{decode, past, query};
use crate::archive::{ArchiveQuery, ArchiveSubject};
use crate::dispatch::WITHIN;

/// What to find in the past.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct HistoryParameters {
    /// The prefix of the lock names; all locks if absent.
    prefix: Option<String>,
    /// Not before this time, by the labels of the events: RFC 3339, or milliseconds since 1970.
    #[param(example = "2026-03-02T03:14:00Z")]
    since: Option<String>,
    /// Not after this time.
    #[param(example = "2026-03-02T03:15:00Z")]
    until: Option<String>,
    /// Only events of clients whose names begin with this text.
    client: Option<String>,
    /// Only involuntary ends.
    lost: Option<bool>,
    /// Only events of this cause.
    #[param(inline)]
    cause: Option<SearchedCause>,
    /// Only revisions before this one.
    #[param(value_type = Option<String>, pattern = "^(0|[1-9][0-9]{0,19})$")]
    before: Option<Decimal>,
    /// The most revisions to return, up to 1000; 100 if absent.
    #[param(minimum = 1)]
    limit: Option<u32>,
    /// `true`: the member may answer from its own state, which can be old.
    stale: Option<bool>,
}

/// A cause that can be searched for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum SearchedCause {
    /// Locks that were granted.
    Granted,
    /// Locks that were taken away.
    Forced,
    /// Requests that were refused because they would have waited for ever.
    Deadlock,
}

impl HistoryParameters {
    fn query(&self) -> Result<ArchiveQuery, HttpError> {
        let time = |field, text: &Option<String>| match text {
            None => Ok(None),
            Some(text) => tenure_wire::wall::parse(text)
                .map(Some)
                .ok_or_else(|| decode::invalid(field, "is no time; 2026-03-02T03:14:00Z is one")),
        };
        let cause = self.cause.map(|cause| match cause {
            SearchedCause::Granted => Cause::Granted,
            SearchedCause::Forced => Cause::Forced,
            SearchedCause::Deadlock => Cause::Deadlock,
        });
        Ok(ArchiveQuery {
            subject: ArchiveSubject::Prefix(self.prefix.clone().unwrap_or_default()),
            since_ms: time("since", &self.since)?,
            until_ms: time("until", &self.until)?,
            client: self.client.clone().filter(|client| !client.is_empty()),
            lost: self.lost.unwrap_or(false),
            cause,
            before: self
                .before
                .filter(|it| it.0 > 0)
                .map_or(Revision(u64::MAX), |it| Revision(it.0)),
            max: query::page(page(self.limit)?),
        })
    }
}

/// Searches what happened to locks, the newest revisions first, back to where the archive of this member begins.
///
/// Needs `read` for the whole prefix. The search is bounded. A page may be empty; its `before` names the revision from
/// which to continue.
#[utoipa::path(
    get, path = "/v1/history", tag = "locks", operation_id = "search_history", params(HistoryParameters),
    responses((status = 200, description = "What was found. `lock` is the prefix.", body = History)),
)]
pub(super) async fn search(State(http): State<Http>, call: HttpCall) -> HttpResult {
    let parameters: HistoryParameters = call.query()?;
    let fresh = query::fresh(parameters.stale.unwrap_or(false));
    let search = parameters.query()?;
    let found = past::search(&http.dispatch, &http.who(), search, fresh, WITHIN).await?;
    json(&super::locks::history_shown(parameters.prefix.unwrap_or_default(), found))
}
