//! Tests that progress is reported and explained, and that a command that is stuck loses its lock.

use crate::stage::{changes, lease, ok, one, refused, run, run_with};

#[test]
fn progress_is_reported_and_explained() {
    let holder = lease("holder");
    let token = ok(&["try", "prog/a", "--lease", &holder, "--progress-within", "5m"]);
    let token = token.trim();
    let text = ok(&["explain", "prog/a"]);
    assert!(text.contains("progress nothing reported yet, for "), "{text}");
    let place = ["--lock", "prog/a", "--lease", &holder, "--token", token];
    let said = ok(&[&["progress", "7"][..], &place].concat());
    assert!(said.is_empty(), "stdout is for results: {said}");
    let text = ok(&["explain", "prog/a"]);
    assert!(text.contains("progress 7, reported "), "{text}");
    assert!(text.contains(" ago; a larger number is due in "), "{text}");
    let shown = one(&["explain", "prog/a"]);
    let progress = &shown["lock"]["holders"][0]["progress"];
    assert_eq!((&progress["number"], &progress["within_ms"]), (&"7".into(), &300_000.into()));
    let variables =
        [("TENURE_LOCK", "prog/a"), ("TENURE_LEASE", &*holder), ("TENURE_TOKEN", token)];
    let ran = run_with(&variables, &["progress", "8", "--output", "json"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.out.contains("\"event\":\"progressed\""), "{ran:?}");
    let wrong = ["progress", "9", "--lock", "prog/a", "--lease", &*holder, "--token", "999999"];
    refused(1, "NOT_HOLDER", &wrong);
    ok(&["unlock", "prog/a", "--lease", &holder, "--token", token]);
}

#[test]
fn a_command_that_is_stuck_is_stopped_and_the_history_says_why() {
    let script = "\"$0\" progress 3 --quiet; exec sleep 600";
    let tenure = env!("CARGO_BIN_EXE_tenure");
    let flags = ["run", "prog/b", "--ttl", "3s", "--progress-within", "1s", "--"];
    let ran = run(&[&flags[..], &["sh", "-c", script, tenure]].concat());
    assert_eq!(ran.code, 76, "{ran:?}");
    let changes = changes("prog/b");
    let mut events = changes.iter().filter_map(|change| change["events"].as_array()).flatten();
    let lost = events.find(|event| event["cause"] == "no_progress").expect("it was lost");
    assert_eq!(lost["reason"], "the number stayed at 3 for 1000 ms");
}
