//! Defines the messages of OTLP that a member exports, as far as it fills them.
//!
//! Names and numbers are those of `opentelemetry/proto/…/trace.proto`; fields that a member never sets are left out. A
//! test compares the bytes with those that OpenTelemetry's own crate writes.

/// The path of the method that takes spans.
pub(super) const EXPORT: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
/// The kind of a span that serves a request.
pub(super) const KIND_SERVER: i32 = 2;
/// The status of a span whose request failed.
pub(super) const STATUS_ERROR: i32 = 2;
/// The flags of a span: sampled, and with a parent in another process.
pub(super) const FLAG_SAMPLED: u32 = 0x001;
pub(super) const FLAGS_REMOTE_PARENT: u32 = 0x300;

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ExportRequest {
    #[prost(message, repeated, tag = "1")]
    pub(super) resource_spans: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ExportResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) partial_success: Option<PartialSuccess>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct PartialSuccess {
    #[prost(int64, tag = "1")]
    pub(super) rejected_spans: i64,
    #[prost(string, tag = "2")]
    pub(super) error_message: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    pub(super) resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    pub(super) scope_spans: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Resource {
    #[prost(message, repeated, tag = "1")]
    pub(super) attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    pub(super) scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    pub(super) spans: Vec<Span>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Scope {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) version: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Span {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) span_id: Vec<u8>,
    #[prost(string, tag = "3")]
    pub(super) trace_state: String,
    #[prost(bytes = "vec", tag = "4")]
    pub(super) parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    pub(super) name: String,
    #[prost(int32, tag = "6")]
    pub(super) kind: i32,
    #[prost(fixed64, tag = "7")]
    pub(super) start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    pub(super) end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    pub(super) attributes: Vec<KeyValue>,
    #[prost(message, repeated, tag = "11")]
    pub(super) events: Vec<SpanEvent>,
    #[prost(message, optional, tag = "15")]
    pub(super) status: Option<Status>,
    #[prost(fixed32, tag = "16")]
    pub(super) flags: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct SpanEvent {
    #[prost(fixed64, tag = "1")]
    pub(super) time_unix_nano: u64,
    #[prost(string, tag = "2")]
    pub(super) name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Status {
    #[prost(string, tag = "2")]
    pub(super) message: String,
    #[prost(int32, tag = "3")]
    pub(super) code: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct KeyValue {
    #[prost(string, tag = "1")]
    pub(super) key: String,
    #[prost(message, optional, tag = "2")]
    pub(super) value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct AnyValue {
    #[prost(oneof = "Value", tags = "1, 3")]
    pub(super) value: Option<Value>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum Value {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(int64, tag = "3")]
    Number(i64),
}

/// An attribute whose value is a text.
pub(super) fn text(key: &str, value: impl Into<String>) -> KeyValue {
    let value = Some(Value::Text(value.into()));
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value }) }
}

/// An attribute whose value is a number.
pub(super) fn number(key: &str, value: u64) -> KeyValue {
    let value = Some(Value::Number(i64::try_from(value).unwrap_or(i64::MAX)));
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value }) }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;

    /// What `opentelemetry-proto` 0.33.1 writes for the same request.
    const GOLDEN: &str = concat!(
        "0ad2010a1a0a180a0c736572766963652e6e616d6512080a0674656e75726512b3010a0f0a0674656e75726512",
        "05302e312e30129f010a100102030405060708090a0b0c0d0e0f10120815161718191a1b1c1a0876656e646f72",
        "3d3122081f202122232425262a076163717569726530023901002a36fe9c971741424b7636fe9c97174a140a0a",
        "7270632e73797374656d12060a04677270634a150a0f74656e7572652e71756575655f7573120218115a130943",
        "423936fe9c9717120870726f706f7365647a08120448454c441802850101030000",
    );

    #[test]
    fn the_bytes_are_those_of_opentelemetrys_own_crate() {
        let span = Span {
            trace_id: (1..=16).collect(),
            span_id: (21..=28).collect(),
            parent_span_id: (31..=38).collect(),
            trace_state: "vendor=1".to_owned(),
            flags: FLAG_SAMPLED | FLAGS_REMOTE_PARENT,
            name: "acquire".to_owned(),
            kind: KIND_SERVER,
            start_time_unix_nano: 1_700_000_000_000_000_001,
            end_time_unix_nano: 1_700_000_000_005_000_002,
            attributes: vec![text("rpc.system", "grpc"), number("tenure.queue_us", 17)],
            events: vec![SpanEvent {
                time_unix_nano: 1_700_000_000_001_000_003,
                name: "proposed".to_owned(),
            }],
            status: Some(Status { code: STATUS_ERROR, message: "HELD".to_owned() }),
        };
        let scope = Scope { name: "tenure".to_owned(), version: "0.1.0".to_owned() };
        let resource = Resource { attributes: vec![text("service.name", "tenure")] };
        let scope_spans = vec![ScopeSpans { scope: Some(scope), spans: vec![span] }];
        let resource_spans = vec![ResourceSpans { resource: Some(resource), scope_spans }];
        let bytes = ExportRequest { resource_spans }.encode_to_vec();
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, GOLDEN);
    }
}
