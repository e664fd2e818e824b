//! Tests that a member without a quorum reports it soon, to its clients and to readiness checks.

use std::time::Duration;

use serde_json::Value;
use tenure_server::os;

use crate::common::http::{Call, Connection};
use crate::common::{Cluster, wait};

/// How long the server tries if a call sets no limit: `WITHIN` of `server/src/dispatch`.
const DEFAULT: Duration = Duration::from_secs(10);
/// The time for a request at a member that knows of no leader: the member waits for one for a third of [`DEFAULT`]. The
/// rest is for a busy machine.
const PATIENT: Duration = Duration::from_secs(5);
/// The time for an answer at once. A member that has known of no leader for a third of [`DEFAULT`] answers at
/// once. `/readyz` does so at any time: it waits for a second at most, and stops as soon as its member knows that there
/// is no leader.
const AT_ONCE: Duration = Duration::from_millis(1_500);

/// A call without a timeout of its own, how long its answer took, its status and its body.
fn timed(cluster: &Cluster, at: usize, verb: &'static str, path: &str) -> (Duration, u16, Value) {
    let body = (verb == "PUT").then(|| ("application/octet-stream", "value".to_owned()));
    let call = Call { verb, path: path.to_owned(), key: None, body };
    let mut connection = Connection::open(cluster.address(at), None, 2 * DEFAULT).unwrap();
    let began_us = os::now_us();
    let answer = connection.call(&call).unwrap();
    let took = Duration::from_micros(os::now_us() - began_us);
    (took, answer.status, serde_json::from_slice(&answer.body).unwrap())
}

/// Kills all members but one and asks it at once, again and again, whether it is ready.
fn left_alone(survivor: impl Fn(usize) -> usize) {
    let mut cluster = Cluster::found(3);
    let survivor = survivor(cluster.leader());
    (0..3).filter(|at| *at != survivor).for_each(|at| cluster.kill(at));
    let mut slowest = Duration::ZERO;
    wait("it knows that there is no leader", || {
        let (took, status, body) = timed(&cluster, survivor, "GET", "/readyz");
        slowest = slowest.max(took);
        (status == 503 && body["status"] == "no leader").then_some(())
    });
    assert!(slowest < AT_ONCE, "/readyz took {slowest:?}");
    let refused = |verb, path, within| {
        let (took, status, body) = timed(&cluster, survivor, verb, path);
        let error = &body["error"];
        let said = (status, error["reason"].as_str(), error["effect"].as_str());
        assert_eq!(said, (503, Some("NO_LEADER"), Some("none")), "{verb} {path}: {body}");
        assert!(took < within, "{verb} {path} took {took:?}, not within {within:?}");
    };
    refused("PUT", "/v1/keys/lost", PATIENT);
    for (verb, path) in [("PUT", "/v1/keys/lost"), ("GET", "/v1/keys?prefix=lost&limit=1")] {
        refused(verb, path, AT_ONCE);
    }
    let (took, status, _) = timed(&cluster, survivor, "GET", "/readyz");
    assert_eq!(status, 503);
    assert!(took < AT_ONCE, "/readyz took {took:?}");
}

// Retry once: it requires answers within 1.5 seconds.
#[test]
fn a_leader_that_is_left_alone_refuses_soon() {
    left_alone(|leader| leader);
}

// Retry once: it requires answers within 1.5 seconds.
#[test]
fn a_follower_that_is_left_alone_refuses_soon() {
    left_alone(|leader| (leader + 1) % 3);
}
