//! Runs one of the proofs from the command line.

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use tenure_sim::campaign::{self, ModelPlan};
use tenure_sim::cluster;
use tenure_sim::corpus;
use tenure_sim::coverage::Coverage;
use tenure_sim::run::{self, BrokenSequence};
use tenure_sim::shrink;

/// From this many sequences on, every reachable case must have occurred.
const COVERAGE_FROM: u64 = 1_000;

/// Seeds of the control, in which a promise must be broken: see `cluster/control.rs`.
const CONTROL_SEEDS: u64 = 10;

/// Seeds of each script of a rollback: see `cluster/rollback/scripts.rs`.
const SCRIPT_SEEDS: u64 = 5;

/// Tries to prove the machine wrong.
#[derive(Parser)]
struct SimCli {
    #[command(subcommand)]
    command: SimCommand,
}

#[derive(Subcommand)]
enum SimCommand {
    /// Compare the machine with the model over random commands.
    Model(ModelArgs),
    /// Write inputs for the fuzz targets to start from.
    Corpus {
        /// Into this folder.
        folder: std::path::PathBuf,
        /// How many for each target.
        #[arg(long, default_value_t = 48)]
        inputs: usize,
    },
    /// Run whole clusters while everything fails, and check their promises.
    Cluster(ClusterArgs),
    /// Plant bugs in the replicated log and in the node, one at a time, and see that each is caught.
    ClusterMutants(ClusterArgs),
    /// Plant bugs in the machine, one at a time, and see that each is caught.
    Mutants(MutantArgs),
}

#[derive(Args)]
struct ModelArgs {
    /// The number of sequences.
    #[arg(long, default_value_t = 20_000)]
    sequences: u64,
    /// About how many commands each has at most.
    #[arg(long, default_value_t = 200)]
    commands: usize,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Run this seed only, and print everything it does.
    #[arg(long)]
    seed: Option<u64>,
    /// On how many threads; all cores if not given.
    #[arg(long)]
    threads: Option<usize>,
}

#[derive(Args)]
struct ClusterArgs {
    /// How many seeds; for planted bugs, at most so many for each.
    #[arg(long, default_value_t = 500)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Run this seed only, and print what happens.
    #[arg(long)]
    seed: Option<u64>,
    /// Play this script of a rollback with the seed, instead of random faults.
    #[arg(long, requires = "seed")]
    script: Option<String>,
    /// Of the planted bugs, only those whose name contains this.
    #[arg(long, default_value = "")]
    only: String,
    /// How many seeds run a second time, which must be the same to the byte.
    #[arg(long, default_value_t = 20)]
    twice: u64,
    /// These seeds are one part of a longer run, over all of which every kind of fault has to happen.
    #[arg(long)]
    part: bool,
    /// On how many threads; all cores if not given.
    #[arg(long)]
    threads: Option<usize>,
}

#[derive(Args)]
struct MutantArgs {
    /// How many sequences for each planted bug, at most.
    #[arg(long, default_value_t = 20_000)]
    sequences: u64,
    /// On how many threads; all cores if not given.
    #[arg(long)]
    threads: Option<usize>,
}

