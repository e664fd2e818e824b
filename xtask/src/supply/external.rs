//! Lists the crates from elsewhere that this platform builds, with their licences.

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::cargo::cargo;
use crate::repo::Repo;

use super::compiler;

/// One crate from elsewhere.
#[derive(Debug)]
pub(crate) struct ExternalCrate {
    pub(crate) name: String,
    pub(crate) version: String,
    /// The licence expression of its manifest.
    pub(crate) licence: Option<String>,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    source: Option<String>,
    license: Option<String>,
}

/// Runs `cargo metadata`. This compiles nothing. It downloads the crates that are not on this machine yet: they name
/// their licences, and the other layers need them anyway.
pub(crate) fn load(repo: &Repo) -> Result<Vec<ExternalCrate>> {
    let (_, host) = compiler::in_use()?;
    let output = cargo(repo, "metadata")
        .args(["--format-version", "1", "--filter-platform", &host])
        .output()
        .context("cannot start cargo metadata")?;
    let why = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cargo metadata failed: {}", why.trim());
    let metadata: Metadata =
        serde_json::from_slice(&output.stdout).context("cargo metadata printed no json")?;
    let external = metadata.packages.into_iter().filter(|package| package.source.is_some());
    let external = external.map(|Package { name, version, license, .. }| ExternalCrate {
        name,
        version,
        licence: license,
    });
    Ok(external.collect())
}
