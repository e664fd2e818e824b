//! Measures what the SDK costs on top of the session that it uses.
//!
//! Both use the same cluster and the same number of connections: clients of the SDK, each with a lease that is reused,
//! against the same cycles sent on a session by hand. Then it measures many idle leases.

mod cycles;
mod idle;

use anyhow::{Result, ensure};

use crate::apis::session::{self, AcquireForm};
use crate::apis::{ApiMeasurement, ApiStage, BenchCaller, cpu};
use crate::run_results::RunResults;

pub(crate) use idle::keep as idle;

/// The numbers of clients, and of the connections they share.
const SHAPES: [(usize, usize); 3] = [(1, 1), (64, 16), (256, 16)];
/// The target: the share of a session's speed that the SDK reaches, in percent.
const SHARE: f64 = 80.0;

/// Takes all measurements, or those of cycles of one shape. `quick` measures for half a second each, with fewer leases.
pub(crate) fn run(quick: bool, only: Option<&str>) -> Result<RunResults> {
    let of = |(clients, connections): (usize, usize)| format!("{clients}x{connections}");
    let shapes = SHAPES.into_iter().filter(|it| only.is_none_or(|only| of(*it) == only));
    let shapes: Vec<_> = shapes.collect();
    ensure!(!shapes.is_empty(), "shapes are {}", SHAPES.map(of).join(", "));
    let ApiStage { cluster, runtime, times } = ApiStage::set(quick)?;
    let address = cluster.clients();
    let mut results = RunResults::default();
    for (clients, connections) in shapes {
        // The SDK is measured before and after the session, so that other load on the machine affects both.
        let per_s = |it: &ApiMeasurement| it.latencies_us.len() as f64 / it.took.as_secs_f64();
        let sdk = || runtime.block_on(cycles::measure(address, clients, connections, times));
        let before = per_s(&sdk()?);
        let begun = cpu::CpuUsed::now(&cluster)?;
        let (shape, caller) = ((clients, connections), BenchCaller::default());
        let by_hand = |said| session::measure(address, shape, said, &caller, times);
        let raw = runtime.block_on(by_hand(AcquireForm::Once))?;
        let between = cpu::CpuUsed::now(&cluster)?;
        let after = sdk()?;
        let ended = cpu::CpuUsed::now(&cluster)?;
        let stages = between.since(&begun).per(raw.cycles_in_all).collect::<Vec<_>>();
        let by_sdk = ended.since(&between).per(after.cycles_in_all).collect::<Vec<_>>();
        let numbered = per_s(&runtime.block_on(by_hand(AcquireForm::Numbered))?);
        let (raw, sdk) = (per_s(&raw), (before + per_s(&after)) / 2.0);
        let shape = format!("clients x connections {clients}x{connections}");
        results.add(format!("session_cycles_per_s_{clients}"), raw, format!("cycles/s, {shape}"));
        results.add(format!("sdk_cycles_per_s_{clients}"), sdk, format!("cycles/s, {shape}"));
        let meaning = format!("% of the session's (to reach: {SHARE})");
        results.add(format!("sdk_share_{clients}"), sdk / raw * 100.0, meaning);
        // What explains the share: the SDK's acquires take effect once even if they are sent again.
        let meaning = format!("cycles/s with numbered acquires, {shape}");
        results.add(format!("session_numbered_cycles_per_s_{clients}"), numbered, meaning);
        let meaning = "% of the session's with numbered acquires";
        results.add(format!("sdk_share_of_numbered_{clients}"), sdk / numbered * 100.0, meaning);
        for ((stage, raw), (_, sdk)) in stages.into_iter().zip(by_sdk) {
            let meaning = "µs of CPU per cycle";
            results.add(format!("session_cpu_us_{stage}_{clients}"), raw, meaning);
            results.add(format!("sdk_cpu_us_{stage}_{clients}"), sdk, meaning);
        }
    }
    if only.is_some() {
        return Ok(results);
    }
    let leases = if quick { 1_000 } else { 10_000 };
    idle::measure(address, leases, quick, &mut results)?;
    Ok(results)
}
