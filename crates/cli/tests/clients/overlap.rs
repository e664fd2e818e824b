//! Lets clients of several languages compete for one lock while processes are frozen, killed and cut off and members
//! die, and shows that no two of them held it at once.
//!
//! A span is the time in which the checks of a guard succeeded. Its ends are the times at which the runner sent the
//! first and the last check that succeeded: the guard existed at the first, and was still valid after the last. So both
//! ends are inside of the true span, and two spans that overlap are two clients that held the lock at once. As a
//! control, clients that ignore their losses do overlap.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Map, Value, json};
use tenure_server::os;

use crate::common::proxy::Road;
use crate::driver_process::Driver;
use crate::language::{DriverArgs, Language};
use crate::scenario::ClusterKind;
use crate::stage::{ScenarioCluster, Ways};

/// How many clients compete.
const CLIENTS: usize = 20;
const TTL_MS: u64 = 2_000;
/// How long a client keeps the lock, and how often it checks.
const HOLD: Duration = Duration::from_millis(300);
const STEP: Duration = Duration::from_millis(5);
/// How long a client of the control keeps the lock: longer than its ttl, so that another gets it after a fault.
const CONTROL_HOLD: Duration = Duration::from_secs(6);
/// How long the control runs: long enough for several faults.
const CONTROL: Duration = Duration::from_secs(40);

/// How long to run, with which drivers.
#[derive(clap::Args)]
pub(crate) struct OverlapArgs {
    #[command(flatten)]
    drivers: DriverArgs,
    /// How many seconds to run
    #[arg(long, default_value_t = 60)]
    seconds: u64,
}

/// Whether clients stop when their guard is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Checks {
    Obeyed,
    Ignored,
}

/// A time in which a client's checks succeeded.
#[derive(Clone, Debug)]
struct Span {
    client: usize,
    language: String,
    token: u64,
    from_us: u64,
    to_us: u64,
}

/// One client: its language, its process, and its number at the proxies.
struct Competitor<'a> {
    number: usize,
    language: &'a Language,
    driver: Mutex<Option<Driver>>,
    /// The process and the number at the proxies of the driver of now, for the faults.
    target: Mutex<Option<(u32, usize)>>,
    losses: AtomicU64,
}

/// What a run showed.
struct Contest {
    spans: Vec<Span>,
    losses: u64,
    faults: BTreeMap<&'static str, u64>,
}

