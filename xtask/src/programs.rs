//! Builds and starts the programs of the workspace.

use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result};

use crate::cargo::{cargo, hand_over};
use crate::peers;
use crate::repo::Repo;
use crate::workspace::Workspace;

/// The package with the model and the planted bugs.
pub(crate) const SIM: &str = "tenure-sim";
/// The package with the benchmarks.
pub(crate) const BENCH: &str = "tenure-bench";

/// The package with the binary, and with the tests that start it.
pub(crate) const CLI: &str = "tenure-cli";
/// The tests that inject faults into real members.
pub(crate) const PROCESSES: &str = "processes";
/// The program that plays scenarios with the drivers of the client libraries. The first word of its last line, too.
pub(crate) const CLIENTS: &str = "clients";
/// The test that runs every benchmark.
pub(crate) const BENCHES: &str = "benches";
/// The tests that inject faults into `tenure run`.
pub(crate) const RUN: &str = "run";

/// The simulator with the planted bugs. Cargo puts it where the one without them was, so it is copied away.
const MUTANTS: &str = "target/tenure-mutants";
/// The simulator of a campaign.
const CAMPAIGN: &str = "target/tenure-campaign";
/// Set when xtask is started in place of the compiler, to plant the bugs.
pub(crate) const PLANT: &str = "TENURE_PLANT";

/// The package and the name of each test program that plants bugs and prints how many its checks caught.
pub(crate) const PLANTED_TESTS: &[(&str, &str)] =
    &[("tenure-raft", "rules"), ("tenure-store", "planted"), ("tenure-node", "planted")];

/// Arguments that go to the program as they are.
#[derive(clap::Args)]
pub(crate) struct Passed {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) args: Vec<String>,
}

