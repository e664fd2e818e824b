//! Serves the paths of the health listener, of which `/debug/…` only to callers on the same machine.

use std::net::IpAddr;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Extension, Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use serde::{Deserialize, Serialize};
use tenure_wire::Failure;

use super::answer::{HttpError, HttpResult, json_with};
use super::metrics::Metrics;
use super::{AllowedHosts, Http, health, metrics};
use crate::audit::{AuditOutcome, AuditRecord};
use crate::dispatch::Dispatch;
use crate::log;

/// The number of audit records in an answer, unless the caller says otherwise.
const AUDIT_LAST: usize = 100;
/// The longest body of a request.
const BODY_BYTES_MAX: usize = 4 * 1024;

/// The address that a request comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerAddress(pub(crate) IpAddr);

/// The paths of the health listener.
pub(crate) fn health_routes(dispatch: &Dispatch, hosts: AllowedHosts) -> Router {
    let http = Http {
        dispatch: dispatch.clone(),
        hosts: std::sync::Arc::new(hosts),
        metrics: std::sync::Arc::new(Metrics::new(dispatch)),
        overviews: std::sync::Arc::default(),
        readiness: std::sync::Arc::default(),
    };
    let debug = Router::new()
        .route("/debug/log-level", get(show_level).put(set_level))
        .route("/debug/audit", get(show_audit))
        .route("/debug/threads", get(super::threads::show))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(middleware::from_fn(only_from_here));
    Router::new()
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .route("/metrics", get(metrics::show))
        .merge(debug)
        .fallback(super::unknown_path)
        .method_not_allowed_fallback(super::unknown_verb)
        .with_state(http.clone())
        .layer(middleware::from_fn_with_state(http, check_host))
}

/// The level of the log.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct LogLevel {
    level: String,
}

async fn show_level() -> Response {
    let level = log::level().map_or("none", log::Level::name).to_owned();
    json_with(StatusCode::OK, &LogLevel { level })
}

/// Changes the level of the process's log. It lasts until the next change or start.
async fn set_level(
    State(http): State<Http>,
    Extension(PeerAddress(from)): Extension<PeerAddress>,
    body: Bytes,
) -> HttpResult {
    let malformed = |what: &str| HttpError::from(Failure::Malformed { what: what.to_owned() });
    let asked: LogLevel = serde_json::from_slice(&body)
        .map_err(|_| malformed("the body is {\"level\": error, warn, info or debug}"))?;
    let level = log::Level::parse(&asked.level)
        .ok_or_else(|| malformed("the level is error, warn, info or debug"))?;
    let Some(before) = log::set_level(level) else {
        return Err(malformed("this process has no log"));
    };
    let record = AuditRecord::new("log_level", AuditOutcome::Done).from(Some(from));
    let record = record.with("from_level", before.name()).target(level.name());
    http.dispatch.member().audit().record_durably(&record).await;
    Ok(json_with(StatusCode::OK, &asked))
}

/// The newest records of the audit log, oldest first, one JSON object per line; as many as `?last=` says. Refused once
/// identity is enabled: records name callers, locks and reasons, and other users of this machine may not read them.
async fn show_audit(State(http): State<Http>, request: Request) -> HttpResult {
    let identity = http.dispatch.member().identity();
    if identity.is_required(&identity.access()) {
        let denied = HttpError::from(Failure::PermissionDenied { verb: "administer" });
        let next = "ask `tenure audit`, or /v1/audit on the clients' port, with credentials";
        return Err(denied.next("PERMISSION_DENIED", next));
    }
    let last = match request.uri().query() {
        None => AUDIT_LAST,
        Some(query) => {
            let number = query.strip_prefix("last=").and_then(|number| number.parse().ok());
            number.ok_or_else(|| {
                HttpError::from(Failure::Malformed {
                    what: "the only parameter is last=NUMBER".to_owned(),
                })
            })?
        }
    };
    let text: String = http.dispatch.member().audit().recent(last).iter().map(|it| &**it).collect();
    let mut response = Response::new(Body::from(text));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    Ok(response)
}

/// Rejects requests that a web page makes a browser on this machine send.
async fn check_host(State(http): State<Http>, request: Request, next: Next) -> Response {
    if http.hosts.admit(&request) {
        return next.run(request).await;
    }
    HttpError::from(Failure::HostNotAllowed).into_response()
}

/// Rejects requests from other machines: callers have no credentials here.
async fn only_from_here(
    Extension(PeerAddress(from)): Extension<PeerAddress>,
    request: Request,
    next: Next,
) -> Response {
    if from.to_canonical().is_loopback() {
        return next.run(request).await;
    }
    HttpError::from(Failure::PermissionDenied { verb: "operate" }).into_response()
}
