//! Tests what else can happen to the locks of a run: released from inside, several at once, nested, given back by the
//! watchdog.

use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Signal, kill_process};
use serde_json::Value;

use crate::common::{TENURE, wait};
use crate::job::Role;
use crate::world::{Held, World, is_alive, scratch};

/// Longer than any test waits.
const NEVER: [&str; 4] = ["--ttl", "1h", "--grace", "5s"];

fn shell(world: &World, lock: &[&str], flags: &[&str], script: &str) -> Held {
    let dir = scratch();
    let mut command = Command::new(TENURE);
    command.arg("run").args(lock).args(["--addr", &world.addresses(), "--events"]);
    command.arg(dir.path().join("events")).args(flags).args(["--", "sh", "-c", script]);
    command.env("T", TENURE);
    Held::spawn(command, dir, Role::Plain)
}

#[test]
fn a_run_whose_lock_is_unlocked_from_inside_stops_its_command() {
    let world = World::new(1);
    let mut held = shell(&world, &["inside"], &NEVER, "$T unlock inside; exec sleep 600");
    assert_eq!(held.ended().code(), Some(76));
    let said = held.said();
    assert!(
        said.contains("tenure: lock `inside` lost: `inside` was released with this run's lease"),
        "{said}"
    );
    assert!(said.contains("the next holder may have started before"), "{said}");
    assert_eq!(held.event("lost")["cause"], "released");
    assert_eq!(held.event("ended")["outcome"], "lost");
    let _guard = world.next("inside");
}

#[test]
fn a_run_whose_lock_is_handed_on_from_inside_stops_its_command() {
    let world = World::new(1);
    let mut grant = Command::new(TENURE);
    grant.args(["lease", "grant", "--ttl", "1h", "--addr", &world.addresses()]);
    let other = String::from_utf8(grant.output().unwrap().stdout).unwrap();
    let mut waits = Command::new(TENURE);
    waits.args(["lock", "handed", "--lease", other.trim(), "--wait", "1h"]);
    waits.args(["--addr", &world.addresses()]).stdout(Stdio::null()).stderr(Stdio::null());
    let script = format!(
        "until $T hand-on handed --to {} 2>/dev/null; do sleep 0.05; done; exec sleep 600",
        other.trim()
    );
    let mut held = shell(&world, &["handed"], &NEVER, &script);
    held.event("acquired");
    let mut waits = waits.spawn().unwrap();
    assert_eq!(held.ended().code(), Some(76));
    let said = held.said();
    assert!(
        said.contains("tenure: lock `handed` lost: `handed` was handed on with this run's lease"),
        "{said}"
    );
    assert!(said.contains("the next holder may have started before"), "{said}");
    assert_eq!(held.event("lost")["cause"], "handed_on");
    assert!(waits.wait().unwrap().success(), "the receiver holds the lock");
}

#[test]
fn a_run_whose_lease_is_ended_as_its_own_stops_its_command() {
    let world = World::new(1);
    let script = "$T lease revoke $TENURE_LEASE --stopped; exec sleep 600";
    let mut held = shell(&world, &["ended"], &NEVER, script);
    assert_eq!(held.ended().code(), Some(76));
    assert_eq!(held.event("lost")["cause"], "released");
}

#[test]
fn a_quiet_run_tells_of_errors_and_the_loss_of_its_lock_alone() {
    let world = World::new(1);
    let script = "$T unlock hush --quiet; exec sleep 600";
    let mut held = shell(&world, &["hush"], &[&NEVER[..], &["--quiet"]].concat(), script);
    assert_eq!(held.ended().code(), Some(76));
    let said = held.said();
    assert!(said.starts_with("tenure: lock `hush` lost: `hush` was released"), "{said}");
    assert!(said.contains("\ntenure: stopped in ") && said.contains("\n  look "), "{said}");
    assert!(!said.contains("SIGTERM") && !said.contains("acquired"), "{said}");
    assert_eq!(held.event("ended")["outcome"], "lost", "events are written all the same");
    let _guard = world.next("hush");
    let ran = world.run("hush", &["--quiet", "--wait", "1s"], &["true"]);
    assert_eq!(ran.code, Some(75), "{}", ran.err);
    assert!(
        ran.err.starts_with("error: timed out after 1s waiting for lock `hush`"),
        "{}",
        ran.err
    );
}

#[test]
fn the_watchdog_gives_the_lock_back_once_everything_is_dead() {
    let world = World::new(1);
    for role in [Role::Plain, Role::Family] {
        let flags = ["--ttl", "1h", "--grace", "200ms"];
        let mut held = world.hold("dead", &flags, role);
        held.runs(if role == Role::Family { 3 } else { 1 });
        held.signal(Signal::KILL);
        // The wait ends long before the ttl could.
        let ask = world.client.lock("dead").wait(Duration::from_secs(60));
        let guard = world.runtime.block_on(ask.into_future()).unwrap();
        assert!(!held.record().pids.iter().any(|pid| is_alive(*pid)), "{role:?}");
        world.runtime.block_on(guard.release()).unwrap();
        held.ended();
        wait("it is said", || held.said().contains("the lock is given back").then_some(()));
    }
    // The holder did not give the lock back itself, so it counts as lost, and the record says by whom it was ended.
    let mut history = Command::new(TENURE);
    history.args(["history", "dead", "--lost", "--addr", &world.addresses()]);
    let out = String::from_utf8(history.output().unwrap().stdout).unwrap();
    let losses: Vec<&str> = out.lines().filter(|line| line.contains("revoked")).collect();
    assert_eq!(losses.len(), 2, "{out}");
    assert!(losses.iter().all(|line| line.contains("watchdog: tenure run was killed")), "{out}");
}