/// A benchmark and the arguments that go to it as they are.
#[derive(clap::Args)]
pub(crate) struct BenchmarkArgs {
    name: String,
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

/// The command for the model, at release speed with every assertion on.
pub(crate) fn model_command(repo: &Repo) -> Command {
    let mut command = cargo(repo, "run");
    command.args(["--profile", "sim", "--package", SIM, "--", "model"]);
    name_commit(repo, &mut command);
    command
}

/// The command for whole clusters, at release speed with every assertion on.
pub(crate) fn sim_command(repo: &Repo) -> Command {
    let mut command = cargo(repo, "run");
    command.args(["--profile", "sim", "--package", SIM, "--", "cluster"]);
    name_commit(repo, &mut command);
    command
}

/// Keeps the simulator that was built last for a campaign: the tree may change while it runs.
pub(crate) fn keep_for_campaign(repo: &Repo) -> Result<()> {
    keep(repo, CAMPAIGN)
}

/// The simulator of a campaign, which [`keep_for_campaign`] has kept.
pub(crate) fn campaign_program(repo: &Repo) -> Command {
    let mut command = Command::new(repo.path(CAMPAIGN));
    command.current_dir(repo.root());
    name_commit(repo, &mut command);
    command
}

/// Lets the simulator name the commit that a failing seed belongs to. A tree without a commit has none to name.
fn name_commit(repo: &Repo, command: &mut Command) {
    if let Ok(commit) = repo.commit(crate::campaign::RECORD) {
        command.env("TENURE_COMMIT", commit);
    }
}

/// Builds the planted bugs: the simulator, and the tests that show bugs which it does not. All of it at once, so that
/// cargo compiles every crate once, with one set of features.
pub(crate) fn mutants_build(repo: &Repo) -> Result<Command> {
    let mut command = cargo(repo, "test");
    // Flags in the environment would recompile every crate. A wrapper for the workspace keeps those of others.
    command.env("RUSTC_WORKSPACE_WRAPPER", std::env::current_exe()?).env(PLANT, "1");
    command.args(["--profile", "sim", "--no-run"]);
    command.arg("--message-format=json-render-diagnostics");
    // Cargo builds the program of a package for any of its tests.
    command.args(["--package", SIM, "--test", "quick"]);
    for (package, test) in PLANTED_TESTS {
        command.args(["--package", package, "--test", test]);
    }
    Ok(command)
}

/// Keeps the simulator that [`mutants_build`] has built, until the next such build.
pub(crate) fn keep_mutants(repo: &Repo) -> Result<()> {
    keep(repo, MUTANTS)
}

/// Copies the simulator that was built last.
fn keep(repo: &Repo, to: &str) -> Result<()> {
    let built = repo.path("target/sim").join(SIM);
    std::fs::copy(&built, repo.path(to))
        .with_context(|| format!("cannot copy {}", built.display()))?;
    Ok(())
}

/// Compiles a crate of the workspace with the planted bugs: cargo starts xtask with the compiler and its arguments.
pub(crate) fn plant(mut words: std::env::ArgsOs) -> Result<ExitCode> {
    let rustc = words.nth(1).context("no compiler is named")?;
    let mut command = Command::new(rustc);
    command.args(words).args(["--cfg", "mutants"]);
    hand_over(command)
}

/// The program with the planted bugs of the machine (`mutants`) or of the replicated log (`cluster-mutants`), which
/// [`mutants_build`] has built.
pub(crate) fn mutants_program(repo: &Repo, which: &str) -> Command {
    let mut command = Command::new(repo.path(MUTANTS));
    command.current_dir(repo.root()).arg(which);
    command
}

/// The scenarios of real members. Of the whole workspace, so that nothing is compiled anew after the
/// layer of unit tests.
pub(crate) fn processes_command(repo: &Repo) -> Command {
    let mut command = cargo(repo, "test");
    command.args(["--workspace", "--exclude", crate::fuzz::PACKAGE, "--test", PROCESSES]);
    command
}

/// The command for the tests of real clients of real members. It covers one package: no layer has compiled the rest
/// before a campaign.
pub(crate) fn sdk_command(repo: &Repo) -> Command {
    let mut command = cargo(repo, "test");
    command.args(["--package", CLI, "--test", "sdk"]);
    command
}

/// The command for the scenarios of `tenure run` alone.
pub(crate) fn run_command(repo: &Repo) -> Command {
    let mut command = cargo(repo, "test");
    command.args(["--package", CLI, "--test", RUN]);
    command
}

/// The command for the scenarios of the store and the proxy.
pub(crate) fn guarded_command(repo: &Repo) -> Command {
    let mut command = cargo(repo, "test");
    command.args(["--package", CLI, "--test", "guarded"]);
    command
}

/// The command for the tests of abuse. At release speed: the campaigns compare how much members do.
pub(crate) fn abuse_command(repo: &Repo) -> Command {
    let mut command = cargo(repo, "test");
    command.args(["--release", "--package", CLI, "--test", "abuse"]);
    command
}

/// The command for one benchmark.
pub(crate) fn bench_command(repo: &Repo, name: &str) -> Command {
    let mut command = cargo(repo, "run");
    command.args(["--profile", "release", "--package", BENCH, "--", name]);
    command
}

/// The command that runs every benchmark once, unoptimised, one after another. It covers the whole workspace, so that
/// cargo compiles nothing anew after the layer of unit tests.
pub(crate) fn benches_command(repo: &Repo) -> Command {
    let mut command = cargo(repo, "test");
    command.args(["--workspace", "--exclude", crate::fuzz::PACKAGE, "--test", BENCHES]);
    command.args(["--", "--test-threads", "1", "--show-output"]);
    command
}

/// Runs `cargo xtask model`.
pub(crate) fn model(repo: &Repo, passed: &Passed) -> Result<ExitCode> {
    start(repo, SIM, model_command(repo), &passed.args)
}

/// Runs `cargo xtask sim`.
pub(crate) fn sim(repo: &Repo, passed: &Passed) -> Result<ExitCode> {
    start(repo, SIM, sim_command(repo), &passed.args)
}

/// Runs `cargo xtask mutants`.
pub(crate) fn mutants(repo: &Repo, passed: &Passed) -> Result<ExitCode> {
    start_mutants(repo, "mutants", &passed.args)
}

/// Runs `cargo xtask cluster-mutants`.
pub(crate) fn cluster_mutants(repo: &Repo, passed: &Passed) -> Result<ExitCode> {
    start_mutants(repo, "cluster-mutants", &passed.args)
}

fn start_mutants(repo: &Repo, which: &str, args: &[String]) -> Result<ExitCode> {
    // Its messages are for the test layers.
    let built = mutants_build(repo)?.stdout(Stdio::null()).status()?;
    anyhow::ensure!(built.success(), "the planted bugs do not build");
    keep_mutants(repo)?;
    start(repo, SIM, mutants_program(repo, which), args)
}

/// Runs `cargo xtask bench`.
pub(crate) fn bench(repo: &Repo, named: &BenchmarkArgs) -> Result<ExitCode> {
    if named.name == peers::NAME {
        return peers::run(repo, &named.args);
    }
    // This benchmark starts the binary, so build it first.
    if named.name == "start" {
        let mut build = cargo(repo, "build");
        build.args(["--profile", "release", "--package", CLI]);
        anyhow::ensure!(build.status()?.success(), "the binary does not build");
    }
    start(repo, BENCH, bench_command(repo, &named.name), &named.args)
}

fn start(repo: &Repo, package: &str, mut command: Command, args: &[String]) -> Result<ExitCode> {
    Workspace::load(repo)?.require(package)?;
    command.args(args);
    hand_over(command)
}
