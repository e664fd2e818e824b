//! Checks that every file is formatted.

use anyhow::Result;

use crate::cargo::cargo;

use super::{LayerContext, LayerReport, counted};

pub(super) fn run(stage: &mut LayerContext<'_>) -> Result<LayerReport> {
    let mut command = cargo(stage.repo, "fmt");
    // rustfmt lists the files that it checked only with `--verbose`.
    command.args(["--all", "--", "--check", "--verbose"]);
    let finished = stage.log.run(command)?;
    let mut seen: Vec<&str> =
        finished.lines().filter_map(|line| line.strip_prefix("Formatting ")).collect();
    seen.sort_unstable();
    seen.dedup();
    let files = seen.len() as u64;
    let report = LayerReport::did(files, format!("checked {}", counted(files, "file")));
    if finished.status.success() {
        return Ok(report);
    }
    Ok(report.because("some are not formatted; `cargo xtask fix` formats them"))
}
