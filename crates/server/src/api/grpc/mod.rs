//! Routes gRPC calls to the services, and maps the library's errors to ours.
//!
//! There is one file per service: it decodes, calls dispatch and encodes. Errors of the library get one of our reasons
//! here, so that clients see one kind of error.

mod access;
mod call;
pub(super) mod cluster;
mod election;
mod health;
mod key;
mod lease;
mod lock;
mod locks;
mod maintenance;
mod session;
mod ticket;
mod timely;
mod watch;

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::{BoxError, Router};
use http::Method;
use http::header::CONTENT_TYPE;
use tenure_wire::v1::access_service_server::AccessServiceServer;
use tenure_wire::v1::cluster_service_server::ClusterServiceServer;
use tenure_wire::v1::election_service_server::ElectionServiceServer;
use tenure_wire::v1::key_service_server::KeyServiceServer;
use tenure_wire::v1::lease_service_server::LeaseServiceServer;
use tenure_wire::v1::lock_admin_service_server::LockAdminServiceServer;
use tenure_wire::v1::lock_service_server::LockServiceServer;
use tenure_wire::v1::maintenance_service_server::MaintenanceServiceServer;
use tenure_wire::v1::session_service_server::SessionServiceServer;
use tenure_wire::v1::ticket_service_server::TicketServiceServer;
use tenure_wire::{Failure, status};
use tonic::service::RoutesBuilder;
use tonic::{Code, Status};

use super::{AllowedHosts, MESSAGE_BYTES_MAX};
use crate::dispatch::Dispatch;
use crate::metrics::{Api, RequestClass};
use crate::traces::{self, TraceContext};

/// The name and version of the software.
const SOFTWARE: &str = concat!("tenure ", env!("CARGO_PKG_VERSION"));
/// The content type of gRPC. A web page cannot send it without a preflight request.
const GRPC: &[u8] = b"application/grpc";
/// The most bytes of a request to health and reflection: it contains a few names.
const QUESTION_BYTES_MAX: usize = 16 * 1024;

/// All services as routes of the one port.
pub(super) fn routes(dispatch: &Dispatch, hosts: Arc<AllowedHosts>) -> Router {
    let mut routes = RoutesBuilder::from(Router::new());
    macro_rules! add {
        ($($server:ident($service:expr)),+ $(,)?) => {$(
            let service = $server::new($service).max_decoding_message_size(MESSAGE_BYTES_MAX);
            routes.add_service(service);
        )+};
    }
    add! {
        SessionServiceServer(session::SessionApi { dispatch: dispatch.clone() }),
        LockServiceServer(lock::LockApi { dispatch: dispatch.clone() }),
        LockAdminServiceServer(locks::LocksApi { dispatch: dispatch.clone() }),
        LeaseServiceServer(lease::LeasesApi { dispatch: dispatch.clone() }),
        KeyServiceServer(key::KeysApi { dispatch: dispatch.clone() }),
        ElectionServiceServer(election::ElectionApi { dispatch: dispatch.clone() }),
        ClusterServiceServer(cluster::ClusterApi { dispatch: dispatch.clone() }),
        MaintenanceServiceServer(maintenance::MaintenanceApi { dispatch: dispatch.clone() }),
        AccessServiceServer(access::AccessApi { dispatch: dispatch.clone() }),
        TicketServiceServer(ticket::TicketApi { dispatch: dispatch.clone() }),
    }
    routes.add_service(health::health(dispatch).max_decoding_message_size(QUESTION_BYTES_MAX));
    let described = "what the build has described";
    let new = health::describe().build_v1().expect(described);
    routes.add_service(new.max_decoding_message_size(QUESTION_BYTES_MAX));
    let old = health::describe().build_v1alpha().expect(described);
    routes.add_service(old.max_decoding_message_size(QUESTION_BYTES_MAX));
    routes
        .routes()
        .into_axum_router()
        .layer(middleware::from_fn_with_state((dispatch.clone(), hosts), guard))
}

