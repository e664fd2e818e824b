//! What can be typed after `tenure`?

mod backup;
mod demo;
mod dev;
mod fence;
mod guard;
mod restore;
mod run;
mod serve;
mod store;

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
    /// Start one durable member on this machine, for development
    ///
    /// Everything is kept in a data directory and survives Ctrl-C and crashes. Talk to it over gRPC, WebSocket or
    /// HTTP: `curl http://127.0.0.1:7450/v1/cluster`.
    Dev(dev::Dev),
    /// Start one member of a cluster
    ///
    /// The first start needs --bootstrap with all founders, or --join with any member of a cluster
    /// that exists. A restart needs neither.
    Serve(serve::Serve),
    /// Write the whole state of a running cluster to a file
    ///
    /// Everything that was acknowledged before is in it. The file is read back before it gets its
    /// name, and holds all keys: keep it as secret as the cluster. `tenure backup /backups/monday`.
    Backup(backup::Backup),
    /// Bring a cluster back from a backup, or from the disk of its last member
    ///
    /// Makes a cluster of one member in an empty directory. It keeps the cluster's id and keys. All
    /// leases and locks are gone, every new token is above every old one, and nothing is granted
    /// before the longest old lease would have run out.
    Restore(restore::Restore),
    /// Start a store that refuses stale tokens
    ///
    /// Every write names a lock and the token of its grant. What was acknowledged is on the disk:
    /// `curl -X PUT --data hi -H 'Fencing-Token: 1' 'http://127.0.0.1:8000/v1/data/page?lock=wiki'`.
    Store(store::Store),
    /// Put a fence before something that knows nothing of tokens
    #[command(subcommand)]
    Fence(fence::Fence),
    /// Look at the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Try the lock service's rules by hand: one state machine, no network, time that you move
    ///
    /// Reads one line after another: `ana lock deploy`, `bob lock deploy`, `wait 20s`,
    /// `explain deploy`. Type `help` inside for all of them.
    Demo,
}

#[derive(Subcommand)]
enum ConfigCommand {
    /// Check what `tenure serve` would use, and say where each setting comes from
    Check(serve::Serve),
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Dev(flags) => dev::run(&flags),
        Command::Serve(flags) => serve::run(&flags),
        Command::Backup(flags) => backup::run(&flags),
        Command::Restore(flags) => restore::run(&flags),
        Command::Store(flags) => store::run(&flags),
        Command::Fence(command) => fence::run(&command),
        Command::Config(ConfigCommand::Check(flags)) => serve::check(&flags),
        Command::Demo => demo::run(),
    }
}
