//! Measures how fast three members commit.
//!
//! The three members run on loopback, each with its own log on disk and an fdatasync before it acknowledges anything.
//! Two are processes of their own; the leader and the load share this one.

mod load;
pub(crate) mod members;

use std::time::Duration;

use anyhow::Result;

use crate::run_results::RunResults;
use load::{Clients, ClusterMeasurement};
pub(crate) use members::{EventArchive, follow};

/// The numbers of commands in flight, one measurement each.
const IN_FLIGHT: [usize; 3] = [1, 64, 1_024];

/// Takes all measurements. `quick` measures for half a second each.
pub(crate) fn run(quick: bool, archive: EventArchive) -> Result<RunResults> {
    let (warm_up, measure) = if quick { (200, 500) } else { (1_000, 4_000) };
    let (warm_up, measure) = (Duration::from_millis(warm_up), Duration::from_millis(measure));
    let mut cluster = members::start_with(archive)?;
    let member = cluster.leader().clone();
    let mut clients = Clients::new(&member, IN_FLIGHT[IN_FLIGHT.len() - 1])?;
    let mut results = RunResults::default();
    for in_flight in IN_FLIGHT {
        // On a busy machine another member may have been elected. Commands that are forwarded measure something else.
        cluster.lead()?;
        let measured = clients.measure(&member, in_flight, warm_up, measure)?;
        report(in_flight, &measured, &mut results);
    }
    Ok(results)
}

fn report(in_flight: usize, measured: &ClusterMeasurement, results: &mut RunResults) {
    let commands = measured.latencies_us.len() as f64;
    results.add(
        format!("committed_per_s_{in_flight}"),
        commands / measured.took.as_secs_f64(),
        match in_flight {
            1_024 => format!("commands/s with {in_flight} in flight (to reach: 250,000)"),
            _ => format!("commands/s with {in_flight} in flight"),
        },
    );
    for percent in [50, 99] {
        results.add(
            format!("latency_p{percent}_us_{in_flight}"),
            measured.percentile(percent),
            format!("µs from submission to answer, {percent} of 100 take at most that"),
        );
    }
    results.add(
        format!("commands_per_fsync_{in_flight}"),
        commands / (measured.syncs as f64).max(1.0),
        "commands for each fdatasync of the leader's log",
    );
}
