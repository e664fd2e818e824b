//! Does `tenure run` stop its command before anyone else can have the lock, whatever is done to it?

mod basics;
#[path = "../common/mod.rs"]
mod common;
mod doubt;
mod frozen;
mod job;
mod lead;
mod peers;
mod scenes;
mod signals;
mod storm;
mod world;
