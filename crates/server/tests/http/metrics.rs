//! Tests that every metric of the reference exists, and changes when the measured event happens.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use crate::client::Client;
use crate::members::{Members, wait};

/// The output of `/metrics`, by name and labels.
type Shown = BTreeMap<String, f64>;

fn shown(at: &Client) -> Shown {
    let text = String::from_utf8(at.get("/metrics").body).unwrap();
    assert!(text.ends_with("# EOF\n"), "{text}");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, number) = line.rsplit_once(' ').unwrap();
            (name.to_owned(), number.parse().unwrap())
        })
        .collect()
}

/// The sum of all series with this name and these labels.
fn sum(shown: &Shown, name: &str, labels: &[&str]) -> f64 {
    let of = |series: &str| {
        let (it, rest) = series.split_once('{').unwrap_or((series, ""));
        it == name && labels.iter().all(|label| rest.contains(label))
    };
    shown.iter().filter(|(series, _)| of(series)).map(|(_, number)| number).sum()
}

/// The names in the reference.
fn documented() -> Vec<String> {
    let page = include_str!("../../../../docs/reference/metrics.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `tenure_"));
    rows.map(|row| format!("tenure_{}", row.split_once('`').unwrap().0)).collect()
}

#[test]
fn every_figure_is_listed_and_moves() {
    let three = Members::start(3);
    let leader = three.leader();
    let at = three.client(leader, "metrics");
    let (first, before) = (three.client((leader + 1) % 3, "metrics"), shown(&at));
    let told = first.lease(60_000);
    happen(&at, &first, &told);
    let _watch = at.events("/v1/watch?prefix=metrics", &[]);

    let after = wait("all of it was counted", || {
        let after = shown(&at);
        let lost = |cause| sum(&after, "tenure_losses_total", &[cause]) >= 1.0;
        let lost = lost("cause=\"expired\"") && lost("cause=\"max_hold\"");
        let waited = sum(&after, "tenure_lock_wait_seconds_count", &["prefix=\"metrics\""]) >= 4.0;
        (lost && waited).then_some(after)
    });
    let moved = |name: &str, labels: &[&str]| {
        let (before, after) = (sum(&before, name, labels), sum(&after, name, labels));
        assert!(after > before, "{name} {labels:?}: {before}, then {after}");
    };
    let ours = "prefix=\"metrics\"";
    for mode in ["exclusive", "shared", "slot"] {
        moved("tenure_grants_total", &[ours, &format!("mode=\"{mode}\"")]);
        moved("tenure_locks_held", &[ours, &format!("mode=\"{mode}\"")]);
        moved("tenure_waiters", &[ours, &format!("mode=\"{mode}\"")]);
    }
    for name in ["lock_wait", "lock_hold", "handover"] {
        moved(&format!("tenure_{name}_seconds_count"), &[ours]);
    }
    for cause in ["expired", "forced", "revoked", "max_hold"] {
        moved("tenure_losses_total", &[&format!("cause=\"{cause}\"")]);
    }
    moved("tenure_refusals_total", &["reason=\"HELD\"", "api=\"http\""]);
    moved("tenure_request_seconds_count", &["api=\"http\"", "command=\"acquire\""]);
    for name in [
        "tenure_leases",
        "tenure_renewals_total",
        "tenure_expiry_lag_seconds_count",
        "tenure_commit_seconds_count",
        "tenure_fsync_seconds_count",
        "tenure_commands_per_fsync_count",
        "tenure_commands_per_fsync_sum",
        "tenure_fsyncs_total",
        "tenure_revision",
        "tenure_state_bytes",
        "tenure_watches",
    ] {
        moved(name, &[]);
    }
    assert!(sum(&after, "tenure_lock_wait_seconds_sum", &[ours]) > 0.0, "a client waited");

    let explained = at.get("/v1/locks/metrics/a?view=explain").ok();
    assert_eq!(explained["usually_of"], 1, "{explained}");
    assert!(explained["usually_held_ms"].is_u64(), "{explained}");
    assert!(explained["lock"]["holders"][0]["renewed_ms"].is_u64(), "{explained}");

    // The shown metrics and the listed ones are the same.
    let families: BTreeSet<String> = after.keys().map(|series| family(series)).collect();
    // Only a member with certificates shows when they expire.
    let tls = ["tenure_certificate_expiry_timestamp_seconds"];
    let listed = documented().into_iter().filter(|name| !tls.contains(&name.as_str()));
    assert_eq!(families, listed.collect::<BTreeSet<String>>());
    assert!(sum(&after, "tenure_process_resident_bytes", &[]) > 1_000_000.0);
    assert!(sum(&after, "tenure_process_open_files", &[]) > 3.0);
    assert!(sum(&after, "tenure_connections", &["http1"]) >= 1.0, "this one reads the metrics");
    assert!(sum(&after, "tenure_audit_records_total", &[]) >= 1.0, "a lock was forced");
    let less = |used: &str, max: &str| sum(&after, used, &[]) < sum(&after, max, &[]);
    assert!(less("tenure_commands_in_flight", "tenure_commands_in_flight_max"));
    assert!(less("tenure_command_bytes_in_flight", "tenure_command_bytes_in_flight_max"));
    assert!(less("tenure_inbox_events", "tenure_inbox_events_max"));

    // A follower counts what it applies, and leaves the leader's metrics to the leader.
    let follower = wait("the follower has applied it", || {
        let follower = shown(&first);
        (sum(&follower, "tenure_losses_total", &[]) >= 3.0).then_some(follower)
    });
    assert!(sum(&follower, "tenure_grants_total", &[ours]) > 0.0);
    assert_eq!(sum(&follower, "tenure_renewals_total", &[]), 0.0);
}

