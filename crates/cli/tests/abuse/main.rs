//! Tests that abuse of the clients' port leaves others served and memory bounded, and that it ends.

// The one test of `begun` takes longest, and tests start in the order of their names.
mod begun;
#[path = "../common/mod.rs"]
mod common;
mod crowds;
mod floods;
mod hostile;
mod large;
mod memory;
mod overload;
mod raw;
mod victim;
