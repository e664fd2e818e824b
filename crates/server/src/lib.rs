//! Surrounds one member's node with threads, sockets, a disk and a clock.
//!
//! A [`tenure_node::Node`] has none of these. One thread, the event loop, drives it: the loop takes the inputs that
//! have arrived, reads the clock, ends the node's turn and performs its outputs. Everything else reaches the loop
//! through a [`MemberHandle`]:
//!
//! ```text
//! APIs        ─┐                       ┌─► log: write, one sync per turn
//! peer readers ├─► inbox ─► loop, Node ┼─► links: one writer thread per connection
//! snapshots   ─┘                       └─► responses and notices to the callers that wait
//! ```
//!
//! Start reading at [`start`], then `event_loop.rs`.

#[macro_use]
mod plant;

mod api;
pub mod archive;
mod audit;
pub mod backup;
mod bootstrap;
mod callers;
mod credentials;
mod data_home;
mod dispatch;
mod error;
mod event_loop;
mod fetch;
mod identity;
mod inbox;
#[cfg(feature = "virtual-time")]
#[doc(hidden)]
pub mod inside;
pub mod log;
mod log_writer;
mod member;
mod metrics;
mod node_metrics;
pub mod os;
mod peer;
pub mod restore;
mod snapshot_disk;
mod start;
mod sync_thread;
mod ticket;
pub mod tls;
mod traces;
#[doc(hidden)]
pub mod untrusted;
pub mod watch;

pub use archive::ArchiveSettings;
pub use audit::AuditTo;
pub use credentials::ServerAuthority;
pub use error::{StartError, chain};
pub use fetch::request_backup;
pub use identity::{ConsoleMode, NewApiKey};
pub use member::{End, Gone, MemberHandle, MemberStatus};
pub use node_metrics::NodeMetrics;
pub use start::{HealthListen, InvitationSource, RunningServer, ServerSettings, StartMode, start};
pub use tenure_node::directory::{Address, MemberNames, MemberRecord, Preference};
pub use tenure_node::{
    AdminRequest, Incarnation, InvitationToken, KnownLeader, Lineage, NodeFailure,
};
pub use tenure_raft::Stop;
pub use traces::TraceSettings;
