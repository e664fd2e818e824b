//! Runs the long tests of real clients against real members.

use std::process::{ExitCode, Stdio};

use anyhow::{Context, Result, ensure};

use crate::output;
use crate::programs::{CLI, sdk_command};
use crate::repo::Repo;
use crate::workspace::Workspace;

use super::CampaignTable;

/// A test that takes a number and ends with a line of numbers.
pub(super) struct Long {
    /// The campaign's name, which is also the first word of the line.
    word: &'static str,
    /// What the number counts; the second word of the line begins with it.
    unit: &'static str,
    variable: &'static str,
    test: &'static str,
}

pub(super) const SDK: Long = Long {
    word: "sdk",
    unit: "runs",
    variable: "TENURE_RUNS",
    test: "scripts::guards_never_overlap_and_those_that_ignore_their_loss_do",
};

pub(super) const LOSSES: Long = Long {
    word: "losses",
    unit: "kills",
    variable: "TENURE_KILLS",
    test: "losses::no_lease_is_lost_while_leaders_are_killed",
};

/// Runs one campaign and adds its row.
pub(super) fn run(repo: &Repo, long: &Long, count: u64) -> Result<ExitCode> {
    let Long { word, unit, variable, test } = long;
    ensure!(count > 0, "a campaign needs some {unit}");
    Workspace::load(repo)?.require(CLI)?;
    let mut record = CampaignTable::open(repo)?;
    let mut command = sdk_command(repo);
    command.args(["--", "--exact", test, "--nocapture"]);
    command.env(variable, count.to_string()).env("CARGO_TERM_QUIET", "true");
    let output = command.stderr(Stdio::inherit()).output().context("cannot start cargo")?;
    let text = String::from_utf8_lossy(&output.stdout);
    // The word may follow what the test runner prints about the test.
    let start = format!("{word} {unit}=");
    let line = text.lines().find_map(|line| line.find(&start).map(|at| &line[at..]));
    if let Some(line) = line {
        println!("{line}");
        record.add(word, line)?;
    }
    let fields = line.and_then(|line| output::fields(word, line));
    let violations = fields.map(|fields| output::field(&fields, "violations")).transpose()?;
    if !output.status.success() || violations != Some(0) {
        print!("{text}");
        ensure!(false, "{test} failed; its output is above");
    }
    Ok(ExitCode::SUCCESS)
}
