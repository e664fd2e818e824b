//! Tests the web console in a headless browser, against real members.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Result;

use crate::cargo::in_ci;
use crate::output;
use crate::programs::processes_command;
use crate::repo::Repo;

use super::super::retry::AGAIN_MAX;
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
    let finished = stage.log.run(browse(stage.repo, &[]))?;
    let mut tests = output::tests(finished.lines());
    let failed: Vec<&str> = finished.lines().filter(|line| line.contains(" ... FAILED")).collect();
    let mut is_good = finished.status.success();
    let unsteady = if is_good { 0 } else { try_again(stage, &failed, tests.failed)? };
    if unsteady > 0 {
        tests.passed += unsteady;
        tests.failed -= unsteady;
        is_good = true;
    }
    let mut did = format!("{} in a browser", counted(tests.passed, "test"));
    if unsteady > 0 {
        did.push_str(&format!(", {unsteady} of them UNSTEADY: only at the second try"));
    }
    let words = failed.iter().map(|line| (*line).to_owned()).collect();
    let report =
        LayerReport::did(tests.passed + tests.failed, did).with_tests(tests).with_words(words);
    Ok(match (is_good, tests.failed) {
        (true, 0) => report,
        (_, 0) => report.because("the tests did not run to their end"),
        (_, failed) => report.because(format!("{} failed", counted(failed, "test"))),
    })
}

/// The command that runs these tests, or all if none is named.
fn browse(repo: &Repo, names: &[&str]) -> Command {
    let mut command = Command::new("node");
    command.arg("run.js").arg(repo.path(BINARY)).args(names).current_dir(repo.path(TESTS));
    command
}

/// Runs failed tests once more, alone, if they are few. If all of them pass then, returns how many there were.
fn try_again(stage: &mut LayerContext<'_>, failed: &[&str], count: u64) -> Result<u64> {
    if failed.is_empty() || failed.len() > AGAIN_MAX || failed.len() as u64 != count {
        return Ok(0);
    }
    let names: Vec<&str> = failed.iter().copied().filter_map(test_name).collect();
    let finished = stage.log.run(browse(stage.repo, &names))?;
    let passed = output::tests(finished.lines()).passed;
    Ok(if finished.status.success() && passed >= count { count } else { 0 })
}

/// The name in the line of a failed test, or of a suite that failed before its first test.
fn test_name(line: &str) -> Option<&str> {
    let name = line.strip_prefix("test ")?.split(" ... ").next()?;
    Some(name.rsplit("::").next().unwrap_or(name))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_failed_test_is_found_in_its_line() {
        assert_eq!(test_name("test pages::it_loads ... FAILED (3 ms)"), Some("it_loads"));
        assert_eq!(test_name("test pages ... FAILED: outside of its tests: no"), Some("pages"));
        assert_eq!(test_name("what a page printed ... FAILED"), None);
    }
}
