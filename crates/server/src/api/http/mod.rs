//! Serves the HTTP/JSON API.
//!
//! The API is JSON under `/v1`, one file per resource. `/openapi.json` describes it and is generated from the same
//! code. [`table`] lists every path once: the router is built from it, and a test compares the description with it.

mod access;
mod acquire;
mod answer;
mod audit;
mod call;
mod cluster;
mod console;
mod diagnostics;
mod drains;
mod duration;
mod elections;
mod health;
mod history;
mod hosts;
mod keys;
mod leases;
mod level;
mod limits;
mod locks;
mod member;
mod metrics;
mod openapi;
mod overview;
mod page;
#[cfg(test)]
mod reference;
mod semaphores;
mod stream;
mod threads;
mod tickets;
mod usage;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, delete, get, post, put};
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_MAX_AGE,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderValue, Method, StatusCode};
use tenure_core::outcome::Answer;
use tenure_core::request::{Command, RequestId};
use tenure_types::Revision;
use tenure_wire::Failure;
use tenure_wire::json::Header;

use crate::api::grpc;
use crate::api::overview::Overviews;
use crate::dispatch::{Caller, Dispatch, Principal, ReadConsistency, ReadScope};
use crate::metrics::Api;
use crate::traces::{self, TraceContext};

use answer::HttpError;
pub(crate) use diagnostics::{PeerAddress, health_routes};
use health::ReadinessChecks;
pub(crate) use hosts::AllowedHosts;
pub(crate) use limits::SetLimits;
use metrics::Metrics;
#[cfg(test)]
pub(super) use openapi::described_routes;

/// The state that every handler needs. Cheap to clone.
#[derive(Clone)]
struct Http {
    dispatch: Dispatch,
    hosts: Arc<AllowedHosts>,
    metrics: Arc<Metrics>,
    overviews: Arc<Overviews>,
    readiness: Arc<ReadinessChecks>,
}

/// All paths as routes of the one port, together with the WebSocket routes, which a browser could open as well.
pub(super) fn routes(dispatch: &Dispatch, hosts: Arc<AllowedHosts>, sockets: Router) -> Router {
    let http = Http {
        dispatch: dispatch.clone(),
        hosts,
        metrics: Arc::new(Metrics::new(dispatch)),
        overviews: Arc::default(),
        readiness: Arc::default(),
    };
    let mut router = Router::new();
    for (path, verbs) in table() {
        router = router.route(path, verbs);
    }
    router
        .fallback(unknown_path)
        .method_not_allowed_fallback(unknown_verb)
        .with_state(http.clone())
        .merge(sockets)
        .layer(middleware::from_fn_with_state(http, enter))
}

