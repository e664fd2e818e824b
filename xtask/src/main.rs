//! Defines the daily commands of this repository.

mod campaign;
mod cargo;
mod clients;
mod clock;
mod fix;
mod fuzz;
mod output;
mod peers;
mod programs;
mod repo;
mod signals;
mod supply;
mod test;
mod tidy;
mod workspace;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::repo::Repo;

/// The daily commands of this repository.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", disable_help_subcommand = true)]
struct XtaskCli {
    #[command(subcommand)]
    command: Option<XtaskCommand>,
}

#[derive(Subcommand)]
enum XtaskCommand {
    /// Run the short layers after a change: format, lints, tests that start no member, some seeds
    Check(test::CheckArgs),
    /// Run every layer of tests, or those named; what continuous integration runs; edits nothing
    Test(test::Args),
    /// Format the code and apply the lints that can be applied
    Fix,
    /// Compare the machine with its model: arguments go to `tenure-sim model`
    Model(programs::Passed),
    /// Run whole clusters while everything fails: arguments go to `tenure-sim cluster`
    Sim(programs::Passed),
    /// Plant bugs in the machine and see each one caught: arguments go to `tenure-sim mutants`
    Mutants(programs::Passed),
    /// Plant bugs in the replicated log and see each one caught
    ClusterMutants(programs::Passed),
    /// Measure in release: NAME and arguments go to `tenure-bench`, those of `peers` to the package `peers`
    Bench(programs::BenchmarkArgs),
    /// Run every client library through the vectors and the scenarios, and print the table
    Clients(clients::Args),
    /// Replay the committed inputs, look for new ones, or list the targets
    #[command(subcommand)]
    Fuzz(fuzz::FuzzCommand),
    /// Run for long and record the totals in docs/campaigns.md
    Campaign(campaign::Args),
    /// Print the bill of materials of `tenure`: every crate that it links, as CycloneDX
    Sbom(supply::sbom::SbomArgs),
    /// Build twice in two directories and compare the bytes
    Reproducible(supply::reproducible::ReproducibleArgs),
}

fn main() -> ExitCode {
    let ended = match std::env::var_os(programs::PLANT) {
        Some(_) => programs::plant(std::env::args_os()),
        None => run(XtaskCli::parse()),
    };
    match ended {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: XtaskCli) -> anyhow::Result<ExitCode> {
    let Some(command) = cli.command else {
        XtaskCli::command().print_help()?;
        return Ok(ExitCode::SUCCESS);
    };
    let repo = Repo::find()?;
    match command {
        XtaskCommand::Check(args) => test::check(&repo, &args),
        XtaskCommand::Test(args) => test::run(&repo, &args),
        XtaskCommand::Fix => fix::run(&repo),
        XtaskCommand::Model(args) => programs::model(&repo, &args),
        XtaskCommand::Sim(args) => programs::sim(&repo, &args),
        XtaskCommand::Mutants(args) => programs::mutants(&repo, &args),
        XtaskCommand::ClusterMutants(args) => programs::cluster_mutants(&repo, &args),
        XtaskCommand::Bench(args) => programs::bench(&repo, &args),
        XtaskCommand::Clients(args) => clients::run(&repo, &args),
        XtaskCommand::Fuzz(command) => fuzz::run(&repo, &command),
        XtaskCommand::Campaign(args) => campaign::run(&repo, &args),
        XtaskCommand::Sbom(args) => supply::sbom::run(&repo, &args),
        XtaskCommand::Reproducible(args) => supply::reproducible::run(&repo, &args),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        XtaskCli::command().debug_assert();
    }

    #[test]
    fn every_command_has_one_line_that_says_what_it_does() {
        for command in XtaskCli::command().get_subcommands() {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            assert!(!about.is_empty(), "`{}` says what it does", command.get_name());
            assert!(!about.contains('\n'), "`{}` says it in one line", command.get_name());
        }
    }

    #[test]
    fn arguments_with_hyphens_reach_the_program() {
        let cli = XtaskCli::parse_from(["cargo xtask", "model", "--sequences", "7", "--from", "3"]);
        let Some(XtaskCommand::Model(passed)) = cli.command else { panic!("model was parsed") };
        assert_eq!(passed.args, ["--sequences", "7", "--from", "3"]);
    }
}
