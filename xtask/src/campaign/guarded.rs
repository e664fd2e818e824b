//! Runs the store and the proxy for long: many kills, or many numbers added to a set.

use std::process::{ExitCode, Stdio};

use anyhow::{Context, Result, ensure};

use crate::output;
use crate::programs::{CLI, guarded_command};
use crate::repo::Repo;
use crate::workspace::Workspace;

use super::CampaignTable;

/// A scenario, and the first word of its last line.
type Scenario = (&'static str, &'static str);

const KILLS: &[Scenario] = &[
    ("kill::a_store_killed_in_the_middle_of_writes_loses_nothing", "store"),
    ("kill::a_proxy_killed_in_the_middle_of_writes_lets_no_late_write_in", "proxy"),
];
const SET: &[Scenario] = &[
    ("set::with_the_fence_no_number_is_lost", "set"),
    ("set::without_the_fence_some_are_lost", "unfenced"),
];

/// Kills a store and a proxy in the middle of writes; one row for each.
pub(super) fn kills(repo: &Repo, kills: u64) -> Result<ExitCode> {
    ensure!(kills > 0, "a campaign needs at least one kill");
    run(repo, "gate", KILLS, ("TENURE_KILLS", kills))
}

/// Adds numbers to a set with the fence, and without.
pub(super) fn set(repo: &Repo, adds: u64) -> Result<ExitCode> {
    ensure!(adds > 0, "a campaign needs at least one number");
    run(repo, "set", SET, ("TENURE_ADDS", adds))
}

fn run(
    repo: &Repo,
    campaign: &str,
    scenarios: &[Scenario],
    (name, number): (&str, u64),
) -> Result<ExitCode> {
    Workspace::load(repo)?.require(CLI)?;
    let mut record = CampaignTable::open(repo)?;
    for (scenario, word) in scenarios {
        let mut command = guarded_command(repo);
        command.args(["--", "--exact", scenario, "--nocapture"]);
        command.env(name, number.to_string()).env("CARGO_TERM_QUIET", "true");
        let output = command.stderr(Stdio::inherit()).output().context("cannot start cargo")?;
        let text = String::from_utf8_lossy(&output.stdout);
        // The word may follow what the test runner prints about the test.
        let lines =
            text.lines().filter_map(|line| line.find(&format!("{word} ")).map(|at| &line[at..]));
        let mut lines = lines.filter(|line| line.contains(" violations="));
        let line = lines.find(|line| output::fields(word, line).is_some());
        if let Some(line) = line {
            println!("{line}");
            record.add(campaign, line)?;
        }
        let violations = line.and_then(|line| output::fields(word, line));
        let violations =
            violations.map(|fields| output::field(&fields, "violations")).transpose()?;
        if !output.status.success() || violations != Some(0) {
            print!("{text}");
            ensure!(false, "{scenario} failed; its output is above");
        }
    }
    Ok(ExitCode::SUCCESS)
}
