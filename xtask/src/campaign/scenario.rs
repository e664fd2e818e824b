//! Runs one test that takes its length from a variable, and records the line of numbers that it prints.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::CampaignTable;
use crate::output;

/// A test, and how it is told how much to do.
pub(super) struct Scenario<'a> {
    pub(super) test: &'a str,
    /// The first word of the line.
    pub(super) word: &'a str,
    pub(super) variable: &'a str,
    pub(super) count: u64,
}

/// Runs the test with a command that starts its program, and adds its line as a row, also if it failed.
pub(super) fn run(
    mut command: Command,
    record: &mut CampaignTable,
    campaign: &str,
    scenario: &Scenario<'_>,
) -> Result<()> {
    let Scenario { test, word, variable, count } = scenario;
    command.args(["--", "--exact", test, "--nocapture"]);
    command.env(variable, count.to_string()).env("CARGO_TERM_QUIET", "true");
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
    let fields = line.and_then(|line| output::fields(word, line));
    let violations = fields.map(|fields| output::field(&fields, "violations")).transpose()?;
    if !output.status.success() || violations != Some(0) {
        print!("{text}");
        ensure!(false, "{test} failed; its output is above");
    }
    Ok(())
}
