//! Encodes errors as gRPC statuses that our clients and standard libraries can read.
//!
//! The metadata contains the reason, for people at a terminal. `grpc-status-details-bin` contains the whole error in
//! the form that standard libraries unpack.

use bytes::Bytes;
use prost::Message;
use tonic::Status;
use tonic::metadata::{MetadataMap, MetadataValue};

use crate::{reason, v1};

mod rpc {
    #![allow(missing_docs, unreachable_pub, reason = "generated")]
    include!("../generated/google.rpc.rs");
}

/// Metadata key: the reason.
pub const REASON: &str = "tenure-reason";
/// Metadata key: whether the request may have taken effect, `none` or `unknown`.
pub const EFFECT: &str = "tenure-effect";
/// Metadata key: the leader's client address.
pub const LEADER: &str = "tenure-leader";
/// Metadata key: when to retry, in milliseconds; the name that gRPC libraries know.
pub const PUSHBACK: &str = "grpc-retry-pushback-ms";

/// The type URL of an error's details.
const TYPE_URL: &str = "type.googleapis.com/tenure.v1.Error";

/// The longest details. They are sent as a header, and a client may accept no more than 16 KiB of headers in all. Only
/// a cycle of waits with long names can be longer; its end is left out.
const DETAILS_MAX: usize = 6 * 1024;

impl From<v1::Error> for Status {
    fn from(mut error: v1::Error) -> Self {
        while error.encoded_len() > DETAILS_MAX && error.ring.pop().is_some() {}
        let code = reason::row(&error.reason).map_or(tonic::Code::Unknown, |row| row.code);
        let mut metadata = MetadataMap::new();
        let mut say = |name: &'static str, value: &str| {
            // A value that no header can carry is still in the details.
            if let Ok(value) = MetadataValue::try_from(value) {
                metadata.insert(name, value);
            }
        };
        say(REASON, &error.reason);
        say(EFFECT, reason::effect_word(error.effect()));
        if let Some(leader) = error.leader.as_ref().filter(|leader| !leader.address.is_empty()) {
            say(LEADER, &leader.address);
        }
        if error.retry_after_ms > 0 {
            say(PUSHBACK, &error.retry_after_ms.to_string());
        }
        let details = rpc::Status {
            code: code.into(),
            message: error.message.clone(),
            details: vec![rpc::Any {
                type_url: TYPE_URL.to_owned(),
                value: error.encode_to_vec().into(),
            }],
        };
        let details = Bytes::from(details.encode_to_vec());
        Status::with_details_and_metadata(code, error.message, details, metadata)
    }
}

/// The error in a status; `None` if the status comes from elsewhere, such as a proxy or a library.
pub fn error_from(status: &Status) -> Option<v1::Error> {
    let details = rpc::Status::decode(status.details()).ok()?;
    let any = details.details.into_iter().find(|any| any.type_url == TYPE_URL)?;
    let error = v1::Error::decode(any.value).ok()?;
    (!error.reason.is_empty()).then_some(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Failure;

    #[test]
    fn an_error_comes_back_from_its_status() {
        let leader =
            v1::LeaderHint { member_id: 7, name: "b".into(), address: "10.0.0.12:7450".into() };
        let errors = [
            v1::Error::from(&Failure::NotLeader { leader: Some(leader) }),
            v1::Error::from(&Failure::Overloaded { retry_after_ms: 50 }),
        ];
        for error in errors {
            let status = Status::from(error.clone());
            assert_eq!(status.code(), tonic::Code::Unavailable);
            assert_eq!(status.metadata().get(REASON).unwrap(), error.reason.as_str());
            assert_eq!(status.metadata().get(EFFECT).unwrap(), "none");
            assert_eq!(error_from(&status), Some(error));
        }
    }

    #[test]
    fn a_retry_time_and_a_leader_stand_in_the_metadata_too() {
        let status = Status::from(v1::Error::from(&Failure::Overloaded { retry_after_ms: 50 }));
        assert_eq!(status.metadata().get(PUSHBACK).unwrap(), "50");
        assert!(status.metadata().get(LEADER).is_none());
    }

    #[test]
    fn a_long_ring_is_cut_so_that_the_headers_fit() {
        let link = v1::RingLink { lease: 1, client: "c".repeat(512), lock: "l".repeat(512) };
        let error =
            v1::Error { reason: "DEADLOCK".into(), ring: vec![link; 32], ..v1::Error::default() };
        let status = Status::from(error);
        let back = error_from(&status).unwrap();
        assert!(!back.ring.is_empty() && back.ring.len() < 32);
        assert!(status.details().len() <= DETAILS_MAX + 200);
    }

    #[test]
    fn a_status_of_another_server_has_no_error() {
        assert_eq!(error_from(&Status::unavailable("proxy")), None);
        let noise =
            Status::with_details(tonic::Code::Internal, "", Bytes::from_static(b"\xff\xff"));
        assert_eq!(error_from(&noise), None);
    }
}
