//! Do the tests beside the code pass?

use anyhow::Result;

use crate::cargo::cargo;
use crate::fuzz;
use crate::said;

use super::{Report, Stage, counted};

pub(super) fn run(stage: &mut Stage<'_>) -> Result<Report> {
    let mut command = cargo(stage.repo, "test");
    // Fuzzing has a layer of its own, and examples in the documentation are part of `docs`: without
    // `--tests` they would run twice.
    command.args(["--workspace", "--exclude", fuzz::PACKAGE]);
    command.args(["--tests", "--no-fail-fast"]);
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
