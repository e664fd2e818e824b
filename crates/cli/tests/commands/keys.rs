//! Tests that keys are read, written, compared and guarded.

use crate::stage::{json, lease, ok, one, refused, run, run_with, with_input};

#[test]
fn keys_are_written_read_listed_and_deleted() {
    refused(1, "KEY_NOT_FOUND", &["key", "get", "k/a"]);
    assert_eq!(ok(&["key", "put", "k/a", "one"]), "");
    assert_eq!(ok(&["key", "get", "k/a"]), "one");
    let written = one(&["key", "put", "k/a", "two"]);
    assert_eq!(written["version"], 2);
    let shown = one(&["key", "get", "k/a"]);
    assert_eq!((&shown["value"], &shown["modified"]), (&"two".into(), &written["revision"]));
    let piped = with_input(b"\xff\x00raw", &["key", "put", "k/b", "-"]);
    assert_eq!(piped.code, 0, "{piped:?}");
    assert!(one(&["key", "get", "k/b"])["value_base64"].is_string());
    let table = ok(&["key", "list", "k/"]);
    assert!(table.contains("k/a  two") && table.contains("(5 bytes)"), "{table}");
    assert_eq!(json(&["key", "list", "k/"]).len(), 2);
    assert!(
        !ok(&["key", "list"]).contains("tenure/"),
        "what the cluster keeps for itself is not shown"
    );
    assert_eq!(one(&["key", "delete", "k/a"])["existed"], true);
    assert_eq!(one(&["key", "delete", "k/a"])["existed"], false);
}

#[test]
fn a_key_is_compared_before_it_is_written() {
    ok(&["key", "cas", "c/a", "one", "--absent"]);
    let said = refused(1, "COMPARE_FAILED", &["key", "cas", "c/a", "two", "--absent"]);
    assert!(
        said.contains("key `c/a` is not as expected") && said.contains("tenure key get c/a"),
        "{said}"
    );
    ok(&["key", "cas", "c/a", "two", "--old", "one"]);
    let modified = one(&["key", "get", "c/a"])["modified"].as_str().unwrap().to_owned();
    ok(&["key", "cas", "c/a", "three", "--modified", &modified]);
    refused(1, "COMPARE_FAILED", &["key", "cas", "c/a", "four", "--modified", &modified]);
    assert_eq!(run(&["key", "cas", "c/a", "five"]).code, 2, "something must be believed");
}

#[test]
fn a_guarded_key_refuses_a_stale_token() {
    let id = lease("writer");
    let token = ok(&["try", "guard", "--lease", &id]).trim().to_owned();
    ok(&["key", "put", "ledger", "paid", "--lock", "guard", "--token", &token]);
    let variables = [("TENURE_LOCK", "guard"), ("TENURE_TOKEN", token.as_str())];
    assert_eq!(run_with(&variables, &["key", "put", "ledger", "again", "--guarded"]).code, 0);
    let bare = run(&["key", "put", "ledger", "x", "--guarded"]);
    assert!(bare.code == 2 && bare.err.contains("TENURE_LOCK is not set"), "{bare:?}");
    ok(&["lease", "revoke", &id, "--stopped"]);
    let stale = ["key", "put", "ledger", "late", "--lock", "guard", "--token", &token];
    let said = refused(1, "GUARD_FAILED", &stale);
    assert!(said.contains("tenure explain guard"), "{said}");
    refused(1, "GUARD_FAILED", &["key", "delete", "ledger", "--lock", "guard", "--token", &token]);
    assert_eq!(ok(&["key", "get", "ledger"]), "again");
}

#[test]
fn the_same_request_id_writes_once() {
    let put = ["key", "put", "once", "v", "--request-id", "tests-once-1"];
    let (first, again) = (one(&put), one(&put));
    assert_eq!(first["version"], 1);
    assert_eq!(again["version"], 1, "{again}");
    let other = ["key", "put", "once", "w", "--request-id", "tests-once-1"];
    refused(1, "REQUEST_ID_CONFLICT", &other);
}
