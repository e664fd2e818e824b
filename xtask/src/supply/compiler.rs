//! Reads the version of the compiler in use and the one that releases are tested with.
//!
//! No file forces a compiler: any stable one from `rust-version` on builds Tenure. The recorded version is the one that
//! a byte-identical build needs.

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::cargo;

/// What the root manifest says about compilers.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Recorded {
    /// The oldest compiler that is supported.
    pub(crate) oldest: String,
    /// The compiler that releases are tested and built with.
    pub(crate) tested: String,
}

#[derive(Deserialize)]
struct Manifest {
    workspace: Workspace,
}

#[derive(Deserialize)]
struct Workspace {
    package: Package,
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Package {
    rust_version: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Metadata {
    tested_rust: String,
}

/// Parses the root manifest.
pub(crate) fn recorded(manifest: &str) -> Result<Recorded> {
    let manifest: Manifest = toml::from_str(manifest).context(
        "Cargo.toml has no workspace.package.rust-version and workspace.metadata.tested-rust",
    )?;
    let Workspace { package, metadata } = manifest.workspace;
    Ok(Recorded { oldest: package.rust_version, tested: metadata.tested_rust })
}

/// The version of the compiler that cargo uses, such as `1.95.0`, and the platform that it compiles for.
pub(crate) fn in_use() -> Result<(String, String)> {
    let output = cargo::rustc().arg("-vV").output().context("cannot start rustc")?;
    ensure!(output.status.success(), "rustc -vV failed");
    let text = String::from_utf8(output.stdout).context("rustc -vV printed no text")?;
    let line = |key: &str| {
        let found = text
            .lines()
            .find_map(|line| line.strip_prefix(key))
            .map(|value| value.trim().to_owned());
        found.with_context(|| format!("rustc -vV printed no line `{key}`"))
    };
    Ok((line("release:")?, line("host:")?))
}

/// Says how the compiler in use differs from the recorded one.
pub(crate) fn compare(recorded: &Recorded, in_use: &str) -> Result<(), String> {
    let number = |text: &str| {
        let parts = text.split(['.', '-']).take(3).map(|part| part.parse::<u32>().unwrap_or(0));
        let mut parts: Vec<u32> = parts.collect();
        parts.resize(3, 0);
        parts
    };
    if number(in_use) < number(&recorded.oldest) {
        return Err(format!("rustc {in_use} is older than rust-version {}", recorded.oldest));
    }
    if number(&recorded.tested) < number(&recorded.oldest) {
        return Err(format!(
            "tested-rust {} is older than rust-version {}",
            recorded.tested, recorded.oldest
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str = "[workspace.package]\nrust-version = \"1.90\"\n\
        [workspace.metadata]\ntested-rust = \"1.95.0\"\n";

    #[test]
    fn any_compiler_from_the_oldest_on_is_accepted() {
        let recorded = recorded(MANIFEST).unwrap();
        for good in ["1.90.0", "1.95.0", "1.100.2-nightly", "2.0.0"] {
            assert_eq!(compare(&recorded, good), Ok(()), "{good}");
        }
        assert!(compare(&recorded, "1.89.9").unwrap_err().contains("older than rust-version"));
    }

    #[test]
    fn a_manifest_without_the_tested_compiler_fails() {
        assert!(super::recorded(&MANIFEST.replace("tested-rust", "other")).is_err());
        let old = super::recorded(&MANIFEST.replace("1.95.0", "1.80.0")).unwrap();
        assert!(compare(&old, "1.95.0").unwrap_err().contains("tested-rust"));
    }

    #[test]
    fn the_compiler_in_use_names_itself() {
        let (version, host) = in_use().unwrap();
        assert!(version.starts_with(|first: char| first.is_ascii_digit()), "{version}");
        assert!(host.contains('-'), "{host}");
    }
}
