//! Whoever reaches the clients' port and means no good: are others served meanwhile, is memory bounded,
//! and does it end?

// Its one test takes longest, and tests begin in the order of their names.
mod begun;
#[path = "../common/mod.rs"]
mod common;
mod crowds;
mod floods;
mod large;
mod raw;
mod victim;
