//! Measures the APIs as their clients see them.
//!
//! Three members on loopback sync every write; the leader, its APIs and all clients share this process. A cycle is an
//! acquire and a release, each waited for.

pub(crate) mod cpu;
mod handover;
pub(crate) mod http;
pub(crate) mod session;
mod storm;
pub(crate) mod unary;

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tenure_bench::percentile;
use tonic::metadata::{Ascii, MetadataValue};

use self::session::AcquireForm;
use crate::cluster::members;
use crate::run_results::RunResults;

/// The numbers of clients, and of the connections they share.
const SHAPES: [(usize, usize); 4] = [(1, 1), (64, 16), (256, 16), (256, 256)];

/// How long each measurement takes.
#[derive(Clone, Copy)]
pub(crate) struct MeasureTimes {
    pub(crate) warm_up: Duration,
    pub(crate) measure: Duration,
}

/// The caller that the clients of a measurement are.
#[derive(Clone, Default)]
pub(crate) struct BenchCaller {
    /// The API key; none for callers without credentials.
    pub(crate) bearer: Option<String>,
    /// Distinguishes the locks of measurements that are repeated in one cluster.
    pub(crate) measurement: usize,
}

impl BenchCaller {
    fn authorization(&self) -> Result<Option<MetadataValue<Ascii>>> {
        let value = |bearer: &String| format!("Bearer {bearer}").parse();
        self.bearer.as_ref().map(value).transpose().context("an API key is plain text")
    }
}

/// What a measurement needs: members, a thread for the clients, and durations.
pub(crate) struct ApiStage {
    pub(crate) cluster: members::BenchCluster,
    pub(crate) runtime: tokio::runtime::Runtime,
    pub(crate) times: MeasureTimes,
}

impl ApiStage {
    /// Starts the members and the runtime. `quick` measures for half a second each.
    pub(crate) fn set(quick: bool) -> Result<Self> {
        Self::set_with(quick, members::EventArchive::Kept)
    }

    /// The same, with or without an event archive.
    pub(crate) fn set_with(quick: bool, archive: members::EventArchive) -> Result<Self> {
        let (warm_up, measure) = if quick { (200, 500) } else { (1_000, 4_000) };
        let (warm_up, measure) = (Duration::from_millis(warm_up), Duration::from_millis(measure));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name(cpu::CLIENTS)
            .enable_all()
            .build()
            .context("starting a thread for the clients")?;
        Ok(Self {
            cluster: members::start_with(archive)?,
            runtime,
            times: MeasureTimes { warm_up, measure },
        })
    }
}

/// Takes all measurements, or those of sessions of some shapes. `quick` measures for half a second each.
pub(crate) fn run(quick: bool, only: Option<&str>) -> Result<RunResults> {
    let of = |(clients, connections): (usize, usize)| format!("{clients}x{connections}");
    let mut shapes = SHAPES.to_vec();
    if let Some(only) = only {
        let only: Vec<&str> = only.split(',').collect();
        shapes.retain(|shape| only.contains(&&*of(*shape)));
        ensure!(shapes.len() == only.len(), "shapes are {}", SHAPES.map(of).join(", "));
    }
    let ApiStage { cluster, runtime, times } = ApiStage::set(quick)?;
    let mut results = RunResults::default();
    let (address, caller) = (cluster.clients(), BenchCaller::default());
    for shape in shapes {
        let before = cpu::CpuUsed::now(&cluster)?;
        let form = AcquireForm::Once;
        let measured = runtime.block_on(session::measure(address, shape, form, &caller, times))?;
        let used = cpu::CpuUsed::now(&cluster)?.since(&before);
        let shape = of(shape);
        report("session", &shape, &measured, &mut results);
        for (stage, us) in used.per(measured.cycles_in_all) {
            results.add(format!("cpu_us_{stage}_{shape}"), us, "µs of CPU per cycle");
        }
    }
    if only.is_some() {
        return Ok(results);
    }
    for clients in [1, 64, 256] {
        let shape = (clients, 16.min(clients));
        let measured = runtime.block_on(unary::measure(address, shape, &caller, times))?;
        report("unary", &of(shape), &measured, &mut results);
        let measured = runtime.block_on(http::measure(address, clients, &caller, times))?;
        report("http", &format!("{clients}x{clients}"), &measured, &mut results);
    }
    let waiters = 64;
    let gap = runtime.block_on(handover::measure(cluster.clients(), waiters, times))?;
    results.add(
        "handover_gap_p50_us",
        gap.percentile(50),
        "µs from release sent to grant seen, 64 wait",
    );
    results.add("handover_gap_p99_us", gap.percentile(99), "µs, 99 of 100 take at most that");
    let per_s = gap.latencies_us.len() as f64 / gap.took.as_secs_f64();
    results.add("handovers_per_s", per_s, "hand-overs/s of one lock");
    let storm = runtime.block_on(storm::measure(address))?;
    let (watches, meaning) = (storm.watches as f64, "events heard by 10,000 watches on one key");
    results.add("storm_heard", watches, meaning);
    let meaning = "ms until all of them have heard of it";
    results.add("storm_all_heard_ms", storm.all_heard_us as f64 / 1_000.0, meaning);
    let meaning = "ms between two commits at most, one client, in quiet";
    results.add("storm_gap_before_ms", storm.quiet_gap_us as f64 / 1_000.0, meaning);
    let meaning = "ms between two commits at most, while they are told (to stay below: 20)";
    results.add("storm_gap_ms", storm.storm_gap_us as f64 / 1_000.0, meaning);
    Ok(results)
}

/// The results of one measurement.
pub(crate) struct ApiMeasurement {
    pub(crate) took: Duration,
    /// The latencies of all cycles, or hand-overs, in ascending order.
    pub(crate) latencies_us: Vec<u64>,
    /// The number of all cycles since the connections were made, including the warm-up.
    pub(crate) cycles_in_all: u64,
}

impl ApiMeasurement {
    /// The latency that `percent` of the cycles do not exceed.
    pub(crate) fn percentile(&self, percent: usize) -> f64 {
        percentile(&self.latencies_us, percent * 10).map_or(f64::NAN, |us| us as f64)
    }
}

fn report(api: &str, shape: &str, measured: &ApiMeasurement, results: &mut RunResults) {
    let per_s = measured.latencies_us.len() as f64 / measured.took.as_secs_f64();
    let goal = match (api, shape) {
        ("session", "256x16") => " (to reach: 45,000)",
        ("session", "256x256") => " (to reach: 15,000)",
        _ => "",
    };
    let meaning = format!("cycles/s, clients x connections {shape}{goal}");
    results.add(format!("{api}_cycles_per_s_{shape}"), per_s, meaning);
    for percent in [50, 99] {
        results.add(
            format!("{api}_cycle_p{percent}_us_{shape}"),
            measured.percentile(percent),
            format!("µs for a cycle, {percent} of 100 take at most that"),
        );
    }
}

/// Joins the results of the clients.
pub(crate) async fn gather(
    mut tasks: tokio::task::JoinSet<Result<ApiMeasurement>>,
    times: MeasureTimes,
) -> Result<ApiMeasurement> {
    let mut all =
        ApiMeasurement { took: times.measure, latencies_us: Vec::new(), cycles_in_all: 0 };
    while let Some(measured) = tasks.join_next().await {
        let measured = measured??;
        all.latencies_us.extend(measured.latencies_us);
        all.cycles_in_all += measured.cycles_in_all;
    }
    all.latencies_us.sort_unstable();
    Ok(all)
}
