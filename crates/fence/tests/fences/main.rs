//! Does every fence refuse the dead, against the real thing?
//!
//! One list of trials for all of them (`trials.rs`), and for each fence what only it promises. Servers are started
//! here, from Debian's and Python's packages if need be; where they cannot be had, the test says so and proves nothing,
//! which in continuous integration is a failure.

#[path = "../../../gate/tests/gate/calls.rs"]
mod calls;
mod files;
mod gates;
mod http;
mod object;
mod planted;
#[path = "../../../cli/tests/common/ports.rs"]
mod ports;
mod postgres;
mod redis;
mod scenario;
mod server;
mod sqlite;
mod storm;
mod subject;
mod trials;
#[path = "../../../gate/tests/gate/upstream.rs"]
mod upstream;
