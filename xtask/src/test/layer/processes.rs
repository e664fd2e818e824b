//! Runs the scenarios that inject faults into real members.

use anyhow::Result;

use crate::programs::processes_command;
use crate::said;

use super::{Report, Stage, counted};

/// How many scenarios run at once. They mostly wait: for elections, for disks, for processes to start.
const AT_ONCE: &str = "6";

pub(super) fn run(stage: &mut Stage<'_>) -> Result<Report> {
    let mut command = processes_command(stage.repo);
    command.args(["--no-fail-fast", "--", "--test-threads", AT_ONCE]);
    let finished = stage.log.run(command)?;
    let tests = said::tests(finished.lines());
    // A local run skips scenarios for which it lacks the privileges, and prints a line about it.
    let skipped = finished.lines().filter(|line| line.contains("SKIPPED: ")).count() as u64;
    // The checker's own tests start no member, so they do not count.
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
