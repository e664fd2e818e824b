//! Tests how much commands print: `--quiet`, `--no-header`, and the words of `--output`.

use crate::stage::{Live, Member, Ran, at, command, ended, json, lease, objects, ok, run, wait};

#[test]
fn a_quiet_list_is_names_and_a_table_can_do_without_its_header() {
    let id = lease("lister");
    for lock in ["list/a b", "list/c"] {
        assert_eq!(ok(&["try", lock, "--lease", &id, "--quiet"]), "");
    }
    for arguments in [
        &["locks", "list/", "--quiet"][..],
        &["locks", "list/", "-q"],
        &["locks", "-q", "list/", "--output", "table"],
        &["--quiet", "locks", "list/"],
    ] {
        assert_eq!(ok(arguments), "list/a b\nlist/c\n", "{arguments:?}");
    }
    for words in [&[][..], &["--output", "table"], &["--output", "text"]] {
        let table = ok(&[&["locks", "list/"], words].concat());
        assert!(table.starts_with("LOCK ") && table.lines().count() == 3, "{table}");
        let body = ok(&[&["locks", "list/", "--no-header"], words].concat());
        assert!(body.starts_with("list/a b ") && body.lines().count() == 2, "{body}");
    }
    let none = run(&["locks", "list/none", "--quiet"]);
    assert_eq!((none.code, &*none.out, &*none.err), (0, "", ""), "{none:?}");
    assert!(ok(&["lease", "list", "--quiet"]).lines().any(|line| line == id));
    assert!(!ok(&["lease", "list", "--no-header"]).contains("HOLDS"));

    let waiter = Live::start(&["lock", "list/c", "--quiet"]);
    let waiting = wait("it waits", || json(&["queue", "list/c"]).pop());
    let expected = format!("{}\n", waiting["lease"].as_str().unwrap());
    assert_eq!(ok(&["queue", "list/c", "--quiet"]), expected, "the lease can be revoked");
    assert!(!ok(&["queue", "list/c", "--no-header"]).contains("CLIENT"));
    assert!(waiter.said().is_empty(), "{:?}", waiter.said());

    ok(&["key", "put", "list/key", "v", "--quiet"]);
    assert_eq!(ok(&["key", "list", "list/", "--quiet"]), "list/key\n");
    assert_eq!(ok(&["key", "list", "list/", "--no-header"]).lines().count(), 1);
    assert_eq!(ok(&["cluster", "members", "--quiet"]), "solo\n");
    assert!(ok(&["cluster", "members", "--no-header"]).starts_with("solo "));
    let keys = ok(&["cluster", "keys", "list", "--no-header"]);
    let key = ok(&["cluster", "keys", "list", "--quiet"]);
    assert!(keys.starts_with("solo ") && keys.contains(key.trim()), "{keys}{key}");
}

/// Runs a quiet command as the local administrator of the member, who alone may change the rules of access.
fn quiet(member: &Member, arguments: &[&str]) -> Ran {
    let mut command = command(&member.addr, &[&["--quiet"], arguments].concat());
    ended(command.env("TENURE_API_KEY_FILE", member.data.join("admin.key")))
}

/// Runs a command that must succeed and print nothing.
fn silent(member: &Member, arguments: &[&str]) {
    let ran = quiet(member, arguments);
    assert_eq!((ran.code, &*ran.out, &*ran.err), (0, "", ""), "{arguments:?}: {ran:?}");
}

/// Runs a command that must succeed and print exactly one line, and returns that line.
fn only(member: &Member, arguments: &[&str]) -> String {
    let ran = quiet(member, arguments);
    assert_eq!(
        (ran.code, &*ran.err, ran.out.lines().count()),
        (0, "", 1),
        "{arguments:?}: {ran:?}"
    );
    ran.out.trim().to_owned()
}

