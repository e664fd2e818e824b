//! Tests that a shared hold is upgraded, and that a hold is handed on to a lease that waits.

use crate::stage::{changes, lease, ok, one, refused};

#[test]
fn a_shared_hold_becomes_exclusive_under_a_new_token() {
    let (a, b) = (lease("a"), lease("b"));
    let first = ok(&["try", "up/a", "--lease", &a, "--shared"]);
    let second = ok(&["try", "up/a", "--lease", &b, "--shared"]);
    refused(75, "HELD", &["try", "up/a", "--lease", &a, "--upgrade"]);
    ok(&["unlock", "up/a", "--lease", &b, "--token", second.trim()]);
    let token = ok(&["lock", "up/a", "--lease", &a, "--upgrade", "--wait", "5s"]);
    assert!(token.trim().parse::<u64>().unwrap() > first.trim().parse::<u64>().unwrap());
    refused(1, "NOT_HOLDER", &["unlock", "up/a", "--lease", &a, "--token", first.trim()]);
    assert_eq!(one(&["explain", "up/a"])["lock"]["holders"][0]["mode"], "exclusive");
    ok(&["unlock", "up/a", "--lease", &a, "--token", token.trim()]);
    let changes = changes("up/a");
    let mut events = changes.iter().filter_map(|change| change["events"].as_array()).flatten();
    assert!(events.any(|event| event["cause"] == "upgraded"), "{changes:?}");
}

#[test]
fn a_hold_is_not_handed_on_to_a_lease_that_does_not_wait() {
    let (giver, other) = (lease("giver"), lease("other"));
    let token = ok(&["try", "hand/a", "--lease", &giver]);
    let hold = ["--lease", &*giver, "--token", token.trim(), "--to", &*other];
    refused(1, "NOT_WAITING", &[&["hand-on", "hand/a"][..], &hold].concat());
    ok(&["unlock", "hand/a", "--lease", &giver, "--token", token.trim()]);
}
