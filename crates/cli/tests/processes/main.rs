//! Tests that a cluster of real processes keeps its promises under faults.

mod abandoned;
mod archive;
#[path = "../common/authority.rs"]
mod authority;
mod checker;
#[path = "../common/mod.rs"]
mod common;
mod faults;
mod health;
mod kill;
mod leases;
mod logging;
mod members;
mod namespaces;
mod no_quorum;
mod partitions;
mod removed;
mod rollback;
mod stage;
#[path = "../common/stranger.rs"]
mod stranger;
mod strangers;
mod strangers_join;
mod terms;
mod watches;
