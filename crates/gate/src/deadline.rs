//! Ends a body at a deadline.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::BoxError;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};

pin_project_lite::pin_project! {
    /// A body that fails at a deadline, so that a slow sender or reader does not keep others waiting.
    pub(crate) struct Deadline<B> {
        #[pin]
        body: B,
        until: Pin<Box<Sleep>>,
    }
}

impl<B> Deadline<B> {
    pub(crate) fn new(body: B, until: Instant) -> Self {
        Self { body, until: Box::pin(sleep_until(until)) }
    }
}

impl<B> Body for Deadline<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.project();
        if this.until.as_mut().poll(context).is_ready() {
            return Poll::Ready(Some(Err("the request took too long".into())));
        }
        this.body.poll_frame(context).map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
