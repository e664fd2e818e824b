//! Does every command do what its help says, in words for people and for programs?

mod errors;
mod figures;
mod help;
mod keys;
mod leases;
mod locks;
mod members;
#[path = "../common/ports.rs"]
mod ports;
mod screens;
mod stage;
mod watches;
