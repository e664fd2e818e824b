//! Connects the members of a cluster with each other.
//!
//! One long-lived connection per pair carries the messages of Raft; the member with the smaller id dials. Snapshots
//! travel on a connection of their own, so heartbeats never wait behind them. Every connection to the members' port
//! starts with one frame that says what it is for. Connections use TLS if the member has certificates.

mod archive;
mod control;
mod expiry;
mod frame;
mod incoming;
mod link;
mod listener;
mod net;
mod snapshot;
mod stream;
mod wire;

pub(crate) use control::read as read_control;
pub(crate) use expiry::PeerCertificates;
pub(crate) use frame::{Frame, FrameClass};
pub(crate) use incoming::{IncomingLink, IncomingLinks};
pub(crate) use listener::PeerListener;
pub(crate) use net::Net;
pub(crate) use wire::Wire;
