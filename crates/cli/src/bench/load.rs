//! Runs one workload from many concurrent clients and collects the latencies.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use indicatif::ProgressBar;
use tenure::{Client, Lease};
use tenure_server::os;
use tokio::task::JoinSet;

use super::BenchWorkload;
use super::times::LatencyCounts;
use crate::connection_args::ConnectionTarget;
use crate::failure::CliError;

/// Long enough that no lease expires during a measurement.
const TTL: Duration = Duration::from_secs(60);
const REDRAW: Duration = Duration::from_millis(100);

/// The parameters of one measurement.
pub(super) struct Shape {
    pub(super) workload: BenchWorkload,
    pub(super) clients: usize,
    pub(super) connections: usize,
    pub(super) warm_up: Duration,
    pub(super) duration: Duration,
}

/// The measured interval by the local monotonic clock, with counters that all clients share.
#[derive(Clone)]
struct MeasuredSpan {
    from_us: u64,
    to_us: u64,
    done: Arc<AtomicU64>,
    /// When a client last began to release the shared lock.
    released_us: Arc<AtomicU64>,
}

/// Runs the clients until the measured interval ends and returns the latencies of their operations.
pub(super) async fn run(
    place: &ConnectionTarget,
    shape: &Shape,
    bar: &ProgressBar,
) -> Result<LatencyCounts, CliError> {
    let mut connections = Vec::new();
    for _ in 0..shape.connections {
        connections.push(place.connect_to_leader().await?);
    }
    // Random names keep concurrent benchmarks apart.
    let run = format!("bench/{:016x}", os::random());
    let begin_us = os::now_us();
    let from_us = begin_us + micros(shape.warm_up);
    let to_us = from_us + micros(shape.duration);
    let span = MeasuredSpan { from_us, to_us, done: Arc::default(), released_us: Arc::default() };
    let mut tasks = JoinSet::new();
    for at in 0..shape.clients {
        let client = connections[at % connections.len()].clone();
        let (span, workload) = (span.clone(), shape.workload);
        let name = match workload {
            BenchWorkload::Handover => format!("{run}/one"),
            _ => format!("{run}/{at:06}"),
        };
        tasks.spawn(async move { work(workload, client, name, span).await });
    }
    let mut all = LatencyCounts::default();
    let mut tick = tokio::time::interval(REDRAW);
    loop {
        tokio::select! {
            done = tasks.join_next() => match done {
                None => return Ok(all),
                Some(Ok(times)) => all.join(&times?),
                Some(Err(error)) => return Err(CliError::refused(error.to_string())),
            },
            _ = tick.tick() => {
                let gone_us = os::now_us().saturating_sub(begin_us);
                bar.set_position(gone_us / 1_000);
                let seconds = Duration::from_micros(gone_us).as_secs_f64().max(0.001);
                let rate = span.done.load(Ordering::Relaxed) as f64 / seconds;
                bar.set_message(format!("{rate:.0}/s"));
            }
        }
    }
}

async fn work(
    workload: BenchWorkload,
    client: Client,
    name: String,
    span: MeasuredSpan,
) -> Result<LatencyCounts, CliError> {
    let mut times = LatencyCounts::default();
    let lease = match workload {
        BenchWorkload::Cycles | BenchWorkload::Handover => Some(client.lease(TTL).await?),
        BenchWorkload::Keys | BenchWorkload::Reads => None,
    };
    while os::now_us() < span.to_us {
        let began_us = os::now_us();
        let took_us = match (&lease, workload) {
            (Some(lease), BenchWorkload::Handover) => {
                pass_on(lease, &name, &span.released_us).await?
            }
            (Some(lease), _) => {
                lease.lock(&name).await?.release().await?;
                os::now_us() - began_us
            }
            (None, BenchWorkload::Reads) => {
                client.show(&name).await?;
                os::now_us() - began_us
            }
            (None, _) => {
                client.key(&name).put("x").await?;
                os::now_us() - began_us
            }
        };
        span.done.fetch_add(1, Ordering::Relaxed);
        if began_us >= span.from_us && os::now_us() < span.to_us {
            times.add(took_us);
        }
    }
    if workload == BenchWorkload::Keys {
        client.key(&name).delete().await?;
    }
    if let Some(lease) = lease {
        lease.revoke().await?;
    }
    Ok(times)
}

/// Acquires the shared lock and releases it. Returns the gap from the previous release to this grant.
async fn pass_on(lease: &Lease, name: &str, released_us: &AtomicU64) -> Result<u64, CliError> {
    let guard = lease.lock(name).await?;
    let now_us = os::now_us();
    let before_us = released_us.swap(now_us, Ordering::Relaxed);
    guard.release().await?;
    // No release precedes the first grant.
    Ok(if before_us == 0 { 0 } else { now_us.saturating_sub(before_us) })
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
