//! Rejects requests ahead of routing, and replies in the caller's protocol.
//!
//! The filter rejects requests without a required client certificate, requests with too many or too long headers,
//! requests with missing or wrong credentials, and, once the member has ended, every request that would need it. It
//! names the principal of every other request.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use futures_util::future::Either;
use http::header::{AUTHORIZATION, UPGRADE};
use http::{HeaderValue, Method, Request, Uri};
use hyper::body::Incoming;
use tenure_types::Verb;
use tenure_wire::Failure;
use tower::Service;

use super::ending::StreamDeadline;
use super::{
    AllowedHosts, ConnectionPermit, HEADER_BYTES_MAX, HEADERS_MAX, Listener, console, ending, grpc,
    http as api, metered, ws,
};
use crate::credentials::MissingKeys;
use crate::dispatch::Dispatch;
use crate::identity::{CallerIdentity, Fingerprint, Presented};
use crate::metrics::Api;
use crate::os;

/// The paths that need no credentials.
const OPEN_PATHS: [&str; 4] = ["/healthz", "/readyz", "/openapi.json", "/.well-known/jwks.json"];
/// The gRPC services that need none: health and reflection.
const OPEN_SERVICES: [&str; 2] = ["/grpc.health.v1.", "/grpc.reflection."];
/// The path of the metrics, which name locks. The health listener serves them without credentials.
const METRICS: &str = "/metrics";
/// The service of sessions, which end themselves when their credentials do.
const SESSIONS: &str = "/tenure.v1.SessionService/";
/// The bytes that HTTP/2 adds to each header when it counts.
const FIELD_BYTES: usize = 32;

/// The router for the requests of one connection. A request that becomes a WebSocket takes the connection permit with
/// it.
///
/// The library clones it for every request.
#[derive(Clone)]
pub(super) struct FilteredRouter {
    router: Router,
    connection: Arc<FilteredConnection>,
}

/// What the requests of one connection share.
struct FilteredConnection {
    hosts: Arc<AllowedHosts>,
    dispatch: Dispatch,
    permit: ConnectionPermit,
}

/// What remains of a request for the response to it, if it is rejected.
struct RequestHead {
    is_grpc: bool,
    /// The allowed foreign origin that it names.
    origin: Option<HeaderValue>,
    method: Method,
    uri: Uri,
}

impl RequestHead {
    /// Whether a browser asks what a page of an allowed origin may send. It sends no credentials with this, and the
    /// HTTP API answers it without serving a call. gRPC serves a call whatever the method is.
    fn is_preflight(&self) -> bool {
        !self.is_grpc && self.origin.is_some() && self.method == Method::OPTIONS
    }
}

impl FilteredRouter {
    pub(super) fn new(listener: &Listener, permit: ConnectionPermit) -> Self {
        let (dispatch, hosts) = (listener.dispatch.clone(), listener.hosts.clone());
        let connection = FilteredConnection { hosts, dispatch, permit };
        Self { router: listener.router.clone(), connection: Arc::new(connection) }
    }
}

impl FilteredConnection {
    /// The reason to reject a request, if any.
    fn objection<B>(&self, request: &Request<B>) -> Option<Failure> {
        if !self.permit.known {
            let problem =
                "this member demands a client certificate, and the connection showed none";
            return Some(Failure::CredentialsRejected { problem });
        }
        if are_too_long(request) {
            return Some(Failure::HeadersTooLarge);
        }
        let path = request.uri().path();
        let console = self.dispatch.member().identity().console();
        if let Some(failure) = console.objection(request.method(), path, request.headers()) {
            return Some(failure);
        }
        // Health and metrics are served also after the end of the member.
        let serves = path.starts_with("/v1/") || path.starts_with("/tenure.");
        (serves && self.dispatch.member().over().is()).then(|| self.dispatch.farewell())
    }

    /// The response to a rejected request. It names an allowed origin, so that the page can see why it is rejected.
    fn refuse(&self, request: RequestHead, failure: Failure) -> Response {
        let RequestHead { is_grpc, origin, method, uri } = request;
        let from = self.permit.connection().from();
        let call = if is_grpc { uri.path().to_owned() } else { format!("{method} {}", uri.path()) };
        let api = if is_grpc { Api::Grpc } else { Api::Http };
        self.dispatch.request_metrics().refused_from(api, failure.reason(), Some(&call), from);
        let mut response = if is_grpc { grpc::refused(failure) } else { api::refused(failure) };
        if let Some(origin) = origin {
            AllowedHosts::name_origin(origin, &mut response);
        }
        response
    }

    /// Counts wrong credentials for the address that they came from, and those that were not checked.
    fn count_failed<B>(&self, request: &Request<B>, failure: &Failure) {
        match failure {
            Failure::Overloaded { .. } => {
                self.dispatch.member().meters().connections.throttled();
            }
            Failure::CredentialsRejected { .. } | Failure::Unauthenticated => {
                let Some(value) = request.headers().get(AUTHORIZATION) else { return };
                let wrong = Fingerprint::of(value.as_bytes());
                self.permit.caller().throttle().failed(os::now_us(), wrong);
            }
            _ => {}
        }
    }

    /// The keys that the token of a request needs and this member does not have yet.
    fn missing_keys<B>(&self, request: &Request<B>, failure: &Failure) -> Option<MissingKeys> {
        if matches!(failure, Failure::Overloaded { .. }) {
            return None;
        }
        let presented = Presented::of_request(request.headers(), None).ok()?;
        self.dispatch.member().identity().missing_keys(&presented)
    }

