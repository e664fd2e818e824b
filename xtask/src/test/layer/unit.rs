//! Do the tests beside the code pass?

use std::collections::BTreeSet;

use anyhow::Result;

use crate::cargo::cargo;
use crate::fuzz;
use crate::programs::PROCESSES;
use crate::said;
use crate::workspace::Workspace;

use super::{Report, Stage, counted};

pub(super) fn run(stage: &mut Stage<'_>) -> Result<Report> {
    let mut command = cargo(stage.repo, "test");
    // Fuzzing and real processes have layers of their own, and examples in the documentation are part
    // of `docs`: what is named here leaves them out.
    command.args(["--workspace", "--exclude", fuzz::PACKAGE]);
    command.args(["--no-fail-fast", "--lib", "--bins"]);
    let crates = Workspace::load(stage.repo)?.crates;
    let tests = crates.iter().filter(|each| each.package != fuzz::PACKAGE);
    let tests: BTreeSet<&String> = tests.flat_map(|each| &each.tests).collect();
    for test in tests.into_iter().filter(|test| *test != PROCESSES) {
        command.args(["--test", test]);
    }
    let finished = stage.log.run(command)?;
    let tests = said::tests(finished.lines());
    let did = format!("{} passed", counted(tests.passed, "test"));
    let report = Report::did(tests.passed + tests.failed, did).with_tests(tests);
    Ok(match (finished.status.success(), tests.failed) {
        (true, 0) => report,
        (_, 0) => report.because("the tests did not run to their end"),
        (_, failed) => report.because(format!("{} failed", counted(failed, "test"))),
    })
}
