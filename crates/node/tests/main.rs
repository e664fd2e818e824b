//! Drives nodes and their machines without a network, a disk or a clock.

mod acquire;
mod bootstrap;
mod forwarding;
mod session;
mod transfer;
