//! Reports over HTTP whether the member is alive and ready.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use http::StatusCode;
use serde::Serialize;
use tenure_raft::Replica;
use tenure_types::Revision;
use tenure_wire::json::Header;
use tokio::sync::oneshot;
use utoipa::ToSchema;

use super::Http;
use super::answer::json_with;
use crate::dispatch::{Dispatch, Principal, ReadConsistency, ReadScope};

/// How long a readiness check waits for a quorum before it reports that there is none.
const QUORUM: Duration = Duration::from_secs(1);
/// The most entries that a ready member may have committed and not applied yet.
const LAG_MAX: u64 = 2_000;

/// How long the event loop may go without a turn before the member counts as hung. An idle loop turns every second; a
/// turn lasts as long as a sync of the log.
const HUNG: Duration = Duration::from_secs(5);

/// The health of a member.
#[derive(Serialize, ToSchema)]
pub(super) struct Health {
    /// `ok`, or what is wrong.
    status: String,
    /// How many entries are agreed on and not applied here yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    lag_entries: Option<u64>,
    /// The member that answered, and when.
    #[serde(skip_serializing_if = "Option::is_none")]
    header: Option<Header>,
}

/// Whether the member runs: it has not ended, and its event loop turns.
#[utoipa::path(
    get, path = "/healthz", tag = "health",
    responses(
        (status = 200, description = "It runs.", body = Health),
        (status = 503, description = "It does not any more, or its loop hangs.", body = Health),
    ),
)]
pub(super) async fn alive(State(http): State<Http>) -> Response {
    let member = http.dispatch.member();
    if let Some(end) = member.ended() {
        return bad(end.to_string(), None);
    }
    match member.meters().since_turn(member.now_us()) {
        Some(since) if since >= HUNG => {
            let seconds = since.as_secs();
            bad(format!("the member's loop has not turned for {seconds} s"), None)
        }
        _ => good(None, None),
    }
}

/// Whether the member can serve: a quorum confirms a leader, and the member is not far behind.
#[utoipa::path(
    get, path = "/readyz", tag = "health",
    responses(
        (status = 200, description = "It can serve.", body = Health),
        (status = 503, description = "It cannot, and why.", body = Health),
    ),
)]
pub(super) async fn ready(State(http): State<Http>) -> Response {
    if let Some(end) = http.dispatch.member().ended() {
        return bad(end.to_string(), None);
    }
    match http.readiness.find(&http.dispatch).await {
        Readiness::Ready { lag, revision } => good(Some(lag), Some(http.header(revision))),
        Readiness::NotReady { why, lag } => bad(why, lag),
    }
}

/// The result of a readiness check.
#[derive(Clone)]
enum Readiness {
    Ready { lag: u64, revision: Revision },
    NotReady { why: String, lag: Option<u64> },
}

impl Readiness {
    fn not(why: &str, lag: Option<u64>) -> Self {
        Self::NotReady { why: why.to_owned(), lag }
    }

    async fn check(dispatch: &Dispatch) -> Self {
        let status = tokio::time::timeout(QUORUM, dispatch.inspect(Replica::status)).await;
        let Ok(Ok(status)) = status else {
            return Self::not("the member's loop does not answer", None);
        };
        let lag = status.committed.saturating_sub(status.applied.index);
        if status.leader.is_none() {
            return Self::not("no leader", Some(lag));
        }
        if lag > LAG_MAX {
            return Self::not(&format!("{lag} entries behind"), Some(lag));
        }
        let member = Principal::member();
        let (scope, fresh) = (ReadScope::Known, ReadConsistency::Linearizable);
        let confirmed = dispatch.read(&member, scope, fresh, QUORUM, |_| ());
        // A member that loses its leader meanwhile says so at once: the read would wait for the next leader.
        tokio::select! {
            confirmed = confirmed => match confirmed {
                Ok((revision, ())) => Self::Ready { lag, revision },
                Err(_) => Self::not("no quorum confirms the leader", Some(lag)),
            },
            () = leader_lost(dispatch) => Self::not("no leader", Some(lag)),
        }
    }
}

type RunningCheck = Shared<BoxFuture<'static, Readiness>>;

/// The readiness check that runs, if one does. Probes need no credentials, and each check is a read through the leader,
/// so a probe that comes meanwhile gets the result of that check.
#[derive(Default)]
pub(super) struct ReadinessChecks {
    last: Mutex<Option<RunningCheck>>,
    /// How many checks were begun.
    #[cfg(test)]
    begun: std::sync::atomic::AtomicU64,
}

impl ReadinessChecks {
    async fn find(&self, dispatch: &Dispatch) -> Readiness {
        let dispatch = dispatch.clone();
        self.join(|| {
            // As a task of the member itself: the check is not the work of the caller that came first.
            let (done, result) = oneshot::channel();
            let runtime = dispatch.runtime().clone();
            runtime.spawn(async move {
                let _ = done.send(Readiness::check(&dispatch).await);
            });
            async move {
                let ended = Readiness::not("the member has ended", None);
                result.await.unwrap_or(ended)
            }
            .boxed()
        })
        .await
    }

    /// The result of the check that runs, or of a new one.
    async fn join(&self, begin: impl FnOnce() -> BoxFuture<'static, Readiness>) -> Readiness {
        let check = {
            let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            match &*last {
                Some(running) if running.peek().is_none() => running.clone(),
                _ => {
                    #[cfg(test)]
                    self.begun.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    last.insert(begin().shared()).clone()
                }
            }
        };
        check.await
    }
}

/// Waits until this member knows no leader.
async fn leader_lost(dispatch: &Dispatch) {
    let mut lead = dispatch.member().lead();
    // The sender goes with the member; the read fails then.
    if lead.wait_for(|lead| lead.by.is_none()).await.is_err() {
        std::future::pending::<()>().await;
    }
}

fn good(lag_entries: Option<u64>, header: Option<Header>) -> Response {
    json_with(StatusCode::OK, &Health { status: "ok".to_owned(), lag_entries, header })
}

fn bad(status: String, lag_entries: Option<u64>) -> Response {
    json_with(StatusCode::SERVICE_UNAVAILABLE, &Health { status, lag_entries, header: None })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    use futures_util::future::join_all;
    use tokio::sync::Semaphore;

    use super::*;

    #[tokio::test]
    async fn probes_that_come_while_a_check_runs_share_it() {
        let (checks, gate) = (ReadinessChecks::default(), Arc::new(Semaphore::new(0)));
        let probe = || {
            let gate = gate.clone();
            checks.join(move || {
                async move {
                    let _ = gate.acquire().await;
                    Readiness::Ready { lag: 0, revision: Revision(7) }
                }
                .boxed()
            })
        };
        let opens = async { gate.add_permits(1) };
        let (found, ()) = tokio::join!(join_all((0..1_000).map(|_| probe())), opens);
        let is_ready =
            |it: &Readiness| matches!(it, Readiness::Ready { lag: 0, revision: Revision(7) });
        assert!(found.len() == 1_000 && found.iter().all(is_ready));
        assert_eq!(checks.begun.load(Ordering::Relaxed), 1);
        // A probe after the end of the check begins the next one.
        probe().await;
        assert_eq!(checks.begun.load(Ordering::Relaxed), 2);
    }
}
