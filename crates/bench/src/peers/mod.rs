//! Runs the same workloads against several lock systems, one system at a time.
//!
//! A system is a [`PeerSystem`]: it installs itself, starts its servers and has clients. The workloads are the same for
//! all of them (`load`), and so is what is recorded: rates, latencies, CPU, memory, syncs, and how busy the rest of the
//! machine was.

pub mod install;
pub mod servers;
pub mod system;
pub mod together;

mod command;
mod goals;
mod load;
mod page;
mod plot;
mod redis;
mod results;
mod run;
mod tables;
mod tenure;
mod usage;
mod window;
mod workload;

pub use self::command::{PeersArguments, run};
pub use self::redis::RedisPeer;
pub use self::system::{AnyPeer, PeerClient, PeerSystem};
pub use self::tenure::TenurePeer;
pub use self::workload::PeerWorkload;

/// The most connections that clients share, where they share them.
pub const CONNECTIONS: usize = 16;
