//! Whoever reaches the clients' port and means no good: are others served meanwhile, is memory bounded,
//! and does it end?

#[path = "../common/mod.rs"]
mod common;
mod crowds;
mod floods;
mod large;
mod raw;
mod slow;
mod victim;
