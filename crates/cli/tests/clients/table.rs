//! Plays scenarios with several drivers side by side, and prints the table of what passed.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use tenure_server::os;

use crate::language::{DriverArgs, Language};
use crate::player::{self, Outcome};
use crate::scenario::{self, ClusterKind, Scenario};
use crate::stage::ScenarioCluster;

/// Which scenarios to play, with which drivers.
#[derive(clap::Args)]
pub(crate) struct PlayArgs {
    /// Play only scenarios whose name contains one of these words
    scenarios: Vec<String>,
    #[command(flatten)]
    drivers: DriverArgs,
    /// Play each scenario with one language only, a different one each time
    #[arg(long)]
    sample: bool,
    /// How many scenarios are played at the same time on the shared cluster
    #[arg(long, value_name = "N", default_value_t = 6)]
    lanes: usize,
    /// The directory of the scenarios
    #[arg(long, value_name = "DIR")]
    from: Option<PathBuf>,
    /// Play each scenario so often
    #[arg(long, value_name = "N", default_value_t = 1)]
    times: usize,
    /// Play failed scenarios that have a line `retry: REASON` once more, alone, and name those that passed then
    #[arg(long)]
    retry: bool,
}

/// One scenario with one language.
#[derive(Clone)]
struct Job {
    scenario: Arc<Scenario>,
    language: usize,
}

struct Played {
    scenario: String,
    language: usize,
    outcome: Outcome,
    seconds: u64,
}

fn directory(args: &PlayArgs) -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients/scenarios");
    args.from.clone().unwrap_or(own)
}

/// Prints the names of the scenarios and what they say.
pub(crate) fn list() -> ExitCode {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients/scenarios");
    match scenario::read_all(&own) {
        Ok(all) => {
            all.iter().for_each(|it| println!("{:36} {}", it.name, it.title));
            println!("{} scenarios", all.len());
            ExitCode::SUCCESS
        }
        Err(why) => fail(&why),
    }
}

fn fail(why: &str) -> ExitCode {
    eprintln!("error: {why}");
    ExitCode::FAILURE
}

/// Plays what the arguments say.
pub(crate) fn play(args: &PlayArgs) -> ExitCode {
    let scenarios = match scenario::read_all(&directory(args)) {
        Ok(all) => all,
        Err(why) => return fail(&why),
    };
    let wanted = |it: &Scenario| {
        args.scenarios.is_empty() || args.scenarios.iter().any(|word| it.name.contains(word))
    };
    let scenarios: Vec<Arc<Scenario>> =
        scenarios.into_iter().filter(wanted).map(Arc::new).collect();
    if scenarios.is_empty() {
        return fail("no scenario has such a name");
    }
    let logs =
        tempfile::Builder::new().prefix("tenure-clients-").tempdir().expect("a directory for logs");
    let languages = args.drivers.languages(logs.path());
    let mut lanes: BTreeMap<ClusterKind, VecDeque<Job>> = BTreeMap::new();
    for _ in 0..args.times {
        for (at, scenario) in scenarios.iter().enumerate() {
            for language in 0..languages.len() {
                if !args.sample || at % languages.len() == language {
                    let job = Job { scenario: scenario.clone(), language };
                    lanes.entry(scenario.cluster).or_default().push_back(job);
                }
            }
        }
    }
    let began_us = os::now_us();
    let played: Mutex<Vec<Played>> = Mutex::default();
    std::thread::scope(|scope| {
        for (kind, jobs) in lanes {
            let (languages, played) = (&languages, &played);
            scope.spawn(move || run_lanes(kind, Mutex::new(jobs), args.lanes, languages, played));
        }
    });
    let mut played = played.into_inner().unwrap();
    let retried = if args.retry { retry(&scenarios, &languages, &mut played) } else { 0 };
    let seconds = (os::now_us() - began_us) / 1_000_000;
    report(&scenarios, &languages, &played, retried, seconds)
}

