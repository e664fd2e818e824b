//! Defines the public protocol: messages, error codes and JSON forms.
//!
//! Contains the messages of `tenure.v1` as Rust types with clients and servers for each service ([`v1`]), the message
//! that thousands of watches share ([`shared`]), the table of reasons ([`reason`]), the encoding of errors
//! ([`Failure`], [`refusal`], [`status`]), the JSON forms ([`json`]), how durations are written ([`duration`]),
//! how times of the wall clock are ([`wall`]), and the states of members ([`member_state`]).

pub mod convert;
pub mod duration;
mod failure;
#[cfg(feature = "json")]
pub mod json;
pub mod member_state;
pub mod reason;
pub mod refusal;
pub mod shared;
pub mod status;
pub mod wall;

pub use failure::{CountedFor, Failure};
/// The length of a message, and its bytes.
pub use prost::Message;

/// Everything in `proto/tenure/v1`: messages, and for each service a client and a server.
#[allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::redundant_closure_for_method_calls,
    clippy::semicolon_if_nothing_returned,
    clippy::disallowed_types,
    reason = "generated"
)]
pub mod v1 {
    pub use crate::shared::WatchResponse;

    #[cfg(feature = "server")]
    include!(concat!(env!("OUT_DIR"), "/tenure.v1.rs"));
    #[cfg(not(feature = "server"))]
    include!("../generated/tenure.v1.rs");
}

/// The descriptors of all services and messages, for reflection.
#[cfg(feature = "server")]
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tenure.bin"));

#[cfg(all(test, feature = "server", feature = "json"))]
mod tests {
    use super::*;

    /// The first line of generated files.
    const GENERATED: &str =
        "// @generated from `proto`: TENURE_FIX=1 cargo test -p tenure-wire generated\n";

    #[test]
    fn the_generated_files_are_those_of_the_proto_files() {
        let new = [
            ("tenure.v1.rs", include_str!(concat!(env!("OUT_DIR"), "/sdk/tenure.v1.rs"))),
            ("google.rpc.rs", include_str!(concat!(env!("OUT_DIR"), "/sdk/google.rpc.rs"))),
        ];
        let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("generated");
        for (name, text) in new {
            let (path, text) = (directory.join(name), format!("{GENERATED}{text}"));
            if std::env::var_os("TENURE_FIX").is_some() {
                std::fs::write(&path, &text).unwrap();
            }
            let same = std::fs::read_to_string(&path).is_ok_and(|known| known == text);
            assert!(same, "{} is old: run this test with TENURE_FIX=1", path.display());
        }
    }

    #[test]
    fn a_short_message_never_becomes_much_memory() {
        // A repeated element takes at least two bytes in a message. An API that accepts 64 KiB thus decodes at most
        // 32,768 of them, and this bound keeps them below 11 MiB.
        assert!(size_of::<v1::Request>() <= 336, "{}", size_of::<v1::Request>());
        assert!(size_of::<v1::LockAsk>() <= 320);
        assert!(size_of::<v1::LeaseName>() <= 320);
        // A request takes at least nine bytes in JSON: at most 7,281 of them, below 15 MiB.
        let json = size_of::<json::session::Request>();
        assert!(json <= 2_048, "{json}");
        // A client decodes these from a member, which it trusts more. They are bounded in the same way.
        assert!(size_of::<v1::Answer>() <= 576, "{}", size_of::<v1::Answer>());
        assert!(size_of::<v1::Event>() <= 512, "{}", size_of::<v1::Event>());
    }

    #[test]
    fn the_description_names_every_service() {
        let text = String::from_utf8_lossy(FILE_DESCRIPTOR_SET);
        let services = [
            "LockService",
            "SessionService",
            "LockAdminService",
            "LeaseService",
            "KeyService",
            "ElectionService",
            "ClusterService",
            "MaintenanceService",
            "TicketService",
            "AccessService",
        ];
        for service in services {
            assert!(text.contains(service), "{service}");
        }
    }
}
