//! Do real members keep their promises while everything is done to them?

use anyhow::Result;

use crate::programs::processes_command;
use crate::said;

use super::{Report, Stage, counted};

/// Scenarios at once. They mostly wait: for elections, for disks, for processes to start.
const AT_ONCE: &str = "6";

pub(super) fn run(stage: &mut Stage<'_>) -> Result<Report> {
    let mut command = processes_command(stage.repo);
    command.args(["--no-fail-fast", "--", "--test-threads", AT_ONCE]);
    let finished = stage.log.run(command)?;
    let tests = said::tests(finished.lines());
    // Locally a scenario is skipped without the rights that it needs, and says so.
    let skipped = finished.lines().filter(|line| line.contains("SKIPPED: ")).count() as u64;
    // The checker has tests of its own, which start no member.
    let checker = finished.lines().filter(|line| line.starts_with("test checker::")).count() as u64;
    let beside = skipped + checker;
    let ran = (tests.passed + tests.failed).saturating_sub(beside);
    let mut did = format!("{} passed", counted(tests.passed.saturating_sub(beside), "scenario"));
    if skipped > 0 {
        did.push_str(&format!(", {} SKIPPED", counted(skipped, "scenario")));
    }
    let report = Report::did(ran, did).with_tests(tests);
    Ok(match (finished.status.success(), tests.failed) {
        (true, 0) => report,
        (_, 0) => report.because("the scenarios did not run to their end"),
        (_, failed) => report.because(format!("{} failed", counted(failed, "scenario"))),
    })
}
