//! Tests that two guards are never valid at once by their own checks, whatever happens to members, clients and the
//! network.
//!
//! In a run three processes hold one lock in turns. While one has it, the test injects a fault. Afterwards all their
//! records must be consistent (T4). As a control, processes that ignore their loss do overlap; otherwise the check
//! could not fail.

use std::collections::VecDeque;
use std::sync::Mutex;

use indicatif::{ProgressBar, ProgressStyle};

use crate::addresses;
use crate::common::proxy::Road;
use crate::common::{Cluster, wait};
use crate::holder::{self, Ear, Holder, Span};

const HERE: &str = "scripts::guards_never_overlap_and_those_that_ignore_their_loss_do";
const HOLDERS: usize = 3;
/// How many clusters run at once. Runs mostly wait.
const LANES: usize = 4;

/// The fault that is injected while a process holds the lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    LeaderKilled,
    LeaderStopped,
    /// The cluster can commit nothing for longer than the ttl.
    MajorityStopped,
    /// The holder itself is stopped for longer than its ttl.
    ClientStopped,
    /// The holder's connections are reset, and new ones too.
    ClientCut,
    /// The holder's connections stay open, and its bytes are lost.
    ClientSwallowed,
    /// The leader is cut off from the other members, not from clients.
    LeaderCut,
}

const FAULTS: [Fault; 7] = [
    Fault::ClientStopped,
    Fault::LeaderKilled,
    Fault::ClientCut,
    Fault::MajorityStopped,
    Fault::ClientSwallowed,
    Fault::LeaderStopped,
    Fault::LeaderCut,
];

#[derive(Clone, Copy, Debug)]
struct Run {
    number: usize,
    fault: Fault,
    ear: Ear,
}

/// The results of all runs.
#[derive(Default)]
struct Totals {
    runs: u64,
    holds: usize,
    losses: usize,
    violations: Vec<String>,
    controls: u64,
    controls_overlapping: u64,
}

/// Two spans that have an instant in common.
fn overlap(spans: &[Span]) -> Option<(Span, Span)> {
    let mut sorted = spans.to_vec();
    sorted.sort_unstable_by_key(|span| span.from_us);
    let mut longest: Option<Span> = None;
    for span in sorted {
        match &longest {
            Some(before) if span.from_us < before.to_us => return Some((before.clone(), span)),
            Some(before) if before.to_us >= span.to_us => {}
            _ => longest = Some(span),
        }
    }
    None
}

/// Plays one run, and returns what the processes recorded.
fn play(cluster: &mut Cluster, run: Run) -> Vec<Span> {
    let (addresses, lock) = (addresses(cluster), format!("run/{}", run.number));
    let client_proxies = cluster.client_proxies.as_ref().unwrap();
    let holders: Vec<Holder> = (0..HOLDERS)
        .map(|at| {
            let file = cluster.dir.path().join(format!("run-{}-{at}", run.number));
            let holder = Holder::start(HERE, run.ear, &lock, &addresses, &file);
            client_proxies.know(3 + at, holder.pid());
            holder.tell("go");
            holder
        })
        .collect();
    let holds = || holders.iter().map(Holder::holds).sum::<usize>();
    let goes_on = |more: usize| {
        let seen = holds();
        wait("the lock is handed on", || (holds() >= seen + more).then_some(()));
    };
    goes_on(HOLDERS);
    holders.iter().for_each(|holder| holder.tell("keep"));
    let victim = wait("one keeps the lock", || holders.iter().position(Holder::keeps));
    disturb(cluster, run, &holders, victim);
    holders.iter().for_each(|holder| holder.tell("free"));
    goes_on(HOLDERS);
    let spans = holders.into_iter().flat_map(Holder::end).collect();
    cluster.agree(&[0, 1, 2]);
    spans
}