#[test]
fn several_locks_are_acquired_together_or_not_at_all() {
    let world = World::new(1);
    let script = "echo \"$TENURE_LOCK $TENURE_TOKEN $TENURE_LOCKS\"";
    let ran = |locks: &[&str], flags: &[&str]| {
        let mut command = Command::new(TENURE);
        command.arg("run").args(locks).args(["--addr", &world.addresses()]).args(flags);
        command.args(["--", "sh", "-c", script]).stdin(Stdio::null());
        let ran = command.output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (ran.status.code(), text(ran.stdout), text(ran.stderr))
    };
    let (code, out, said) = ran(&["b", "a"], &[]);
    assert_eq!((code, said.as_str()), (Some(0), ""));
    let [first, token, locks] = out.trim().splitn(3, ' ').collect::<Vec<_>>()[..] else {
        panic!("{out}")
    };
    let locks: Value = serde_json::from_str(locks).unwrap();
    assert_eq!((first, &locks["b"]), ("b", &token.into()), "{out}");
    assert!(locks["a"].is_string(), "{out}");
    let mut held = shell(&world, &["b", "a"], &NEVER, "exec sleep 600");
    let acquired = held.event("acquired");
    assert_eq!(acquired["locks"], serde_json::json!(["b", "a"]));
    let (code, _, said) = ran(&["a"], &["--wait", "0"]);
    assert!(code == Some(75) && said.starts_with("error: lock `a` is held\n"), "{said}");
    // One of them is held: the other is not taken.
    let (code, _, said) = ran(&["c", "a"], &["--wait", "0"]);
    assert!(code == Some(75) && said.starts_with("error: locks `c`, `a` are held\n"), "{said}");
    assert_eq!(ran(&["c"], &["--wait", "0"]).0, Some(0));
    held.signal(Signal::TERM);
    assert_eq!(held.ended().code(), Some(143));
    assert_eq!(ran(&["a", "b"], &["--wait", "0"]).0, Some(0));
}

#[test]
fn a_hold_has_a_longest_time_and_a_lost_lock_a_delay() {
    let world = World::new(1);
    let mut held =
        shell(&world, &["most"], &["--ttl", "6s", "--max-hold", "6100ms"], "exec sleep 600");
    assert_eq!(held.ended().code(), Some(76));
    assert_eq!(held.event("lost")["cause"], "max_hold");
    let mut held = world.hold("delayed", &["--ttl", "3s", "--lock-delay", "1m"], Role::Plain);
    let watchdog = held.watchdog();
    // Stopped, it cannot give the lock back.
    kill_process(watchdog, Signal::STOP).unwrap();
    held.signal(Signal::KILL);
    kill_process(watchdog, Signal::KILL).unwrap();
    wait("the lock is delayed", || {
        let shown = world.runtime.block_on(world.client.show("delayed")).unwrap()?;
        let state = shown.holders.first()?.state;
        matches!(state, tenure::HolderState::Delayed { .. }).then_some(())
    });
    held.ended();
}

#[test]
fn a_run_inside_of_a_run_of_the_same_lock_is_told_so() {
    let world = World::new(1);
    let mut held = shell(&world, &["same"], &NEVER, "$T run other -- $T run same -- true");
    assert_eq!(held.ended().code(), Some(1));
    assert!(
        held.said().contains("error: lock `same` is already held by this run\n"),
        "{}",
        held.said()
    );
    // Shared holders may nest, and so may runs of other locks.
    let mut held =
        shell(&world, &["read"], &["--shared"], "$T run read --shared -- $T run write -- true");
    assert_eq!(held.ended().code(), Some(0), "{}", held.said());
    // What was exported by a run that has ended is no obstacle.
    let mut command = Command::new(TENURE);
    command.args(["run", "old", "--addr", &world.addresses(), "--", "true"]);
    command.env("TENURE_LOCKS", "{\"old\":\"1\"}").env("TENURE_LEASE", "77");
    assert!(command.status().unwrap().success());
}

#[test]
fn nested_runs_that_wait_for_each_other_are_a_deadlock() {
    let world = World::new(1);
    let dir = scratch();
    let path = dir.path().display();
    let script = |own: &str, other: &str| {
        format!(
            "touch {path}/{own}; while [ ! -e {path}/{other} ]; do sleep 0.02; done; $T run {other} -- true"
        )
    };
    let one = shell(&world, &["a"], &NEVER, &script("a", "b"));
    let two = shell(&world, &["b"], &NEVER, &script("b", "a"));
    let codes = [one, two].map(|mut held| (held.ended().code(), held.said()));
    let mut sorted = codes.each_ref().map(|(code, _)| code.unwrap());
    sorted.sort_unstable();
    assert_eq!(sorted, [0, 1], "{codes:?}");
    let refused = codes.iter().find(|(code, _)| *code == Some(1)).unwrap();
    assert!(refused.1.contains(": a deadlock: waiting would close a ring of "), "{codes:?}");
    let locks = world.runtime.block_on(world.client.locks("", None)).unwrap();
    assert!(locks.is_empty(), "nothing is left behind: {locks:?}");
}

#[test]
fn a_nested_run_waits_for_its_turn() {
    let world = World::new(1);
    let first = world.hold("turn", &NEVER, Role::Plain);
    let mut held = shell(&world, &["around"], &NEVER, "$T run turn -- echo ran");
    wait("it waits", || (world.waiting("turn") == 1).then_some(()));
    first.signal(Signal::TERM);
    assert_eq!(held.ended().code(), Some(0), "{}", held.said());
    let locks = world.runtime.block_on(world.client.locks("", None)).unwrap();
    assert!(locks.is_empty(), "nothing is left behind: {locks:?}");
}
