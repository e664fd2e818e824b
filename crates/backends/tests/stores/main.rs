//! Tests the lock handle over real etcd and Redis servers.
//!
//! The servers are Debian's. The tests start them on loopback, each with a directory of its own, and kill them at the
//! end.

#[path = "../../../cli/tests/common/ports.rs"]
mod ports;

#[path = "../../../../examples/lock_over_etcd.rs"]
#[expect(dead_code, reason = "only its main is not called")]
mod lock_over_etcd;

mod etcd;
mod redis;
mod scenario;
mod servers;
