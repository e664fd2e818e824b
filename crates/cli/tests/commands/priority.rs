//! Tests that a more urgent request passes others, and that it is shown for how long one can be passed.

use crate::stage::{Live, json, lease, ok, one, run, wait};

#[test]
fn a_more_urgent_request_is_next_and_it_is_explained_how_long_others_can_be_passed() {
    let holder = lease("holder");
    let token = ok(&["try", "pr/a", "--lease", &holder]).trim().to_owned();
    let plain = Live::start(&["lock", "pr/a", "--client", "plain"]);
    wait("the plain one waits", || (json(&["queue", "pr/a"]).len() == 1).then_some(()));
    let said = ["run", "pr/a", "--priority", "5", "--client", "urgent", "--", "echo", "ran"];
    let urgent = Live::start(&said);
    wait("both wait", || (json(&["queue", "pr/a"]).len() == 2).then_some(()));
    let waiting = json(&["queue", "pr/a"]);
    assert_eq!((&waiting[0]["client"], &waiting[0]["priority"]), (&"urgent".into(), &5.into()));
    assert_eq!(waiting[1]["client"], "plain");
    let text = ok(&["explain", "pr/a"]);
    assert!(text.contains("priority 5"), "{text}");
    assert!(text.contains("passed   new requests of priority 9 can pass plain for 4m"), "{text}");
    let shown = one(&["explain", "pr/a"]);
    let left_ms = shown["ahead"][1]["passable_ms"].as_u64().expect("it can be passed");
    assert!((200_000..=270_000).contains(&left_ms), "{shown}");

    ok(&["unlock", "pr/a", "--lease", &holder, "--token", &token]);
    wait("the urgent one runs", || urgent.said().iter().any(|line| line == "ran").then_some(()));
    wait("then the other", || plain.said().iter().find_map(|line| line.parse::<u64>().ok()));
}

#[test]
fn a_priority_is_a_number_up_to_nine() {
    for wrong in ["10", "-1", "high"] {
        let priority = format!("--priority={wrong}");
        let ran = run(&["lock", "pr/b", &priority]);
        assert_eq!(ran.code, 2, "{wrong}: {ran:?}");
    }
}
