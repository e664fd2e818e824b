//! Tests that a prefix is drained, waited for, listed, explained and opened, and that the newest of a group wins.

use crate::stage::{Live, json, lease, ok, one, refused, run, wait};

#[test]
fn a_drained_prefix_has_no_new_holders_and_its_waiters_go_on_when_it_is_opened() {
    let (ana, bob) = (lease("ana"), lease("bob"));
    let token = ok(&["try", "dr/a", "--lease", &ana]).trim().to_owned();
    let drained = ok(&["drain", "dr/", "--reason", "new disks", "--client", "ops"]);
    assert!(drained.starts_with("locks below `dr/` are drained at revision "), "{drained}");
    assert!(drained.contains("open: tenure undrain dr/"), "{drained}");
    let said = refused(75, "DRAINING", &["try", "dr/b", "--lease", &bob]);
    assert!(said.contains("`dr/` is drained by ops: new disks"), "{said}");
    let ran = run(&["run", "dr/b", "--wait", "0", "--", "true"]);
    assert_eq!(ran.code, 75, "{ran:?}");
    assert!(ran.err.contains("is drained by ops: new disks"), "{ran:?}");
    let text = ok(&["explain", "dr/a"]);
    assert!(text.contains("drained  `dr/` is drained for ") && text.contains("by ops: new disks"));
    assert!(text.contains("not granted until: tenure undrain dr/"), "{text}");
    let shown = one(&["explain", "dr/b"]);
    let (prefix, by) = (&shown["drained"]["prefix"], &shown["drained"]["by"]);
    assert_eq!((prefix, by), (&"dr/".into(), &"ops".into()));

    let listed = ok(&["drain", "--list"]);
    assert!(listed.starts_with("PREFIX") && listed.contains("new disks"), "{listed}");
    let list = json(&["drain", "--list"]);
    let of_ours = list.iter().find(|it| it["prefix"] == "dr/").expect("it is listed");
    assert_eq!((&of_ours["holders"], &of_ours["reason"]), (&1.into(), &"new disks".into()));

    let again = ["drain", "dr/", "--reason", "new disks", "--wait", "0s"];
    let left = refused(75, "WAIT_TIMEOUT", &again);
    assert!(left.contains("1 holder left") && left.contains("tenure locks dr/"), "{left}");
    let waiting = Live::start(&["lock", "dr/a", "--lease", &bob]);
    wait("bob waits", || (json(&["queue", "dr/a"]).len() == 1).then_some(()));
    let emptied = Live::start(&["drain", "dr/", "--reason", "new disks", "--wait"]);
    ok(&["unlock", "dr/a", "--lease", &ana, "--token", &token]);
    wait("no holder is left", || {
        emptied.said().iter().any(|line| line.starts_with("no holder is left")).then_some(())
    });
    let opened = ok(&["undrain", "dr/"]);
    assert!(opened.starts_with("locks below `dr/` are open at revision "), "{opened}");
    wait("bob has it", || waiting.said().iter().find_map(|line| line.parse::<u64>().ok()));
    let said = refused(1, "REFUSED", &["undrain", "dr/"]);
    assert!(said.contains("not drained"), "{said}");
}

#[test]
fn waiters_are_told_of_a_drain_that_begins_while_they_wait() {
    let ana = lease("ana");
    let token = ok(&["try", "dt/a", "--lease", &ana]).trim().to_owned();
    let asking = Live::start(&["lock", "dt/a", "--client", "asking"]);
    let running = Live::start(&["run", "dt/a", "--client", "running", "--", "true"]);
    wait("both wait", || (json(&["queue", "dt/a"]).len() == 2).then_some(()));
    ok(&["drain", "dt/", "--reason", "new disks", "--client", "ops"]);
    asking.says("`dt/` is drained");
    running.says("`dt/` is drained");
    ok(&["unlock", "dt/a", "--lease", &ana, "--token", &token]);
    // No holder is left, but the lock is granted only when an operator opens the prefix.
    let shown = one(&["explain", "dt/a"]);
    assert_eq!(shown["free_at_latest_ms"], serde_json::Value::Null, "{shown}");
    assert!(!ok(&["explain", "dt/a"]).contains("free     "));
    ok(&["undrain", "dt/"]);
}

#[test]
fn a_prefix_or_all_is_named_and_a_reason_given() {
    for wrong in [
        &["drain"][..],
        &["drain", "dw/"],
        &["drain", "", "--reason", "x"],
        &["drain", "dw/", "--all", "--reason", "x"],
        &["drain", "--list", "--reason", "x"],
        &["undrain"],
        &["undrain", "dw/", "--all"],
    ] {
        let ran = run(wrong);
        assert_eq!(ran.code, 2, "{wrong:?}: {ran:?}");
    }
}

#[test]
fn the_newest_of_a_group_replaces_the_older_ones_which_are_told_by_whom() {
    let holder = lease("holder");
    let token = ok(&["try", "su/a", "--lease", &holder]).trim().to_owned();
    let mut older = Live::start(&["lock", "su/a", "--supersede", "main", "--client", "older"]);
    wait("the older one waits", || (json(&["queue", "su/a"]).len() == 1).then_some(()));
    assert_eq!(json(&["queue", "su/a"])[0]["supersede"], "main");
    assert!(ok(&["explain", "su/a"]).contains("(the newest of main)"));
    let newer = Live::start(&["lock", "su/a", "--supersede", "main", "--client", "newer"]);
    assert_eq!(older.ends(), Some(75));
    older.says("superseded by a newer request of newer, lease ");
    let waiting = json(&["queue", "su/a"]);
    assert_eq!((waiting.len(), &waiting[0]["client"]), (1, &"newer".into()));
    assert!(ok(&["history", "su/a"]).contains("superseded"));
    ok(&["unlock", "su/a", "--lease", &holder, "--token", &token]);
    wait("the newer one has it", || newer.said().iter().find_map(|line| line.parse::<u64>().ok()));
}

#[test]
fn a_run_that_a_newer_one_replaces_does_not_start() {
    let holder = lease("run-holder");
    let token = ok(&["try", "su/run", "--lease", &holder]).trim().to_owned();
    let run = |client: &'static str| {
        let group = ["--supersede", "main", "--client", client];
        Live::start(&[&["run", "su/run"], &group[..], &["--", "echo", client]].concat())
    };
    let mut older = run("older");
    wait("the older one waits", || (json(&["queue", "su/run"]).len() == 1).then_some(()));
    let newer = run("newer");
    assert_eq!(older.ends(), Some(75));
    older.says("superseded by a newer run of newer, lease ");
    ok(&["unlock", "su/run", "--lease", &holder, "--token", &token]);
    wait("the newer one runs", || newer.said().iter().any(|line| line == "newer").then_some(()));
}