/// Runs the contest and its control.
pub(crate) fn run(args: &OverlapArgs) -> ExitCode {
    let logs =
        tempfile::Builder::new().prefix("tenure-overlap-").tempdir().expect("a directory for logs");
    let languages = args.drivers.languages(logs.path());
    let control =
        compete(&languages, CONTROL.min(Duration::from_secs(args.seconds)), Checks::Ignored);
    let found = overlaps(&control.spans);
    println!("control clients={CLIENTS} holds={} overlaps={}", control.spans.len(), found.len());
    let contest = compete(&languages, Duration::from_secs(args.seconds), Checks::Obeyed);
    let overlapping = overlaps(&contest.spans);
    for (one, other) in &overlapping {
        println!("OVERLAP {one:?} and {other:?}");
    }
    let disorder = disorder(&contest.spans);
    for (one, other) in &disorder {
        println!("TOKENS {one:?} and {other:?}");
    }
    let mut holds: BTreeMap<&str, u64> = BTreeMap::new();
    for span in &contest.spans {
        *holds.entry(&span.language).or_default() += 1;
    }
    let join = |counts: &mut dyn Iterator<Item = (String, u64)>| {
        counts.map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", ")
    };
    println!(
        "holds: {}",
        join(&mut holds.iter().map(|(name, count)| ((*name).to_owned(), *count)))
    );
    println!(
        "faults: {}",
        join(&mut contest.faults.iter().map(|(name, count)| ((*name).to_owned(), *count)))
    );
    let bad = overlapping.len() + disorder.len();
    println!(
        "overlap seconds={} clients={CLIENTS} languages={} holds={} losses={} faults={} \
         control_overlaps={} overlaps={bad}",
        args.seconds,
        languages.len(),
        contest.spans.len(),
        contest.losses,
        contest.faults.values().sum::<u64>(),
        found.len(),
    );
    // Every language must have held the lock, and the check must be able to fail; else the run shows nothing.
    let shown = holds.len() == languages.len() && !found.is_empty() && contest.losses > 0;
    if bad == 0 && shown { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn compete(languages: &[Language], length: Duration, checks: Checks) -> Contest {
    let stage = ScenarioCluster::found(ClusterKind::Disturbed);
    let competitors: Vec<Competitor<'_>> = (0..CLIENTS)
        .map(|number| Competitor {
            number,
            language: &languages[number % languages.len()],
            driver: Mutex::default(),
            target: Mutex::default(),
            losses: AtomicU64::new(0),
        })
        .collect();
    let (over, spans, faults) = (AtomicBool::new(false), Mutex::new(Vec::new()), Mutex::default());
    std::thread::scope(|scope| {
        for competitor in &competitors {
            scope.spawn(|| {
                while !over.load(Ordering::Acquire) {
                    // A driver that was killed is replaced by a new one.
                    if competitor.turn(&stage, checks, &over, &spans).is_err() {
                        *competitor.target.lock().unwrap() = None;
                        *competitor.driver.lock().unwrap() = None;
                    }
                }
            });
        }
        scope.spawn(|| {
            disturb(&stage, &competitors, length, &faults);
            over.store(true, Ordering::Release);
        });
    });
    let losses = competitors.iter().map(|it| it.losses.load(Ordering::Relaxed)).sum();
    Contest { spans: spans.into_inner().unwrap(), losses, faults: faults.into_inner().unwrap() }
}

impl Competitor<'_> {
    /// Takes the lock once, keeps it for a while, and releases it. An error means that the driver is gone.
    fn turn(
        &self,
        stage: &ScenarioCluster,
        checks: Checks,
        over: &AtomicBool,
        spans: &Mutex<Vec<Span>>,
    ) -> Result<(), String> {
        let mut slot = self.driver.lock().unwrap();
        if slot.is_none() {
            let mut driver = self.language.take()?;
            let dialler = stage.register(&mut driver);
            let name = format!("{}-{}", self.language.name, self.number);
            let open = json!({
                "handle": "c", "name": name, "addrs": stage.addresses(), "timeout_ms": 10_000,
            });
            let id = driver.ask("open", fields(open))?;
            *self.target.lock().unwrap() = Some((driver.pid(), dialler));
            if driver.answer(id)?.get("ok").is_none() {
                return Err("it cannot connect".to_owned());
            }
            *slot = Some(driver);
        }
        let driver = slot.as_mut().ok_or("there is no driver")?;
        let ask = json!({
            "handle": "c", "guard": "g", "lock": "prize", "ttl_ms": TTL_MS, "wait_ms": 5_000, "limit_ms": 10_000,
        });
        let id = driver.ask("lock", fields(ask))?;
        let answer = driver.answer(id)?;
        let Some(token) = answer["ok"]["token"].as_str().and_then(|token| token.parse().ok())
        else {
            return Ok(());
        };
        let hold = if checks == Checks::Obeyed { HOLD } else { CONTROL_HOLD };
        let (mut span, until_us) = (None, os::now_us() + os::micros(hold));
        while os::now_us() < until_us && !over.load(Ordering::Acquire) {
            let sent_us = os::now_us();
            let id = driver.ask("check", fields(json!({ "guard": "g" })))?;
            let is_held = driver.answer(id)?.get("ok").is_some();
            if !is_held {
                self.losses.fetch_add(1, Ordering::Relaxed);
            }
            if !is_held && checks == Checks::Obeyed {
                break;
            }
            let language = self.language.name.clone();
            let span = span.get_or_insert(Span {
                client: self.number,
                language,
                token,
                from_us: sent_us,
                to_us: sent_us,
            });
            span.to_us = sent_us;
            std::thread::sleep(STEP);
        }
        if let Some(span) = span {
            spans.lock().unwrap().push(span);
        }
        let id = driver.ask("release", fields(json!({ "guard": "g" })))?;
        driver.answer(id).map(drop)
    }

    fn signal(&self, signal: &str) {
        if let Some((pid, _)) = *self.target.lock().unwrap() {
            let _ = std::process::Command::new("kill").args([signal, &pid.to_string()]).status();
        }
    }

    fn road(&self, stage: &ScenarioCluster, road: Road) {
        if let Some((_, dialler)) = *self.target.lock().unwrap() {
            stage.road(dialler, None, Ways::Both, road);
        }
    }
}

