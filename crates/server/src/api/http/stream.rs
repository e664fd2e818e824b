//! Encodes server-sent events.

use std::convert::Infallible;

use axum::body::Body;
use axum::response::Response;
use bytes::{BufMut, Bytes, BytesMut};
use futures_util::{Stream, StreamExt};
use http::HeaderValue;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use serde::Serialize;
use utoipa::ToSchema;

/// A stream of events.
pub(super) struct EventStream(Body);

/// One event of a stream. The stream is the text of such events, one after the other.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the text that `encoded` writes")]
pub(super) struct ServerSentEvent {
    /// The revision of the event. A client that sends it as `Last-Event-ID` resumes after this event.
    #[schema(pattern = "^(0|[1-9][0-9]{0,19})$")]
    id: Option<String>,
    /// The kind of event, such as `leader` or `overview`.
    event: String,
    /// A JSON object whose fields depend on `event`.
    data: String,
}

impl EventStream {
    /// A stream that begins with an event that is already there.
    pub(super) fn new(first: Bytes, rest: impl Stream<Item = Bytes> + Send + 'static) -> Self {
        let first = futures_util::stream::iter([first]);
        Self(Body::from_stream(first.chain(rest).map(Ok::<_, Infallible>)))
    }
}

impl From<EventStream> for Response {
    fn from(EventStream(body): EventStream) -> Self {
        let mut response = Response::new(body);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }
}

/// Encodes one event. Its JSON contains no line breaks, so it fits on one line.
pub(super) fn line(event: &str, id: u64, data: &impl Serialize) -> Bytes {
    encoded(event, id, &serde_json::to_vec(data).unwrap_or_default())
}

/// One event whose data is already encoded.
pub(super) fn encoded(event: &str, id: u64, data: &[u8]) -> Bytes {
    let mut line = BytesMut::with_capacity(data.len() + 64);
    line.put_slice(format!("id: {id}\nevent: {event}\ndata: ").as_bytes());
    line.put_slice(data);
    line.put_slice(b"\n\n");
    line.freeze()
}
