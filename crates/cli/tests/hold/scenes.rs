//! Is every process of the command gone before the lock's next grant?

use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use indicatif::{ProgressBar, ProgressStyle};
use rustix::process::{Signal, kill_process};
use tenure::Urgency;
use tenure_server::os;

use crate::common::free_port;
use crate::common::proxy::{Proxies, Road};
use crate::job::{self, Role};
use crate::world::{Held, World, is_alive, state};

/// What is done to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Blow {
    /// `tenure run` is stopped.
    Stop,
    /// `tenure run` is killed.
    Kill,
    /// Somebody takes the lock away.
    Force,
    /// No member can be reached any more.
    Partition,
    /// The watchdog is killed.
    Watchdog,
}

/// Runs at the same time, at most.
const TOGETHER: usize = 10;

/// As many runs as a campaign says, or two.
pub(crate) fn runs() -> usize {
    let runs = std::env::var("TENURE_RUNS").ok();
    runs.map_or(2, |runs| runs.parse().expect("TENURE_RUNS is a number"))
}

/// Does one thing to many runs; every time all of it is gone before the next grant.
fn play(blow: Blow) {
    let world = World::new(1);
    let runs = runs();
    let (next, margins) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let style = "{bar:40} {pos}/{len} runs, {elapsed} gone, {eta} left";
    let bar = ProgressBar::new(runs as u64);
    let bar = bar.with_style(ProgressStyle::with_template(style).unwrap());
    std::thread::scope(|scope| {
        for _ in 0..TOGETHER.min(runs) {
            scope.spawn(|| {
                loop {
                    let run = next.fetch_add(1, Ordering::Relaxed);
                    if run >= runs {
                        return;
                    }
                    let margin_us = once(&world, blow, &format!("lock-{run}"));
                    margins.lock().unwrap().push(margin_us);
                    bar.inc(1);
                }
            });
        }
    });
    bar.finish_and_clear();
    let mut margins = margins.into_inner().unwrap();
    margins.sort_unstable();
    let late = margins.iter().filter(|margin_us| **margin_us <= 0).count();
    let at = |percent: usize| margins[(margins.len() - 1) * percent / 100] / 1_000;
    let word = format!("{blow:?}").to_lowercase();
    // The margin that all but one in a hundred had, and the smallest.
    println!(
        "run scene={word} runs={runs} margin_p50_ms={} margin_p99_ms={} margin_min_ms={} violations={late}",
        at(50),
        at(1),
        at(0)
    );
    assert_eq!(late, 0, "{margins:?}");
}

/// One run: how long before the next grant the last process of the command was seen running.
fn once(world: &World, blow: Blow, lock: &str) -> i64 {
    let proxies = Proxies::new(&[world.cluster.members[0].clients, free_port()]);
    let through = format!("127.0.0.1:{}", proxies.port(0));
    let held = Held::begin(&through, lock, &[], Role::Family);
    proxies.know(1, held.child.id());
    held.runs(3);
    match blow {
        Blow::Stop => held.signal(Signal::STOP),
        Blow::Kill => held.signal(Signal::KILL),
        Blow::Partition => proxies.around(1, Road::Hole),
        Blow::Watchdog => kill_process(held.watchdog(), Signal::KILL).unwrap(),
        Blow::Force => {
            let token = held.event("acquired")["token"].as_str().unwrap().parse().unwrap();
            let token = tenure::Token::from_u64(token).unwrap();
            let force = world.client.force(lock, token, "a test", Urgency::StopFirst);
            world.runtime.block_on(force).unwrap();
        }
    }
    let guard = world.next(lock);
    let granted_us = os::now_us();
    let record = held.record();
    let left: Vec<&u32> = record.pids.iter().filter(|pid| is_alive(**pid)).collect();
    assert!(left.is_empty(), "{left:?} of {:?} are left", record.pids);
    assert_eq!(record.pids.len(), 3, "the command had three processes");
    drop(guard);
    i64::try_from(granted_us).unwrap() - i64::try_from(record.last_us()).unwrap()
}

#[test]
fn nothing_is_left_at_the_next_grant_if_tenure_is_stopped() {
    play(Blow::Stop);
}

#[test]
fn nothing_is_left_at_the_next_grant_if_tenure_is_killed() {
    play(Blow::Kill);
}

#[test]
fn nothing_is_left_at_the_next_grant_if_the_lock_is_taken_away() {
    play(Blow::Force);
}

#[test]
fn nothing_is_left_at_the_next_grant_if_no_member_can_be_reached() {
    play(Blow::Partition);
}

#[test]
fn nothing_is_left_at_the_next_grant_if_the_watchdog_is_killed() {
    play(Blow::Watchdog);
}

#[test]
fn a_command_that_nobody_watches_does_overlap() {
    // Without this the tests above could be some that cannot fail.
    let world = World::new(1);
    let [own, rest @ ..] = job::program();
    let mut command = Command::new(own);
    command.args(rest).env("TENURE_LOCK", "loose").env("TENURE_ADDR", world.addresses());
    let held = Held::spawn(command, tempfile::tempdir().unwrap(), Role::Loose);
    held.runs(1);
    held.signal(Signal::KILL);
    let _guard = world.next("loose");
    let granted_us = os::now_us();
    crate::common::wait("it runs on", || (held.record().last_us() > granted_us).then_some(()));
    assert!(held.record().pids.iter().any(|pid| is_alive(*pid)));
}

#[test]
fn a_watchdog_that_somebody_stops_is_continued() {
    let world = World::new(1);
    let held = world.hold("awake", &[], Role::Plain);
    let watchdog = held.watchdog();
    let path = format!("/proc/{watchdog}");
    for _ in 0..3 {
        kill_process(watchdog, Signal::STOP).unwrap();
        crate::common::wait("it goes on", || {
            (state(path.as_ref()).is_some_and(|state| state != 'T')).then_some(())
        });
    }
    // It still does its work.
    held.signal(Signal::KILL);
    let _guard = world.next("awake");
    assert!(!held.record().pids.iter().any(|pid| is_alive(*pid)));
}
