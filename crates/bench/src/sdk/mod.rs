//! What does the SDK cost beside the session that it speaks?
//!
//! The same cluster and the same number of connections for both: clients of the SDK, each with a lease that is used
//! again, against the same cycles said on a session by hand. Then many leases that nobody does anything with.

mod cycles;
mod idle;

use anyhow::{Result, ensure};

use crate::doors::session::{self, Said};
use crate::doors::{Measured, Stage, cpu};
use crate::figure::Figures;

pub(crate) use idle::keep as idle;

/// How many clients there are, and over how many connections they speak.
const SHAPES: [(usize, usize); 3] = [(1, 1), (64, 16), (256, 16)];
/// The share of a session's speed that the SDK shall have.
const SHARE: f64 = 80.0;

/// Takes all figures, or those of cycles of one shape. `quick` measures for half a second each, with fewer leases.
pub(crate) fn run(quick: bool, only: Option<&str>) -> Result<Figures> {
    let of = |(clients, connections): (usize, usize)| format!("{clients}x{connections}");
    let shapes = SHAPES.into_iter().filter(|it| only.is_none_or(|only| of(*it) == only));
    let shapes: Vec<_> = shapes.collect();
    ensure!(!shapes.is_empty(), "shapes are {}", SHAPES.map(of).join(", "));
    let Stage { cluster, runtime, times } = Stage::set(quick)?;
    let address = cluster.clients();
    let mut figures = Figures::default();
    for (clients, connections) in shapes {
        // Before and after the other, so that whatever else the machine does meets both.
        let per_s = |it: &Measured| it.latencies_us.len() as f64 / it.took.as_secs_f64();
        let sdk = || runtime.block_on(cycles::measure(address, clients, connections, times));
        let before = per_s(&sdk()?);
        let begun = cpu::Used::now(&cluster)?;
        let by_hand = |said| session::measure(address, (clients, connections), said, times);
        let raw = runtime.block_on(by_hand(Said::Once))?;
        let between = cpu::Used::now(&cluster)?;
        let after = sdk()?;
        let ended = cpu::Used::now(&cluster)?;
        let stages = between.since(&begun).per(raw.cycles_in_all).collect::<Vec<_>>();
        let by_sdk = ended.since(&between).per(after.cycles_in_all).collect::<Vec<_>>();
        let numbered = per_s(&runtime.block_on(by_hand(Said::Numbered))?);
        let (raw, sdk) = (per_s(&raw), (before + per_s(&after)) / 2.0);
        let shape = format!("clients x connections {clients}x{connections}");
        figures.add(format!("session_cycles_per_s_{clients}"), raw, format!("cycles/s, {shape}"));
        figures.add(format!("sdk_cycles_per_s_{clients}"), sdk, format!("cycles/s, {shape}"));
        let meaning = format!("% of the session's (to reach: {SHARE})");
        figures.add(format!("sdk_share_{clients}"), sdk / raw * 100.0, meaning);
        // What the share is made of: the SDK's acquires happen once also when they are said again.
        let meaning = format!("cycles/s with numbered acquires, {shape}");
        figures.add(format!("session_numbered_cycles_per_s_{clients}"), numbered, meaning);
        let meaning = "% of the session's with numbered acquires";
        figures.add(format!("sdk_share_of_numbered_{clients}"), sdk / numbered * 100.0, meaning);
        for ((stage, raw), (_, sdk)) in stages.into_iter().zip(by_sdk) {
            let meaning = "µs of CPU per cycle";
            figures.add(format!("session_cpu_us_{stage}_{clients}"), raw, meaning);
            figures.add(format!("sdk_cpu_us_{stage}_{clients}"), sdk, meaning);
        }
    }
    if only.is_some() {
        return Ok(figures);
    }
    let leases = if quick { 1_000 } else { 10_000 };
    idle::measure(address, leases, quick, &mut figures)?;
    Ok(figures)
}
