//! Summarises all locks over HTTP, once or as a stream.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use serde::{Deserialize, Serialize};
use tenure_wire::json::{Header, HolderShown, WaiterShown};
use utoipa::{IntoParams, ToSchema};

use super::Http;
use super::answer::{HttpResult, json};
use super::call::HttpCall;
use super::stream::{EventStream, ServerSentEvent, line};
use super::watch::closing;
use crate::api::encode;
use crate::api::overview::{ListedLock, Overview, PrefixCount};
use crate::dispatch::Principal;

/// How often a stream checks for changes, and after how many checks without one it sends the same again.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
const SILENT_MAX: u32 = 2;

/// Whether to follow the summary.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct OverviewParameters {
    /// Go on with server-sent events: `overview` for every change, at most one in two seconds, and every four seconds
    /// without one.
    follow: Option<bool>,
}

/// A summary of the locks that the caller may read, as the member that is asked has them. It may be some seconds old:
/// callers share it, and the more locks there are, the more seldom it is made.
#[derive(Serialize, ToSchema)]
struct OverviewShown {
    /// Locks that are held or awaited.
    locks: u64,
    /// Locks that a lease holds.
    held: u64,
    /// Locks with waiters.
    awaited: u64,
    /// Locks that were taken away and may not be granted again yet, or whose lock-delay runs.
    revoking: u64,
    /// Queue positions.
    waiters: u64,
    /// Locks that are elections.
    elections: u64,
    /// Leases of the whole cluster.
    leases: u64,
    /// Keys of the whole cluster.
    keys: u64,
    /// Whether every lock was read.
    complete: bool,
    /// What this member has counted since it started: the difference of two answers is a rate.
    totals: TotalsShown,
    /// The locks whose first waiter has waited longest.
    longest_waits: Vec<ListedShown>,
    /// The locks that are held longest.
    longest_holds: Vec<ListedShown>,
    /// The locks with the longest queues.
    longest_queues: Vec<ListedShown>,
    /// The first segments of names with the most waiters, then with the most locks.
    prefixes: Vec<PrefixShown>,
    /// The member that answers, and the revision.
    header: Header,
}

/// Events since the member started.
#[derive(Serialize, ToSchema)]
struct TotalsShown {
    /// Locks that were granted.
    granted: u64,
    /// Grants to a client that had waited.
    handed_over: u64,
    /// Holds that the holder ended itself.
    released: u64,
    /// Holds that ended otherwise: expired, revoked, forced, or held for too long.
    lost: u64,
    /// Requests that were refused because they would have waited for ever.
    deadlocks: u64,
    /// For how long this member has counted.
    counted_ms: u64,
}

/// A lock with its first holder and its first waiter.
#[derive(Serialize, ToSchema)]
struct ListedShown {
    lock: String,
    /// The number of holders.
    holders: usize,
    /// The first holder.
    #[serde(skip_serializing_if = "Option::is_none")]
    holder: Option<HolderShown>,
    /// The number of waiters.
    waiting: u64,
    /// The first waiter.
    #[serde(skip_serializing_if = "Option::is_none")]
    first: Option<WaiterShown>,
}

/// The locks whose names begin alike.
#[derive(Serialize, ToSchema)]
struct PrefixShown {
    /// The first segment, with its slash; or the whole name if it has none. `…` for all that are not counted apart.
    prefix: String,
    locks: u64,
    waiting: u64,
    longest_wait_ms: u64,
}

impl From<&ListedLock> for ListedShown {
    fn from(it: &ListedLock) -> Self {
        Self {
            lock: it.lock.clone(),
            holders: it.holders,
            holder: it.holder.as_ref().map(|holder| encode::holder_view(holder).into()),
            waiting: it.waiting,
            first: it.first.as_ref().map(|first| encode::waiter_view(first).into()),
        }
    }
}

impl From<&PrefixCount> for PrefixShown {
    fn from(it: &PrefixCount) -> Self {
        let PrefixCount { prefix, locks, waiting, longest_wait_ms } = it.clone();
        Self { prefix, locks, waiting, longest_wait_ms }
    }
}

/// Summarises the locks: how many there are, who waits or holds longest, and where most of it happens.
#[utoipa::path(
    get, path = "/v1/overview", tag = "locks", operation_id = "show_overview", params(OverviewParameters),
    responses((status = 200, description = "The summary; with `follow=true` a stream of it.", content(
        (OverviewShown = "application/json"),
        (ServerSentEvent = "text/event-stream"),
    ))),
)]
pub(super) async fn show(State(http): State<Http>, call: HttpCall) -> HttpResult {
    let follow = call.query::<OverviewParameters>()?.follow.unwrap_or(false);
    let who = http.who();
    let overview = http.overviews.recent(&http.dispatch, &who).await?;
    if !follow {
        return json(&http.shown(&overview));
    }
    let first = http.line(&overview);
    let state = Followed { http, who, last: overview, silent: 0 };
    let rest = futures_util::stream::unfold(Some(state), |state| async {
        let mut state = state?;
        loop {
            tokio::time::sleep(POLL_INTERVAL).await;
            state.silent += 1;
            let next = match state.http.overviews.recent(&state.http.dispatch, &state.who).await {
                Ok(next) => next,
                Err(failure) => return Some((closing(&failure), None)),
            };
            if next.revision != state.last.revision || state.silent == SILENT_MAX {
                (state.last, state.silent) = (next, 0);
                return Some((state.http.line(&state.last), Some(state)));
            }
        }
    });
    Ok(EventStream::new(first, rest).into())
}

/// A stream of summaries.
struct Followed {
    http: Http,
    who: Principal,
    last: Arc<Overview>,
    silent: u32,
}

impl Http {
    fn line(&self, overview: &Overview) -> bytes::Bytes {
        line("overview", overview.revision.0, &self.shown(overview))
    }

    fn shown(&self, it: &Overview) -> OverviewShown {
        let listed = |list: &[ListedLock]| list.iter().map(Into::into).collect();
        let totals = &it.totals;
        OverviewShown {
            locks: it.locks,
            held: it.held,
            awaited: it.awaited,
            revoking: it.revoking,
            waiters: it.waiters,
            elections: it.elections,
            leases: it.leases,
            keys: it.keys,
            complete: it.complete,
            totals: TotalsShown {
                granted: totals.granted,
                handed_over: totals.handed_over,
                released: totals.released,
                lost: totals.lost,
                deadlocks: totals.deadlocks,
                counted_ms: totals.counted_us / 1_000,
            },
            longest_waits: listed(&it.longest_waits),
            longest_holds: listed(&it.longest_holds),
            longest_queues: listed(&it.longest_queues),
            prefixes: it.prefixes.iter().map(Into::into).collect(),
            header: self.header(it.revision),
        }
    }
}