/// The response to a call without a route; none if the request is not gRPC.
pub(super) fn unknown(request: &Request) -> Option<Response> {
    is_grpc(request).then(|| refused(Failure::UnknownOperation))
}

/// A failure as the response to a call.
pub(super) fn refused(failure: Failure) -> Response {
    call::to_status(failure).into_http()
}

/// A failure as the status that ends a stream.
pub(super) fn status(failure: &Failure) -> Status {
    call::to_status(failure)
}

/// A failure as the error of a request body, which the call is refused with.
pub(super) fn body_error(failure: Failure) -> BoxError {
    BoxError::from(call::to_status(failure))
}

/// Rejects requests to foreign hosts and requests other than gRPC, replaces errors of the library with ours, and counts
/// the call.
async fn guard(
    State((dispatch, hosts)): State<(Dispatch, Arc<AllowedHosts>)>,
    request: Request,
    next: Next,
) -> Response {
    let (began_us, uri) = (dispatch.now_us(), request.uri().clone());
    let class = RequestClass::of_call(uri.path());
    // A web page can send gRPC to its own host name, and have that name resolve to this member.
    let span = class.filter(|_| dispatch.traces().is_on()).and_then(|class| {
        let parent = TraceContext::of_headers(request.headers());
        dispatch.traces().begin(parent, Api::Grpc.name(), class.name())
    });
    let response = match hosts.admit(&request) {
        true => traces::within(span.as_ref(), pass(request, next)).await,
        false => refused(Failure::HostNotAllowed),
    };
    if let Some(class) = class {
        dispatch.request_metrics().served(
            Api::Grpc,
            class,
            dispatch.now_us().saturating_sub(began_us),
        );
    }
    let reason = response.headers().get(status::REASON).and_then(|reason| reason.to_str().ok());
    if let Some(reason) = reason {
        dispatch.request_metrics().refused_call(Api::Grpc, reason, uri.path());
    }
    if let Some(span) = span {
        span.finish(reason);
    }
    response
}

async fn pass(request: Request, next: Next) -> Response {
    if !is_grpc(&request) {
        let failure = Failure::UnsupportedMedia { expected: "application/grpc" };
        let mut response = refused(failure);
        *response.status_mut() = http::StatusCode::UNSUPPORTED_MEDIA_TYPE;
        return response;
    }
    // The library serves a call whatever the method is. Exemptions and rules for other methods are not about calls.
    if request.method() != Method::POST {
        let mut response = refused(Failure::UnknownVerb { verb: request.method().to_string() });
        *response.status_mut() = http::StatusCode::METHOD_NOT_ALLOWED;
        return response;
    }
    let (parts, body) = request.into_parts();
    let body = timely::timely(parts.uri.path(), body);
    let response = next.run(Request::from_parts(parts, body)).await;
    if !response.headers().contains_key(Status::GRPC_STATUS) {
        return response;
    }
    match Status::from_header_map(response.headers()) {
        Some(refused) if refused.code() != Code::Ok => plain(refused).into_http(),
        _ => response,
    }
}

/// Whether a request is a gRPC call.
pub(super) fn is_grpc<B>(request: &http::Request<B>) -> bool {
    let kind = request.headers().get(CONTENT_TYPE).map_or(&b""[..], http::HeaderValue::as_bytes);
    kind.strip_prefix(GRPC).is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
}

/// Turns a status of the library into one of ours; ours stay as they are.
fn plain(refused: Status) -> Status {
    if refused.metadata().contains_key(status::REASON) {
        return refused;
    }
    let message = refused.message();
    match refused.code() {
        Code::OutOfRange => call::to_status(Failure::TooLarge { bound: MESSAGE_BYTES_MAX as u64 }),
        Code::Unimplemented if message.contains("compress") => {
            call::to_status(Failure::UnsupportedMedia { expected: "application/grpc" })
        }
        Code::Unimplemented => call::to_status(Failure::UnknownOperation),
        Code::Internal => call::to_status(Failure::Malformed { what: message.to_owned() }),
        _ => refused,
    }
}
