//! Does the handle keep its word over real etcd and Redis servers?
//!
//! The servers are Debian's, started here on loopback, each with a directory of its own, and killed with the test.

#[path = "../../../cli/tests/common/ports.rs"]
mod ports;

mod etcd;
mod redis;
mod scenario;
mod servers;
