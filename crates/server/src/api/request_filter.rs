//! Rejects requests ahead of routing, and replies in the caller's protocol.
//!
//! The filter rejects requests without a required client certificate, requests with too many or too long headers, and,
//! once the member has ended, every request that would need it.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use futures_util::future::Either;
use http::Request;
use http::header::UPGRADE;
use hyper::body::Incoming;
use tenure_wire::Failure;
use tower::Service;

use super::{
    ConnectionPermit, HEADER_BYTES_MAX, HEADERS_MAX, Listener, grpc, http as api, metered,
};
use crate::dispatch::{Caller, Dispatch};
use crate::metrics::Api;

/// The bytes that HTTP/2 adds to each header when it counts.
const FIELD_BYTES: usize = 32;

/// The router for the requests of one connection. A request that becomes a WebSocket takes the connection permit with
/// it.
#[derive(Clone)]
pub(super) struct FilteredRouter {
    router: Router,
    dispatch: Dispatch,
    permit: ConnectionPermit,
}

impl FilteredRouter {
    pub(super) fn new(listener: &Listener, permit: ConnectionPermit) -> Self {
        Self { router: listener.router.clone(), dispatch: listener.dispatch.clone(), permit }
    }

    /// The reason to reject a request, if any.
    fn objection<B>(&self, request: &Request<B>) -> Option<Failure> {
        if !self.permit.known {
            return Some(Failure::Unauthenticated);
        }
        if are_too_long(request) {
            return Some(Failure::HeadersTooLarge);
        }
        let path = request.uri().path();
        // Health and metrics are served also after the end of the member.
        let serves = path.starts_with("/v1/") || path.starts_with("/tenure.");
        (serves && self.dispatch.member().over().is()).then(|| self.dispatch.farewell())
    }

    fn refuse<B>(&self, request: &Request<B>, failure: Failure) -> Response {
        let grpc = grpc::is_grpc(request);
        let from = self.permit.connection().from();
        let api = if grpc { Api::Grpc } else { Api::Http };
        self.dispatch.asked().refused_from(api, failure.reason(), from);
        if grpc { grpc::refused(failure) } else { api::refused(failure) }
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
        if let Some(failure) = self.objection(&request) {
            return Either::Left(ready(Ok(self.refuse(&request, failure))));
        }
        if request.headers().contains_key(UPGRADE) {
            request.extensions_mut().insert(self.permit.clone());
        }
        let caller = self.permit.caller().clone();
        let is_grpc = grpc::is_grpc(&request);
        let request = request.map(|body| metered::request(body, is_grpc, &caller));
        let answering = self.router.call(request);
        let answered = async move {
            let caller = Caller::current();
            let response = answering.await?;
            Ok(match caller {
                Some(caller) => response.map(|body| metered::response(body, caller)),
                None => response,
            })
        };
        Either::Right(Box::pin(caller.run(answered)))
    }
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
