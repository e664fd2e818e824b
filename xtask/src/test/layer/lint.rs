//! Runs clippy, and checks each crate that users build by itself, with no more features than they choose: in the
//! workspace other crates turn on features that hide what is missing.

use anyhow::Result;

use crate::cargo::{cargo, in_ci};
use crate::output;

use super::{LayerContext, LayerReport, counted};

/// The crates that users depend on, and the features with which each is checked. A test of the command line builds
/// `tenure` with its default features in a project outside of the workspace.
const ALONE: [(&str, &[&str]); 2] =
    [("tenure", &["--no-default-features"]), ("tenure-fence", &["--features", "files"])];

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
    if !finished.status.success() {
        return Ok(LayerReport::did(targets, did).because("clippy found errors"));
    }
    for (name, features) in ALONE {
        let mut command = cargo(stage.repo, "check");
        command.args(["--package", name, "--lib"]).args(features);
        if !stage.log.run(command)?.status.success() {
            let why = format!("{name} does not build by itself: {features:?}");
            return Ok(LayerReport::did(targets, did).because(why));
        }
    }
    did.push_str(&format!(", {} by themselves", counted(ALONE.len() as u64, "build")));
    Ok(LayerReport::did(targets, did))
}