/// Causes every measured event.
fn happen(at: &Client, other: &Client, told: &str) {
    let lease = at.lease(60_000);
    let waiter = at.lease(60_000);
    let ask = |lease: &str| json!({ "lease": lease });
    let lock = |name: &str| format!("/v1/locks/metrics/{name}");

    // A lock is held, refused, waited for and handed over.
    let token = at.lock("metrics/a", &lease);
    at.post(&lock("a"), &ask(&waiter)).refused(423, "HELD");
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| at.post(&format!("{}?wait=30s", lock("a")), &ask(&waiter)).ok());
        wait("it is in the queue", || {
            (at.get(&lock("a")).ok()["lock"]["waiting"] == 1).then_some(())
        });
        at.delete(&format!("{}?lease={lease}&token={token}", lock("a"))).ok();
        assert_eq!(waits.join().unwrap()["acquired"], true);
    });
    // Locks are held and waited for in every mode.
    let shared = json!({ "lease": lease, "mode": "shared" });
    at.post(&lock("shared"), &shared).ok();
    at.post(&lock("slots"), &json!({ "lease": lease, "slots": 1 })).ok();
    at.lock("metrics/b", &lease);
    for (name, body) in [
        ("a", json!({ "lease": told })),
        ("b", json!({ "lease": told, "mode": "shared" })),
        ("slots", json!({ "lease": told, "slots": 1 })),
    ] {
        let kept = other.post(&format!("{}?wait=1ms&keep=true", lock(name)), &body);
        assert_eq!(kept.status, 202, "{}", kept.value());
    }
    // Locks are lost in every way. A lock with a longest hold time is taken away one ttl before that.
    let long = json!({ "lease": at.lease(60_000), "max_hold_ms": 60_001 });
    at.post(&lock("long"), &long).ok();
    let token = at.lock("metrics/forced", &lease);
    let force = json!({ "lock": "metrics/forced", "token": token, "reason": "a test" });
    at.post("/v1/force", &force).ok();
    wait("a client holds and does not renew", || {
        let ask = json!({ "lease": at.lease(1_000) });
        (at.post("/v1/locks/metrics/expired", &ask).status == 200).then_some(())
    });
    let revoked = at.lease(60_000);
    at.lock("metrics/revoked", &revoked);
    at.delete(&format!("/v1/leases/{revoked}?reason=test")).ok();
    at.ask("POST", &format!("/v1/leases/{lease}/renew"), &[], b"").ok();
}

#[test]
fn who_leads_who_is_behind_and_how_often_that_changed_is_shown() {
    let mut three = Members::start(3);
    let leader = three.leader();
    let (next, behind) = ((leader + 1) % 3, (leader + 2) % 3);
    let at = three.client(leader, "led");
    let listed = at.get("/v1/cluster/members").ok()["members"].as_array().unwrap().clone();
    let label = |of: usize| {
        let it = listed.iter().find(|it| it["name"] == format!("m{of}")).unwrap();
        let id: u64 = it["member_id"].as_str().unwrap().parse().unwrap();
        format!("member=\"{id:x}\"")
    };
    let leads = |shown: &Shown, of: usize| sum(shown, "tenure_leader", &[&label(of)]);
    let before = shown(&at);
    assert_eq!([leader, next, behind].map(|of| leads(&before, of)), [1.0, 0.0, 0.0]);

    three.stop(behind);
    at.ask("PUT", "/v1/keys/missed", &[], b"x").ok();
    wait("it is behind", || {
        let lag = sum(&shown(&at), "tenure_member_lag_entries", &[&label(behind)]);
        (lag > 0.0).then_some(())
    });

    at.post(&format!("/v1/cluster/members/m{next}"), &json!({ "action": "lead" })).ok();
    wait("another one leads", || {
        let after = shown(&at);
        let changes = |shown: &Shown| sum(shown, "tenure_leader_changes_total", &[]);
        let led = leads(&after, next) > 0.0 && leads(&after, leader) == 0.0;
        (led && changes(&after) > changes(&before)).then_some(())
    });
}

/// The name under which a series is listed.
fn family(series: &str) -> String {
    let name = series.split('{').next().unwrap_or(series);
    let parts = ["_bucket", "_sum", "_count"];
    parts.iter().find_map(|part| name.strip_suffix(part)).unwrap_or(name).to_owned()
}
