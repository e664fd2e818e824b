//! Plants each bug in each client, and shows which vectors and which scenario catch it.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use crate::language::{DriverArgs, Language};
use crate::player::{self, Outcome};
use crate::scenario::{self, ClusterKind, Scenario};
use crate::stage::ScenarioCluster;

/// A planted bug, and what can show it. One of them must.
struct Plant {
    name: &'static str,
    /// Whether it is in the lease state, which the vectors replay.
    is_in_vectors: bool,
    /// The first scenario that fails has caught it.
    scenarios: &'static [&'static str],
}

/// The bugs. With the usual window, a renewal that is counted from its answer only takes away what the contract leaves
/// for clocks that differ, so no scenario shows it. After a freeze, the thread with the timer may run before the check,
/// so a scenario shows a check by a timer only sometimes.
const PLANTS: &[Plant] = &[
    Plant { name: "count_from_answer", is_in_vectors: true, scenarios: &[] },
    Plant {
        name: "loss_not_final",
        is_in_vectors: true,
        scenarios: &["lost-answers-come-late", "lost-is-final", "lost-by-cut"],
    },
    Plant {
        name: "retry_without_id",
        is_in_vectors: false,
        scenarios: &["lost-answer-of-a-compared-write", "lost-answer-of-a-write"],
    },
    Plant {
        name: "release_while_working",
        is_in_vectors: true,
        scenarios: &["forced-waits-for-the-work", "run-forced-waits-for-the-work"],
    },
    Plant {
        name: "check_by_timer",
        is_in_vectors: true,
        scenarios: &["frozen-check-first", "frozen-process", "frozen-while-working"],
    },
];

/// With which drivers, and how to replay the vectors.
#[derive(clap::Args)]
pub(crate) struct PlantedArgs {
    #[command(flatten)]
    drivers: DriverArgs,
    /// How to replay the vectors of a language, and where
    #[arg(long = "vectors", value_name = "NAME@DIRECTORY=COMMAND")]
    vectors: Vec<String>,
    /// How often each scenario is played before it counts as one that does not show a bug that the vectors do not show
    #[arg(long, value_name = "N", default_value_t = 2)]
    times: usize,
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
    let stage = ScenarioCluster::found(ClusterKind::Shared);
    let (mut tried, mut missed) = (0, 0);
    for language in &languages {
        if !can_plant(language) {
            println!("{:12} has no planted bugs in its driver", language.name);
            continue;
        }
        for plant in PLANTS {
            tried += 1;
            let mut caught = Vec::new();
            if let Some(failed) = plant.in_vectors(&args.vectors, &language.name) {
                caught.push(format!("{failed} vectors"));
            }
            let planted = language.planted(plant.name);
            let catches = |name: &&&str| catches(&scenarios, name, &stage, &planted);
            // What a bug shows may depend on which thread runs first.
            let times = if caught.is_empty() { args.times } else { 1 };
            let tries = plant.scenarios.iter().cycle().take(plant.scenarios.len() * times);
            caught.extend(tries.into_iter().find(catches).map(|name| format!("`{name}`")));
            let by = match caught.is_empty() {
                true => "MISSED".to_owned(),
                false => format!("caught by {}", caught.join(" and ")),
            };
            missed += u64::from(caught.is_empty());
            println!("{:12} {:24} {by}", language.name, plant.name);
        }
    }
    println!("planted bugs={tried} missed={missed}");
    if missed == 0 && tried > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

impl Plant {
    /// How many vectors differ with the bug; none if it is not theirs to show, or if they do not show it.
    fn in_vectors(&self, commands: &[String], language: &str) -> Option<u64> {
        let mut places = commands.iter().filter_map(|text| {
            let (place, command) = text.split_once('=')?;
            let (name, directory) = place.split_once('@')?;
            (name == language).then_some((directory, command))
        });
        let (directory, command) = places.next().filter(|_| self.is_in_vectors)?;
        let mut replay = Command::new("sh");
        replay.args(["-c", command]).current_dir(directory).env("TENURE_PLANT", self.name);
        let replayed = replay.stdin(Stdio::null()).output().expect("sh starts");
        let text = String::from_utf8_lossy(&replayed.stdout).into_owned();
        // A replay that ends before it prints this line has shown nothing.
        let failed = text.split_once("vectors traces=")?.1.split_once("failed=")?.1;
        let digits: String = failed.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok().filter(|failed| *failed > 0)
    }
}

fn can_plant(language: &Language) -> bool {
    language.take().is_ok_and(|driver| {
        let has = driver.features.iter().any(|feature| feature == "plant");
        language.put_back(driver);
        has
    })
}

fn catches(
    scenarios: &[Scenario],
    name: &str,
    stage: &ScenarioCluster,
    planted: &Language,
) -> bool {
    let Some(scenario) = scenarios.iter().find(|it| it.name == name) else {
        panic!("there is no scenario `{name}`");
    };
    matches!(player::play(scenario, stage, planted), Outcome::Failed(_))
}
