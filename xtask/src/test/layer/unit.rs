//! Runs the unit and integration tests of every crate.

use std::collections::BTreeSet;
use std::process::Command;

use anyhow::Result;

use crate::cargo::cargo;
use crate::fuzz;
use crate::output::Tests;
use crate::repo::Repo;
use crate::workspace::{Crate, Workspace};

use super::super::binaries::{self, Binary};
use super::super::retry::RetryMarkers;
use super::{Depth, LayerContext, LayerReport, counted, unsteady_note};

/// The test programs that other layers run.
const ELSEWHERE: &[&str] = &["cli-processes", "cli-clients", "bench-benches"];

/// The crates whose integration tests start members, servers and other processes.
const REAL: &[&str] = &["backends", "bench", "cli", "client", "fence", "gate", "server"];

pub(super) fn run(stage: &mut LayerContext<'_>) -> Result<LayerReport> {
    let crates = Workspace::load(stage.repo)?.crates;
    // Fuzzing has a layer of its own, and examples in the documentation are part of `docs`: what is named here leaves
    // them out. The programs of other layers are built here, beside the rest, and run there.
    let has_tests =
        |each: &&Crate| each.package != fuzz::PACKAGE && !leaves_out(stage.depth, each.name());
    let tests: BTreeSet<&String> =
        crates.iter().filter(has_tests).flat_map(|each| &each.tests).collect();
    let mut all = command(stage.repo);
    all.args(["--no-run", "--message-format=json-render-diagnostics", "--lib", "--bins"]);
    for test in &tests {
        all.args(["--test", test]);
    }
    let built = stage.log.run(all)?;
    if !built.status.success() {
        return Ok(LayerReport::failed("the tests do not build".to_owned()));
    }
    // Two crates may have tests of one name.
    let is_wanted = |each: &Binary| {
        !each.is_integration
            || !(leaves_out(stage.depth, &each.krate) || ELSEWHERE.contains(&each.name.as_str()))
    };
    let programs = binaries::built(built.lines()).into_iter().filter(is_wanted).collect();
    let markers = RetryMarkers::load(stage.repo)?;
    let ended = binaries::run(stage.repo, &mut stage.log, programs, &markers)?;
    let mut tests = Tests::default();
    ended.iter().for_each(|each| tests += each.tests);
    let mut did = format!(
        "{} passed in {}",
        counted(tests.passed, "test"),
        counted(ended.len() as u64, "program")
    );
    let unsteady = ended.iter().filter(|each| each.is_unsteady());
    did.push_str(&unsteady_note(unsteady.map(|each| each.tests.retried).sum()));
    let words = ended.iter().flat_map(binaries::FinishedBinary::words).collect();
    let report =
        LayerReport::did(tests.passed + tests.failed, did).with_tests(tests).with_words(words);
    let problems: Vec<String> = ended.into_iter().filter_map(|each| each.problem).collect();
    Ok(if problems.is_empty() { report } else { report.because(problems.join(", ")) })
}

/// Whether the integration tests of a crate are left out: a check starts no processes.
fn leaves_out(depth: Depth, krate: &str) -> bool {
    depth == Depth::Check && REAL.contains(&krate)
}

/// The cargo command. It always covers the whole workspace, so that nothing is compiled twice with other features.
fn command(repo: &Repo) -> Command {
    let mut command = cargo(repo, "test");
    command.args(["--workspace", "--exclude", fuzz::PACKAGE]);
    command
}
