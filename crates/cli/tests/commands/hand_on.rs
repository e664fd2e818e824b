//! Tests that a shared hold is upgraded, and that a hold is handed on to a lease that waits.

use crate::stage::{Live, changes, lease, ok, one, refused, wait};

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

#[test]
fn a_hold_goes_to_the_lease_that_waits_and_the_past_names_one_holder_at_each_time() {
    let (giver, other) = (lease("giver"), lease("other"));
    let token = ok(&["try", "hand/b", "--lease", &giver]);
    let ahead = lease("ahead");
    let waits =
        |lease: &str| ["lock", "hand/b", "--lease", lease, "--wait", "1m"].map(str::to_owned);
    let start = |lease: &str| Live::start(&waits(lease).each_ref().map(String::as_str));
    let _first = start(&ahead);
    wait("the first one waits", || queued(1));
    let mut second = start(&other);
    wait("both wait", || queued(2));
    ok(&["hand-on", "hand/b", "--lease", &giver, "--token", token.trim(), "--to", &other]);
    assert_eq!(second.ends(), Some(0));
    let handed = second.said().last().unwrap().trim().parse::<u64>().unwrap();
    assert!(handed > token.trim().parse().unwrap());
    let now = tenure_wire::wall::utc(tenure_server::os::wall_ms());
    let shown = one(&["history", "hand/b", "--at", &now]);
    assert_eq!(shown["holders"].as_array().map(Vec::len), Some(1), "{shown}");
    assert_eq!(shown["holders"][0]["token"], handed.to_string(), "{shown}");
    assert_eq!(shown["waiting"].as_array().map(Vec::len), Some(1), "{shown}");
    ok(&["unlock", "hand/b", "--lease", &other, "--token", &handed.to_string()]);
}

fn queued(places: usize) -> Option<()> {
    (one(&["explain", "hand/b"])["ahead"].as_array()?.len() == places).then_some(())
}

#[test]
fn the_past_of_an_upgraded_hold_has_one_holder_and_then_none() {
    let (a, b) = (lease("a"), lease("b"));
    ok(&["try", "up/past", "--lease", &a, "--shared"]);
    let other = ok(&["try", "up/past", "--lease", &b, "--shared"]);
    let shared_at = tenure_wire::wall::utc(tenure_server::os::wall_ms());
    let mut upgrade = Live::start(&["lock", "up/past", "--lease", &a, "--upgrade", "--wait", "1m"]);
    wait("the upgrade waits", || {
        let queued = |event: &serde_json::Value| event["cause"] == "queued";
        let changes = changes("up/past");
        changes.iter().any(|it| it["events"].as_array().unwrap().iter().any(queued)).then_some(())
    });
    ok(&["unlock", "up/past", "--lease", &b, "--token", other.trim()]);
    assert_eq!(upgrade.ends(), Some(0));
    let token = upgrade.said().last().unwrap().trim().to_owned();
    let past = || {
        let now = tenure_wire::wall::utc(tenure_server::os::wall_ms());
        one(&["history", "up/past", "--at", &now])
    };
    let shown = past();
    assert_eq!(shown["holders"][0]["token"], token, "{shown}");
    assert_eq!(shown["holders"].as_array().map(Vec::len), Some(1), "{shown}");
    assert_eq!(shown["waiting"], serde_json::json!([]), "{shown}");
    ok(&["unlock", "up/past", "--lease", &a, "--token", &token]);
    let shown = past();
    assert_eq!(shown["holders"], serde_json::json!([]), "{shown}");
    // At that time it was shared, and it ended under another token.
    let shown = one(&["history", "up/past", "--at", &shared_at]);
    let holders = shown["holders"].as_array().unwrap();
    assert_eq!(holders.len(), 2, "{shown}");
    assert!(holders.iter().all(|it| it["end"]["cause"] == "released"), "{shown}");
}
