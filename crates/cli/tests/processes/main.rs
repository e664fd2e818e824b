//! Does a cluster of real processes keep its promises while everything is done to it?

mod checker;
#[path = "../common/mod.rs"]
mod common;
mod faults;
mod kill;
mod leases;
mod logging;
mod members;
mod namespaces;
mod partitions;
mod watches;
