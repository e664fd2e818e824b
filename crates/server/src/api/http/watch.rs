//! Streams changes over HTTP as server-sent events.

use std::time::Duration;

use axum::extract::State;
use bytes::Bytes;
use serde::Deserialize;
use tenure_core::Machine;
use tenure_types::{Refusal, Revision, Verb};
use tenure_wire::json::Decimal;
use tenure_wire::json::error::ErrorBody;
use tenure_wire::json::event::{Change, Compacted, Progress, SlowConsumer};
use tenure_wire::{Failure, v1};
use utoipa::IntoParams;

use super::Http;
use super::answer::{self, HttpError, HttpResult};
use super::call::HttpCall;
use super::stream::{EventStream, ServerSentEvent, encoded, line};
use crate::api::{decode, encode, query};
use crate::dispatch::{Dispatch, ReadConsistency, ReadScope, WITHIN};
use crate::watch::{
    BatchForm, OwnedFilter, SharedBatch, Start, WatchOptions, WatchReader, WatchStep,
};

/// The time without events after which the stream sends its progress; this also shows that both ends are alive.
pub(super) const PROGRESS: Duration = Duration::from_secs(10);

/// What to watch.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Query {
    /// Only locks and keys whose names begin with this text.
    prefix: Option<String>,
    /// Only the lock and key of exactly this name.
    name: Option<String>,
    /// From this revision on; without it, what comes after now.
    #[param(value_type = Option<String>, pattern = "^(0|[1-9][0-9]{0,19})$")]
    from: Option<Decimal>,
    /// Whether events carry what was there before.
    previous: Option<bool>,
}

/// Streams changes as server-sent events: one `change` per revision, so that a resume never splits one.
///
/// The stream begins with `progress`, which says up to where everything is known. `compacted`, `slow_consumer`
/// and `closing` end it; `closing` has the error. `Last-Event-ID` resumes after the event of that id, whatever `from`
/// says.
#[utoipa::path(
    get, path = "/v1/watch", tag = "watch", operation_id = "watch",
    params(Query, ("Last-Event-ID" = Option<String>, Header, description = "Go on after this event.",
        pattern = "^(0|[1-9][0-9]{0,19})$")),
    responses((status = 200, description = "Events: `change`, `progress`, `compacted`, `slow_consumer`, `closing`.",
        body = ServerSentEvent, content_type = "text/event-stream")),
)]
pub(super) async fn start(State(http): State<Http>, call: HttpCall) -> HttpResult {
    let query: Query = call.query()?;
    let filter = match (query.prefix, query.name) {
        (None, None) => OwnedFilter::All,
        (Some(prefix), None) => OwnedFilter::Prefix(prefix),
        (None, Some(name)) => OwnedFilter::Exact(name),
        (Some(_), Some(_)) => return Err(decode::invalid("name", "excludes `prefix`").into()),
    };
    let from = match last_event(&call)? {
        Some(Revision(last)) => Some(Revision(last.saturating_add(1))),
        None => query.from.map(|Decimal(from)| Revision(from)),
    };
    if let Some(from) = from {
        reachable(&http, from).await?;
    }
    let previous = query.previous.unwrap_or(false);
    let options = WatchOptions { progress: Some(PROGRESS), previous, ..WatchOptions::default() };
    let mut watch =
        http.dispatch.watch(&http.who(), filter, from.map_or(Start::Now, Start::From), options)?;
    let started = started(&http.dispatch, &mut watch).await?;
    let first = progress(Revision(started.0.saturating_sub(1)));
    let lines = futures_util::stream::unfold(Some(watch), |watch| async {
        let mut watch = watch?;
        let (line, ends) = step(watch.next().await)?;
        Some((line, (!ends).then_some(watch)))
    });
    Ok(EventStream::new(first, lines).into())
}

/// The revision at which a watch starts.
pub(super) async fn started(
    dispatch: &Dispatch,
    watch: &mut WatchReader,
) -> Result<Revision, HttpError> {
    match tokio::time::timeout(WITHIN, watch.started()).await {
        Ok(Some(started)) => Ok(started),
        Ok(None) => Err(dispatch.farewell().into()),
        Err(_) => Err(Failure::Deadline.into()),
    }
}

/// The event that reports that everything up to a revision was sent.
pub(super) fn progress(revision: Revision) -> Bytes {
    line("progress", revision.0, &Progress { revision: Decimal(revision.0) })
}

/// An event, and whether it is the last one; none if the member ends.
fn step(step: WatchStep) -> Option<(Bytes, bool)> {
    Some(match step {
        WatchStep::Batch(batch) => {
            let data = batch.form(BatchForm::Json, change);
            (encoded("change", batch.revision.0, &data), false)
        }
        WatchStep::Progress(revision) => (progress(revision), false),
        WatchStep::Compacted { floor } => {
            // The event has no id: a client that resumes after it starts where it was, and gets the floor again.
            let data = serde_json::to_string(&Compacted { floor: Decimal(floor.0) });
            (bare("compacted", &data.unwrap_or_default()), true)
        }
        WatchStep::SlowConsumer { resume } => {
            let data = serde_json::to_string(&SlowConsumer { resume: Decimal(resume.0) });
            (bare("slow_consumer", &data.unwrap_or_default()), true)
        }
        WatchStep::Forbidden => (closing(&unobservable()), true),
        WatchStep::Closed => return None,
    })
}

/// The failure that ends a watch whose principal may not observe any of it any more.
pub(in crate::api) fn unobservable() -> Failure {
    Failure::PermissionDenied { verb: Verb::Observe.name() }
}

/// The event that ends a stream with an error.
pub(super) fn closing(failure: &Failure) -> Bytes {
    let (_, body) = ErrorBody::new(v1::Error::from(failure));
    bare("closing", &serde_json::to_string(&body).unwrap_or_default())
}

fn bare(event: &str, data: &str) -> Bytes {
    format!("event: {event}\ndata: {data}\n\n").into()
}

/// The events of one revision as JSON, shared by all watches with the same filter.
pub(crate) fn change(shared: &SharedBatch) -> Bytes {
    let change = Change::from(encode::batch(shared.revision, shared.label, &shared.events));
    serde_json::to_vec(&change).unwrap_or_default().into()
}

fn last_event(call: &HttpCall) -> Result<Option<Revision>, HttpError> {
    let Some(last) = call.parts.headers.get("last-event-id") else { return Ok(None) };
    let last = last.to_str().ok().and_then(Decimal::parse);
    let last = last.ok_or_else(|| decode::invalid("Last-Event-ID", "is no revision"))?;
    Ok(Some(Revision(last.0)))
}

/// Checks that the history reaches back to a revision, and that the revision is not in the future.
async fn reachable(http: &Http, from: Revision) -> Result<(), HttpError> {
    let (_, floor) =
        http.read(ReadScope::Known, ReadConsistency::Stale, WITHIN, Machine::floor).await?;
    if from < floor {
        return Err(Failure::Compacted { floor }.into());
    }
    let beyond = query::beyond(&http.dispatch, &http.who(), from).await;
    match beyond.map_err(answer::HttpError::from)? {
        Some(newest) => Err((&Refusal::FutureRevision { asked: from, newest }).into()),
        None => Ok(()),
    }
}