/// Injects the fault. If it costs the holder its lock, waits until the lock is lost and another process has it.
fn disturb(cluster: &mut Cluster, run: Run, holders: &[Holder], victim: usize) {
    let (client_proxies, proxies) =
        (cluster.client_proxies.as_ref().unwrap(), cluster.proxies.as_ref().unwrap());
    let another = || {
        let has = |at: &usize| *at != victim && holders[*at].has();
        wait("another one has the lock", || (0..HOLDERS).find(has));
    };
    let signal = |cluster: &Cluster, at: usize, signal: &str| {
        cluster.members[at].process.as_ref().unwrap().signal(signal);
    };
    let leader = cluster.leader();
    let others = [(leader + 1) % 3, (leader + 2) % 3];
    match run.fault {
        Fault::ClientStopped => {
            holders[victim].signal("-STOP");
            another();
            holders[victim].signal("-CONT");
            // The first thing that it does after it continues is what matters.
            if run.ear == Ear::Good {
                wait("it notices", || (!holders[victim].has()).then_some(()));
            }
        }
        Fault::ClientCut | Fault::ClientSwallowed => {
            let swallowed = run.fault == Fault::ClientSwallowed;
            client_proxies.around(3 + victim, if swallowed { Road::Hole } else { Road::Cut });
            another();
            client_proxies.heal();
        }
        Fault::LeaderKilled => {
            cluster.kill(leader);
            cluster.leader_of(&others);
            cluster.start(leader, &[]);
        }
        Fault::LeaderStopped => {
            signal(cluster, leader, "-STOP");
            cluster.leader_of(&others);
            signal(cluster, leader, "-CONT");
        }
        Fault::MajorityStopped => {
            [leader, others[0]].iter().for_each(|at| signal(cluster, *at, "-STOP"));
            wait("it is lost", || (!holders[victim].has()).then_some(()));
            [leader, others[0]].iter().for_each(|at| signal(cluster, *at, "-CONT"));
        }
        Fault::LeaderCut => {
            proxies.around(leader, Road::Cut);
            cluster.leader_of(&others);
            proxies.heal();
        }
    }
}

fn judge(run: Run, spans: &[Span], totals: &mut Totals) {
    let found = overlap(spans);
    if run.ear == Ear::Deaf {
        totals.controls += 1;
        totals.controls_overlapping += u64::from(found.is_some());
        return;
    }
    let losses = spans.iter().filter(|span| span.how != "done").count();
    totals.runs += 1;
    totals.holds += spans.len();
    totals.losses += losses;
    let violation = |what: String| format!("{run:?}: {what}: {spans:?}");
    if let Some((one, other)) = found {
        totals.violations.push(violation(format!("{one:?} and {other:?} overlap")));
    }
    let mut sorted = spans.to_vec();
    sorted.sort_unstable_by_key(|span| span.from_us);
    if !sorted.is_sorted_by(|a, b| a.token < b.token) {
        totals.violations.push(violation("later holders have larger tokens".to_owned()));
    }
    // A fault without an effect proves nothing.
    let costs =
        [Fault::ClientStopped, Fault::ClientCut, Fault::ClientSwallowed, Fault::MajorityStopped];
    if costs.contains(&run.fault) && losses == 0 {
        totals.violations.push(violation("no client lost anything".to_owned()));
    }
}

#[test]
fn guards_never_overlap_and_those_that_ignore_their_loss_do() {
    if holder::is_one() {
        return;
    }
    let runs = std::env::var("TENURE_RUNS").ok();
    let runs = runs.map_or(FAULTS.len(), |runs| runs.parse().expect("TENURE_RUNS is a number"));
    let each = |number: usize| Run { number, fault: FAULTS[number % FAULTS.len()], ear: Ear::Good };
    let mut all: VecDeque<Run> = (0..runs).map(each).collect();
    // One control is enough to show that the check can fail; a long campaign has one in fifty.
    for control in 0..runs.div_ceil(50) {
        let faults = [Fault::ClientStopped, Fault::ClientCut, Fault::ClientSwallowed];
        let fault = faults[control % faults.len()];
        all.push_back(Run { number: runs + control, fault, ear: Ear::Deaf });
    }
    let style =
        ProgressStyle::with_template("{bar:40} {pos}/{len} runs, {elapsed} gone, {eta} left");
    let bar = ProgressBar::new(all.len() as u64).with_style(style.unwrap());
    let (all, totals) = (Mutex::new(all), Mutex::new(Totals::default()));
    std::thread::scope(|scope| {
        for _ in 0..LANES.min(runs) {
            scope.spawn(|| {
                let mut cluster = Cluster::found_behind_client_proxies(HOLDERS);
                while let Some(run) = { all.lock().unwrap().pop_front() } {
                    let spans = play(&mut cluster, run);
                    judge(run, &spans, &mut totals.lock().unwrap());
                    bar.inc(1);
                }
            });
        }
    });
    bar.finish_and_clear();
    let Totals { runs, holds, losses, violations, controls, controls_overlapping } =
        totals.into_inner().unwrap();
    println!(
        "sdk runs={runs} holds={holds} losses={losses} controls={controls} \
         controls_overlapping={controls_overlapping} violations={}",
        violations.len()
    );
    assert!(violations.is_empty(), "violations: {}", violations.join("\n"));
    assert_eq!(controls_overlapping, controls, "who ignores a loss overlaps, and is seen to");
}

#[test]
fn the_check_sees_an_overlap_also_behind_a_short_span() {
    let span = |from_us, to_us| Span { token: 1, from_us, to_us, how: "done".to_owned() };
    assert!(overlap(&[span(0, 5), span(5, 9)]).is_none());
    assert!(overlap(&[span(0, 5), span(4, 9)]).is_some());
    assert!(overlap(&[span(6, 7), span(0, 10), span(8, 9)]).is_some());
}
