//! Runs the scenarios that inject faults into real members.

use anyhow::Result;

use crate::output;
use crate::programs::processes_command;

use super::super::retry::{FailedTest, RetryMarkers, failures};
use super::{LayerContext, LayerReport, counted, unsteady_note};

/// How many scenarios run at once. They mostly wait: for elections, for disks, for processes to start.
const AT_ONCE: &str = "6";

pub(super) fn run(stage: &mut LayerContext<'_>) -> Result<LayerReport> {
    let mut command = processes_command(stage.repo);
    command.args(["--no-fail-fast", "--", "--test-threads", AT_ONCE]);
    let finished = stage.log.run(command)?;
    let mut tests = output::tests(finished.lines());
    // Locally a scenario is skipped without the rights that it needs, and says so.
    let skipped = finished.lines().filter(|line| line.contains("SKIPPED: ")).count() as u64;
    // The checker has tests of its own, which start no member.
    let checker = finished.lines().filter(|line| line.starts_with("test checker::")).count() as u64;
    let beside = skipped + checker;
    let mut is_good = finished.status.success();
    let text: Vec<&str> = finished.lines().collect();
    let failed = failures(&text.join("\n"));
    let mut unsteady = 0;
    if !is_good && RetryMarkers::load(stage.repo)?.allow("cli", &failed, tests.failed) {
        tests.retried = tests.failed;
        if passes_again(stage, &failed)? {
            unsteady = tests.failed;
            tests.passed += unsteady;
            tests.failed = 0;
            is_good = true;
        }
    }
    let ran = (tests.passed + tests.failed).saturating_sub(beside);
    let mut did = format!("{} passed", counted(tests.passed.saturating_sub(beside), "scenario"));
    if skipped > 0 {
        did.push_str(&format!(", {} SKIPPED", counted(skipped, "scenario")));
    }
    did.push_str(&unsteady_note(unsteady));
    let words = failed
        .iter()
        .flat_map(|failure| std::iter::once(failure.test.clone()).chain(failure.short()));
    let report = LayerReport::did(ran, did).with_tests(tests).with_words(words.collect());
    Ok(match (is_good, tests.failed) {
        (true, 0) => report,
        (_, 0) => report.because("the scenarios did not run to their end"),
        (_, failed) => report.because(format!("{} failed", counted(failed, "scenario"))),
    })
}

/// Runs failed scenarios once more, alone. Returns whether all of them passed.
fn passes_again(stage: &mut LayerContext<'_>, failed: &[FailedTest]) -> Result<bool> {
    let mut command = processes_command(stage.repo);
    command.args(["--", "--exact"]).args(failed.iter().map(|failure| &failure.test));
    let finished = stage.log.run(command)?;
    let passed = output::tests(finished.lines()).passed;
    Ok(finished.status.success() && passed == failed.len() as u64)
}