fn main() -> ExitCode {
    run::silence_panics();
    let clean = match SimCli::parse().command {
        SimCommand::Model(args) => match args.seed {
            Some(seed) => one(seed, args.commands),
            None => many(&args),
        },
        SimCommand::Cluster(args) => match (args.seed, &args.script) {
            (Some(seed), Some(script)) => cluster::rollback::scripts::run_verbose(script, seed),
            (Some(seed), None) => one_cluster(seed),
            (None, _) => clusters(&args),
        },
        SimCommand::ClusterMutants(args) => planted_in_clusters(&args),
        SimCommand::Mutants(args) => planted(&args),
        SimCommand::Corpus { folder, inputs } => match corpus::write(&folder, inputs) {
            Ok(()) => true,
            Err(error) => {
                eprintln!("error: {error:#}");
                false
            }
        },
    };
    if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn one(seed: u64, commands: usize) -> bool {
    let mut coverage = Coverage::default();
    let ran = run::sequence(seed, commands, &mut coverage, true);
    if let Some(failure) = &ran.failure {
        report(seed, commands, failure);
    }
    let violations = u64::from(ran.failure.is_some());
    println!("model sequences=1 commands={} violations={violations}", ran.commands);
    ran.failure.is_none()
}

fn many(args: &ModelArgs) -> bool {
    let plan = ModelPlan {
        from: args.from,
        sequences: args.sequences,
        commands: args.commands,
        threads: threads(args.threads),
    };
    let bar = bar(args.sequences);
    let found = campaign::run(plan, &|| bar.inc(1));
    bar.finish_and_clear();
    println!("{}", found.coverage.line());
    let mut clean = true;
    if let Some((seed, failure)) = &found.failure {
        report(*seed, args.commands, failure);
        clean = false;
    } else if args.sequences >= COVERAGE_FROM {
        let missing = found.coverage.missing();
        if !missing.is_empty() {
            println!("never seen: {}", missing.join(", "));
            for (name, reason) in Coverage::unreachable() {
                println!("  not expected: {name}, because {reason}");
            }
            clean = false;
        }
    }
    let violations = u64::from(found.failure.is_some());
    println!(
        "model sequences={} commands={} violations={violations}",
        found.sequences, found.commands
    );
    clean
}

/// Prints one line with the broken promise, one with the command that replays it, then the shortest sequence found.
fn report(seed: u64, commands: usize, failure: &BrokenSequence) {
    let violation = &failure.violation;
    println!(
        "violation {} seed={seed} step={}: {}",
        violation.invariant,
        failure.step,
        violation.detail.replace('\n', " ")
    );
    // The number of commands takes part in drawing the sequence: another number gives another sequence.
    let length = if commands == 200 { String::new() } else { format!(" --commands {commands}") };
    println!("replay: cargo xtask model --seed {seed}{length}{}", at_commit());
    let shortest = shrink::shrink(failure);
    println!("shortest sequence, {} steps: {}", shortest.steps.len(), shortest.violation.detail);
    for (index, step) in shortest.steps.iter().enumerate() {
        println!("  {index}: {step:?}");
    }
}

/// The commit that a seed belongs to, if `cargo xtask` has set it: after a change of the simulator a seed draws
/// something else.
fn at_commit() -> String {
    std::env::var("TENURE_COMMIT")
        .map_or_else(|_| String::new(), |commit| format!("  # at {commit}"))
}

fn one_cluster(seed: u64) -> bool {
    let ran = cluster::SimCluster::new(seed).verbose().run();
    if let Some(violation) = &ran.failure {
        println!("violation {} seed={seed}: {}", violation.invariant, violation.detail);
    }
    println!("{}", ran.faults.line());
    println!("trace={:016x}", ran.trace);
    let violations = u64::from(ran.failure.is_some());
    let sim_hours = ran.sim_us as f64 / 3.6e9;
    println!("sim seeds=1 sim_hours={sim_hours:.2} violations={violations}");
    ran.failure.is_none()
}

fn clusters(args: &ClusterArgs) -> bool {
    let plan = cluster::campaign::ClusterPlan {
        from: args.from,
        seeds: args.seeds,
        threads: threads(args.threads),
    };
    let bar = bar(args.seeds);
    let found = cluster::campaign::run(plan, &|| bar.inc(1));
    bar.finish_and_clear();
    println!("{}", found.faults.line());
    let (kinds, missing) = found.faults.missing();
    let mut clean = true;
    if let Some((seed, violation)) = &found.failure {
        let detail = violation.detail.replace('\n', " ");
        println!("violation {} seed={seed}: {detail}", violation.invariant);
        println!("replay: cargo xtask sim --seed {seed}{}", at_commit());
        clean = false;
    } else {
        let again = cluster::campaign::ClusterPlan { seeds: args.twice.min(args.seeds), ..plan };
        if let Some(seed) = cluster::campaign::check_determinism(again) {
            println!("seed {seed} ran differently the second time");
            clean = false;
        }
        if !missing.is_empty() && args.seeds >= 200 {
            println!("never seen: {}", missing.join(", "));
            clean &= args.part;
        }
    }
    let control = cluster::control::run(CONTROL_SEEDS);
    println!(
        "control lying_syncs_on_a_majority caught={}/{} by {}",
        control.caught,
        control.seeds,
        control.by.join(", ")
    );
    clean &= control.caught == control.seeds;
    let scripts = cluster::rollback::scripts::run(SCRIPT_SEEDS);
    scripts.failures.iter().for_each(|failure| println!("rollback script {failure}"));
    println!("rollback scripts as_expected={}/{}", scripts.as_expected, scripts.played);
    clean &= scripts.failures.is_empty();
    println!(
        "sim seeds={} sim_hours={:.2} faults={}/{kinds} violations={}",
        found.seeds,
        found.sim_hours(),
        kinds - missing.len(),
        u64::from(found.failure.is_some())
    );
    clean
}

#[cfg(mutants)]
fn planted_in_clusters(args: &ClusterArgs) -> bool {
    let plan = cluster::campaign::ClusterPlan {
        from: args.from,
        seeds: args.seeds,
        threads: threads(args.threads),
    };
    tenure_sim::mutants::run_clusters(plan, &args.only)
}

#[cfg(not(mutants))]
fn planted_in_clusters(args: &ClusterArgs) -> bool {
    let _ = (args.seeds, &args.only);
    println!(
        "this build has no planted bugs; build it with: \
         RUSTFLAGS=\"--cfg mutants\" cargo run --profile sim -p tenure-sim -- cluster-mutants"
    );
    false
}

#[cfg(mutants)]
fn planted(args: &MutantArgs) -> bool {
    tenure_sim::mutants::run(ModelPlan {
        from: 0,
        sequences: args.sequences,
        commands: 200,
        threads: threads(args.threads),
    })
}

#[cfg(not(mutants))]
fn planted(args: &MutantArgs) -> bool {
    let _ = (args.sequences, args.threads);
    println!(
        "this build has no planted bugs; build it with: \
         RUSTFLAGS=\"--cfg mutants\" cargo run --profile sim -p tenure-sim -- mutants"
    );
    false
}

fn threads(asked: Option<usize>) -> usize {
    asked.or_else(|| std::thread::available_parallelism().ok().map(usize::from)).unwrap_or(1)
}

fn bar(sequences: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(sequences);
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos}/{len}, {eta} left") {
        bar.set_style(style);
    }
    bar
}
