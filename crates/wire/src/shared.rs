//! How do thousands of watches send the same events without encoding them thousands of times?
//!
//! A [`WatchResponse`] is either fields or bytes that were encoded once. Protobuf lets fields come in any
//! order, so the one thing that differs between watches, the watch's id, is written behind the shared
//! bytes.

use bytes::{Buf, BufMut, Bytes};
use prost::encoding::{DecodeContext, WireType, int64};
use prost::{DecodeError, Message};

use crate::v1;

const WATCH_ID: u32 = 2;

/// `tenure.v1.WatchResponse`: all events of one revision that a watch admits, or news about the watch.
#[derive(Clone, Debug, Default)]
pub struct WatchResponse {
    /// Which watch.
    pub watch_id: i64,
    body: Body,
}

#[derive(Clone, Debug)]
enum Body {
    Fields(Box<WatchFields>),
    Encoded(EncodedWatch),
}

impl Default for Body {
    fn default() -> Self {
        Self::Fields(Box::default())
    }
}

/// Everything in a [`WatchResponse`] that is the same for all who watch the same.
#[derive(Clone, PartialEq, Message)]
pub struct WatchFields {
    /// Who answers, and when.
    #[prost(message, optional, tag = "1")]
    pub header: Option<v1::Header>,
    /// The revision of the events; of a progress mark, everything up to it was sent.
    #[prost(int64, tag = "3")]
    pub revision: i64,
    /// The events, in order. One revision is never split.
    #[prost(message, repeated, tag = "4")]
    pub events: Vec<v1::Event>,
    /// Not 0: the watch is over, because the history begins only at this revision.
    #[prost(int64, tag = "5")]
    pub compact_revision: i64,
    /// Everything up to `revision` was sent.
    #[prost(bool, tag = "6")]
    pub progress: bool,
    /// The watch has started. Comes before any event of it.
    #[prost(bool, tag = "7")]
    pub created: bool,
    /// The watch is over; `error` says why, unless it was asked for.
    #[prost(bool, tag = "8")]
    pub canceled: bool,
    /// Not 0: the watch is over, because its reader was too slow. Start again from this revision.
    #[prost(int64, tag = "9")]
    pub resume_revision: i64,
    /// Why the watch is over.
    #[prost(message, optional, tag = "10")]
    pub error: Option<v1::Error>,
}

/// The bytes of [`WatchFields`], to be shared. Cloning copies nothing.
#[derive(Clone, Debug)]
pub struct EncodedWatch(Bytes);

impl WatchFields {
    /// Encodes the fields, once for all who watch the same.
    pub fn share(&self) -> EncodedWatch {
        EncodedWatch(self.encode_to_vec().into())
    }
}

impl EncodedWatch {
    /// How many bytes everybody sends.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is nothing to say.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The bytes, for whoever keeps them; [`EncodedWatch::of`] takes them back.
    pub fn into_bytes(self) -> Bytes {
        self.0
    }

    /// Bytes that [`WatchFields::share`] wrote. Others make [`WatchResponse::into_fields`] panic.
    pub fn of(bytes: Bytes) -> Self {
        Self(bytes)
    }

    fn decode(&self) -> WatchFields {
        WatchFields::decode(self.0.clone()).expect("only what `share` wrote is shared")
    }
}

impl WatchResponse {
    /// A message of one's own.
    pub fn new(watch_id: i64, fields: WatchFields) -> Self {
        Self { watch_id, body: Body::Fields(Box::new(fields)) }
    }

    /// A message whose bytes are shared with others.
    pub fn shared(watch_id: i64, encoded: EncodedWatch) -> Self {
        Self { watch_id, body: Body::Encoded(encoded) }
    }

    /// The fields, whichever form they are in.
    pub fn into_fields(self) -> WatchFields {
        match self.body {
            Body::Fields(fields) => *fields,
            Body::Encoded(encoded) => encoded.decode(),
        }
    }

    fn fields_mut(&mut self) -> &mut WatchFields {
        if let Body::Encoded(encoded) = &self.body {
            self.body = Body::Fields(Box::new(encoded.decode()));
        }
        match &mut self.body {
            Body::Fields(fields) => fields,
            Body::Encoded(_) => unreachable!("it was decoded above"),
        }
    }
}

impl PartialEq for WatchResponse {
    fn eq(&self, other: &Self) -> bool {
        self.watch_id == other.watch_id && self.clone().into_fields() == other.clone().into_fields()
    }
}

impl Message for WatchResponse {
    fn encode_raw(&self, buf: &mut impl BufMut) {
        match &self.body {
            Body::Fields(fields) => fields.encode_raw(buf),
            Body::Encoded(encoded) => buf.put_slice(&encoded.0),
        }
        if self.watch_id != 0 {
            int64::encode(WATCH_ID, &self.watch_id, buf);
        }
    }

    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buf: &mut impl Buf,
        ctx: DecodeContext,
    ) -> Result<(), DecodeError> {
        if tag == WATCH_ID {
            return int64::merge(wire_type, &mut self.watch_id, buf, ctx);
        }
        self.fields_mut().merge_field(tag, wire_type, buf, ctx)
    }

    fn encoded_len(&self) -> usize {
        let id = if self.watch_id == 0 { 0 } else { int64::encoded_len(WATCH_ID, &self.watch_id) };
        id + match &self.body {
            Body::Fields(fields) => fields.encoded_len(),
            Body::Encoded(encoded) => encoded.0.len(),
        }
    }

    fn clear(&mut self) {
        *self = Self::default();
    }
}
