//! Runs whole clusters under all kinds of faults, and checks their promises.
//!
//! Three or five members, their disks, the network between them, their clocks and their clients run on one thread from
//! one seed. The members are the code that ships; everything around them is simulated. Faults occur at random. After
//! every step the checks compare the members with an oracle that applies each entry once. Then all faults end, and the
//! cluster must work again.
//!
//! Start reading at `SimCluster::run` in `world.rs`.

mod ask_history;
mod bootstrapping;
mod call;
mod call_history;
mod caller;
mod caller_lease;
pub mod campaign;
mod client;
pub mod control;
mod disks;
mod entering;
mod event;
mod fault_counts;
mod forge;
mod inbox;
mod invited;
mod lifecycle;
mod links;
mod log_sink;
mod log_writer;
mod member;
mod nemesis;
mod network;
mod node_fault;
mod operator;
mod oracle;
mod packet;
mod recovery;
mod restoring;
mod reuse;
pub mod rollback;
mod serve;
mod session_host;
mod session_task;
mod standing;
mod strangers;
mod survivor;
mod sweep;
mod trace;
mod transfers;
mod upgrade;
mod watcher;
mod wire;
mod workload;
mod world;

pub use fault_counts::FaultCounts;
pub use world::{SeedResult, SimCluster};

use crate::invariant::InvariantViolation;

/// Milliseconds and seconds, in microseconds.
pub(crate) const MS: u64 = 1_000;
/// See [`MS`].
pub(crate) const S: u64 = 1_000 * MS;

/// Runs one seed; a panic anywhere is a violation like any other.
pub fn run(seed: u64) -> SeedResult {
    let ran = std::panic::catch_unwind(|| SimCluster::new(seed).run());
    ran.unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
            .unwrap_or_default();
        SeedResult::failed(InvariantViolation::new("panic", text))
    })
}
