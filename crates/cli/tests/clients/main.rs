//! Plays the scenarios of `clients/scenarios` with the drivers of the client libraries against real members, and is
//! itself the driver of the Rust client.

#[path = "../common/authority.rs"]
mod authority;
#[path = "../common/mod.rs"]
mod common;
mod driver;
mod driver_process;
mod expect;
mod language;
mod measure;
mod overlap;
mod planted;
mod player;
mod scenario;
mod stage;
mod table;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Plays scenarios with the drivers of the client libraries.
#[derive(Parser)]
#[command(name = "clients")]
struct ClientsCli {
    #[command(subcommand)]
    command: Option<ClientsCommand>,
    #[command(flatten)]
    play: table::PlayArgs,
}

#[derive(Subcommand)]
enum ClientsCommand {
    /// Be the driver of the Rust client
    Driver,
    /// List the scenarios
    List,
    /// Let 20 clients compete for one lock while everything fails
    Overlap(overlap::OverlapArgs),
    /// Measure idle leases and cycles of each client
    Measure(measure::MeasureArgs),
    /// Plant each bug in each client, and show which scenario catches it
    Planted(planted::PlantedArgs),
}

fn main() -> ExitCode {
    let cli = ClientsCli::parse();
    match cli.command {
        Some(ClientsCommand::Driver) => driver::serve(),
        Some(ClientsCommand::List) => table::list(),
        Some(ClientsCommand::Overlap(args)) => overlap::run(&args),
        Some(ClientsCommand::Measure(args)) => measure::run(&args),
        Some(ClientsCommand::Planted(args)) => planted::run(&args),
        None => table::play(&cli.play),
    }
}
