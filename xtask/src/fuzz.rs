//! Lists, replays and runs the fuzz targets.

use std::fs;
use std::process::{Command as Process, ExitCode};

use anyhow::{Context, Result, ensure};

use crate::cargo::{add_rustflags, cargo, hand_over};
use crate::output;
use crate::repo::Repo;
use crate::workspace::Workspace;

/// The package with the targets.
pub(crate) const PACKAGE: &str = "tenure-fuzz";

/// The test program that replays the committed inputs.
const REPLAY: &str = "replay";

/// The compiler flags that libFuzzer needs: they count edges and comparisons. Each flag is stable, so no other
/// toolchain is needed. Assertions and overflow checks stay on, because a decoder that only wraps around in release is
/// still wrong.
const RUSTFLAGS: &str = "-Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares \
    -Ccodegen-units=1 -Cdebug-assertions=on -Coverflow-checks=on --cfg fuzzing";

/// What to do with the targets.
#[derive(clap::Subcommand)]
pub(crate) enum FuzzCommand {
    /// Run the committed inputs of every target, or of one
    Replay { target: Option<String> },
    /// Look for new inputs of one target
    Run {
        target: String,
        /// How long to look
        #[arg(long, default_value_t = 60)]
        seconds: u64,
    },
    /// List the targets
    List,
}

/// Runs `cargo xtask fuzz`.
pub(crate) fn run(repo: &Repo, command: &FuzzCommand) -> Result<ExitCode> {
    Workspace::load(repo)?.require(PACKAGE)?;
    match command {
        FuzzCommand::Replay { target } => replay(repo, target.as_deref()),
        FuzzCommand::Run { target, seconds } => search(repo, target, *seconds),
        FuzzCommand::List => {
            targets(repo)?.iter().for_each(|target| println!("{target}"));
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// The targets in order; each is one program.
pub(crate) fn targets(repo: &Repo) -> Result<Vec<String>> {
    let files = repo.files()?;
    let programs = files.iter().filter_map(|file| file.strip_prefix("fuzz/src/bin/"));
    let targets: Vec<String> =
        programs.filter_map(|name| Some(name.strip_suffix(".rs")?.to_owned())).collect();
    ensure!(!targets.is_empty(), "there is no target in fuzz/src/bin");
    Ok(targets)
}

/// The tests that replay the committed inputs. Each prints `replayed TARGET inputs=N`. The command covers the whole
/// workspace, so that cargo compiles nothing anew after the other tests.
pub(crate) fn replay_command(repo: &Repo, filter: Option<&str>) -> Process {
    let mut command = cargo(repo, "test");
    command.args(["--workspace", "--test", REPLAY, "--no-fail-fast", "--"]).args(filter);
    command.arg("--show-output");
    command
}

/// The targets that replayed no input: every target must replay some.
pub(crate) fn not_replayed<'a>(targets: &'a [String], lines: &[&str]) -> Vec<&'a str> {
    let replayed = output::replayed(lines.iter().copied());
    let silent = targets.iter().filter(|&target| replayed.get(target).is_none_or(|n| *n == 0));
    silent.map(String::as_str).collect()
}

fn replay(repo: &Repo, target: Option<&str>) -> Result<ExitCode> {
    let wanted = match target {
        None => targets(repo)?,
        Some(target) => vec![known(repo, target)?],
    };
    let output = replay_command(repo, target)
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("cannot start cargo test")?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        print!("{text}");
        return Ok(ExitCode::FAILURE);
    }
    let lines: Vec<&str> = text.lines().collect();
    let silent = not_replayed(&wanted, &lines);
    ensure!(silent.is_empty(), "no input was replayed for {}", silent.join(", "));
    for (target, inputs) in output::replayed(lines) {
        println!("replayed {target} inputs={inputs}");
    }
    Ok(ExitCode::SUCCESS)
}

fn search(repo: &Repo, target: &str, seconds: u64) -> Result<ExitCode> {
    let target = known(repo, target)?;
    let mut fuzzer = fuzzer(repo, &target, seconds)?;
    let status = fuzzer.status().with_context(|| format!("cannot start target `{target}`"))?;
    ensure!(
        status.success(),
        "target `{target}` failed; its input is in fuzz/artifacts/{target}/; once understood, move it to \
         fuzz/corpus/{target}/ so that it is replayed for ever"
    );
    Ok(ExitCode::SUCCESS)
}

/// Builds a target and returns the command that fuzzes it.
pub(crate) fn fuzzer(repo: &Repo, target: &str, seconds: u64) -> Result<Process> {
    let host = host_triple(repo)?;
    let mut build = cargo(repo, "build");
    add_rustflags(&mut build, RUSTFLAGS);
    // Link-time optimisation takes most of the build, and the fuzzer gains nothing from it.
    build.env("CARGO_PROFILE_RELEASE_LTO", "off");
    // Naming the host keeps the flags away from build scripts, which are not fuzzed.
    build.args(["--target-dir", "target/fuzz", "--release", "--target", &host]);
    build.args(["--package", PACKAGE, "--features", "libfuzzer", "--bin", target]);
    ensure!(hand_over(build)? == ExitCode::SUCCESS, "target `{target}` does not build");

    // libFuzzer writes new inputs to the first directory and only reads the second.
    let corpus = format!("target/fuzz/corpus/{target}");
    let seeds = format!("fuzz/corpus/{target}");
    let artifacts = format!("fuzz/artifacts/{target}/");
    for dir in [&corpus, &artifacts] {
        fs::create_dir_all(repo.path(dir)).with_context(|| format!("cannot create {dir}"))?;
    }
    let mut fuzzer = Process::new(repo.path(&format!("target/fuzz/{host}/release/{target}")));
    fuzzer.current_dir(repo.root()).arg(&corpus);
    if repo.path(&seeds).is_dir() {
        fuzzer.arg(&seeds);
    }
    fuzzer.arg(format!("-max_total_time={seconds}"));
    fuzzer.args(["-rss_limit_mb=512", "-timeout=5"]);
    fuzzer.arg(format!("-artifact_prefix={artifacts}"));
    Ok(fuzzer)
}

/// The target, if there is one of this name.
pub(crate) fn known(repo: &Repo, target: &str) -> Result<String> {
    let targets = targets(repo)?;
    ensure!(
        targets.iter().any(|each| each == target),
        "there is no target `{target}`; there is {}",
        targets.join(", ")
    );
    Ok(target.to_owned())
}

fn host_triple(repo: &Repo) -> Result<String> {
    let output = cargo(repo, "-vV").output().context("cannot start cargo -vV")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("cargo -vV names no host")?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_without_inputs_or_without_a_line_is_named() {
        let targets = ["command".to_owned(), "name".to_owned(), "snapshot".to_owned()];
        let lines = ["replayed command inputs=3", "replayed name inputs=0"];
        assert_eq!(not_replayed(&targets, &lines), ["name", "snapshot"]);
    }
}