/// Plays failed scenarios that allow it once more, each alone. Returns how many there were.
fn retry(scenarios: &[Arc<Scenario>], languages: &[Language], played: &mut [Played]) -> usize {
    let mut retried = 0;
    for before in played.iter_mut().filter(|it| matches!(it.outcome, Outcome::Failed(_))) {
        let is_it = |it: &&Arc<Scenario>| it.name == before.scenario && it.retry.is_some();
        let Some(scenario) = scenarios.iter().find(is_it) else { continue };
        retried += 1;
        let language = &languages[before.language];
        let outcome = player::play(scenario, &ScenarioCluster::found(scenario.cluster), language);
        if let Outcome::Failed(why) = &outcome {
            println!("FAILED {:10} {:36} again: {why}", language.name, scenario.name);
            continue;
        }
        println!("UNSTEADY {} {}: only at the second try", language.name, scenario.name);
        before.outcome = outcome;
    }
    retried
}

/// Plays the jobs of one kind of cluster: many at once where they share it, else one after another.
fn run_lanes(
    kind: ClusterKind,
    jobs: Mutex<VecDeque<Job>>,
    lanes: usize,
    languages: &[Language],
    played: &Mutex<Vec<Played>>,
) {
    let work = |stage: &ScenarioCluster| {
        while let Some(job) = { jobs.lock().unwrap().pop_front() } {
            let began_us = os::now_us();
            let language = &languages[job.language];
            let outcome = player::play(&job.scenario, stage, language);
            let seconds = (os::now_us() - began_us) / 1_000_000;
            let word = match &outcome {
                Outcome::Passed => "ok",
                Outcome::Inapplicable => "-",
                Outcome::Hole(_) => "HOLE",
                Outcome::Failed(_) => "FAILED",
            };
            println!("{word:6} {:10} {:36} {seconds:>3}s", language.name, job.scenario.name);
            if let Outcome::Failed(why) | Outcome::Hole(why) = &outcome {
                println!("    {why}");
            }
            let scenario = job.scenario.name.clone();
            played.lock().unwrap().push(Played {
                scenario,
                language: job.language,
                outcome,
                seconds,
            });
        }
    };
    std::thread::scope(|scope| {
        if kind == ClusterKind::Shared {
            let stage = Arc::new(ScenarioCluster::found(kind));
            for _ in 0..lanes.min(jobs.lock().unwrap().len()) {
                let stage = stage.clone();
                scope.spawn(move || work(&stage));
            }
        } else {
            // Two clusters at most: each one has three members that need processor time.
            let few = if kind == ClusterKind::Disturbed { 2 } else { 1 };
            for _ in 0..few.min(jobs.lock().unwrap().len()) {
                scope.spawn(move || work(&ScenarioCluster::found(kind)));
            }
        }
    });
}

/// Prints the table: a row for each scenario, a column for each language.
fn report(
    scenarios: &[Arc<Scenario>],
    languages: &[Language],
    played: &[Played],
    retried: usize,
    seconds: u64,
) -> ExitCode {
    println!();
    let names: Vec<String> = languages.iter().map(|it| format!("{:>11}", it.name)).collect();
    println!("{:36}{}", "", names.join(""));
    for scenario in scenarios {
        let cells = (0..languages.len()).map(|language| {
            let mut cell = " ".to_owned();
            for it in
                played.iter().filter(|it| it.language == language && it.scenario == scenario.name)
            {
                cell = match &it.outcome {
                    Outcome::Failed(_) => "FAILED".to_owned(),
                    _ if cell == "FAILED" => cell,
                    Outcome::Hole(_) => "hole".to_owned(),
                    Outcome::Inapplicable => "-".to_owned(),
                    Outcome::Passed => format!("{}s", it.seconds),
                };
            }
            format!("{cell:>11}")
        });
        println!("{:36}{}", scenario.name, cells.collect::<String>());
    }
    let failed = played
        .iter()
        .filter(|it| matches!(it.outcome, Outcome::Failed(_) | Outcome::Hole(_)))
        .count();
    println!("\nplayed {} times in {seconds}s", played.len());
    let (count, languages) = (scenarios.len(), languages.len());
    println!("clients scenarios={count} languages={languages} failed={failed} retried={retried}");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
