//! Tests where a signal to `tenure run` goes before, while and after it holds the lock.

use std::fs;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};
use tenure::Urgency;

use crate::common::wait;
use crate::job::Role;
use crate::world::{Held, World, is_alive, state};

#[test]
fn signals_reach_the_command() {
    let world = World::new(1);
    let dir = crate::world::scratch();
    let (ready, got) = (dir.path().join("ready"), dir.path().join("got"));
    let script = format!(
        "trap 'echo usr1 >> {got}' USR1; trap 'echo hup >> {got}' HUP; trap 'echo int >> {got}; exit 4' INT; \
         touch {ready}; while :; do sleep 0.01; done",
        got = got.display(),
        ready = ready.display()
    );
    let mut command = std::process::Command::new(crate::common::TENURE);
    let addresses = world.addresses();
    command.args(["run", "signals", "--addr", &addresses, "--", "sh", "-c", &script]);
    let mut held = Held::spawn(command, crate::world::scratch(), Role::Plain);
    wait("it listens", || ready.exists().then_some(()));
    let has = |word: &str| {
        wait(word, || fs::read_to_string(&got).unwrap_or_default().contains(word).then_some(()));
    };
    held.signal(Signal::USR1);
    has("usr1");
    held.signal(Signal::HUP);
    has("hup");
    held.signal(Signal::INT);
    assert_eq!(held.ended().code(), Some(4));
    has("int");
}

#[test]
fn sigterm_is_passed_on_and_after_the_grace_everything_is_killed() {
    let world = World::new(1);
    let mut held = world.hold("term", &["--grace", "200ms"], Role::Family);
    held.runs(3);
    held.signal(Signal::TERM);
    assert_eq!(held.ended().code(), Some(137));
    assert!(!held.record().pids.iter().any(|pid| is_alive(*pid)));
    assert_eq!(held.events("lost").len(), 0, "the lock was not lost but given back");
    assert_eq!(held.event("ended")["outcome"], "signal");
}

#[test]
fn a_waiter_that_gives_up_leaves_the_queue() {
    let world = World::new(1);
    let _first = world.hold("queue", &[], Role::Plain);
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let mut waits = Held::begin(&world.addresses(), "queue", &[], Role::Plain);
        waits.event("queued");
        waits.signal(signal);
        assert_eq!(waits.ended().code(), Some(code));
        assert!(
            waits.said().contains("tenure: left the queue of lock `queue`, no client was ahead")
        );
        assert_eq!(world.waiting("queue"), 0);
        assert!(waits.record().pids.is_empty(), "the command did not start");
    }
}

#[test]
fn a_lock_lost_while_the_command_stands_still_is_sigkill_at_once() {
    let world = World::new(1);
    // A grace that would never be over in time.
    let mut held = world.hold("still", &["--ttl", "1h", "--grace", "10m"], Role::Plain);
    let pid = i32::try_from(held.record().pids[0]).unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::STOP).unwrap();
    let path = format!("/proc/{pid}");
    wait("it stands still", || (state(Path::new(&path)) == Some('T')).then_some(()));
    let token = held.event("acquired")["token"].as_str().unwrap().parse().unwrap();
    let token = tenure::Token::from_u64(token).unwrap();
    let force = world.client.force("still", token, "a test", Urgency::StopFirst);
    world.runtime.block_on(force.into_future()).unwrap();
    assert_eq!(held.ended().code(), Some(76));
    let said = held.said();
    assert!(said.contains("lock `still` lost: forced by next: a test"), "{said}");
    assert!(said.contains("SIGKILL to 1 process in the stopped state"), "{said}");
    let stopped = held.event("stopped");
    assert_eq!(stopped["cause"], "forced");
    // Half an hour is left, and the report says so.
    assert!(stopped["margin_us"].as_i64().unwrap() > 0, "{stopped}");
    assert!(said.contains("before another client could have the lock"), "{said}");
    // It confirmed that it stopped, so the next holder need not wait for the hour.
    let _guard = world.next("still");
}

#[test]
fn a_signal_to_the_watchdog_ends_nothing() {
    let world = World::new(1);
    let mut held = world.hold("deaf", &[], Role::Plain);
    for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT, Signal::USR1] {
        kill_process(held.watchdog(), signal).unwrap();
    }
    let before = held.record().last_us();
    wait("it runs on", || (held.record().last_us() > before + 100_000).then_some(()));
    held.signal(Signal::TERM);
    assert_eq!(held.ended().code(), Some(143));
}

#[test]
fn what_tenure_was_started_to_ignore_the_command_ignores_too() {
    let world = World::new(1);
    let addresses = world.addresses();
    let mut command = std::process::Command::new("sh");
    let tenure = crate::common::TENURE;
    command.args(["-c", "trap '' HUP; exec \"$0\" \"$@\"", tenure]);
    command.args(["run", "nohup", "--addr", &addresses, "--"]).args(crate::job::program());
    let mut held = Held::spawn(command, crate::world::scratch(), Role::Plain);
    held.runs(1);
    held.signal(Signal::HUP);
    let pid = Pid::from_raw(i32::try_from(held.record().pids[0]).unwrap()).unwrap();
    kill_process(pid, Signal::HUP).unwrap();
    let before = held.record().last_us();
    wait("it runs on", || (held.record().last_us() > before + 100_000).then_some(()));
    held.signal(Signal::TERM);
    assert_eq!(held.ended().code(), Some(143));
}
