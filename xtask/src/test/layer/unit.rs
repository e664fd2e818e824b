//! Do the tests beside the code pass?

use std::collections::BTreeSet;
use std::process::Command;

use anyhow::Result;

use crate::cargo::cargo;
use crate::fuzz;
use crate::programs::PROCESSES;
use crate::repo::Repo;
use crate::said;
use crate::workspace::Workspace;

use super::super::log::Finished;
use super::{Report, Stage, counted};

/// Test binaries that run side by side: most of them wait, for disks, elections and deadlines.
const TOGETHER: usize = 3;

pub(super) fn run(stage: &mut Stage<'_>) -> Result<Report> {
    let crates = Workspace::load(stage.repo)?.crates;
    let tests = crates.iter().filter(|each| each.package != fuzz::PACKAGE);
    let tests: BTreeSet<&String> = tests.flat_map(|each| &each.tests).collect();
    // Fuzzing and real processes have layers of their own, and examples in the documentation are part
    // of `docs`: what is named here leaves them out.
    let tests: Vec<&String> = tests.into_iter().filter(|test| *test != PROCESSES).collect();
    let mut all = command(stage.repo);
    all.args(["--no-run", "--lib", "--bins"]);
    for test in &tests {
        all.args(["--test", test]);
    }
    let built = stage.log.run(all)?;
    if !built.status.success() {
        return Ok(Report::failed("the tests do not build".to_owned()));
    }
    let mut groups: Vec<Command> = (0..TOGETHER).map(|_| command(stage.repo)).collect();
    groups[0].args(["--lib", "--bins"]);
    for (at, test) in tests.iter().enumerate() {
        groups[at % TOGETHER].args(["--test", test]);
    }
    let finished = stage.log.run_together(groups)?;
    let tests = said::tests(finished.iter().flat_map(Finished::lines));
    let did = format!("{} passed", counted(tests.passed, "test"));
    let report = Report::did(tests.passed + tests.failed, did).with_tests(tests);
    let success = finished.iter().all(|each| each.status.success());
    Ok(match (success, tests.failed) {
        (true, 0) => report,
        (_, 0) => report.because("the tests did not run to their end"),
        (_, failed) => report.because(format!("{} failed", counted(failed, "test"))),
    })
}

/// Always of the whole workspace, so that nothing is compiled twice with other features.
fn command(repo: &Repo) -> Command {
    let mut command = cargo(repo, "test");
    command.args(["--workspace", "--exclude", fuzz::PACKAGE, "--no-fail-fast"]);
    command
}
