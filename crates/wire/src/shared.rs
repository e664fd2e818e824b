//! Encodes watch responses so that many watches share the same encoded events.
//!
//! A [`WatchResponse`] is either fields or bytes that were encoded once. Protobuf allows fields in any order, so the
//! only part that differs between watches, the watch's id, is written after the shared bytes.

use bytes::{Buf, BufMut, Bytes};
use prost::encoding::{DecodeContext, WireType, int64};
use prost::{DecodeError, Message};

use crate::v1;

const WATCH_ID: u32 = 2;

/// `tenure.v1.WatchResponse`: all events of one revision that match a watch, or a change of the watch itself.
#[derive(Clone, Debug, Default)]
pub struct WatchResponse {
    /// The id of the watch.
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

/// Everything in a [`WatchResponse`] that is the same for all watches with the same filter.
#[derive(Clone, PartialEq, Message)]
pub struct WatchFields {
    /// The member that answers, and its revision.
    #[prost(message, optional, tag = "1")]
    pub header: Option<v1::Header>,
    /// The revision of the events. In a progress mark, everything up to it was sent.
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
    /// The watch is over. `error` gives the cause, unless the client canceled it.
    #[prost(bool, tag = "8")]
    pub canceled: bool,
    /// Not 0: the watch is over, because the client read too slowly. It can start again from this revision.
    #[prost(int64, tag = "9")]
    pub resume_revision: i64,
    /// Why the watch is over.
    #[prost(message, optional, tag = "10")]
    pub error: Option<v1::Error>,
}

/// The encoded [`WatchFields`], to be shared. Cloning copies no bytes.
#[derive(Clone, Debug)]
pub struct EncodedWatch(Bytes);

impl WatchFields {
    /// Encodes the fields once for all watches with the same filter.
    pub fn share(&self) -> EncodedWatch {
        EncodedWatch(self.encode_to_vec().into())
    }
}

impl EncodedWatch {
    /// The number of shared bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no shared bytes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The bytes, for storage; [`EncodedWatch::of`] takes them back.
    pub fn into_bytes(self) -> Bytes {
        self.0
    }

    /// Wraps bytes that [`WatchFields::share`] wrote. Other bytes make [`WatchResponse::into_fields`] panic.
    pub fn of(bytes: Bytes) -> Self {
        Self(bytes)
    }

    fn decode(&self) -> WatchFields {
        WatchFields::decode(self.0.clone()).expect("only what `share` wrote is shared")
    }
}

impl WatchResponse {
    /// Creates a message with its own fields.
    pub fn new(watch_id: i64, fields: WatchFields) -> Self {
        Self { watch_id, body: Body::Fields(Box::new(fields)) }
    }

    /// Creates a message whose bytes are shared with other watches.
    pub fn shared(watch_id: i64, encoded: EncodedWatch) -> Self {
        Self { watch_id, body: Body::Encoded(encoded) }
    }

    /// Returns the fields, decoding them if necessary.
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

#[cfg(all(test, feature = "server"))]
mod tests {
    use super::*;

    /// The messages as they are generated without `shared.rs`.
    #[allow(missing_docs, unreachable_pub, dead_code, clippy::all, reason = "generated")]
    mod plain {
        include!(concat!(env!("OUT_DIR"), "/plain/tenure.v1.rs"));
    }

    fn fields() -> WatchFields {
        let kv = |value: &'static [u8]| v1::KeyValue {
            key: "deploy".into(),
            mod_revision: 8850,
            value: Bytes::from_static(value),
            ..Default::default()
        };
        let event = v1::Event {
            kv: Some(kv(b"new")),
            prev_kv: Some(kv(b"\xff")),
            cause: v1::Cause::Granted.into(),
            token: 1043,
            slot: Some(0),
            client: "ci-9/877".into(),
            ..Default::default()
        };
        WatchFields {
            header: Some(v1::Header { cluster_id: 1, member_id: 2, revision: 8850, raft_term: 3 }),
            revision: 8850,
            events: vec![event; 2],
            compact_revision: 4,
            progress: true,
            created: true,
            canceled: true,
            resume_revision: 9,
            error: Some(v1::Error { reason: "COMPACTED".into(), ..Default::default() }),
        }
    }

    fn both(watch_id: i64, fields: &WatchFields) -> [WatchResponse; 2] {
        let own = WatchResponse::new(watch_id, fields.clone());
        [own, WatchResponse::shared(watch_id, fields.share())]
    }

    #[test]
    fn either_form_is_read_as_the_plain_message() {
        for fields in [fields(), WatchFields::default()] {
            for watch_id in [0, 7, -1, i64::MAX] {
                for response in both(watch_id, &fields) {
                    let bytes = response.encode_to_vec();
                    assert_eq!(bytes.len(), response.encoded_len());
                    let plain = plain::WatchResponse::decode(&bytes[..]).unwrap();
                    assert_eq!(plain.watch_id, watch_id);
                    assert_eq!(plain.events.len(), fields.events.len());
                    let back = WatchResponse::decode(&plain.encode_to_vec()[..]).unwrap();
                    assert_eq!(back, response);
                    assert_eq!(back.into_fields(), fields);
                }
            }
        }
    }

    #[test]
    fn no_field_of_the_plain_message_is_lost() {
        // Every field is set, so a field that `WatchFields` does not know would change the length.
        let [own, shared] = both(7, &fields());
        let plain = plain::WatchResponse::decode(&own.encode_to_vec()[..]).unwrap();
        assert_eq!(plain.encoded_len(), own.encoded_len());
        assert_eq!(plain.encoded_len(), shared.encoded_len());
        let plain::WatchResponse {
            header: Some(_),
            watch_id: 7,
            revision: 8850,
            events: _,
            compact_revision: 4,
            progress: true,
            created: true,
            canceled: true,
            resume_revision: 9,
            error: Some(_),
        } = plain
        else {
            panic!("a field did not arrive: {plain:?}")
        };
    }

    #[test]
    fn sharing_copies_nothing() {
        let encoded = fields().share();
        let one = WatchResponse::shared(1, encoded.clone());
        let Body::Encoded(kept) = &one.body else { panic!("it is shared") };
        assert_eq!(kept.0.as_ptr(), encoded.0.as_ptr());
    }

    #[test]
    fn a_shared_message_can_be_merged_into_and_cleared() {
        let mut response = WatchResponse::shared(1, fields().share());
        let more = WatchFields { revision: 8851, ..Default::default() };
        response.merge(&more.encode_to_vec()[..]).unwrap();
        assert_eq!(response.clone().into_fields().revision, 8851);
        assert_eq!(response.clone().into_fields().events.len(), 2);
        response.clear();
        assert_eq!(response, WatchResponse::default());
    }
}
