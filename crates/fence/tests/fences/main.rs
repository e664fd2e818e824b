//! Tests every fence against the real store.
//!
//! All fences share one list of trials (`trials.rs`); each also has tests of what only it promises. The tests start
//! servers, installed from Debian's and Python's packages if need be. Where a server is not available, the test reports
//! that and proves nothing, which is a failure in continuous integration.

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
