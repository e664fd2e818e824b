//! Builds and runs the tests of every crate.

use std::collections::BTreeSet;
use std::process::Command;

use anyhow::Result;

use crate::cargo::cargo;
use crate::fuzz;
use crate::programs::PROCESSES;
use crate::repo::Repo;
use crate::said::Tests;
use crate::workspace::Workspace;

use super::super::binaries;
use super::{Report, Stage, counted};

pub(super) fn run(stage: &mut Stage<'_>) -> Result<Report> {
    let crates = Workspace::load(stage.repo)?.crates;
    let tests = crates.iter().filter(|each| each.package != fuzz::PACKAGE);
    let tests: BTreeSet<&String> = tests.flat_map(|each| &each.tests).collect();
    // Fuzzing and real processes have separate layers, and examples in the documentation are part of `docs`: the
    // explicit list of targets leaves them out.
    let tests: Vec<&String> = tests.into_iter().filter(|test| *test != PROCESSES).collect();
    let mut all = command(stage.repo);
    all.args(["--no-run", "--message-format=json-render-diagnostics", "--lib", "--bins"]);
    for test in &tests {
        all.args(["--test", test]);
    }
    let built = stage.log.run(all)?;
    if !built.status.success() {
        return Ok(Report::failed("the tests do not build".to_owned()));
    }
    let ended = binaries::run(stage.repo, &mut stage.log, binaries::built(built.lines()))?;
    let mut tests = Tests::default();
    ended.iter().for_each(|each| tests += each.tests);
    let mut did = format!(
        "{} passed in {}",
        counted(tests.passed, "test"),
        counted(ended.len() as u64, "program")
    );
    let unsteady = ended.iter().filter(|each| each.is_unsteady()).count();
    if unsteady > 0 {
        did.push_str(&format!(", {unsteady} of them UNSTEADY: only at the second try"));
    }
    let words = ended.iter().flat_map(binaries::Ended::words).collect();
    let report = Report::did(tests.passed + tests.failed, did).with_tests(tests).with_words(words);
    let problems: Vec<String> = ended.into_iter().filter_map(|each| each.problem).collect();
    Ok(if problems.is_empty() { report } else { report.because(problems.join(", ")) })
}

/// The cargo command. It always covers the whole workspace, so that nothing is compiled twice with other features.
fn command(repo: &Repo) -> Command {
    let mut command = cargo(repo, "test");
    command.args(["--workspace", "--exclude", fuzz::PACKAGE]);
    command
}
