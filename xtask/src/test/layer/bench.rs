//! Runs the benchmarks once, with little work, to see that they work.

use anyhow::Result;

use crate::output;
use crate::programs::benches_command;

use super::{LayerContext, LayerReport, counted};

pub(super) fn run(stage: &mut LayerContext<'_>) -> Result<LayerReport> {
    let finished = stage.log.run(benches_command(stage.repo))?;
    let tests = output::tests(finished.lines());
    // No threshold: a busy machine would fail it, and a fast one would hide a regression.
    let speed = output::apply_per_s(finished.lines());
    let did = format!(
        "{} ran, unoptimised; apply_per_s={:.0}",
        counted(tests.passed, "workload"),
        speed.unwrap_or_default()
    );
    let report = LayerReport::did(tests.passed, did).with_tests(tests);
    Ok(match (finished.status.success(), speed) {
        (false, _) => report.because("a workload failed"),
        (true, None) => report.because("no line says `apply_per_s=` with a positive number"),
        (true, Some(_)) => report,
    })
}
