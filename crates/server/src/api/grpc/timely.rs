//! Limits how long a unary call may take to send its message.
//!
//! The library would wait for the message for ever.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::BoxError;
use axum::body::{Body, HttpBody};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use tenure_wire::Failure;
use tokio::time::Sleep;

use super::call;

/// The time from the end of the headers to the end of the message, as over plain HTTP.
const BODY: Duration = Duration::from_secs(10);
/// Calls whose client may send at any time.
const STREAMS: [&str; 3] = [
    "/tenure.v1.SessionService/Open",
    "/tenure.v1.LockService/LeaseKeepAlive",
    "/tenure.v1.LockService/Watch",
];
/// The prefix of the reflection service, whose calls are streams too.
const REFLECTION: &str = "/grpc.reflection.";

/// A body that must end in time.
struct Timely {
    body: Body,
    late: Pin<Box<Sleep>>,
}

/// Adds the time limit to the body of a call to this path, unless it is a stream.
pub(super) fn timely(path: &str, body: Body) -> Body {
    if STREAMS.contains(&path) || path.starts_with(REFLECTION) {
        return body;
    }
    Body::new(Timely { body, late: Box::pin(tokio::time::sleep(BODY)) })
}

impl HttpBody for Timely {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            return Poll::Ready(frame.map(|frame| frame.map_err(BoxError::from)));
        }
        self.late
            .as_mut()
            .poll(context)
            .map(|()| Some(Err(BoxError::from(call::to_status(Failure::TooSlow)))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