/// Every path with its methods. Where a name may contain slashes, the rest of the path is the name.
fn table() -> Vec<(&'static str, MethodRouter<Http>)> {
    vec![
        ("/v1/leases", get(leases::list).post(leases::grant)),
        ("/v1/leases/{lease}", get(leases::show).delete(leases::revoke)),
        ("/v1/leases/renew", post(leases::renew_all)),
        ("/v1/leases/{lease}/renew", post(leases::renew)),
        ("/v1/locks", get(locks::list).post(locks::acquire_all)),
        (
            "/v1/locks/{*lock}",
            get(locks::show).post(locks::acquire).patch(locks::change).delete(locks::release),
        ),
        ("/v1/force", post(locks::force)),
        ("/v1/drains", get(drains::list).post(drains::drain).delete(drains::undrain)),
        ("/v1/semaphores/{*lock}", put(semaphores::resize).delete(semaphores::unset)),
        ("/v1/tickets", post(tickets::sign)),
        (
            "/v1/elections/{*name}",
            get(elections::show)
                .post(elections::campaign)
                .put(elections::proclaim)
                .delete(elections::resign),
        ),
        ("/v1/keys", get(keys::list)),
        ("/v1/keys/{*key}", get(keys::show).put(keys::put).delete(keys::delete)),
        ("/v1/watch", get(watch::start)),
        ("/v1/overview", get(overview::show)),
        ("/v1/history", get(history::search)),
        ("/v1/console", get(console::show)),
        ("/v1/console/session", post(console::sign_in).delete(console::sign_out)),
        ("/v1/cluster", get(cluster::status)),
        ("/v1/cluster/members", get(cluster::members).post(cluster::add)),
        ("/v1/cluster/members/{member}", post(cluster::change).delete(cluster::remove)),
        ("/v1/cluster/invitations", get(cluster::invitations).post(cluster::invite)),
        ("/v1/cluster/invitations/{invitation}", delete(cluster::cancel_invitation)),
        ("/v1/cluster/level", post(level::raise)),
        ("/v1/cluster/keys/rotate", post(tickets::rotate)),
        ("/v1/member", get(member::show)),
        ("/v1/limits", get(limits::show).patch(limits::set)),
        ("/v1/audit", get(audit::show)),
        ("/v1/access", get(access::status)),
        ("/v1/access/identity", put(access::set_identity)),
        ("/v1/access/quotas", put(access::set_quotas)),
        ("/v1/access/can", get(access::can)),
        ("/v1/access/usage", get(usage::show)),
        ("/v1/access/roles", get(access::roles)),
        ("/v1/access/roles/{*role}", put(access::put_role).delete(access::delete_role)),
        ("/v1/access/principals", get(access::principals)),
        (
            "/v1/access/principals/{*principal}",
            get(access::principal)
                .put(access::put_principal)
                .patch(access::enable_principal)
                .delete(access::delete_principal),
        ),
        ("/v1/access/keys", get(access::keys)),
        ("/v1/access/keys/{key}", put(access::create_key).delete(access::revoke_key)),
        ("/v1/access/keys/{key}/rotate", post(access::rotate_key)),
        ("/v1/access/certificate-rules", get(access::certificate_rules)),
        (
            "/v1/access/certificate-rules/{*rule}",
            put(access::put_certificate_rule).delete(access::delete_certificate_rule),
        ),
        ("/v1/access/issuers", get(access::issuers)),
        ("/v1/access/issuers/{*issuer}", put(access::put_issuer).delete(access::delete_issuer)),
        ("/healthz", get(health::alive)),
        ("/readyz", get(health::ready)),
        ("/metrics", get(metrics::show)),
        ("/openapi.json", get(openapi::show)),
        ("/.well-known/jwks.json", get(tickets::keys)),
    ]
}

/// Checks the host of every request and measures its duration.
async fn enter(State(http): State<Http>, request: Request, next: Next) -> Response {
    let began_us = http.dispatch.now_us();
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let class = metrics::class(&method, uri.path());
    let origin = http.hosts.foreign_origin(request.headers());
    let traces = http.dispatch.traces();
    let span = (traces.is_on() && request.uri().path().starts_with("/v1/")).then(|| {
        let parent = TraceContext::of_headers(request.headers());
        traces.begin(parent, Api::Http.name(), class.name())
    });
    let span = span.flatten();
    let mut response = if !http.hosts.admit(&request) {
        HttpError::from(Failure::HostNotAllowed).into_response()
    } else if origin.is_some() && request.method() == Method::OPTIONS {
        permissions()
    } else {
        traces::within(span.as_ref(), next.run(request)).await
    };
    // A browser shows what clients wrote as what it is declared to be.
    let nosniff = HeaderValue::from_static("nosniff");
    response.headers_mut().entry(X_CONTENT_TYPE_OPTIONS).or_insert(nosniff);
    if let Some(origin) = origin {
        AllowedHosts::name_origin(origin, &mut response);
    }
    let asked = http.dispatch.request_metrics();
    asked.served(Api::Http, class, http.dispatch.now_us().saturating_sub(began_us));
    let reason = response.extensions().get().map(|answer::ReasonExtension(reason)| &**reason);
    if let Some(reason) = reason {
        asked.refused_call(Api::Http, reason, &format!("{method} {}", uri.path()));
    }
    if let Some(span) = span {
        span.finish(reason);
    }
    response
}

