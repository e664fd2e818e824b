//! Plants each bug in each client, and shows which scenario catches it.

use std::path::Path;
use std::process::ExitCode;

use crate::language::{DriverArgs, Language};
use crate::player::{self, Outcome};
use crate::scenario::{self, ClusterKind, Scenario};
use crate::stage::Stage;

/// The bugs, and the scenarios that can show each one. The first that fails has caught it. A renewal that is counted
/// from its answer (`count_from_answer`) is not among them: with the usual window it only takes away what the contract
/// leaves for clocks that differ, so the vectors catch it, in the tests of each language.
const PLANTS: &[(&str, &[&str])] = &[
    ("loss_not_final", &["lost-answers-come-late", "lost-is-final", "lost-by-cut"]),
    ("retry_without_id", &["lost-answer-of-a-compared-write", "lost-answer-of-a-write"]),
    ("release_while_working", &["forced-waits-for-the-work", "run-forced-waits-for-the-work"]),
    (BY_TIMER, &["frozen-check-first", "frozen-process", "frozen-while-working"]),
];

/// After a freeze, the thread with the timer may run before the check, which hides this bug. The vectors always show
/// it.
const BY_TIMER: &str = "check_by_timer";

/// How often each scenario is played before a bug counts as missed.
const TIMES: usize = 3;

/// With which drivers.
#[derive(clap::Args)]
pub(crate) struct PlantedArgs {
    #[command(flatten)]
    drivers: DriverArgs,
}

/// Runs every bug in every language.
pub(crate) fn run(args: &PlantedArgs) -> ExitCode {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients/scenarios");
    let scenarios = match scenario::read_all(&directory) {
        Ok(all) => all,
        Err(why) => {
            eprintln!("error: {why}");
            return ExitCode::FAILURE;
        }
    };
    let logs =
        tempfile::Builder::new().prefix("tenure-planted-").tempdir().expect("a directory for logs");
    let languages = args.drivers.languages(logs.path());
    let stage = Stage::found(ClusterKind::Shared);
    let (mut tried, mut missed) = (0, 0);
    for language in &languages {
        if !can_plant(language) {
            println!("{:12} has no planted bugs", language.name);
            continue;
        }
        for (bug, names) in PLANTS {
            tried += 1;
            let planted = language.planted(bug);
            let catches = |name: &&&str| catches(&scenarios, name, &stage, &planted);
            // What a bug shows may depend on which thread runs first.
            match names.iter().cycle().take(names.len() * TIMES).find(catches) {
                Some(name) => println!("{:12} {bug:24} caught by {name}", language.name),
                None if *bug == BY_TIMER => {
                    println!("{:12} {bug:24} left to the vectors", language.name);
                }
                None => {
                    println!("{:12} {bug:24} MISSED", language.name);
                    missed += 1;
                }
            }
        }
    }
    println!("planted bugs={tried} missed={missed}");
    if missed == 0 && tried > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn can_plant(language: &Language) -> bool {
    language.take().is_ok_and(|driver| {
        let has = driver.features.iter().any(|feature| feature == "plant");
        language.put_back(driver);
        has
    })
}

fn catches(scenarios: &[Scenario], name: &str, stage: &Stage, planted: &Language) -> bool {
    let Some(scenario) = scenarios.iter().find(|it| it.name == name) else {
        panic!("there is no scenario `{name}`");
    };
    matches!(player::play(scenario, stage, planted), Outcome::Failed(_))
}
