//! Tests that several slots are acquired together and explained, and that a semaphore is resized.

use crate::stage::{changes, lease, ok, one, refused, run};

#[test]
fn several_slots_are_acquired_together_and_explained() {
    let ran = run(&[
        "run",
        "-q",
        "shares/a",
        "--slots",
        "4",
        "--take",
        "3",
        "--",
        "sh",
        "-c",
        "echo $TENURE_SLOTS",
    ]);
    assert_eq!((ran.code, ran.out.trim()), (0, "0,1,2"), "{ran:?}");
    let holder = lease("holder");
    let tokens = ok(&["try", "shares/a", "--lease", &holder, "--slots", "4", "--take", "2"]);
    assert_eq!(tokens.lines().count(), 2, "one token for each slot: {tokens}");
    refused(2, "ARGUMENTS", &["try", "shares/a", "--take", "2"]);
    let other = lease("other");
    let large = ["try", "shares/a", "--lease", &other, "--slots", "4", "--take", "5"];
    refused(1, "INVALID_SLOTS", &large);
    let waiter = lease("waiter");
    let wait = ["lock", "shares/a", "--slots", "4", "--take", "4", "--wait", "50ms"];
    refused(75, "WAIT_TIMEOUT", &[&wait[..], &["--lease", &waiter]].concat());
    let shown = one(&["explain", "shares/a"]);
    assert_eq!(shown["lock"]["holders"].as_array().unwrap().len(), 2);
    for token in tokens.lines() {
        ok(&["unlock", "shares/a", "--lease", &holder, "--token", token]);
    }
}

#[test]
fn a_semaphore_is_resized_and_its_history_says_so() {
    let said = ok(&["resize", "shares/b", "2"]);
    assert!(said.starts_with("semaphore `shares/b` has 2 slots from revision "), "{said}");
    let text = ok(&["explain", "shares/b"]);
    assert!(
        text.contains("slots 0/2") && text.contains("size     2 slots, set by an operator"),
        "{text}"
    );
    let holder = lease("holder");
    // The number that was set counts.
    ok(&["try", "shares/b", "--lease", &holder, "--slots", "9", "--take", "2"]);
    refused(1, "INVALID_SLOTS", &["resize", "shares/b", "4000000"]);
    let unset = one(&["resize", "shares/b", "--unset"]);
    assert_eq!((&unset["event"], &unset["slots"]), (&"resized".into(), &serde_json::Value::Null));
    let changes = changes("shares/b");
    let events = changes.iter().filter_map(|change| change["events"].as_array()).flatten();
    let sizes: Vec<_> =
        events.filter(|event| event["cause"] == "resized").map(|it| it["slots"].clone()).collect();
    assert_eq!(sizes, [2.into(), serde_json::Value::Null]);
}
