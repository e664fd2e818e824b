//! Runs the benchmarks: speed, memory and size.

mod apis;
mod archive;
mod clock;
mod cluster;
mod core;
mod fence;
mod identity;
mod memory;
mod postgres;
mod run_results;
mod sdk;
mod start;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Parser, Subcommand, ValueEnum};
use tenure_bench::peers;

use cluster::EventArchive;

/// The same allocator as in the shipped binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Parser)]
#[command(
    name = "tenure-bench",
    about = "Measures Tenure; results depend on the machine they are taken on"
)]
struct BenchArguments {
    #[command(subcommand)]
    workload: BenchProgram,
}

#[derive(Subcommand)]
enum BenchProgram {
    /// The state machine alone, on one core: commands, hand-overs, ends, memory
    Core {
        /// A hundredth of the work, to see that it runs
        #[arg(long)]
        quick: bool,
        /// How to print the results
        #[arg(long, value_enum, default_value = "text")]
        output: BenchOutput,
    },
    /// Three members on loopback that sync every write: commands per second, latency
    Cluster {
        /// Half a second for each measurement, to see that it runs
        #[arg(long)]
        quick: bool,
        /// Let the members keep no event archive
        #[arg(long)]
        no_archive: bool,
        /// How to print the results
        #[arg(long, value_enum, default_value = "text")]
        output: BenchOutput,
    },
    /// Clients of the APIs of three members: cycles per second, latency, hand-overs, CPU
    Apis {
        /// Half a second for each measurement, to see that it runs
        #[arg(long)]
        quick: bool,
        /// Only sessions, of so many clients over so many connections: 256x16 or 256x16,256x256
        #[arg(long, value_name = "SHAPES")]
        only: Option<String>,
        /// How to print the results
        #[arg(long, value_enum, default_value = "text")]
        output: BenchOutput,
    },
    /// What identity costs: the CPU of the members per cycle with and without it, in interleaved pairs
    Identity {
        #[command(flatten)]
        arguments: identity::IdentityArguments,
        /// How to print the results
        #[arg(long, value_enum, default_value = "text")]
        output: BenchOutput,
    },
    /// What the event archive costs: the CPU of the members per cycle with and without it, in interleaved pairs
    Archive {
        #[command(flatten)]
        arguments: archive::ArchiveArguments,
        /// How to print the results
        #[arg(long, value_enum, default_value = "text")]
        output: BenchOutput,
    },
    /// A resource's check: tickets verified, first and again, and what the HTTP layer adds to a request
    Fence {
        /// A hundredth of the work, to see that it runs
        #[arg(long)]
        quick: bool,
        /// How to print the results
        #[arg(long, value_enum, default_value = "text")]
        output: BenchOutput,
    },
    /// The binary: its size, and how soon commands that only print have done so
    Start {
        /// The binary to measure
        #[arg(default_value = "target/release/tenure")]
        binary: PathBuf,
        /// How to print the results
        #[arg(long, value_enum, default_value = "text")]
        output: BenchOutput,
    },
    /// The SDK beside the session that it speaks: cycles per second, and what it takes to keep leases alive
    Sdk {
        /// Half a second for each measurement, to see that it runs
        #[arg(long)]
        quick: bool,
        /// Only cycles, of so many clients over so many connections: 256x16
        #[arg(long, value_name = "SHAPE")]
        only: Option<String>,
        /// How to print the results
        #[arg(long, value_enum, default_value = "text")]
        output: BenchOutput,
    },
    /// Tenure beside other lock systems; here Redis, and etcd and ZooKeeper with `cargo xtask bench peers`
    Peers(peers::PeersArguments),
    /// Keeps leases alive and prints what that takes; started by `sdk`
    #[command(hide = true)]
    Idle {
        /// Address of a member
        address: String,
        /// Number of leases
        leases: usize,
        /// For how many seconds to keep them
        seconds: u64,
    },
    /// Runs one of the other members until its input ends; started by `cluster`
    #[command(hide = true)]
    Follow {
        /// Number of this member
        at: usize,
        /// Where the members' data lives
        dir: PathBuf,
        /// Addresses of the members
        addresses: Vec<String>,
        /// Keep no event archive
        #[arg(long)]
        no_archive: bool,
    },
    /// Builds a state of one kind of object and prints its memory; started by `core`
    #[command(hide = true)]
    Memory {
        /// Kind of the objects
        kind: memory::MemoryKind,
        /// Number of objects
        count: u64,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum BenchOutput {
    Text,
    Json,
}

fn main() -> Result<()> {
    match BenchArguments::parse().workload {
        BenchProgram::Core { quick, output } => print(&core::run(quick)?, output),
        BenchProgram::Cluster { quick, no_archive, output } => {
            print(&cluster::run(quick, EventArchive::unless(no_archive))?, output);
        }
        BenchProgram::Apis { quick, only, output } => {
            print(&apis::run(quick, only.as_deref())?, output);
        }
        BenchProgram::Identity { arguments, output } => {
            print(&identity::run(arguments)?, output);
        }
        BenchProgram::Archive { arguments, output } => print(&archive::run(arguments)?, output),
        BenchProgram::Fence { quick, output } => print(&fence::run(quick)?, output),
        BenchProgram::Start { binary, output } => print(&start::run(&binary)?, output),
        BenchProgram::Sdk { quick, only, output } => {
            print(&sdk::run(quick, only.as_deref())?, output);
        }
        BenchProgram::Peers(arguments) => {
            let tenure = peers::TenurePeer { program: arguments.tenure.clone() };
            peers::run(&arguments, vec![Box::new(tenure), Box::new(peers::RedisPeer::default())])?;
        }
        BenchProgram::Idle { address, leases, seconds } => sdk::idle(&address, leases, seconds)?,
        BenchProgram::Follow { at, dir, addresses, no_archive } => {
            cluster::follow(at, &dir, &addresses, EventArchive::unless(no_archive))?;
        }
        BenchProgram::Memory { kind, count } => {
            println!("{}", memory::bytes_per_object(kind, count)?);
        }
    }
    Ok(())
}

fn print(results: &run_results::RunResults, output: BenchOutput) {
    match output {
        BenchOutput::Text => print!("{}", results.as_text()),
        BenchOutput::Json => println!("{}", results.as_json()),
    }
}
