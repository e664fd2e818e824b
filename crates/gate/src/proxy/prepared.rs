//! Reads newer keys before the fence verifies a ticket with an unknown key.
//!
//! The fence decides at once, with the keys that it knows. Therefore this service brings them up to date first.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::Request;
use hyper::body::Incoming;
use tenure_fence::LockSlot;
use tenure_fence::http::FENCING_TOKEN;
use tower::Service;

use crate::trust::Judge;

/// A fence that is called after the keys for the request's ticket were read.
#[derive(Clone)]
pub(super) struct KeyedFence<S> {
    judge: Judge,
    lock: String,
    slot: Option<u32>,
    fence: S,
}

impl<S> KeyedFence<S> {
    pub(super) fn new(judge: Judge, at: LockSlot<'_>, fence: S) -> Self {
        Self { judge, lock: at.lock.to_owned(), slot: at.slot, fence }
    }
}

impl<S> Service<Request<Incoming>> for KeyedFence<S>
where
    S: Service<Request<Incoming>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = S::Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.fence.poll_ready(context)
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        // `poll_ready` was called on this instance, so it serves the request. The clone is polled before its own next
        // call.
        let again = self.clone();
        let Self { judge, lock, slot, mut fence } = std::mem::replace(self, again);
        Box::pin(async move {
            let shown = request.headers().get(FENCING_TOKEN).and_then(|text| text.to_str().ok());
            if let Some(text) = shown {
                judge.prepare(text, LockSlot { lock: &lock, slot }).await;
            }
            fence.call(request).await
        })
    }
}
