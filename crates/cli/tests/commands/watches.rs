//! Tests that a watch delivers every change, and that an observer sees every leader.

use serde_json::Value;

use crate::stage::{Live, json, lease, objects, ok, refused, wait};

#[test]
fn a_watch_tells_every_change_from_a_revision_on() {
    let first = crate::stage::one(&["key", "put", "w/a", "1"]);
    let from = first["revision"].as_str().unwrap().to_owned();
    ok(&["key", "put", "w/b", "2"]);
    let mut live = Live::start(&["watch", "w/", "--from", &from]);
    live.says("w/b");
    let id = lease("watched");
    let token = ok(&["try", "w/lock", "--lease", &id]).trim().to_owned();
    let line = live.says("w/lock");
    assert!(line.contains("granted") && line.contains(&format!("token {token}")), "{line}");
    assert!(line.contains("watched"), "{line}");
    assert_eq!(live.interrupt(), Some(130));
    let told = json(&["watch", "w/", "--from", &from, "--limit", "3"]);
    let names: Vec<&Value> = told.iter().map(|it| &it["events"][0]["cause"]).collect();
    assert_eq!(names, ["key_put", "key_put", "granted"], "{told:?}");
    assert_eq!(told[0]["revision"], first["revision"]);
}

#[test]
fn a_revision_that_has_not_come_is_not_waited_for_in_silence() {
    let newest = |reason: &str| reason.split("the newest is ").nth(1)?.trim().parse::<u64>().ok();
    let said = refused(1, "FUTURE_REVISION", &["watch", "w/", "--from", "9000000"]);
    let first = said.lines().next().unwrap();
    assert!(first.starts_with("error: revision 9000000 has not been reached; "), "{said}");
    let reached = newest(first).unwrap();
    assert!(
        said.contains(&format!("try      tenure watch w/ --from {}, or", reached + 1)),
        "{said}"
    );
    let told = crate::stage::run(&["watch", "--from", "9000000", "--output", "json"]);
    let error = &objects(&told.err)[0]["error"];
    assert!(error["bound"].as_u64().is_some_and(|bound| bound >= reached), "{error}");
    let said = refused(1, "FUTURE_REVISION", &["history", "w/a", "--from", "9000000"]);
    assert!(newest(said.lines().next().unwrap()).is_some_and(|it| it >= reached), "{said}");
}

#[test]
fn one_candidate_leads_and_every_observer_sees_it() {
    let seen = Live::start(&["observe", "e/billing"]);
    seen.says("vacant");
    let mut first =
        Live::start(&["elect", "e/billing", "--value", "10.0.0.4:9000", "--client", "host-3"]);
    first.says("elected leader of `e/billing`, token");
    let line = seen.says("10.0.0.4:9000");
    assert!(line.contains("host-3"), "{line}");
    let mut second =
        Live::start(&["elect", "e/billing", "--value", "10.0.0.5:9000", "--client", "host-4"]);
    second.says("is led by host-3 (10.0.0.4:9000) for");
    wait("it campaigns", || (json(&["queue", "e/billing"]).len() == 1).then_some(()));
    let waiting = Live::start(&["elect", "e/billing", "--value", "x", "--client", "host-5"]);
    wait("both campaign", || (json(&["queue", "e/billing"]).len() == 2).then_some(()));
    let mut waiting = waiting;
    assert_eq!(waiting.interrupt(), Some(130));
    assert_eq!(json(&["queue", "e/billing"]).len(), 1, "a candidate that leaves is gone at once");
    refused(75, "HELD", &["elect", "e/billing", "--value", "y", "--wait", "0"]);
    assert_eq!(first.interrupt(), Some(0));
    first.says("resigned");
    second.says("elected leader");
    seen.says("10.0.0.5:9000");
    let leader = json(&["observe", "e/billing", "--limit", "1"]).remove(0);
    assert_eq!((&leader["event"], &leader["client"]), (&"leader".into(), &"host-4".into()));
    assert!(ok(&["locks", "e/"]).contains("election"));
    assert_eq!(second.interrupt(), Some(0));
    wait("it is vacant again", || {
        (json(&["observe", "e/billing", "--limit", "1"])[0]["event"] == "vacant").then_some(())
    });
}

#[test]
fn lost_leadership_ends_with_its_code() {
    let arguments =
        ["elect", "e/lost", "--value", "v", "--once", "--output", "json", "--ttl", "2s"];
    let mut live = Live::start(&arguments);
    let elected: Value = serde_json::from_str(&live.says("elected")).unwrap();
    let token = elected["token"].as_str().unwrap();
    ok(&["force", "e/lost", "--token", token, "--reason", "a test", "--now", "--yes"]);
    assert_eq!(live.ends(), Some(76), "{:?}", live.said());
    let last =
        wait("its last words", || live.said().last().filter(|it| it.contains("LOST")).cloned());
    assert_eq!(objects(&last)[0]["exit_code"], 76);
    // A lock in the foreground reports the same.
    let mut held = Live::start(&["lock", "e/held", "--ttl", "2s"]);
    let token = wait("the token", || held.said().first().cloned());
    ok(&["force", "e/held", "--token", &token, "--reason", "a test", "--yes"]);
    assert_eq!(held.ends(), Some(76), "{:?}", held.said());
    let from = held.says("tenure history e/held --from ");
    let from: u64 = from.split("--from ").nth(1).unwrap().parse().unwrap();
    let past = ok(&["history", "e/held", "--from", &from.to_string()]);
    assert!(past.contains("granted") && past.contains("forced"), "{past}");
    let lost = held.says("lock `e/held` lost: forced by ");
    assert!(lost.contains(": a test"), "{lost}");
}
