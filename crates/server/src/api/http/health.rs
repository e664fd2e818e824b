//! Reports over HTTP whether the member is alive and ready.

use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use serde::Serialize;
use tenure_raft::Replica;
use tenure_wire::json::Header;
use utoipa::ToSchema;

use super::Http;
use super::answer::json_with;
use crate::dispatch::{Principal, ReadConsistency, ReadScope};

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
    let status = tokio::time::timeout(QUORUM, http.dispatch.inspect(Replica::status)).await;
    let Ok(Ok(status)) = status else {
        return bad("the member's loop does not answer".to_owned(), None);
    };
    let lag = status.committed.saturating_sub(status.applied.index);
    if status.leader.is_none() {
        return bad("no leader".to_owned(), Some(lag));
    }
    if lag > LAG_MAX {
        return bad(format!("{lag} entries behind"), Some(lag));
    }
    let member = Principal::member();
    let confirmed = http.dispatch.read(
        &member,
        ReadScope::Known,
        ReadConsistency::Linearizable,
        QUORUM,
        |_| (),
    );
    // A member that loses its leader meanwhile says so at once: the read would wait for the next leader.
    tokio::select! {
        confirmed = confirmed => match confirmed {
            Ok((revision, ())) => good(Some(lag), Some(http.header(revision))),
            Err(_) => bad("no quorum confirms the leader".to_owned(), Some(lag)),
        },
        () = leader_lost(&http) => bad("no leader".to_owned(), Some(lag)),
    }
}

/// Waits until this member knows no leader.
async fn leader_lost(http: &Http) {
    let mut lead = http.dispatch.member().lead();
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
