//! How are the programs of the workspace built and started?

use std::process::{Command, ExitCode};

use anyhow::Result;

use crate::cargo::{add_rustflags, cargo, hand_over};
use crate::repo::Repo;
use crate::workspace::Workspace;

/// The package with the model and the planted bugs.
pub(crate) const SIM: &str = "tenure-sim";
/// The package with the benchmarks.
pub(crate) const BENCH: &str = "tenure-bench";

/// The package with the binary, and with the tests that start it.
pub(crate) const CLI: &str = "tenure-cli";
/// The tests that do everything to real members.
pub(crate) const PROCESSES: &str = "processes";
/// The tests that do everything to `tenure run`.
pub(crate) const HOLD: &str = "hold";

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
pub(crate) struct Named {
    name: String,
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

/// The model, at release speed with every assertion on.
pub(crate) fn model_command(repo: &Repo) -> Command {
    let mut command = cargo(repo, "run");
    command.args(["--profile", "sim", "--package", SIM, "--", "model"]);
    command
}

/// Whole clusters, at release speed with every assertion on.
pub(crate) fn sim_command(repo: &Repo) -> Command {
    let mut command = cargo(repo, "run");
    command.args(["--profile", "sim", "--package", SIM, "--", "cluster"]);
    command
}

/// The planted bugs, of the machine (`mutants`) or of the replicated log (`cluster-mutants`).
pub(crate) fn mutants_command(repo: &Repo, which: &str) -> Command {
    let mut command = cargo(repo, "run");
    add_rustflags(&mut command, "--cfg mutants");
    // A directory of their own: other flags in the shared one would compile everything again,
    // each way.
    command.args(["--target-dir", "target/mutants", "--profile", "sim", "--package", SIM]);
    command.args(["--", which]);
    command
}

/// Builds the tests that show planted bugs which the simulator does not, in the directory and with the profile of
/// [`mutants_command`], so that both share what is compiled.
pub(crate) fn planted_tests_command(repo: &Repo) -> Command {
    let mut command = cargo(repo, "test");
    add_rustflags(&mut command, "--cfg mutants");
    command.args(["--target-dir", "target/mutants", "--profile", "sim", "--no-run"]);
    command.arg("--message-format=json-render-diagnostics");
    for (package, test) in PLANTED_TESTS {
        command.args(["--package", package, "--test", test]);
    }
    command
}

/// The scenarios of real members. Of the whole workspace, so that nothing is compiled anew after the
/// layer of unit tests.
pub(crate) fn processes_command(repo: &Repo) -> Command {
    let mut command = cargo(repo, "test");
    command.args(["--workspace", "--exclude", crate::fuzz::PACKAGE, "--test", PROCESSES]);
    command
}

/// The tests of real clients of real members. Of one package: campaigns follow no layer that has compiled the rest.
pub(crate) fn sdk_command(repo: &Repo) -> Command {
    let mut command = cargo(repo, "test");
    command.args(["--package", CLI, "--test", "sdk"]);
    command
}

/// The scenarios of `tenure run`, by themselves.
pub(crate) fn hold_command(repo: &Repo) -> Command {
    let mut command = cargo(repo, "test");
    command.args(["--package", CLI, "--test", HOLD]);
    command
}

/// The scenarios of the store and the proxy.
pub(crate) fn guarded_command(repo: &Repo) -> Command {
    let mut command = cargo(repo, "test");
    command.args(["--package", CLI, "--test", "guarded"]);
    command
}

/// One benchmark.
pub(crate) fn bench_command(repo: &Repo, name: &str) -> Command {
    let mut command = cargo(repo, "run");
    command.args(["--profile", "release", "--package", BENCH, "--", name]);
    command
}

/// One benchmark, to see that it runs: in the build that the tests have anyway, which is compiled in half the time.
pub(crate) fn bench_tried_command(repo: &Repo, name: &str) -> Command {
    let mut command = cargo(repo, "run");
    command.args(["--package", BENCH, "--", name, "--quick"]);
    command
}

/// `cargo xtask model`
pub(crate) fn model(repo: &Repo, passed: &Passed) -> Result<ExitCode> {
    start(repo, SIM, model_command(repo), &passed.args)
}

/// `cargo xtask sim`
pub(crate) fn sim(repo: &Repo, passed: &Passed) -> Result<ExitCode> {
    start(repo, SIM, sim_command(repo), &passed.args)
}

/// `cargo xtask mutants`
pub(crate) fn mutants(repo: &Repo, passed: &Passed) -> Result<ExitCode> {
    start(repo, SIM, mutants_command(repo, "mutants"), &passed.args)
}

/// `cargo xtask cluster-mutants`
pub(crate) fn cluster_mutants(repo: &Repo, passed: &Passed) -> Result<ExitCode> {
    start(repo, SIM, mutants_command(repo, "cluster-mutants"), &passed.args)
}

/// `cargo xtask bench`
pub(crate) fn bench(repo: &Repo, named: &Named) -> Result<ExitCode> {
    // What is started must be there.
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
