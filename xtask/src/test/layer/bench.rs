//! Does the benchmark of the machine run?

use anyhow::Result;

use crate::programs::bench_command;
use crate::said;

use super::{Report, Stage};

pub(super) fn run(stage: &mut Stage<'_>) -> Result<Report> {
    let mut command = bench_command(stage.repo, "core");
    command.arg("--quick");
    let finished = stage.log.run(command)?;
    if !finished.status.success() {
        return Ok(Report::failed("the program failed".to_owned()));
    }
    // No threshold: a busy machine would fail it, and a fast one would hide a loss.
    Ok(match said::apply_per_s(finished.lines()) {
        Some(speed) => Report::did(1, format!("ran at apply_per_s={speed:.0}")),
        None => Report::failed("no line says `apply_per_s=` with a positive number".to_owned()),
    })
}
