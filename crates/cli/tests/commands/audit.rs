//! Tests that `tenure audit` shows acts of administrators and denied calls, in text and as recorded.

use serde_json::Value;

use crate::stage::{Member, Ran, command, ended, objects, wait};

/// Runs a command with an API key from the environment; without one if it is empty.
fn with(member: &Member, key: &str, arguments: &[&str]) -> Ran {
    ended(command(&member.addr, arguments).env("TENURE_API_KEY", key))
}

fn ok(member: &Member, key: &str, arguments: &[&str]) -> String {
    let ran = with(member, key, arguments);
    assert_eq!(ran.code, 0, "{arguments:?}: {ran:?}");
    ran.out
}

/// The first record that is as it should be, once there is one, and its line.
fn recorded(member: &Member, key: &str, is_it: impl Fn(&Value) -> bool) -> (String, Value) {
    wait("it is recorded", || {
        let out = ok(member, key, &["audit", "--last", "1000", "--output", "json"]);
        let lines = out.lines().map(str::to_owned).zip(objects(&out));
        lines.into_iter().find(|(_, record)| is_it(record))
    })
}

#[test]
fn an_administrator_sees_acts_and_denied_calls_and_others_see_nothing() {
    let member = Member::found("audited");
    let init = ok(&member, "", &["auth", "init", "--data-dir", member.data.to_str().unwrap()]);
    let admin = init.trim();
    // Before identity is enabled, every caller may look.
    ok(&member, admin, &["auth", "role", "put", "team-a", "--allow", "read,acquire:team-a/"]);
    let is_put = |record: &Value| record["target"] == "team-a" && record["why"] == "role_put";
    let (line, put) = recorded(&member, "", is_put);
    assert_eq!((&put["act"], &put["outcome"]), (&"set_access".into(), &"done".into()), "{put}");
    assert_eq!(line, put.to_string(), "printed as recorded");

    ok(&member, admin, &["auth", "enable"]);
    ok(&member, admin, &["auth", "principal", "put", "ci-a", "--role", "team-a"]);
    let key = ok(&member, admin, &["auth", "key", "create", "ci-a"]);
    let denied = with(&member, key.trim(), &["audit"]);
    assert_eq!(denied.code, 77, "{denied:?}");
    assert!(denied.err.contains("`administer`") && denied.out.is_empty(), "{denied:?}");

    let of_ci = |record: &Value| record["act"] == "denied" && record["principal"] == "ci-a";
    let (_, refused) = recorded(&member, admin, of_ci);
    assert_eq!(refused["reason"], "PERMISSION_DENIED", "{refused}");
    let text = ok(&member, admin, &["audit"]);
    assert!(text.starts_with("TIME "), "{text}");
    let shows = |words: &[&str]| {
        let is_shown = |line: &str| line.split_whitespace().skip(1).eq(words.iter().copied());
        assert!(text.lines().any(is_shown), "{words:?}: {text}");
    };
    shows(&["set_access", "ci-a", "admin", "-", "done", "principal_put"]);
    let call = "/tenure.v1.MaintenanceService/Audit";
    shows(&["denied", call, "ci-a", "127.0.0.1", "refused", "PERMISSION_DENIED", "-"]);
    let newest = ok(&member, admin, &["audit", "--last", "1"]);
    assert_eq!(newest.lines().count(), 2, "a heading and one record: {newest}");
    let bare = ok(&member, admin, &["audit", "--last", "1", "--no-header"]);
    assert!(bare.lines().count() == 1 && !bare.starts_with("TIME "), "{bare}");
}

#[test]
fn a_number_of_records_that_cannot_be_is_refused_before_anything_is_sent() {
    for wrong in ["0", "1001", "all"] {
        let ran = ended(&mut command("127.0.0.1:1", &["audit", "--last", wrong]));
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.err.contains("--last"), "{ran:?}");
    }
    let nowhere = ended(command("127.0.0.1:1", &["audit"]).env("TENURE_CONNECT_TIMEOUT", "1s"));
    assert_eq!(nowhere.code, 69, "{nowhere:?}");
}
