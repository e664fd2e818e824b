//! Runs clippy.

use anyhow::Result;

use crate::cargo::{cargo, in_ci};
use crate::said;

use super::{Report, Stage, counted};

pub(super) fn run(stage: &mut Stage<'_>) -> Result<Report> {
    let mut command = cargo(stage.repo, "clippy");
    command.args(["--workspace", "--all-targets"]);
    command.arg("--message-format=json-render-diagnostics");
    if stage.strict || in_ci() {
        command.args(["--", "-D", "warnings"]);
    }
    let finished = stage.log.run(command)?;
    let root = stage.repo.root().to_string_lossy();
    let targets = said::built(&root, finished.lines()).len() as u64;
    let warnings = said::warnings(finished.lines());
    let mut did = format!("checked {}", counted(targets, "target"));
    if warnings > 0 {
        did.push_str(&format!(", {} (in {})", counted(warnings, "warning"), stage.log.name()));
    }
    let report = Report::did(targets, did);
    Ok(if finished.status.success() { report } else { report.because("clippy found errors") })
}
