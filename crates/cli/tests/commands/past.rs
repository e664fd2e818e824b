//! Tests that the past of a lock is found by time, client and loss, and that archives are checked.

use serde_json::Value;

use crate::stage::{Live, changes, json, lease, member, ok, one, refused, run, wait};

/// Two holds of a lock: one is given back, one is taken away. Returns the clients' times around the first.
fn lived(lock: &str) -> (String, String) {
    let id = lease("past-ana");
    let token = ok(&["try", lock, "--lease", &id]);
    let first = changes(lock).remove(0)["events"][0]["at"].as_str().unwrap().to_owned();
    ok(&["unlock", lock, "--lease", &id, "--token", token.trim()]);
    let eve = lease("past-eve");
    let token = ok(&["try", lock, "--lease", &eve]);
    let why = ["--reason", "it was deleted", "--client", "ops", "--yes"];
    let force = [&["force", lock, "--token", token.trim()], &why[..]].concat();
    ok(&force);
    let last = changes(lock).pop().unwrap()["events"][0]["at"].as_str().unwrap().to_owned();
    (first, last)
}

/// The present time.
fn right_now() -> String {
    tenure_wire::wall::utc(tenure_server::os::wall_ms())
}

#[test]
fn who_held_it_at_a_time_and_how_that_ended() {
    let (first, last) = lived("past/at");
    let text = ok(&["history", "past/at", "--at", &first]);
    for words in ["held by  past-ana  token", "since ", "until ", "released", "ttl "] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let shown = one(&["history", "past/at", "--at", &first]);
    assert_eq!(shown["holders"][0]["client"], "past-ana", "{shown}");
    assert_eq!(shown["holders"][0]["end"]["cause"], "released", "{shown}");
    assert!(shown["archive"]["holes"].is_array(), "{shown}");
    let taken = one(&["history", "past/at", "--at", &last]);
    assert_eq!(taken["holders"][0]["client"], "past-eve", "{taken}");
    assert_eq!(taken["holders"][0]["end"]["by"], "ops", "{taken}");
    assert_eq!(taken["holders"][0]["end"]["reason"], "it was deleted", "{taken}");
    let long_ago = ok(&["history", "past/at", "--at", "2001-01-01"]);
    assert!(long_ago.contains("unknown: nothing is known"), "{long_ago}");
    // The next hold answers a question about the minute in which it began.
    assert!(long_ago.contains("\nafter    past-ana  token "), "{long_ago}");
    ok(&["run", "past/ended", "--client", "past-ida", "--", "true"]);
    let now = ok(&["history", "past/ended", "--at", &right_now()]);
    let lines: Vec<&str> = now.lines().collect();
    assert_eq!(lines[1], "held by  no client: it was free", "{now}");
    assert!(lines[2].starts_with("before   past-ida  token "), "{now}");
    assert!(lines[2].ends_with(", released"), "{now}");
    let ago = ok(&["history", "past/at", "--at", "1m"]);
    assert!(ago.starts_with("lock `past/at` at "), "{ago}");
    let said = run(&["history", "past/at", "--at", "soon"]);
    assert_eq!(said.code, 2, "{said:?}");
    assert!(said.err.contains("is no time; try 03:14"), "{said:?}");
}

