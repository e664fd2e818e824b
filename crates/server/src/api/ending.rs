//! Ends the calls and response streams of a caller whose credentials no longer hold.
//!
//! It surrounds every call: a call that waits is refused, a gRPC stream ends with the status in its trailers, and a
//! stream of server-sent events ends with the event `closing`. Sessions end themselves, with a message of their own.
//!
//! A stream runs only while its client reads: HTTP/2 does not poll the body of a stream whose window is closed. So the
//! connection of a stream that has not ended some time after its credentials is closed.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::response::Response;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};
use hyper::body::{Frame, SizeHint};
use tenure_wire::Failure;
use tokio::task::AbortHandle;

use super::{grpc, http as api};
use crate::dispatch::Caller;
use crate::identity::{CallerIdentity, CredentialWatch};

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

/// How long a stream may go on after the end of its credentials. Its client reads in that time why it ends.
const FAREWELL: Duration = Duration::from_secs(3);
/// The gRPC calls that answer with a stream for as long as the client wants. Other answers are complete by themselves.
const STREAMS: [&str; 4] = [
    "/tenure.v1.SessionService/Open",
    "/tenure.v1.LockService/LeaseKeepAlive",
    "/tenure.v1.LockService/Watch",
    "/tenure.v1.ElectionService/Observe",
];

/// Closes the connection of a stream that has not ended in time, until it is dropped.
pub(super) struct StreamDeadline(AbortHandle);

impl StreamDeadline {
    /// The deadline of the response to a call of this path; none if the response is no stream.
    pub(super) fn of(
        path: &str,
        response: &Response,
        identity: &CallerIdentity,
        caller: &Caller,
    ) -> Option<Self> {
        let is_stream = match StreamForm::of(response)? {
            StreamForm::Grpc => STREAMS.contains(&path),
            StreamForm::Events => true,
        };
        let (mut credentials, memory) = (identity.watch(), caller.memory().clone());
        let ends = async move {
            credentials.ended().await;
            tokio::time::sleep(FAREWELL).await;
            tracing::warn!(
                "closes a connection whose client does not read that its credentials have ended"
            );
            memory.close();
        };
        is_stream.then(|| Self(tokio::spawn(ends).abort_handle()))
    }
}

impl Drop for StreamDeadline {
    fn drop(&mut self) {
        self.0.abort();
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
    let (mut call, mut credentials) = (pin!(call), identity.watch());
    std::future::poll_fn(move |context| {
        // The end first: what the log does to the leases of a revoked principal must not answer the call.
        if let Err(failure) = credentials.check()
            && !caller.changes_access()
        {
            return Poll::Ready(Err(failure));
        }
        if let Poll::Ready(response) = call.as_mut().poll(context) {
            return Poll::Ready(Ok(response));
        }
        let failure = ready!(credentials.poll_ended(context));
        if caller.changes_access() { Poll::Pending } else { Poll::Ready(Err(failure)) }
    })
    .await
}

/// Ends the body of a response to this caller once its credentials no longer hold.
///
/// Returns the response as it is if its body is not a stream.
#[expect(clippy::result_large_err, reason = "it is the response, which goes on as it is")]
pub(super) fn response(
    response: Response,
    caller: &CallerIdentity,
) -> Result<Response<EndingBody>, Response> {
    let Some(form) = StreamForm::of(&response) else { return Err(response) };
    let credentials = caller.watch();
    Ok(response.map(|body| EndingBody { body, form, credentials, waits: false, over: false }))
}

/// The body of a response stream.
pub(super) struct EndingBody {
    body: Body,
    form: StreamForm,
    credentials: CredentialWatch,
    /// Whether the body has had to wait. Most responses are complete when they are first polled.
    waits: bool,
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
        if self.waits
            && let Err(failure) = self.credentials.check()
        {
            return Poll::Ready(Some(Ok(self.end(&failure))));
        }
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if frame.is_ready() {
            return frame;
        }
        self.waits = true;
        let failure = ready!(self.credentials.poll_ended(context));
        Poll::Ready(Some(Ok(self.end(&failure))))
    }

