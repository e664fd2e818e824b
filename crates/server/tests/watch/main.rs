//! Tests that every watch of members in one process sees every event, once and in order.

#[path = "../support/bounded.rs"]
mod bounded;
mod checker;
mod cluster;
mod ends;
mod jump;
mod order;
mod storm;
