//! What do clients and members say to each other?
//!
//! The messages of `tenure.v1` as Rust types with clients and servers for each service ([`v1`]), the
//! message that thousands of watches share ([`shared`]), the one table of reasons ([`reason`]) and how
//! errors travel ([`Failure`], [`refusal`], [`status`]), and the JSON forms ([`json`]).

pub mod convert;
mod failure;
pub mod json;
pub mod reason;
pub mod refusal;
pub mod shared;
pub mod status;

pub use failure::Failure;
/// How long a message is, and its bytes.
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

    include!(concat!(env!("OUT_DIR"), "/tenure.v1.rs"));
}

/// The services and messages, described for reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tenure.bin"));
