//! Reads the workspace's crates and their dependencies from cargo.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::cargo::cargo;
use crate::repo::Repo;

/// The crates of the workspace, ordered by directory.
pub(crate) struct Workspace {
    pub(crate) crates: Vec<Crate>,
}

/// One crate and its dependencies, without those for development.
#[derive(Debug, PartialEq)]
pub(crate) struct Crate {
    /// The directory, relative to the top: `crates/core`.
    pub(crate) dir: String,
    /// The package name in cargo: `tenure-core`.
    pub(crate) package: String,
    /// The crates of this workspace that it depends on, by short name.
    pub(crate) inside: BTreeSet<String>,
    /// The crates from elsewhere that it depends on.
    pub(crate) outside: BTreeSet<String>,
    /// The integration tests, which are separate programs, by name.
    pub(crate) tests: BTreeSet<String>,
}

impl Crate {
    /// The last part of the directory: `core`.
    pub(crate) fn name(&self) -> &str {
        last_part(&self.dir)
    }

    /// The path of its manifest, relative to the top.
    pub(crate) fn manifest(&self) -> String {
        format!("{}/Cargo.toml", self.dir)
    }
}

impl Workspace {
    /// Runs `cargo metadata`. This compiles and downloads nothing.
    pub(crate) fn load(repo: &Repo) -> Result<Self> {
        let output = cargo(repo, "metadata")
            .args(["--format-version", "1", "--no-deps"])
            .output()
            .context("cannot start cargo metadata")?;
        ensure!(
            output.status.success(),
            "cargo metadata failed: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
        let metadata: Value =
            serde_json::from_slice(&output.stdout).context("cargo metadata printed no json")?;
        Self::parse(&metadata)
    }

    fn parse(metadata: &Value) -> Result<Self> {
        let root = text(metadata, "workspace_root")?;
        let packages = list(metadata, "packages")?;
        let mut crates = Vec::new();
        for package in packages {
            let (mut inside, mut outside) = (BTreeSet::new(), BTreeSet::new());
            for dependency in list(package, "dependencies")? {
                if dependency["kind"] == "dev" {
                    continue;
                }
                match dependency["path"].as_str() {
                    Some(path) => inside.insert(last_part(path).to_owned()),
                    None => outside.insert(text(dependency, "name")?.to_owned()),
                };
            }
            let mut tests = BTreeSet::new();
            for target in list(package, "targets")? {
                if list(target, "kind")?.iter().any(|kind| kind == "test") {
                    tests.insert(text(target, "name")?.to_owned());
                }
            }
            let manifest = Path::new(text(package, "manifest_path")?);
            let dir = manifest.parent().and_then(|dir| dir.strip_prefix(root).ok());
            let dir = dir
                .with_context(|| format!("{} is outside the workspace", manifest.display()))?
                .to_string_lossy()
                .into_owned();
            let package = text(package, "name")?.to_owned();
            crates.push(Crate { dir, package, inside, outside, tests });
        }
        crates.sort_by(|a, b| a.dir.cmp(&b.dir));
        Ok(Self { crates })
    }

    /// Fails if the package is missing: a caller that needs its work must not get an empty success.
    pub(crate) fn require(&self, package: &str) -> Result<()> {
        if self.crates.iter().any(|each| each.package == package) {
            return Ok(());
        }
        bail!("the workspace has no crate `{package}`");
    }
}

fn last_part(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}

fn text<'a>(value: &'a Value, key: &str) -> Result<&'a str> {
    value[key].as_str().with_context(|| format!("cargo metadata has no text `{key}`"))
}

fn list<'a>(value: &'a Value, key: &str) -> Result<&'a [Value]> {
    let list = value[key].as_array().with_context(|| format!("cargo metadata has no list `{key}`"));
    list.map(Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_are_sorted_into_inside_and_outside_without_those_for_development() {
        let metadata = serde_json::json!({
            "workspace_root": "/r",
            "packages": [{
                "name": "tenure-core",
                "manifest_path": "/r/crates/core/Cargo.toml",
                "dependencies": [
                    { "name": "tenure-types", "kind": null, "path": "/r/crates/types" },
                    { "name": "thiserror", "kind": null },
                    { "name": "fastrand", "kind": "dev" },
                    { "name": "cc", "kind": "build" },
                ],
                "targets": [
                    { "name": "tenure_core", "kind": ["lib"] },
                    { "name": "scripts", "kind": ["test"] },
                ],
            }],
        });
        let workspace = Workspace::parse(&metadata).unwrap();
        let expected = Crate {
            dir: "crates/core".to_owned(),
            package: "tenure-core".to_owned(),
            inside: BTreeSet::from(["types".to_owned()]),
            outside: BTreeSet::from(["cc".to_owned(), "thiserror".to_owned()]),
            tests: BTreeSet::from(["scripts".to_owned()]),
        };
        assert_eq!(workspace.crates, [expected]);
        assert!(workspace.require("tenure-core").is_ok());
        let missing = workspace.require("tenure-sim").unwrap_err();
        assert_eq!(missing.to_string(), "the workspace has no crate `tenure-sim`");
    }
}
