//! Serves the paths of the health listener, of which `/debug/…` only to callers on the same machine.

use std::net::IpAddr;

use axum::Router;
use axum::extract::{Extension, Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tenure_wire::Failure;

use super::answer::HttpError;
use super::metrics::Metrics;
use super::{AllowedHosts, Http, health, metrics};
use crate::dispatch::Dispatch;

/// The address that a request comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerAddress(pub(crate) IpAddr);

/// The paths of the health listener.
pub(crate) fn health_routes(dispatch: &Dispatch, hosts: AllowedHosts) -> Router {
    let http = Http {
        dispatch: dispatch.clone(),
        hosts: std::sync::Arc::new(hosts),
        metrics: std::sync::Arc::new(Metrics::new(dispatch)),
    };
    let debug = Router::new().layer(middleware::from_fn(only_from_here));
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