/// Injects one fault after another, until the time is over. Most of them hit the holder.
fn disturb(
    stage: &ScenarioCluster,
    competitors: &[Competitor<'_>],
    length: Duration,
    faults: &Mutex<BTreeMap<&'static str, u64>>,
) {
    let until_us = os::now_us() + os::micros(length);
    let mut random = os::now_us();
    let mut below = |bound: u64| {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % bound
    };
    while os::now_us() < until_us {
        std::thread::sleep(Duration::from_millis(200 + below(800)));
        let holder = stage.show("prize").and_then(|lock| {
            let name = lock.holders.first()?.client.clone();
            name.rsplit_once('-')?.1.parse::<usize>().ok()
        });
        let any = usize::try_from(below(competitors.len() as u64)).unwrap_or(0);
        let victim = holder.filter(|_| below(4) > 0).unwrap_or(any);
        let victim = &competitors[victim % competitors.len()];
        let long = Duration::from_millis(500 + below(3_500));
        let name = match below(12) {
            0..=3 => {
                victim.signal("-STOP");
                std::thread::sleep(long);
                victim.signal("-CONT");
                "frozen"
            }
            4 | 5 => {
                victim.road(stage, Road::Cut);
                std::thread::sleep(long);
                victim.road(stage, Road::Open);
                "cut off"
            }
            6 | 7 => {
                victim.road(stage, Road::Hole);
                std::thread::sleep(long);
                victim.road(stage, Road::Open);
                "swallowed"
            }
            8 | 9 => {
                victim.signal("-KILL");
                "killed"
            }
            10 => {
                stage.kill(stage.leader());
                std::thread::sleep(long);
                stage.restart();
                "leader killed"
            }
            _ => {
                stage.freeze(stage.leader());
                std::thread::sleep(long);
                stage.restart();
                "leader frozen"
            }
        };
        *faults.lock().unwrap().entry(name).or_default() += 1;
    }
}

fn fields(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

/// Pairs of spans of different clients that have an instant in common.
fn overlaps(spans: &[Span]) -> Vec<(Span, Span)> {
    let mut sorted: Vec<&Span> = spans.iter().collect();
    sorted.sort_unstable_by_key(|span| span.from_us);
    let (mut found, mut longest): (Vec<(Span, Span)>, Option<&Span>) = (Vec::new(), None);
    for span in sorted {
        match longest {
            Some(before) if span.from_us < before.to_us && span.client != before.client => {
                found.push((before.clone(), span.clone()));
            }
            _ => {}
        }
        if longest.is_none_or(|before| span.to_us > before.to_us) {
            longest = Some(span);
        }
    }
    found
}

/// Pairs of spans of which the later one has the smaller token.
fn disorder(spans: &[Span]) -> Vec<(Span, Span)> {
    let mut sorted: Vec<&Span> = spans.iter().collect();
    sorted.sort_unstable_by_key(|span| span.from_us);
    let pairs = sorted.windows(2).filter(|pair| pair[0].token >= pair[1].token);
    pairs.map(|pair| (pair[0].clone(), pair[1].clone())).collect()
}
