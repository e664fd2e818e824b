//! Tests that a queued `tenure run` starts as soon as its predecessor on this machine has ended, however that ended.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::common::{tenure, wait};
use crate::job::Role;
use crate::world::{Held, World, is_alive, runs, side_by_side};

/// So long that a successor that waits for an expiry is not there before the test gives up.
const TTL: Duration = Duration::from_secs(3_600);
const FLAGS: [&str; 4] = ["--ttl", "1h", "--grace", "200ms"];

/// How the predecessor ends.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Ending {
    /// Its command ends by itself.
    Command,
    /// `tenure run` gets SIGTERM.
    Term,
    /// `tenure run` is killed: its watchdog ends the command and gives the lock back.
    Kill,
    /// The watchdog is killed: `tenure run` ends the command and gives the lock back.
    Watchdog,
}

const ENDINGS: [Ending; 4] = [Ending::Command, Ending::Term, Ending::Kill, Ending::Watchdog];

impl Ending {
    fn happens_to(self, held: &Held) {
        let (pid, signal) = match self {
            Self::Command => (i32::try_from(held.record().pids[0]).unwrap(), Signal::TERM),
            Self::Term => (held.pid().as_raw_nonzero().get(), Signal::TERM),
            Self::Kill => (held.pid().as_raw_nonzero().get(), Signal::KILL),
            Self::Watchdog => (held.watchdog().as_raw_nonzero().get(), Signal::KILL),
        };
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
    }
}

#[test]
fn a_queued_run_starts_once_its_predecessor_has_ended_and_waits_for_no_lease() {
    let world = World::new(1);
    let runs = runs(1);
    let gaps = Mutex::new(BTreeMap::<Ending, Vec<u64>>::new());
    side_by_side(runs * ENDINGS.len(), |run| {
        let ending = ENDINGS[run % ENDINGS.len()];
        let gap_us = once(&world, ending, &format!("next-{run}"));
        gaps.lock().unwrap().entry(ending).or_default().push(gap_us);
    });
    for (ending, mut gaps) in gaps.into_inner().unwrap() {
        gaps.sort_unstable();
        let at = |percent: usize| gaps[(gaps.len() - 1) * percent / 100] / 1_000;
        let (p50, p99, most) = (at(50), at(99), at(100));
        let slow = gaps.iter().filter(|gap_us| **gap_us > 1_000_000).count();
        let after = format!("{ending:?}").to_lowercase();
        println!(
            "run scene=successor after={after} runs={runs} gap_p50_ms={p50} gap_p99_ms={p99} gap_max_ms={most} \
             over_1s={slow} violations=0"
        );
    }
}

/// Returns the time from the last sign of life of one command to the first of the next.
fn once(world: &World, ending: Ending, lock: &str) -> u64 {
    let mut held = world.hold(lock, &FLAGS, Role::Plain);
    let next = Held::begin(&world.addresses(), lock, &FLAGS, Role::Plain);
    wait("the next one is queued", || (world.waiting(lock) == 1).then_some(()));
    let waiting = next.record();
    assert!(waiting.pids.is_empty(), "it waits for its turn: {:?}", waiting.pids);
    ending.happens_to(&held);
    next.runs(1);
    let before = held.record();
    assert!(!before.pids.iter().any(|pid| is_alive(*pid)), "{ending:?}: {:?}", before.pids);
    let began_us = next.record().beats.first().expect("it runs").0;
    let ended_us = before.last_us();
    assert!(
        ended_us < began_us,
        "{ending:?}: the one before ran for {} us more",
        ended_us - began_us
    );
    let gap_us = began_us - ended_us;
    assert!(Duration::from_micros(gap_us) < TTL, "{ending:?}: it waited for the lease to end");
    // The order of the events says the same: the hold ended, and no lease expired.
    let past = tenure(&["history", lock, "--addr", &world.addresses()]);
    assert_eq!(past.out.matches(" granted ").count(), 2, "{}", past.out);
    assert!(!past.out.contains(" expired "), "{ending:?}: {}", past.out);
    held.ended();
    gap_us
}
