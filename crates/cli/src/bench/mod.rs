//! Measures the throughput and latency of a cluster from the client's side.

mod load;
mod plot;
mod times;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use crate::connection_args::ConnectionArgs;
use crate::duration;
use crate::exit::Exit;
use crate::failure::CliError;
use crate::output::{self, OutputFormat, Side, Table};
use crate::signals;
use times::LatencyCounts;

/// Flags of `tenure bench`.
#[derive(Args)]
pub(crate) struct BenchArgs {
    /// What the clients do
    #[arg(value_enum, default_value_t)]
    workload: BenchWorkload,
    /// How many do it at the same time; several numbers are measured one after the other
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values_t = [1, 16, 64])]
    clients: Vec<usize>,
    /// Over how many connections, at most
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1024))]
    connections: u16,
    /// Measure each for this long
    #[arg(long, value_name = "TIME", value_parser = duration::parse, default_value = "5s")]
    duration: Duration,
    /// Before that, do the same unmeasured for this long
    #[arg(long, value_name = "TIME", value_parser = duration::parse, default_value = "1s")]
    warm_up: Duration,
    /// Draw the latencies into this file
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
}

/// What clients do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub(crate) enum BenchWorkload {
    /// Each acquires and releases a lock of its own, under one lease
    #[default]
    Cycles,
    /// All pass one lock on: the time between release and grant
    Handover,
    /// Each writes a key of its own
    Keys,
    /// Each reads a lock, linearizably
    Reads,
}

impl BenchWorkload {
    fn word(self) -> &'static str {
        match self {
            Self::Cycles => "cycles",
            Self::Handover => "hand-overs",
            Self::Keys => "writes",
            Self::Reads => "reads",
        }
    }
}

/// The result of one measurement, for one number of clients.
struct BenchResult {
    clients: usize,
    per_s: f64,
    times: LatencyCounts,
}

/// Runs the measurements and prints them.
pub(crate) fn bench(flags: &BenchArgs) -> Result<Exit, CliError> {
    if flags.clients.iter().any(|clients| *clients == 0 || *clients > 10_000) {
        return Err(CliError::arguments("--clients are from 1 to 10000"));
    }
    let place = flags.connection.place()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| CliError::refused(format!("cannot start: {error}")))?;
    runtime.block_on(async {
        let mut asked = signals::listen()?;
        let mut all = Vec::new();
        for clients in &flags.clients {
            let bar = bar(flags, *clients);
            let shape = load::Shape {
                workload: flags.workload,
                clients: *clients,
                connections: usize::from(flags.connections).min(*clients),
                warm_up: flags.warm_up,
                duration: flags.duration,
            };
            let measuring = load::run(&place, &shape, &bar);
            let times = tokio::select! {
                times = measuring => times?,
                signal = asked.signal() => {
                    bar.finish_and_clear();
                    return Ok(Exit::Signal(signal));
                }
            };
            bar.finish_and_clear();
            let per_s = times.count() as f64 / flags.duration.as_secs_f64();
            let measured = BenchResult { clients: *clients, per_s, times };
            if flags.connection.output == OutputFormat::Json {
                output::object(&measured.json(flags.workload));
            }
            all.push(measured);
        }
        if flags.connection.output == OutputFormat::Text {
            output::out(&table(flags.workload, &all));
        }
        if let Some(path) = &flags.plot {
            let series: Vec<(String, &LatencyCounts)> =
                all.iter().map(|it| (format!("{} clients", it.clients), &it.times)).collect();
            let title = format!("tenure bench: {}", flags.workload.word());
            std::fs::write(path, plot::svg(&title, &series)).map_err(|error| {
                CliError::refused(format!("cannot write {path:?}: {error}; try another place"))
            })?;
            output::tell(&format!("drawn into {}\n", path.display()));
        }
        Ok(Exit::Done)
    })
}

fn bar(flags: &BenchArgs, clients: usize) -> ProgressBar {
    let all = flags.warm_up + flags.duration;
    // The bar hides itself when stderr is not a terminal.
    let bar = ProgressBar::new(crate::lock::millis(all));
    let form = format!("{clients:>5} clients {{wide_bar}} {{msg}} {{elapsed}}");
    if let Ok(style) = ProgressStyle::with_template(&form) {
        bar.set_style(style);
    }
    bar
}

impl BenchResult {
    fn json(&self, workload: BenchWorkload) -> serde_json::Value {
        let us = |percent: f64| self.times.percentile_us(percent);
        json!({
            "workload": workload.to_possible_value().map(|it| it.get_name().to_owned()),
            "clients": self.clients, "per_s": self.per_s, "count": self.times.count(),
            "p50_us": us(50.0), "p90_us": us(90.0), "p99_us": us(99.0), "p999_us": us(99.9),
            "max_us": us(100.0),
        })
    }
}

fn table(workload: BenchWorkload, all: &[BenchResult]) -> String {
    let mut table = Table::new(&[
        ("CLIENTS", Side::Right),
        ("PER SECOND", Side::Right),
        ("p50", Side::Right),
        ("p90", Side::Right),
        ("p99", Side::Right),
        ("p99.9", Side::Right),
        ("MAX", Side::Right),
    ]);
    for it in all {
        let ms = |percent: f64| {
            let time = Duration::from_micros(it.times.percentile_us(percent));
            format!("{:.2}ms", time.as_secs_f64() * 1_000.0)
        };
        let rate = format!("{:.0}", it.per_s);
        table.row([
            it.clients.to_string(),
            rate,
            ms(50.0),
            ms(90.0),
            ms(99.0),
            ms(99.9),
            ms(100.0),
        ]);
    }
    format!("{}\n{}", workload.word(), table.text())
}
