//! What surrounds one member: threads, sockets, disk and clock?
//!
//! A [`tenure_raft::Replica`] has none of these. Here one thread, the loop, drives it: it takes what
//! has arrived, reads the clock, ends the replica's turn and does what comes out. Everything else
//! talks to the loop through a [`Member`]:
//!
//! ```text
//! doors       ─┐                          ┌─► log: write, one sync per turn
//! peer readers ├─► inbox ─► loop, Replica ┼─► links: one writer thread per connection
//! snapshots   ─┘                          └─► answers, notices to those who wait
//! ```
//!
//! Start reading at [`start`], then `turn.rs`.

#[macro_use]
mod plant;

pub mod backup;
mod callers;
mod door;
mod edge;
mod enter;
mod error;
mod fetch;
mod figures;
mod home;
#[cfg(feature = "virtual-time")]
#[doc(hidden)]
pub mod inside;
pub mod log;
mod member;
mod meter;
pub mod os;
mod peer;
mod pen;
pub mod restore;
mod snapshot_disk;
mod start;
mod ticket;
pub mod tls;
mod turn;
#[doc(hidden)]
pub mod untrusted;
pub mod watch;
mod writer;

pub use error::StartError;
pub use fetch::request_backup;
pub use figures::Figures;
pub use member::{End, Gone, Member, MemberStatus};
pub use start::{Entrance, Running, Settings, start};
pub use tenure_node::directory::{Address, Card, Names, Preference};
pub use tenure_node::{AdminRequest, Failure, Incarnation, Lead, Lineage};
pub use tenure_raft::Stop;