    /// The identity of the caller of a request; none if the request needs none, or will present credentials later.
    fn identify<B>(
        &self,
        request: &Request<B>,
        head: &RequestHead,
        upgrades: bool,
    ) -> Result<Option<CallerIdentity>, Failure> {
        let (path, headers) = (request.uri().path(), request.headers());
        let is_socket = upgrades && ws::PATHS.contains(&path);
        let later = is_socket && !headers.contains_key(AUTHORIZATION);
        if is_open(path) || head.is_preflight() || later {
            return Ok(None);
        }
        let identity = self.dispatch.member().identity();
        let certificate = self.permit.certificate();
        let throttle = self.permit.caller().throttle();
        let caller = match identity.console().presented(headers, os::now_us()) {
            Some(presented) => {
                let certificate = certificate.cloned();
                CallerIdentity::resolve(identity, Presented { certificate, ..presented })?
            }
            None => self.permit.identities.resolve(identity, headers, certificate, throttle)?,
        };
        if path == METRICS && !identity.may(caller.principal(), Verb::Operate, "") {
            return Err(Failure::PermissionDenied { verb: Verb::Operate.name() });
        }
        Ok(Some(caller))
    }
}

impl Service<Request<Incoming>> for FilteredRouter {
    type Response = Response;
    type Error = Infallible;
    type Future = Either<
        Ready<Result<Response, Infallible>>,
        Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>,
    >;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Service::<Request<Body>>::poll_ready(&mut self.router, context)
    }

    fn call(&mut self, mut request: Request<Incoming>) -> Self::Future {
        let (connection, is_grpc) = (&self.connection, grpc::is_grpc(&request));
        // Pages cannot call gRPC.
        let hosts = &connection.hosts;
        let origin = if is_grpc { None } else { hosts.foreign_origin(request.headers()) };
        let (method, uri) = (request.method().clone(), request.uri().clone());
        let head = RequestHead { is_grpc, origin, method, uri };
        if let Some(failure) = connection.objection(&request) {
            return Either::Left(ready(Ok(connection.refuse(head, failure))));
        }
        let path = head.uri.path().to_owned();
        let ends_itself = path.starts_with(SESSIONS);
        let upgrades = request.headers().contains_key(UPGRADE);
        let identity = match connection.identify(&request, &head, upgrades) {
            Ok(identity) => identity,
            Err(failure) => {
                let Some(missing) = connection.missing_keys(&request, &failure) else {
                    connection.count_failed(&request, &failure);
                    return Either::Left(ready(Ok(connection.refuse(head, failure))));
                };
                // After an attempt to read them the keys are not read again for a while, so this repeats a few times at
                // most.
                let mut filter = self.clone();
                return Either::Right(Box::pin(async move {
                    missing.read().await;
                    filter.call(request).await
                }));
            }
        };
        let caller = connection.permit.caller().identified(identity);
        if upgrades {
            request.extensions_mut().insert(connection.permit.of(caller.clone()));
        }
        let request = request.map(|body| metered::request(body, is_grpc, &caller));
        let (connection, metered) = (connection.clone(), caller.clone());
        let answering = self.router.call(request);
        let answered = async move {
            let Some(identity) = metered.identity() else {
                let response = answering.await?;
                return Ok(response.map(|body| metered::response(body, metered, None)));
            };
            let response = match ending::until_ended(identity, &metered, answering).await {
                Ok(response) => response?,
                Err(failure) => {
                    let refused = connection.refuse(head, failure);
                    return Ok(refused.map(|body| metered::response(body, metered, None)));
                }
            };
            let deadline = StreamDeadline::of(&path, &response, identity, &metered);
            if ends_itself {
                return Ok(response.map(|body| metered::response(body, metered, deadline)));
            }
            Ok(match ending::response(response, identity) {
                Ok(stream) => stream.map(|body| metered::response(body, metered, deadline)),
                Err(whole) => whole.map(|body| metered::response(body, metered, None)),
            })
        };
        Either::Right(Box::pin(caller.run(answered)))
    }
}

/// Whether requests to a path need no credentials: health, descriptions of the API, the public keys of tickets, and the
/// console's own files.
pub(super) fn is_open(path: &str) -> bool {
    OPEN_PATHS.contains(&path)
        || console::is_page(path)
        || OPEN_SERVICES.iter().any(|service| path.starts_with(service))
}

fn are_too_long<B>(request: &Request<B>) -> bool {
    let path = request.uri().path_and_query().map_or(0, |path| path.as_str().len());
    let headers = request.headers();
    let weight = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        name.as_str().len() + value.len() + FIELD_BYTES
    };
    let bytes = path + headers.iter().map(weight).sum::<usize>();
    headers.len() > HEADERS_MAX || bytes > HEADER_BYTES_MAX as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(headers: usize, bytes: usize) -> Request<()> {
        let request = Request::builder().uri("/");
        let value = "x".repeat(bytes);
        (0..headers).fold(request, |it, at| it.header(format!("x-{at}"), &*value)).body(()).unwrap()
    }

    #[test]
    fn both_the_number_of_headers_and_their_bytes_are_bounded() {
        assert!(!are_too_long(&with(HEADERS_MAX, 16)));
        assert!(are_too_long(&with(HEADERS_MAX + 1, 16)));
        let most = HEADER_BYTES_MAX as usize - FIELD_BYTES - "/x-0".len();
        assert!(!are_too_long(&with(1, most)));
        assert!(are_too_long(&with(1, most + 1)));
    }

    #[test]
    fn a_path_counts_as_well() {
        let long = format!("/v1/locks/{}", "x".repeat(HEADER_BYTES_MAX as usize));
        assert!(are_too_long(&Request::builder().uri(long).body(()).unwrap()));
    }
}
