//! Ends the calls and response streams of a caller whose credentials no longer hold.
//!
//! It surrounds every call: a call that waits is refused, a gRPC stream ends with the status in its trailers, and a
//! stream of server-sent events ends with the event `closing`. Sessions end themselves, with a message of their own.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::response::Response;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};
use hyper::body::{Frame, SizeHint};
use tenure_wire::Failure;

use super::{grpc, http as api};
use crate::dispatch::Caller;
use crate::identity::CallerIdentity;

/// The form in which a response stream says why it ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum StreamForm {
    Grpc,
    /// Server-sent events.
    Events,
}

impl StreamForm {
    /// The form of a response; none if its body is not a stream.
    fn of(response: &Response) -> Option<Self> {
        let kind = response.headers().get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
        if kind.starts_with(b"application/grpc") {
            return Some(Self::Grpc);
        }
        (kind == b"text/event-stream").then_some(Self::Events)
    }

    /// The last frame of a stream.
    fn last(self, failure: &Failure) -> Frame<Bytes> {
        match self {
            Self::Grpc => {
                let mut trailers = HeaderMap::new();
                // A status with a header that cannot be encoded leaves the stream without one, which clients treat as
                // an error too.
                let _ = grpc::status(failure).add_header(&mut trailers);
                Frame::trailers(trailers)
            }
            Self::Events => Frame::data(api::closing(failure)),
        }
    }
}

/// Runs a call of this caller. Returns an error if its credentials end before it has a response.
///
/// A call that changes the access rules may end its own credentials. The rules are published before the change is
/// answered, so such a call goes on to its answer: an error would say that the change had no effect.
pub(super) async fn until_ended<T>(
    identity: &CallerIdentity,
    caller: &Caller,
    call: impl Future<Output = T>,
) -> Result<T, Failure> {
    tokio::pin!(call);
    tokio::select! {
        // The end first: what the log does to the leases of a revoked principal must not answer the call.
        biased;
        failure = identity.ended() => {
            if !caller.changes_access() {
                return Err(failure);
            }
        }
        response = &mut call => return Ok(response),
    }
    Ok(call.await)
}

/// Ends the body of a response to this caller once its credentials no longer hold.
pub(super) fn response(response: Response, caller: CallerIdentity) -> Response {
    let Some(form) = StreamForm::of(&response) else { return response };
    response.map(|body| Body::new(EndingBody { body, form, caller, ended: None, over: false }))
}

/// The body of a response stream.
struct EndingBody {
    body: Body,
    form: StreamForm,
    caller: CallerIdentity,
    /// Watches over the credentials. Most responses are complete when they are first polled, and need no watch.
    ended: Option<Pin<Box<dyn Future<Output = Failure> + Send>>>,
    over: bool,
}

impl EndingBody {
    /// Ends the stream and returns its last frame.
    fn end(&mut self, failure: &Failure) -> Frame<Bytes> {
        self.over = true;
        // Frees what the stream holds: watches, places, buffers.
        self.body = Body::empty();
        self.form.last(failure)
    }
}

impl HttpBody for EndingBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.over {
            return Poll::Ready(None);
        }
        // The end first: a stream that always has a next message would go on otherwise.
        if let Some(ended) = &mut self.ended
            && let Poll::Ready(failure) = ended.as_mut().poll(context)
        {
            return Poll::Ready(Some(Ok(self.end(&failure))));
        }
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if frame.is_ready() || self.ended.is_some() {
            return frame;
        }
        let mut credentials = self.caller.watch();
        let ended = self.ended.insert(Box::pin(async move { credentials.ended().await }));
        let failure = std::task::ready!(ended.as_mut().poll(context));
        Poll::Ready(Some(Ok(self.end(&failure))))
    }

    fn is_end_stream(&self) -> bool {
        self.over || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.over { SizeHint::with_exact(0) } else { self.body.size_hint() }
    }
}
