//! What can be typed after `tenure`?

mod demo;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// A lock that stops you in time.
#[derive(Parser)]
#[command(name = "tenure", version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Try the lock service's rules by hand: one state machine, no network, time that you move
    ///
    /// Reads one line after another: `ana lock deploy`, `bob lock deploy`, `wait 20s`,
    /// `explain deploy`. Type `help` inside for all of them.
    Demo,
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Demo => demo::run(),
    }
}
