//! Tests the web console in a headless browser, against real members.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Result;

use crate::cargo::in_ci;
use crate::output;
use crate::programs::processes_command;
use crate::repo::Repo;

use super::{LayerContext, LayerReport, counted};

/// The directory of the tests, which need packages of npm. The console itself needs none.
const TESTS: &str = "console/tests";
/// The binary whose members serve the console.
const BINARY: &str = "target/debug/tenure";
/// How many times to ask a registry. One failed request is no fault of the console.
const INSTALLS_MAX: usize = 3;

pub(super) fn run(stage: &mut LayerContext<'_>) -> Result<LayerReport> {
    install(stage)?;
    if let Some(missing) = missing() {
        // In continuous integration a layer that cannot run counts as failed.
        let report = LayerReport::did(1, format!("SKIPPED: there is no {missing}"));
        return Ok(if in_ci() { report.because(format!("there is no {missing}")) } else { report });
    }
    let dir = stage.repo.path(TESTS);
    let packages = || {
        let mut packages = Command::new("npm");
        packages.args(["ci", "--no-audit", "--no-fund", "--ignore-scripts"]).current_dir(&dir);
        packages
    };
    if !installs(stage, packages)? {
        return Ok(LayerReport::failed("npm cannot install the packages of the tests".into()));
    }
    // The layer of real members has built the binary; alone, this layer builds it.
    let mut build = processes_command(stage.repo);
    build.arg("--no-run");
    if !stage.log.run(build)?.status.success() {
        return Ok(LayerReport::failed("the binary does not build".into()));
    }
    let finished = stage.log.run(browse(stage.repo))?;
    let tests = output::tests(finished.lines());
    let did = format!("{} in a browser", counted(tests.passed, "test"));
    let failed = finished.lines().filter(|line| line.contains(" ... FAILED"));
    let words = failed.map(str::to_owned).collect();
    let report =
        LayerReport::did(tests.passed + tests.failed, did).with_tests(tests).with_words(words);
    Ok(match (finished.status.success(), tests.failed) {
        (true, 0) => report,
        (_, 0) => report.because("the tests did not run to their end"),
        (_, failed) => report.because(format!("{} failed", counted(failed, "test"))),
    })
}

/// The command that runs the tests.
fn browse(repo: &Repo) -> Command {
    let mut command = Command::new("node");
    command.arg("run.js").arg(repo.path(BINARY)).current_dir(repo.path(TESTS));
    command
}

fn install(stage: &mut LayerContext<'_>) -> Result<()> {
    if !in_ci() || has_browser() {
        return Ok(());
    }
    for words in [&["update"][..], &["install", "--yes", "--no-install-recommends", "chromium"]] {
        let command = || {
            let mut command = Command::new("apt-get");
            command.args(words).env("DEBIAN_FRONTEND", "noninteractive");
            command
        };
        // The later check for the browser reports a failure.
        installs(stage, command)?;
    }
    Ok(())
}

/// Runs a command that asks a registry until it succeeds, a few times at most. Returns whether it did.
fn installs(stage: &mut LayerContext<'_>, command: impl Fn() -> Command) -> Result<bool> {
    for _ in 0..INSTALLS_MAX {
        if stage.log.run(command())?.status.success() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The program that the tests need and this machine does not have.
fn missing() -> Option<&'static str> {
    let starts = |program: &str| {
        let mut command = Command::new(program);
        command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    match () {
        () if !starts("node") => Some("Node.js"),
        () if !starts("npm") => Some("npm"),
        () if !has_browser() => Some("Chromium"),
        () => None,
    }
}

fn has_browser() -> bool {
    let named = std::env::var_os("CHROMIUM").is_some_and(|path| Path::new(&path).exists());
    let usual = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
    named || usual.iter().any(|path| Path::new(path).exists())
}
