//! Applies automatic fixes.

use std::process::ExitCode;

use anyhow::Result;

use crate::cargo::{cargo, hand_over};
use crate::repo::Repo;

/// Applies what clippy can apply, then formats, because applied lints are not formatted.
pub(crate) fn run(repo: &Repo) -> Result<ExitCode> {
    let mut clippy = cargo(repo, "clippy");
    clippy.args(["--fix", "--allow-dirty", "--allow-staged", "--workspace", "--all-targets"]);
    let linted = hand_over(clippy)?;
    let mut fmt = cargo(repo, "fmt");
    fmt.arg("--all");
    let formatted = hand_over(fmt)?;
    Ok(if linted == ExitCode::SUCCESS { formatted } else { linted })
}
