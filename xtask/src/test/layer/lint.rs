//! Runs clippy.

use anyhow::Result;

use crate::cargo::{cargo, in_ci};
use crate::output;

use super::{LayerContext, LayerReport, counted};

pub(super) fn run(stage: &mut LayerContext<'_>) -> Result<LayerReport> {
    let mut command = cargo(stage.repo, "clippy");
    command.args(["--workspace", "--all-targets"]);
    command.arg("--message-format=json-render-diagnostics");
    if stage.strict || in_ci() {
        command.args(["--", "-D", "warnings"]);
    }
    let finished = stage.log.run(command)?;
    let root = stage.repo.root().to_string_lossy();
    let targets = output::built(&root, finished.lines()).len() as u64;
    let warnings = output::warnings(finished.lines());
    let mut did = format!("checked {}", counted(targets, "target"));
    if warnings > 0 {
        did.push_str(&format!(", {} (in {})", counted(warnings, "warning"), stage.log.name()));
    }
    let report = LayerReport::did(targets, did);
    Ok(if finished.status.success() { report } else { report.because("clippy found errors") })
}
