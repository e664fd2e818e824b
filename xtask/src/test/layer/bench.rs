//! Runs the benchmarks once to see that they work.

use anyhow::Result;

use crate::programs::bench_tried_command;
use crate::said;

use super::{Report, Stage};

/// The other workloads, with a figure that each must print.
const OTHERS: [(&str, &str); 4] = [
    ("cluster", "committed_per_s_1="),
    ("doors", "session_cycles_per_s_256x16="),
    ("sdk", "sdk_share_256="),
    ("fence", "ticket_cached_us="),
];

pub(super) fn run(stage: &mut Stage<'_>) -> Result<Report> {
    let finished = stage.log.run(bench_tried_command(stage.repo, "core"))?;
    if !finished.status.success() {
        return Ok(Report::failed("the program failed".to_owned()));
    }
    // No threshold: a busy machine would fail it, and a fast one would hide a regression.
    let Some(speed) = said::apply_per_s(finished.lines()) else {
        return Ok(Report::failed("no line says `apply_per_s=` with a positive number".to_owned()));
    };
    for (name, figure) in OTHERS {
        let finished = stage.log.run(bench_tried_command(stage.repo, name))?;
        let told = finished.lines().any(|line| line.trim_start().starts_with(figure));
        if !finished.status.success() || !told {
            return Ok(Report::failed(format!("`{name}` failed, or does not say `{figure}`")));
        }
    }
    let all = 1 + OTHERS.len() as u64;
    Ok(Report::did(all, format!("{all} ran, unoptimised; apply_per_s={speed:.0}")))
}
