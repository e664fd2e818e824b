//! Members in one process, watched: does everyone hear everything, once and in order?

#[path = "../support/bounded.rs"]
mod bounded;
mod checker;
mod cluster;
mod ends;
mod jump;
mod order;
mod storm;
