//! Measures what the event archive costs: the same cycles with members that keep one and with members that do not.
//!
//! Each measurement has a cluster of its own, because a member decides at its start whether it keeps an archive. Each
//! pair measures both, one after the other, in alternating order, so that other load on the machine affects both alike.

use std::time::Duration;

use anyhow::Result;

use crate::apis::cpu::CpuUsed;
use crate::apis::session::AcquireForm;
use crate::apis::{ApiStage, BenchCaller, MeasureTimes, session};
use crate::cluster::members::EventArchive;
use crate::run_results::{RunResults, median};

/// The number of connections that the clients share.
const CONNECTIONS: usize = 16;

/// The arguments of the measurement.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct ArchiveArguments {
    /// Half a second for each measurement, to see that it runs
    #[arg(long)]
    quick: bool,
    /// Number of pairs of measurements
    #[arg(long, default_value_t = 10)]
    pairs: usize,
    /// Number of clients
    #[arg(long, default_value_t = 256)]
    clients: usize,
}

/// The results of one measurement.
#[derive(Clone, Copy)]
struct ArchiveMeasurement {
    /// CPU time of all members for one cycle, in microseconds.
    cpu_us: f64,
    /// The part of it that the leader's archive has used.
    archive_us: f64,
    cycles_per_s: f64,
    p99_us: f64,
}

/// Takes all pairs, and reports the median of each result and of the ratios within the pairs.
pub(crate) fn run(arguments: ArchiveArguments) -> Result<RunResults> {
    let ArchiveArguments { quick, pairs, clients } = arguments;
    let (mut off, mut on) = (Vec::new(), Vec::new());
    for pair in 0..pairs.max(1) {
        let mut order = [EventArchive::Off, EventArchive::Kept];
        if pair % 2 == 1 {
            order.reverse();
        }
        for archive in order {
            let it = measure(archive, quick, clients)?;
            let ArchiveMeasurement { cpu_us, archive_us, cycles_per_s, p99_us } = it;
            eprintln!(
                "  pair {pair} {archive:?}: {cpu_us:.2} µs of CPU, {archive_us:.2} of it in the leader's archive, \
                 {cycles_per_s:.0} cycles/s, p99 {p99_us:.0} µs"
            );
            if archive == EventArchive::Off { off.push(it) } else { on.push(it) }
        }
    }
    Ok(report(clients, &off, &on))
}

fn measure(archive: EventArchive, quick: bool, clients: usize) -> Result<ArchiveMeasurement> {
    let mut stage = ApiStage::set_with(quick, archive)?;
    if !quick {
        let (warm_up, measure) = (Duration::from_secs(1), Duration::from_secs(4));
        stage.times = MeasureTimes { warm_up, measure };
    }
    let ApiStage { cluster, runtime, times } = &stage;
    let (shape, caller) = ((clients, CONNECTIONS.min(clients)), BenchCaller::default());
    let before = CpuUsed::now(cluster)?;
    let (address, form) = (cluster.clients(), AcquireForm::Once);
    let measured = runtime.block_on(session::measure(address, shape, form, &caller, *times))?;
    let used = CpuUsed::now(cluster)?.since(&before);
    let members: Vec<_> =
        used.per(measured.cycles_in_all).filter(|(stage, _)| *stage != "clients").collect();
    let archive = members.iter().filter(|(stage, _)| *stage == "leader_archive");
    Ok(ArchiveMeasurement {
        cpu_us: members.iter().map(|(_, us)| us).sum(),
        archive_us: archive.map(|(_, us)| us).sum(),
        cycles_per_s: measured.latencies_us.len() as f64 / measured.took.as_secs_f64(),
        p99_us: measured.percentile(99),
    })
}

fn report(clients: usize, off: &[ArchiveMeasurement], on: &[ArchiveMeasurement]) -> RunResults {
    let mut results = RunResults::default();
    let of = format!("{clients}x{}", CONNECTIONS.min(clients));
    let middle = |all: &[ArchiveMeasurement], value: fn(&ArchiveMeasurement) -> f64| {
        median(all.iter().map(value).collect())
    };
    let ratio = |value: fn(&ArchiveMeasurement) -> f64| {
        median(on.iter().zip(off).map(|(on, off)| value(on) / value(off)).collect())
    };
    let meaning = "µs of the members' CPU per cycle, without an archive";
    results.add(format!("cpu_us_off_{of}"), middle(off, |it| it.cpu_us), meaning);
    let meaning = "µs of the members' CPU per cycle, with an archive";
    results.add(format!("cpu_us_on_{of}"), middle(on, |it| it.cpu_us), meaning);
    let meaning = "µs per cycle of the thread that writes the leader's archive";
    results.add(format!("archive_us_{of}"), middle(on, |it| it.archive_us), meaning);
    let meaning = "times the CPU per cycle, median of the pairs (to stay below: 1.03)";
    results.add(format!("archive_cpu_ratio_{of}"), ratio(|it| it.cpu_us), meaning);
    let meaning = "times the cycles per second, median of the pairs";
    results.add(format!("archive_cycles_ratio_{of}"), ratio(|it| it.cycles_per_s), meaning);
    let meaning = "times the latency that 99 of 100 cycles do not exceed, median of the pairs";
    results.add(format!("archive_p99_ratio_{of}"), ratio(|it| it.p99_us), meaning);
    results
}
