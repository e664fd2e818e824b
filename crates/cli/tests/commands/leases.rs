//! Tests that leases are granted, renewed, shown and ended.

use serde_json::Value;

use crate::stage::{Live, changes, json, lease, ok, one, refused, run, wait};

#[test]
fn a_lease_lives_as_long_as_it_is_renewed() {
    let id = ok(&["lease", "grant", "--ttl", "30m", "--client", "cron", "--metadata", "nightly"]);
    let id = id.trim();
    let renewed = ok(&["lease", "renew", id]);
    assert!(renewed.contains("lives for another 30m") || renewed.contains("29m59s"), "{renewed}");
    assert!(one(&["lease", "renew", id])["ttl_ms"].as_u64().unwrap() > 0);
    ok(&["try", "leased", "--lease", id]);
    ok(&["key", "put", "leased-key", "v", "--lease", id]);
    let shown = ok(&["lease", "show", &id[..12]]);
    for words in
        ["of cron, ttl 30m", "holds    leased, token", "key      leased-key", "\"nightly\""]
    {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    assert_eq!(one(&["lease", "show", id])["holds"][0]["lock"], "leased");
    let listed = ok(&["lease", "list"]);
    let row =
        listed.lines().find(|line| line.contains("cron")).unwrap_or_else(|| panic!("{listed}"));
    assert!(row.starts_with(&id[..8]) && row.contains("leased"), "{row}");
    assert!(json(&["lease", "list"]).iter().any(|it| it["lease"] == id));
    let ended = run(&["lease", "revoke", id, "--stopped"]);
    assert!(ended.code == 0 && ended.err.contains("revoked at revision"), "{ended:?}");
    assert!(!ended.err.contains("revoking"), "{ended:?}");
    assert_eq!(ok(&["locks", "leased"]), "", "its owner says that the work has stopped");
    assert_eq!(run(&["key", "get", "leased-key"]).code, 1, "it went with its lease");
    // Every command about an ended lease says the same.
    for arguments in [
        &["lease", "renew", id][..],
        &["lease", "show", id],
        &["lease", "revoke", id],
        &["try", "leased", "--lease", id],
        &["unlock", "leased", "--lease", id, "--token", "1"],
        &["key", "put", "x", "y", "--lease", id],
    ] {
        let said = refused(1, "LEASE_NOT_FOUND", arguments);
        assert!(
            said.contains("is unknown or has ended") && said.contains("tenure lease grant"),
            "{said}"
        );
    }
}

#[test]
fn a_lease_that_no_client_renews_ends_by_itself() {
    let id = one(&["lease", "grant", "--ttl", "1s", "--client", "short"]);
    let id = id["lease"].as_str().unwrap();
    ok(&["try", "short-lived", "--lease", id]);
    wait("it ends", || (run(&["lease", "show", id]).code == 1).then_some(()));
    assert!(ok(&["history", "short-lived"]).contains("expired"));
    refused(1, "INVALID_TTL", &["lease", "grant", "--ttl", "2h"]);
}

#[test]
fn the_holder_under_a_revoked_lease_is_told_to_stop_first() {
    let id = lease("elsewhere");
    let token = ok(&["try", "elsewhere", "--lease", &id]).trim().to_owned();
    let ran = run(&["lease", "revoke", &id, "--client", "ops"]);
    let words = "; elsewhere: revoking until elsewhere confirms that it has stopped, at most 59m";
    assert!(ran.code == 0 && ran.err.contains(words), "{ran:?}");
    assert!(ok(&["locks", "elsewhere"]).contains("revoking"));
    // The history names the client that took the lock away, also without a reason; a client that gives it back needs
    // no name.
    assert_eq!(revoked_by("elsewhere"), [Value::from("ops")]);
    let own = lease("own");
    ok(&["try", "given-back", "--lease", &own]);
    ok(&["lease", "revoke", &own, "--stopped", "--client", "ops"]);
    assert_eq!(revoked_by("given-back"), [Value::Null; 0]);
    assert!(ok(&["history", "given-back"]).contains("released"));
    // No other client gets the lock meanwhile, unless an operator forces it.
    let next = lease("next");
    assert_eq!(run(&["try", "elsewhere", "--lease", &next]).code, 75);
    let force = ["force", "elsewhere", "--token", &token, "--reason", "it is gone", "--now"];
    ok(&[&force[..], &["--yes"]].concat());
    ok(&["try", "elsewhere", "--lease", &next]);
    let now = ["lease", "revoke", &next, "--now", "--reason", "the machine is gone"];
    let ran = run(&now);
    assert!(ran.code == 0 && ran.err.contains("next may still work under it"), "{ran:?}");
    assert_eq!(ok(&["locks", "elsewhere"]), "");
    assert!(ok(&["history", "elsewhere"]).contains("revoked"));
}

#[test]
fn what_is_said_of_a_lease_is_kept_and_contradictions_are_refused() {
    let id = lease("reasoned");
    ok(&["try", "reasoned", "--lease", &id]);
    let revoked = one(&["lease", "revoke", &id, "--reason", "the machine is gone"]);
    assert_eq!(revoked["event"], "revoked");
    assert!(ok(&["locks", "reasoned"]).contains("revoking"));
    assert_eq!(run(&["lease", "revoke", &id, "--now"]).code, 2, "--now needs a reason");
    for other in [&["--reason", "x"][..], &["--now", "--reason", "x"]] {
        let ran = run(&[&["lease", "revoke", &id, "--stopped"], other].concat());
        assert!(ran.code == 2 && ran.err.contains("--stopped"), "{ran:?}");
    }
}

#[test]
fn a_command_under_a_revoked_lease_is_stopped_at_once_and_its_lock_goes_on() {
    // The command renews every ten minutes: that it ends at all shows that the cluster notified it.
    let mut holder = Live::start(&[
        "run", "told", "--ttl", "30m", "--client", "told", "--output", "json", "--", "sleep",
        "3600",
    ]);
    holder.says("\"acquired\"");
    let held = wait("it is held", || json(&["lease", "list"]).into_iter().find(held_by("told")));
    let mut next = Live::start(&["run", "told", "--client", "next", "--", "true"]);
    wait("a client waits", || ok(&["queue", "told"]).contains("next").then_some(()));
    let id = held["lease"].as_str().unwrap();
    let revoked = run(&["lease", "revoke", id, "--reason", "runner 7 was deleted"]);
    assert_eq!(revoked.code, 0, "{revoked:?}");
    assert_eq!(holder.ends(), Some(76), "{:?}", holder.said());
    assert!(holder.says("\"lost\"").contains("revoked"));
    holder.says("runner 7 was deleted");
    assert_eq!(next.ends(), Some(0), "it said that it stopped: {:?}", next.said());
}

/// Who ended the lease that held a lock, for each such event.
fn revoked_by(lock: &str) -> Vec<Value> {
    let batches = changes(lock);
    let events = batches.iter().flat_map(|it| it["events"].as_array().unwrap());
    events.filter(|it| it["cause"] == "revoked").map(|it| it["by"].clone()).collect()
}

fn held_by(client: &str) -> impl Fn(&Value) -> bool {
    move |it| it["client"] == client && it["holds"].as_array().is_some_and(|it| !it.is_empty())
}

#[test]
fn a_grant_of_the_same_id_is_one_lease() {
    let repeated = ok(&["lease", "grant", "--id", "77", "--ttl", "5s", "--client", "same"]);
    assert_eq!(repeated.trim(), "77");
    assert_eq!(
        ok(&["lease", "grant", "--id", "77", "--ttl", "5s", "--client", "same"]).trim(),
        "77"
    );
    refused(
        1,
        "LEASE_EXISTS",
        &["lease", "grant", "--id", "77", "--ttl", "6s", "--client", "same"],
    );
}

#[test]
fn a_lease_is_kept_while_a_command_runs() {
    let id = ok(&["lease", "grant", "--ttl", "2s"]).trim().to_owned();
    let keep = |more: &[&str]| {
        let mut arguments = vec!["lease", "keep", id.as_str(), "--"];
        arguments.extend(more);
        Live::start(&arguments)
    };
    // Longer than the ttl: without renewals the lease would have ended.
    let script = "sleep 5; echo lease $TENURE_LEASE; exit 7";
    let mut kept = keep(&["sh", "-c", script]);
    assert_eq!(kept.ends(), Some(7), "{:?}", kept.said());
    kept.says(&format!("lease {id}"));
    assert_eq!(run(&["lease", "renew", &id]).code, 0);
    let mut kept = keep(&["sh", "-c", "echo up; exec sleep 600"]);
    kept.says("up");
    ok(&["lease", "revoke", &id, "--stopped"]);
    assert_eq!(kept.ends(), Some(76), "{:?}", kept.said());
    let short = &id[..8];
    kept.says(&format!("error: lease {short} lost: it has ended or was revoked"));
    assert_eq!(run(&["lease", "keep", &id]).code, 1);
}
