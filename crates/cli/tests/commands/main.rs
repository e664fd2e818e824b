//! Tests that every command does what its help says, in text and in JSON.

mod auth;
mod errors;
mod figures;
mod first_seconds;
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
