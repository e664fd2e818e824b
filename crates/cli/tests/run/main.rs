//! Tests that `tenure run` stops its command before another client can have the lock, whatever happens to it.

mod basics;
#[path = "../common/mod.rs"]
mod common;
mod doubt;
mod frozen;
mod holding;
mod job;
mod lead;
mod peers;
mod scenes;
mod shell;
mod signals;
mod storm;
mod successor;
mod terminal;
mod world;
