//! Tests that a command that was frozen together with `tenure run` and its watchdog does no harm when it is thawed.

use std::sync::Mutex;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tenure_server::os;

use crate::common::wait;
use crate::job::{Role, put_guarded};
use crate::world::{Held, World, is_alive, runs, side_by_side, state};

/// The resolution with which the time until death is measured.
const POLL_INTERVAL: Duration = Duration::from_micros(200);

fn pids(held: &Held) -> Vec<Pid> {
    let raw = held.record().pids.into_iter().map(|pid| i32::try_from(pid).unwrap());
    raw.map(|pid| Pid::from_raw(pid).unwrap()).collect()
}

/// Stops everything, first the processes that would react to it.
fn freeze(held: &Held) -> Vec<Pid> {
    let mut all = vec![held.pid(), held.watchdog()];
    all.extend(pids(held));
    for pid in &all {
        kill_process(*pid, Signal::STOP).unwrap();
        let path = format!("/proc/{pid}");
        wait("it stands still", || (state(path.as_ref()) == Some('T')).then_some(()));
    }
    all
}

/// Runs the scene once, and returns how long after the thaw the command is dead.
fn once(world: &World, lock: &str) -> u64 {
    let held = world.hold(lock, &[], Role::Writer);
    wait("it writes", || held.record().beats.iter().any(|(_, word)| word == "200").then_some(()));
    let all = freeze(&held);
    let stopped_us = os::now_us();
    let _guard = world.next(lock);
    let granted_us = os::now_us();
    assert!(held.record().last_us() <= stopped_us, "nothing ran while everything stood still");
    // The worst order: the processes that could stop the command continue last.
    let thawed_us = os::now_us();
    for pid in all.iter().rev() {
        kill_process(*pid, Signal::CONT).unwrap();
    }
    let pids = held.record().pids;
    while pids.iter().any(|pid| is_alive(*pid)) {
        std::thread::sleep(POLL_INTERVAL);
        assert!(os::now_us() < thawed_us + 10_000_000, "it does not die");
    }
    let death_us = os::now_us() - thawed_us;
    // Writes that it still sent after the grant were refused, and so is every later one under its token.
    let record = held.record();
    let late = record.beats.iter().filter(|(at_us, _)| *at_us > granted_us);
    let late: Vec<&String> = late.map(|(_, word)| word).collect();
    assert!(late.iter().all(|word| *word != "200"), "a guarded key refuses: {late:?}");
    let token = held.event("acquired")["token"].as_str().unwrap().to_owned();
    assert_eq!(put_guarded(&world.addresses(), lock, &token), "412");
    death_us
}

#[test]
fn frozen_with_its_watchdog_it_runs_nothing_and_dies_when_thawed() {
    let world = World::new(1);
    let runs = runs(1);
    let deaths = Mutex::new(Vec::new());
    side_by_side(runs, |run| {
        let death_us = once(&world, &format!("frozen-{run}"));
        deaths.lock().unwrap().push(death_us);
    });
    let mut deaths = deaths.into_inner().unwrap();
    deaths.sort_unstable();
    let at = |percent: usize| deaths[(deaths.len() - 1) * percent / 100];
    let (p50, p99) = (at(50), at(99));
    println!("run scene=frozen runs={runs} death_p50_us={p50} death_p99_us={p99} violations=0");
}
