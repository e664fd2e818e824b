//! Replays every committed fuzz input.

use anyhow::Result;

use crate::fuzz::{not_replayed, replay_command, targets};
use crate::output;

use super::{LayerContext, LayerReport, counted};

pub(super) fn run(stage: &mut LayerContext<'_>) -> Result<LayerReport> {
    let targets = targets(stage.repo)?;
    let finished = stage.log.run(replay_command(stage.repo, None))?;
    let lines: Vec<&str> = finished.lines().collect();
    let tests = output::tests(lines.iter().copied());
    let inputs: u64 = output::replayed(lines.iter().copied()).values().sum();
    let did = format!(
        "replayed {} of {}",
        counted(inputs, "input"),
        counted(targets.len() as u64, "target")
    );
    let report = LayerReport::did(inputs, did).with_tests(tests);
    if !finished.status.success() {
        return Ok(report.because("an input or a test failed"));
    }
    let silent = not_replayed(&targets, &lines);
    if !silent.is_empty() {
        return Ok(report.because(format!("nothing was replayed for {}", silent.join(", "))));
    }
    Ok(report)
}