#[test]
fn the_past_is_selected_by_time_client_and_loss() {
    lived("past/by");
    let causes = |arguments: &[&str]| -> Vec<String> {
        let events = json(&[&["history"], arguments].concat());
        let events = events.iter().filter_map(|it| it["events"].as_array().cloned()).flatten();
        events.map(|it| it["cause"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(causes(&["past/by", "--since", "1h"]).len(), 4);
    assert_eq!(causes(&["past/by", "--until", "1h"]).len(), 0);
    assert_eq!(causes(&["past/by", "--client", "past-ana"]), ["granted", "released"]);
    assert_eq!(causes(&["past/by", "--lost"]), ["forced"]);
    assert_eq!(causes(&["--prefix", "past/by", "--lost"]), ["forced"]);
    let none = run(&["history", "past/by", "--until", "1h"]);
    let says = "no event of lock `past/by` matches; all of it: tenure history past/by";
    assert!(none.err.contains(says), "{none:?}");
    ok(&["run", "past/kept", "--", "true"]);
    let none = run(&["history", "past/kept", "--lost"]);
    assert!(none.err.contains("no loss of lock `past/kept` matches"), "{none:?}");
    let ran = run(&["history", "past/by", "--lost"]);
    assert!(ran.out.contains("by ops  because \"it was deleted\""), "{ran:?}");
    assert!(ran.err.contains("the archive of this member begins at 20"), "{ran:?}");
    refused(2, "ARGUMENTS", &["history", "--at", "03:14"]);
}

#[test]
fn an_archive_is_checked_and_its_hand_overs_have_a_margin() {
    // A holder that is killed, and one that waits for its lease to run out.
    let dead = lease("past-dead");
    ok(&["lease", "revoke", &dead]);
    let short = one(&["lease", "grant", "--ttl", "1s", "--client", "past-short"]);
    let short = short["lease"].as_str().unwrap().to_owned();
    ok(&["try", "past/margin", "--lease", &short]);
    let mut next = Live::start(&["lock", "past/margin", "--client", "past-next"]);
    wait("the lease runs out", || next.said().first().cloned());
    let data = member().data.to_str().unwrap().to_owned();
    let checked = wait("the archive has it", || {
        let lines = json(&["history", "--verify", &data]);
        let of_ours = |it: &&Value| it["handover"] == "expired" && it["lock"] == "past/margin";
        let margin = lines.iter().find(of_ours)?["margin_ms"].as_i64()?;
        Some((margin, lines.last()?.clone()))
    });
    assert!((1..60_000).contains(&checked.0), "{checked:?}");
    assert_eq!(checked.1["broken"], 0, "{checked:?}");
    assert_eq!(checked.1["holes"], serde_json::json!([]), "{checked:?}");
    let text = ok(&["history", "--verify", &data]);
    for words in
        ["no two holders             kept", "nothing ends early         kept", "smallest margin"]
    {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert_eq!(next.interrupt(), Some(0));
    assert_eq!(run(&["history", "--verify", "/nowhere/at/all"]).code, 78);
}

#[test]
fn a_broken_promise_is_named_and_ends_with_1() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../server/tests/broken-archives");
    let mut checked = 0;
    for entry in std::fs::read_dir(root).unwrap() {
        let dir = entry.unwrap().path();
        let members = std::fs::read_dir(&dir).unwrap().map(|it| it.unwrap().path());
        let mut members: Vec<_> = members.map(|it| it.to_str().unwrap().to_owned()).collect();
        members.sort();
        let all: Vec<&str> = members.iter().map(String::as_str).collect();
        let ran = run(&[&["history", "--verify"], &all[..]].concat());
        assert_eq!(ran.code, 1, "{dir:?}: {ran:?}");
        assert!(ran.out.contains("BROKEN "), "{ran:?}");
        // One of two members that disagree keeps every promise.
        if all.len() == 2 {
            assert_eq!(run(&["history", "--verify", all[0]]).code, 0);
        }
        checked += 1;
    }
    assert_eq!(checked, 15);
}

#[test]
fn json_says_where_the_archive_begins() {
    lived("past/begins");
    let lines = json(&["history", "past/begins"]);
    let archive = &lines.last().unwrap()["archive"];
    assert!(archive["begins"].is_string(), "{lines:?}");
    assert!(archive["holes"].is_array(), "{lines:?}");
    // What the cluster itself keeps has no archive.
    let kept = json(&["history", "past/begins", "--from", "1"]);
    assert!(kept.iter().all(|line| line["archive"].is_null()), "{kept:?}");
}
