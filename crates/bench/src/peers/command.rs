//! The command line of the comparison.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};

use super::results::{PeerResults, SampleOutcome};
use super::system::AnyPeer;
use super::workload::{PeerWorkload, WORKLOADS};
use super::{goals, page, run as running, tables, tenure};

/// What to compare, and what to do with the results.
#[derive(Args)]
pub struct PeersArguments {
    /// Only these workloads, or kinds of workloads: cycles-256x16, handover
    #[arg(long, value_name = "NAME")]
    pub(crate) workload: Vec<String>,
    /// Only these systems
    #[arg(long, value_name = "NAME")]
    pub(crate) system: Vec<String>,
    /// How long each rate is measured
    #[arg(long, default_value_t = 1.2)]
    pub(crate) seconds: f64,
    /// How often every system has its turn
    #[arg(long, default_value_t = 5)]
    pub(crate) repetitions: usize,
    /// Begin no repetition that would end later than so many minutes after the start; no limit with --full
    #[arg(long, default_value_t = 25.0)]
    pub(crate) minutes: f64,
    /// Repeat the long workloads of the other systems too, which takes over an hour
    #[arg(long)]
    pub(crate) full: bool,
    /// A fraction of a second for each workload with few clients, to see that it runs
    #[arg(long)]
    pub(crate) smoke: bool,
    /// How to print the results
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) output: PeersOutput,
    /// The program `tenure`; without it this program runs the members
    #[arg(long, value_name = "FILE")]
    pub tenure: Option<PathBuf>,
    /// Write the results, the page and its plots into this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) page: Option<PathBuf>,
    /// Measure nothing: take the results from this file
    #[arg(long, value_name = "FILE")]
    pub(crate) from: Option<PathBuf>,
    /// Print the systems and the workloads
    #[arg(long)]
    pub(crate) list: bool,
    /// Take this lock and keep it until the process is killed; for the workload that kills a holder
    #[arg(long, hide = true, value_name = "LOCK")]
    hold: Option<String>,
    /// Where the servers are, for --hold
    #[arg(long, hide = true)]
    address: Option<String>,
    /// Run a member of Tenure; for measurements without --tenure
    #[arg(long, hide = true, num_args = 6)]
    member: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PeersOutput {
    Text,
    Json,
}

impl PeersArguments {
    /// The selected workloads; all of them if none is named.
    pub(crate) fn workloads(&self) -> Result<Vec<PeerWorkload>> {
        for name in &self.workload {
            let known = WORKLOADS.iter().any(|it| it.is_called(name));
            ensure!(known, "there is no workload `{name}`; see --list");
        }
        let wanted = |it: &&PeerWorkload| {
            self.workload.is_empty() || self.workload.iter().any(|name| it.is_called(name))
        };
        Ok(WORKLOADS.iter().filter(wanted).copied().collect())
    }
}

/// Runs the comparison of these systems, or one of its parts that run in processes of their own.
pub fn run(arguments: &PeersArguments, mut systems: Vec<Box<dyn AnyPeer>>) -> Result<()> {
    if !arguments.member.is_empty() {
        return tenure::serve_member(&arguments.member);
    }
    if arguments.list {
        systems.iter().for_each(|it| println!("system   {}", it.name()));
        WORKLOADS.iter().for_each(|it| println!("workload {it}"));
        return Ok(());
    }
    for name in &arguments.system {
        let known = systems.iter().any(|it| it.name() == name);
        ensure!(known, "there is no system `{name}` in this program; see --list");
    }
    let wanted =
        |name: &str| arguments.system.is_empty() || arguments.system.iter().any(|it| it == name);
    systems.retain(|it| wanted(it.name()));
    if let Some(lock) = &arguments.hold {
        let addresses = arguments.address.as_deref().context("--hold needs --address")?;
        let addresses: Vec<String> = addresses.split(',').map(str::to_owned).collect();
        let system = systems.first().context("--hold needs --system")?;
        return running::runtime()?.block_on(system.hold(&addresses, lock));
    }
    let results = match &arguments.from {
        Some(file) => read(file)?,
        None => running::run(arguments, systems)?,
    };
    match arguments.output {
        PeersOutput::Json => println!("{:#}", results.to_json()),
        PeersOutput::Text => {
            let mut out = std::io::stdout().lock();
            writeln!(out, "{}\n{}", tables::as_text(&results), goals::as_text(&results))?;
        }
    }
    let failed = results.samples.iter().find(|it| matches!(it.outcome, SampleOutcome::Failed(_)));
    if let (true, Some(failed)) = (arguments.smoke, failed) {
        bail!("{}", tables::line(failed));
    }
    if let Some(dir) = &arguments.page {
        page::write(&results, dir)?;
    }
    Ok(())
}

fn read(file: &PathBuf) -> Result<PeerResults> {
    let text =
        std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    let value =
        serde_json::from_str(&text).with_context(|| format!("{} is JSON", file.display()))?;
    PeerResults::from_json(&value).with_context(|| format!("{} has results", file.display()))
}
