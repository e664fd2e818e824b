//! Runs a sample of the scenarios of the client libraries: every scenario in one language, all vectors in all of them.

use anyhow::Result;

use crate::cargo::{cargo, in_ci};
use crate::clients;
use crate::output::{self, Tests};
use crate::programs::CLIENTS;

use super::{LayerContext, LayerReport, counted, unsteady_note};

pub(super) fn run(stage: &mut LayerContext<'_>) -> Result<LayerReport> {
    let sample = clients::prepare(stage.repo)?;
    let mut problems = Vec::new();
    for missing in &sample.missing {
        stage.log.told(&format!("SKIPPED: no client for {missing}"));
        if in_ci() {
            problems.push(format!("no client for {missing}"));
        }
    }
    let traces = clients::vector_count(stage.repo)?;
    let mut languages = 0;
    for (name, command) in clients::vector_commands(stage.repo, &sample.installed)? {
        let finished = stage.log.run(command)?;
        let text: Vec<&str> = finished.lines().collect();
        match clients::vector_verdict(&text.join("\n"), traces, finished.status.success()) {
            Ok(()) => languages += 1,
            Err(why) => problems.push(format!("vectors in {name}: {why}")),
        }
    }
    let mut checks = 0;
    for (name, command) in clients::check_commands(stage.repo, &sample.installed) {
        checks += 1;
        if !stage.log.run(command)?.status.success() {
            problems.push(format!("a check of {name}"));
        }
    }
    // Of the whole workspace, so that nothing is compiled anew after the layer of unit tests.
    let mut command = cargo(stage.repo, "test");
    command.args(["--workspace", "--exclude", crate::fuzz::PACKAGE, "--test", CLIENTS, "--"]);
    command.args(clients::sample_arguments(&sample.installed));
    let finished = stage.log.run(command)?;
    let fields = finished.lines().filter_map(|line| output::fields(CLIENTS, line)).last();
    let number = |name: &str| fields.as_ref().and_then(|it| it.get(name).copied()).unwrap_or(0);
    let (scenarios, failed) = (number("scenarios"), number("failed"));
    if failed > 0 || !finished.status.success() {
        problems.push(format!("{} failed", counted(failed, "scenario")));
    }
    let mut did = format!(
        "{} played, {traces} vectors replayed {languages} times, {}, {}",
        counted(scenarios, "scenario"),
        counted(checks, "static check"),
        counted(sample.installed.len() as u64, "language"),
    );
    if !sample.missing.is_empty() {
        did.push_str(&format!(", {} SKIPPED", counted(sample.missing.len() as u64, "language")));
    }
    let unsteady = finished.lines().filter(|line| line.starts_with("UNSTEADY")).count();
    did.push_str(&unsteady_note(unsteady as u64));
    // The reason of a failure is on the line after it.
    let mut words = Vec::new();
    for (line, next) in finished.lines().zip(finished.lines().skip(1)) {
        match line.split_whitespace().next() {
            Some("UNSTEADY") => words.push(line.to_owned()),
            Some("FAILED" | "HOLE") => words.extend([line.to_owned(), next.to_owned()]),
            _ => {}
        }
    }
    // Scenarios are not counted as tests, but their retries are.
    let tests = Tests { retried: number("retried"), ..Tests::default() };
    let report = LayerReport::did(scenarios, did).with_tests(tests).with_words(words);
    Ok(if problems.is_empty() { report } else { report.because(problems.join(", ")) })
}
