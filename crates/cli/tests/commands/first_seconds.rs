//! Tests that a command which cannot work says so at once, with what to type next.

use std::process::{Command, Stdio};

use crate::ports::free_port;
use crate::stage::{Live, TENURE, at, command, ended, member, objects, ok, run, serve, wait};

/// Longer than the test waits for any command: a command that used it up would fail the test.
const LONG: [&str; 2] = ["--connect-timeout", "10m"];

#[test]
fn a_refused_connection_is_known_at_once() {
    let address = format!("127.0.0.1:{}", free_port());
    for arguments in [
        &["locks"][..],
        &["lock", "a", "--hold"],
        &["try", "a", "--hold"],
        &["explain", "a"],
        &["key", "put", "a", "b"],
        &["lease", "grant"],
        &["cluster", "status"],
        &["watch"],
        &["elect", "a", "--value", "v"],
    ] {
        let ran = at(&address, &[arguments, &LONG].concat());
        assert_eq!(ran.code, 69, "{arguments:?}: {ran:?}");
        let said = format!("error: cannot connect to {address}: connection refused\n");
        assert!(ran.err.starts_with(&said), "{arguments:?}: {ran:?}");
        assert!(ran.err.contains("effect   none: nothing was asked for"), "{ran:?}");
        let next = format!(
            "try      tenure dev --clients {address}, which starts a member here; or --addr"
        );
        assert!(ran.err.contains(&next), "{ran:?}");
    }
    for more in [&[][..], &["--output", "json"]] {
        let arguments = [&["run", "a"], more, &LONG, &["--", "true"]].concat();
        let ran = at(&address, &arguments);
        assert_eq!(ran.code, 69, "{ran:?}");
        assert!(ran.err.contains("connection refused"), "{ran:?}");
        assert!(
            ran.err.contains("none: no lock was asked for, the command did not start"),
            "{ran:?}"
        );
    }
}

#[test]
fn a_command_can_wait_for_its_server() {
    let dir = tempfile::tempdir().unwrap();
    let (clients, members) = (free_port(), free_port());
    let address = format!("127.0.0.1:{clients}");
    let mut waits =
        Live::start_at(&address, &["key", "put", "early", "bird", "--wait-for-server", "10m"]);
    let mut typed = command(&address, &["run", "early", "--", "echo", "ran"]);
    typed.env("TENURE_WAIT_FOR_SERVER", "10m").stdout(Stdio::piped()).stderr(Stdio::piped());
    let runs = typed.spawn().unwrap();
    // A command that does not wait ends before the member starts.
    assert_eq!(at(&address, &["locks"]).code, 69);
    let bootstrap = format!("late=127.0.0.1:{members}");
    let (_stdin, _) = serve(dir.path(), "late", clients, members, &["--bootstrap", &bootstrap]);
    assert_eq!(waits.ends(), Some(0), "{:?}", waits.said());
    let ran = runs.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(ran.stdout).unwrap(), "ran\n");
}

#[test]
fn a_lock_in_a_command_substitution_is_refused_instead_of_waiting_for_ever() {
    for held in ["try", "lock"] {
        let script = format!("TOKEN=$(\"$0\" {held} substituted); echo \"$? $TOKEN\"");
        let mut command = Command::new("timeout");
        command.args(["60", "sh", "-c", &script, TENURE]).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap()).env("TENURE_ADDR", &member().addr);
        let ran = ended(command.stdin(Stdio::null()));
        assert_eq!(ran.out, "2 \n", "{ran:?}");
        assert!(ran.err.starts_with("error: stdout is a pipe, as in $(…)"), "{ran:?}");
        assert!(ran.err.contains("try      tenure run substituted -- COMMAND"), "{ran:?}");
        assert!(ran.err.contains("tenure try substituted --lease $LEASE"), "{ran:?}");
    }
    assert!(!ok(&["locks"]).contains("substituted"));
    // What the message advises works.
    let script = "LEASE=$(\"$0\" lease grant --ttl 5m); \
                  TOKEN=$(\"$0\" try substituted --lease $LEASE); echo \"$? $TOKEN\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, TENURE]).env_clear().env("TENURE_ADDR", &member().addr);
    let ran = ended(command.stdin(Stdio::null()));
    assert!(ran.out.starts_with("0 ") && ran.err.is_empty(), "{ran:?}");
}

#[test]
fn flags_of_the_cluster_may_stand_before_the_command() {
    let addr = &member().addr;
    for arguments in
        [&["--addr", addr, "lease", "list"][..], &["--client", "me", "--addr", addr, "locks"]]
    {
        let ran = at("127.0.0.1:1", arguments);
        assert_eq!(ran.code, 0, "{ran:?}");
    }
    let ran = at("127.0.0.1:1", &["--addr", addr, "run", "before", "--", "echo", "--addr", "x"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "--addr x\n"), "{ran:?}");
}

#[test]
fn words_of_other_tools_are_answered_with_ours() {
    for (word, ours) in [
        ("status", "tenure cluster status"),
        ("acquire", "tenure run LOCK -- COMMAND"),
        ("release", "tenure unlock LOCK"),
        ("members", "tenure cluster members"),
    ] {
        let ran = run(&[word]);
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.err.starts_with(&format!("error: there is no command `{word}`\n")), "{ran:?}");
        assert!(ran.err.contains(&format!("try      {ours}")), "{ran:?}");
        let told = run(&[word, "deploy", "--output", "json"]);
        assert!(
            objects(&told.err)[0]["error"]["next"].as_str().unwrap().contains(ours),
            "{told:?}"
        );
    }
}

#[test]
fn a_number_without_a_unit_is_seconds() {
    let id = crate::stage::lease("holder");
    ok(&["try", "bare", "--lease", &id]);
    let ran = run(&["run", "bare", "--wait", "0.2", "--", "true"]);
    assert!(ran.code == 75 && ran.err.contains("timed out after 0.2s"), "{ran:?}");
    let granted = ok(&["lease", "grant", "--ttl", "90"]);
    assert!(ok(&["lease", "show", granted.trim()]).contains("ttl 1m30s"), "{granted}");
}

#[test]
fn others_see_the_user_and_the_command() {
    let mut held = Live::start(&["run", "named", "--", "sleep", "600"]);
    let shown = wait("it is held", || {
        let ran = run(&["explain", "named"]);
        (ran.code == 0 && ran.out.contains("held by")).then_some(ran.out)
    });
    let name = shown.lines().find(|line| line.contains("held by")).unwrap();
    assert!(name.contains('@') && name.contains(":sleep for "), "{shown}");
    held.signal("-TERM");
    assert_eq!(held.ends(), Some(143));
}
