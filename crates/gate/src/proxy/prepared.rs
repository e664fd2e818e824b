//! Reads newer keys before the fence verifies a ticket with an unknown key.
//!
//! The fence decides at once, with the keys that it knows. Therefore this service brings them up to date first.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue, Request};
use hyper::body::Incoming;
use tenure_fence::LockSlot;
use tenure_fence::http::FENCING_TOKEN;
use tower::Service;

use crate::answer::ErrorAnswer;
use crate::hosts::Hosts;
use crate::reason::Reason;
use crate::trust::TokenVerifier;

/// Tells the service which principal the ticket proves. The proxy removes the header if a client sends it.
const PRINCIPAL: HeaderName = HeaderName::from_static("tenure-principal");

/// A fence that is called after the keys for the request's ticket were read.
#[derive(Clone)]
pub(super) struct KeyedFence<S> {
    judge: TokenVerifier,
    lock: String,
    slot: Option<u32>,
    hosts: Arc<Hosts>,
    fence: S,
}

impl<S> KeyedFence<S> {
    pub(super) fn new(judge: TokenVerifier, at: LockSlot<'_>, hosts: Hosts, fence: S) -> Self {
        Self { judge, lock: at.lock.to_owned(), slot: at.slot, hosts: Arc::new(hosts), fence }
    }
}

impl<S> Service<Request<Incoming>> for KeyedFence<S>
where
    S: Service<Request<Incoming>, Error = Infallible> + Clone + Send + 'static,
    S::Response: IntoResponse,
    S::Future: Send,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.fence.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Incoming>) -> Self::Future {
        // `poll_ready` was called on this instance, so it serves the request. The clone is polled before its own next
        // call.
        let again = self.clone();
        let Self { judge, lock, slot, hosts, mut fence } = std::mem::replace(self, again);
        Box::pin(async move {
            if !hosts.admit_host(request.headers()) {
                let message = "the host name of the request is not one of ours; --hosts adds names";
                return Ok(ErrorAnswer::new(Reason::HostNotAllowed, message).into_response());
            }
            // Only the proxy says who was authenticated.
            request.headers_mut().remove(PRINCIPAL);
            let shown = request.headers().get(FENCING_TOKEN).and_then(|text| text.to_str().ok());
            if let Some(text) = shown {
                let principal = judge.prepare(text, LockSlot { lock: &lock, slot }).await;
                if let Some(principal) = principal.and_then(|name| name.parse::<HeaderValue>().ok())
                {
                    request.headers_mut().insert(PRINCIPAL, principal);
                }
            }
            fence.call(request).await.map(IntoResponse::into_response)
        })
    }
}
