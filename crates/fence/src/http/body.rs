//! Wraps response bodies, so that a request counts as running until its body was sent.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::turnstile::Entered;

pin_project_lite::pin_project! {
    /// The body of the service, or of the fence's own response. A request ends when its body was sent or dropped.
    #[derive(Debug)]
    pub struct FencedBody<B> {
        #[pin]
        service: Option<B>,
        said: Option<Bytes>,
        entered: Option<Entered>,
    }
}

impl<B> FencedBody<B> {
    /// Wraps a response of the service.
    pub(super) fn service(body: B, entered: Option<Entered>) -> Self {
        Self { service: Some(body), said: None, entered }
    }

    /// Creates a response of the fence.
    pub(super) fn of_text(text: String) -> Self {
        Self {
            service: None,
            said: Some(text.into()).filter(|text: &Bytes| !text.is_empty()),
            entered: None,
        }
    }
}

impl<B: Body<Data = Bytes>> Body for FencedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.project();
        let Some(body) = this.service.as_pin_mut() else {
            return Poll::Ready(this.said.take().map(|said| Ok(Frame::data(said))));
        };
        let frame = std::task::ready!(body.poll_frame(context));
        if frame.is_none() {
            *this.entered = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.service.as_ref().map_or(self.said.is_none(), Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let said = || SizeHint::with_exact(self.said.as_ref().map_or(0, |said| said.len() as u64));
        self.service.as_ref().map_or_else(said, Body::size_hint)
    }
}
