//! Tests that a member without a quorum reports it soon, to its clients and to readiness checks.

use std::time::Duration;

use serde_json::Value;
use tenure_server::os;

use crate::common::http::{Call, Connection};
use crate::common::{Cluster, tenure, wait};

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

/// What a command prints with these arguments at one member only: its exit code and its last object.
fn asked(cluster: &Cluster, at: usize, arguments: &[&str]) -> (Option<i32>, Value) {
    let address = cluster.address(at).to_string();
    let ended = tenure(&[arguments, &["--addr", &address, "--output", "json"]].concat());
    let said = if ended.code == Some(0) { ended.out } else { ended.err };
    let last = said.lines().last().unwrap_or_else(|| panic!("{arguments:?} says nothing"));
    (ended.code, serde_json::from_str(last).unwrap())
}

#[test]
fn without_a_quorum_a_lock_is_explained_from_the_state_of_one_member_and_marked_as_stale() {
    let mut cluster = Cluster::found(3);
    let survivor = (cluster.leader() + 1) % 3;
    let ask = |cluster: &Cluster, arguments: &[&str]| asked(cluster, survivor, arguments);
    let (_, lease) = ask(&cluster, &["lease", "grant", "--ttl", "10m", "--client", "ana"]);
    let lease = lease["lease"].as_str().unwrap().to_owned();
    assert_eq!(ask(&cluster, &["try", "deploy", "--lease", &lease]).0, Some(0));
    // The member itself knows it, and can be asked while there is a leader, too.
    wait("the survivor has applied it", || {
        let (_, shown) = ask(&cluster, &["explain", "deploy", "--stale"]);
        (shown["lock"]["holders"][0]["client"] == "ana").then_some(())
    });
    (0..3).filter(|at| *at != survivor).for_each(|at| cluster.kill(at));
    wait("nothing is explained without a leader", || {
        let (code, said) = ask(&cluster, &["explain", "deploy"]);
        (code == Some(69)).then_some(said)
    });
    let (code, shown) = ask(&cluster, &["explain", "deploy", "--stale"]);
    assert_eq!((code, &shown["lock"]["holders"][0]["client"]), (Some(0), &"ana".into()), "{shown}");
    let age_ms = shown["stale"]["age_ms"].as_u64();
    assert!(age_ms.is_some() && shown["stale"]["member"].is_string(), "{shown}");
    let (code, last) = ask(&cluster, &["history", "deploy", "--stale"]);
    assert_eq!((code, last["stale"].is_object()), (Some(0), true), "{last}");
    let now = tenure_wire::wall::utc(os::wall_ms());
    let (code, then) = ask(&cluster, &["history", "deploy", "--at", &now, "--stale"]);
    assert_eq!((code, &then["holders"][0]["client"]), (Some(0), &"ana".into()), "{then}");
    assert!(then["stale"]["age_ms"].as_u64() >= age_ms, "the state only grows older: {then}");
    let address = cluster.address(survivor).to_string();
    let text = tenure(&["explain", "deploy", "--stale", "--addr", &address]);
    assert!(
        text.out.starts_with("stale    member ") && text.out.contains(" last led "),
        "{}",
        text.out
    );
    // A member that has known no leader since its start cannot tell how old its state is.
    cluster.kill(survivor);
    cluster.start(survivor, &[]);
    let restarted = wait("it answers again", || {
        let (code, shown) = ask(&cluster, &["explain", "deploy", "--stale"]);
        (code == Some(0)).then_some(shown)
    });
    assert!(restarted["stale"]["age_ms"].is_null(), "{restarted}");
}
