//! How fast is it, and how big?

mod clock;
mod core;
mod figure;
mod memory;

use anyhow::Result;
use clap::{Parser, Subcommand, ValueEnum};

#[derive(Parser)]
#[command(
    name = "tenure-bench",
    about = "Measures Tenure; figures depend on the machine they are taken on"
)]
struct Arguments {
    #[command(subcommand)]
    workload: Workload,
}

#[derive(Subcommand)]
enum Workload {
    /// The state machine alone, on one core: commands, hand-overs, ends, memory
    Core {
        /// A hundredth of the work, to see that it runs
        #[arg(long)]
        quick: bool,
        /// How to print the figures
        #[arg(long, value_enum, default_value = "text")]
        output: Output,
    },
    /// Builds a state of one kind of object and prints its memory; started by `core`
    #[command(hide = true)]
    Memory {
        /// Which kind
        kind: memory::Kind,
        /// How many
        count: u64,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Text,
    Json,
}

fn main() -> Result<()> {
    match Arguments::parse().workload {
        Workload::Core { quick, output } => {
            let figures = core::run(quick)?;
            match output {
                Output::Text => print!("{}", figures.as_text()),
                Output::Json => println!("{}", figures.as_json()),
            }
        }
        Workload::Memory { kind, count } => println!("{}", memory::bytes_per_object(kind, count)?),
    }
    Ok(())
}
