//! Are leases granted, renewed, shown and ended?

use crate::stage::{json, lease, ok, one, refused, run, wait};

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
    let ended = run(&["lease", "revoke", id]);
    assert!(ended.code == 0 && ended.err.contains("revoked at revision"), "{ended:?}");
    assert_eq!(run(&["key", "get", "leased-key"]).code, 1, "it went with its lease");
    // Everything about a lease that has ended says the same.
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
fn a_lease_that_nobody_renews_ends_by_itself() {
    let id = one(&["lease", "grant", "--ttl", "1s", "--client", "short"]);
    let id = id["lease"].as_str().unwrap();
    ok(&["try", "short-lived", "--lease", id]);
    wait("it ends", || (run(&["lease", "show", id]).code == 1).then_some(()));
    assert!(ok(&["history", "short-lived"]).contains("expired"));
    refused(1, "INVALID_TTL", &["lease", "grant", "--ttl", "2h"]);
}

#[test]
fn somebody_elses_lease_is_told_to_stop_first() {
    let id = lease("elsewhere");
    ok(&["try", "elsewhere", "--lease", &id]);
    let revoked = one(&["lease", "revoke", &id, "--reason", "the machine is gone"]);
    assert_eq!(revoked["event"], "revoked");
    assert!(ok(&["locks", "elsewhere"]).contains("cooling"));
    assert_eq!(run(&["lease", "revoke", &id, "--now"]).code, 2, "--now needs a reason");
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