    fn is_end_stream(&self) -> bool {
        self.over || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.over { SizeHint::with_exact(0) } else { self.body.size_hint() }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::task::Waker;

    use tenure_core::access::{Access, AccessChange};

    use super::*;
    use crate::dispatch::{ConnectionSources, MemberMemory, PrincipalSources, RequestSource};
    use crate::identity::{Identity, Presented};

    fn anyone(identity: &Arc<Identity>) -> Caller {
        let caller = CallerIdentity::resolve(identity, Presented::default());
        let sources =
            ConnectionSources::new(RequestSource::of_address(), PrincipalSources::default());
        let connection = Caller::new(sources, MemberMemory::default(), None);
        connection.identified(Some(caller.unwrap_or_else(|failure| panic!("{failure}"))))
    }

    fn enable(identity: &Identity) {
        let mut access = Access::default();
        access.change(&AccessChange::SetIdentity { enabled: true }).unwrap();
        identity.publish(&Arc::new(access));
    }

    #[test]
    fn a_call_that_is_answered_at_once_registers_nowhere() {
        let identity = Arc::<Identity>::default();
        let caller = anyone(&identity);
        let call = async { identity.waiting() };
        let mut served = pin!(until_ended(caller.identity().unwrap(), &caller, call));
        let mut context = Context::from_waker(Waker::noop());
        assert_eq!(served.as_mut().poll(&mut context), Poll::Ready(Ok(0)));
        assert_eq!(identity.waiting(), 0);
    }

    #[test]
    fn a_call_that_waits_registers_once_and_ends_when_its_credentials_do() {
        let identity = Arc::<Identity>::default();
        let caller = anyone(&identity);
        let mut context = Context::from_waker(Waker::noop());
        {
            let forever = std::future::pending::<()>();
            let mut served = pin!(until_ended(caller.identity().unwrap(), &caller, forever));
            assert!((0..3).all(|_| served.as_mut().poll(&mut context).is_pending()));
            assert_eq!(identity.waiting(), 1);
            enable(&identity);
            let ended = served.as_mut().poll(&mut context);
            assert_eq!(ended, Poll::Ready(Err(Failure::Unauthenticated)));
        }
        assert_eq!(identity.waiting(), 0);
    }

    #[test]
    fn a_call_that_changes_the_rules_goes_on_to_its_answer() {
        let identity = Arc::<Identity>::default();
        let caller = anyone(&identity);
        let mut is_second = false;
        let call = std::future::poll_fn(|_| {
            if std::mem::replace(&mut is_second, true) { Poll::Ready(7) } else { Poll::Pending }
        });
        let mut served = pin!(until_ended(caller.identity().unwrap(), &caller, call));
        let mut context = Context::from_waker(Waker::noop());
        assert!(served.as_mut().poll(&mut context).is_pending());
        caller.enter(Caller::changing_access);
        enable(&identity);
        assert_eq!(served.as_mut().poll(&mut context), Poll::Ready(Ok(7)));
    }

    #[test]
    fn a_stream_that_waits_ends_with_the_credentials_and_one_that_is_complete_does_not() {
        let identity = Arc::<Identity>::default();
        let caller = anyone(&identity);
        let stream = |body: Body| {
            let response = Response::builder().header(CONTENT_TYPE, "text/event-stream");
            let response = response.body(body).unwrap();
            response_of(response, &caller)
        };
        let mut context = Context::from_waker(Waker::noop());
        let mut complete = stream(Body::from("all of it"));
        let mut waiting = stream(Body::from_stream(futures_util::stream::pending::<
            Result<Bytes, std::io::Error>,
        >()));
        assert_eq!(identity.waiting(), 0);
        assert!(Pin::new(&mut waiting).poll_frame(&mut context).is_pending());
        assert_eq!(identity.waiting(), 1);
        enable(&identity);
        let Poll::Ready(Some(Ok(last))) = Pin::new(&mut waiting).poll_frame(&mut context) else {
            panic!("the stream goes on");
        };
        assert!(last.data_ref().is_some_and(|text| text.starts_with(b"event: closing")));
        assert!(waiting.is_end_stream());
        let whole = Pin::new(&mut complete).poll_frame(&mut context);
        let Poll::Ready(Some(Ok(whole))) = whole else { panic!("it is there") };
        assert_eq!(whole.data_ref().map(|bytes| &bytes[..]), Some(&b"all of it"[..]));
    }

    fn response_of(response_: Response, caller: &Caller) -> EndingBody {
        let stream = response(response_, caller.identity().unwrap());
        stream.unwrap_or_else(|_| panic!("it is a stream")).into_body()
    }
}
