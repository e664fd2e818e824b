//! Builds the program that plays scenarios, and starts it.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::campaign;
use crate::cargo::cargo;
use crate::output;
use crate::programs::CLIENTS;
use crate::repo::Repo;

use super::language::Installed;

/// What a run of the scenarios showed.
pub(super) struct PlayedScenarios {
    pub(super) scenarios: u64,
    pub(super) failed: u64,
}

/// Builds the program, which is also the driver of Rust, and returns its path.
pub(super) fn build(repo: &Repo) -> Result<PathBuf> {
    let mut command = cargo(repo, "test");
    // Of the whole workspace, so that nothing is compiled anew after the layers of `cargo xtask test`.
    command.args(["--workspace", "--exclude", crate::fuzz::PACKAGE, "--test", CLIENTS, "--no-run"]);
    command.arg("--message-format=json-render-diagnostics");
    let built = command.stderr(Stdio::inherit()).output().context("cannot start cargo")?;
    ensure!(built.status.success(), "the program that plays scenarios does not build");
    let text = String::from_utf8_lossy(&built.stdout).into_owned();
    let mut programs = text.lines().filter(|line| output::is_message(line)).filter_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        let is_it = message["target"]["name"] == CLIENTS && message["profile"]["test"] == true;
        is_it.then(|| message["executable"].as_str().map(PathBuf::from))?
    });
    programs.next().context("cargo names no program")
}

/// The arguments that name the drivers.
fn drivers(installed: &[Installed]) -> impl Iterator<Item = String> {
    installed.iter().flat_map(|it| ["--driver".to_owned(), it.driver.clone()])
}

/// The arguments for a sample: every scenario once in some language, every language at least once.
pub(crate) fn sample_arguments(installed: &[Installed]) -> Vec<String> {
    drivers(installed).chain(["--sample", "--retry"].map(str::to_owned)).collect()
}

/// Plays scenarios on the terminal of the user.
pub(super) fn play(
    repo: &Repo,
    program: &PathBuf,
    installed: &[Installed],
    scenarios: &[String],
) -> Result<PlayedScenarios> {
    let mut command = start(repo, program);
    command.args(drivers(installed)).args(scenarios);
    let mut child = command.stdout(Stdio::piped()).spawn().context("cannot start the program")?;
    let out = child.stdout.take().context("the output is piped")?;
    let mut fields = None;
    for line in BufReader::new(out).lines() {
        let line = line.context("cannot read what the program prints")?;
        // Its last line is about the scenarios alone; ours counts everything.
        match output::fields(CLIENTS, &line) {
            Some(found) => fields = Some(found),
            None => println!("{line}"),
        }
    }
    child.wait().context("cannot wait for the program")?;
    let fields = fields.context("the scenarios did not run to their end")?;
    let scenarios = output::field(&fields, "scenarios")?;
    let failed = output::field(&fields, "failed")?;
    Ok(PlayedScenarios { scenarios, failed })
}

/// The first word of the line that a contest for one lock ends with, and the name of its campaign.
const OVERLAP: &str = "overlap";
/// A shorter contest is a try, and not recorded.
const RECORDED_SECONDS: u64 = 300;

/// Lets clients of all languages compete for one lock, and records how it ended.
pub(super) fn overlap(
    repo: &Repo,
    program: &PathBuf,
    installed: &[Installed],
    seconds: u64,
) -> Result<ExitCode> {
    let mut command = start(repo, program);
    command.args([OVERLAP, "--seconds", &seconds.to_string()]).args(drivers(installed));
    let mut child = command.stdout(Stdio::piped()).spawn().context("cannot start the program")?;
    let out = child.stdout.take().context("the output is piped")?;
    for line in BufReader::new(out).lines() {
        let line = line.context("cannot read what the program prints")?;
        println!("{line}");
        if seconds >= RECORDED_SECONDS && output::fields(OVERLAP, &line).is_some() {
            campaign::record(repo, OVERLAP, &line)?;
        }
    }
    let status = child.wait().context("cannot wait for the program")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Starts another command of the program, on our own terminal.
pub(super) fn hand_over(
    repo: &Repo,
    program: &PathBuf,
    installed: &[Installed],
    more: &[String],
) -> Result<ExitCode> {
    let mut command = start(repo, program);
    command.args(more).args(drivers(installed));
    let status = command.status().context("cannot start the program")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn start(repo: &Repo, program: &PathBuf) -> Command {
    let mut command = Command::new(program);
    command.current_dir(repo.path("crates/cli"));
    command
}