/// The response to a browser that asks what a page of another origin may send.
fn permissions() -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    let headers = response.headers_mut();
    let methods = HeaderValue::from_static("GET, POST, PUT, PATCH, DELETE");
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, methods);
    let allowed = HeaderValue::from_static(
        "content-type, idempotency-key, authorization, traceparent, tracestate",
    );
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, allowed);
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    response
}

async fn unknown_path(request: Request) -> Response {
    let json = || HttpError::from(Failure::UnknownOperation).into_response();
    grpc::unknown(&request).unwrap_or_else(json)
}

/// The response to a method that a path does not accept.
pub(super) async fn unknown_verb(request: Request) -> Response {
    let verb = request.method().as_str().to_owned();
    HttpError::from(Failure::UnknownVerb { verb }).into_response()
}

/// A failure as a response.
pub(super) fn refused(failure: Failure) -> Response {
    HttpError::from(failure).into_response()
}

/// The last event of a stream that the member ends with a failure.
pub(super) fn closing(failure: &Failure) -> bytes::Bytes {
    watch::closing(failure)
}

/// Parses the query of a URI as each handler would, for the fuzz targets.
pub(crate) fn read_queries(uri: http::Uri) {
    let mut request = Request::new(axum::body::Body::empty());
    *request.uri_mut() = uri;
    let call = call::HttpCall::from(request);
    macro_rules! read {
        ($($query:ty),+ $(,)?) => {$( let _ = call.query::<$query>(); )+};
    }
    read!(
        leases::TimeoutParameter,
        leases::LeaseListParameters,
        leases::LeaseParameters,
        leases::RevokeParameters,
        page::NamePage,
        locks::LockListParameters,
        locks::LockParameters,
        locks::ReleaseParameters,
        acquire::WaitParameters,
        keys::ReadParameters,
        keys::WriteParameters,
        keys::DeleteParameters,
        elections::ElectionParameters,
        elections::ResignParameters,
        watch::Query,
        history::HistoryParameters,
        overview::OverviewParameters,
        limits::NoParameters,
        drains::DrainsParameters,
        drains::UndrainParameters,
        semaphores::UnsetParameters,
        audit::AuditParameters,
        access::PageParameters,
        access::KeyParameters,
        access::CanParameters,
    );
    let _ = call.name("/");
    let _ = call.lease("/", "/renew");
    let _ = call.query::<leases::TimeoutParameter>().and_then(|query| call::within(query.timeout));
}

impl Http {
    /// The principal that makes the request.
    fn who(&self) -> Principal {
        Caller::principal()
    }

    /// The response header for a revision.
    fn header(&self, revision: Revision) -> Header {
        self.dispatch.header(revision).into()
    }

    /// Runs a command.
    async fn run(
        &self,
        id: RequestId<'_>,
        command: Command<'_>,
        within: Duration,
    ) -> Result<(Header, Answer), HttpError> {
        let outcome = self.dispatch.call(&self.who(), id, command, within).await;
        let outcome = outcome.map_err(answer::HttpError::from)?;
        let done = outcome.result.map_err(|refusal| HttpError::from(&refusal))?;
        Ok((self.header(outcome.revision), done))
    }

    /// Queries the machine.
    async fn read<T: Send + 'static>(
        &self,
        scope: ReadScope,
        fresh: ReadConsistency,
        within: Duration,
        ask: impl Fn(&tenure_core::Machine) -> T + Send + Sync + 'static,
    ) -> Result<(Header, T), HttpError> {
        let read = self.dispatch.read(&self.who(), scope, fresh, within, ask).await;
        let (revision, found) = read.map_err(answer::HttpError::from)?;
        Ok((self.header(revision), found))
    }
}