#[test]
fn a_quiet_change_prints_nothing_or_what_it_made() {
    let member = Member::found("hush");
    let id = only(&member, &["lease", "grant", "--ttl", "1h"]);
    assert!(id.parse::<i64>().is_ok(), "{id}");
    let held = || {
        let shown = objects(&at(&member.addr, &["locks", "--output", "json"]).out);
        shown[0]["holders"][0]["token"].as_str().unwrap().to_owned()
    };
    silent(&member, &["try", "l", "--lease", &id]);
    silent(&member, &["unlock", "l", "--lease", &id, "--token", &held()]);
    silent(&member, &["lock", "l", "--lease", &id]);
    silent(&member, &["force", "l", "--token", &held(), "--reason", "a test", "--now", "--yes"]);
    silent(&member, &["lease", "renew", &id]);
    silent(&member, &["lease", "keep", &id, "--", "true"]);
    silent(&member, &["lease", "revoke", &id, "--stopped"]);
    silent(&member, &["run", "l", "--", "true"]);
    silent(&member, &["key", "put", "k", "v"]);
    silent(&member, &["key", "cas", "k", "w", "--old", "v"]);
    silent(&member, &["key", "delete", "k"]);
    silent(&member, &["cluster", "status"]);
    silent(&member, &["cluster", "keys", "rotate", "hush"]);
    let backup = member.data.join("../backup");
    silent(&member, &["backup", backup.to_str().unwrap()]);
    assert!(backup.exists());

    let invitation = only(&member, &["cluster", "invite"]);
    let invited = only(&member, &["cluster", "invite", "--list"]);
    assert!(invitation.contains(&invited), "{invited}");
    silent(&member, &["cluster", "invite", "--cancel", &invited]);
    assert!(only(&member, &["cluster", "add", "d"]).starts_with("tenure serve --name d "));

    silent(&member, &["auth", "role", "put", "team", "--allow", "read,acquire:team/"]);
    silent(&member, &["auth", "principal", "put", "ci", "--role", "team"]);
    silent(&member, &["auth", "can", "ci", "acquire", "team/l"]);
    let no = at(&member.addr, &["auth", "can", "ci", "force", "team/l", "--quiet"]);
    assert_eq!((no.code, &*no.out, &*no.err), (1, "", ""), "{no:?}");
    let key = only(&member, &["auth", "key", "create", "ci"]);
    let key = key.split('_').nth(1).unwrap().to_owned();
    assert_eq!(only(&member, &["auth", "key", "list"]), key);
    silent(&member, &["auth", "key", "revoke", &key]);
    let pattern = ["--pattern", "cn:ci", "--principal", "ci"];
    silent(&member, &[&["auth", "cert-rule", "put", "rule"][..], &pattern].concat());
    assert_eq!(only(&member, &["auth", "cert-rule", "list"]), "rule");
    silent(&member, &["auth", "cert-rule", "delete", "rule"]);
    silent(&member, &["auth", "quota", "set", "leases=1000"]);
    silent(&member, &["auth", "principal", "disable", "ci"]);
    silent(&member, &["auth", "principal", "enable", "ci"]);
    assert_eq!(only(&member, &["auth", "principal", "list"]), "ci");
    silent(&member, &["auth", "principal", "delete", "ci"]);
    assert_eq!(only(&member, &["auth", "role", "list"]), "team");
    silent(&member, &["auth", "role", "delete", "team"]);

    // `--quiet` does not suppress errors.
    let wrong = quiet(&member, &["auth", "role", "delete", "team"]);
    assert!(wrong.code == 1 && wrong.err.starts_with("error: there is no role"), "{wrong:?}");
}

#[test]
fn a_flag_that_means_nothing_is_refused() {
    for (flag, arguments) in [
        ("--quiet", &["explain", "x", "--quiet"][..]),
        ("-q", &["key", "get", "k", "-q"]),
        ("--quiet", &["watch", "--quiet"]),
        ("--quiet", &["dev", "--quiet"]),
        ("--quiet", &["--quiet", "dev"]),
        ("--no-header", &["unlock", "x", "--no-header"]),
        ("--no-header", &["cluster", "status", "--no-header"]),
        ("--list", &["cluster", "invite", "--no-header"]),
        ("--no-header", &["locks", "--quiet", "--no-header"]),
    ] {
        let ran = at("127.0.0.1:1", arguments);
        assert!(ran.code == 2 && ran.err.contains(flag), "{arguments:?}: {ran:?}");
    }
    for flag in ["--quiet", "--no-header"] {
        let ran = at("127.0.0.1:1", &["lease", "list", flag, "--output", "json"]);
        assert_eq!(ran.code, 2, "{ran:?}");
        let told = objects(&ran.err).remove(0);
        assert_eq!(told["error"]["reason"], "ARGUMENTS", "{told}");
        let message = format!("{flag} cannot be used with --output json");
        assert_eq!(told["error"]["message"], message.as_str(), "{told}");
    }
    let ran = at("127.0.0.1:1", &["run", "x", "-q", "--output", "json", "--", "true"]);
    assert!(ran.code == 2 && ran.err.contains("--output json > /dev/null"), "{ran:?}");
}
