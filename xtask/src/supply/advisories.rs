//! Looks up the locked crates in a local copy of the RustSec advisory database.
//!
//! The check downloads nothing. Without a copy of the database it says so, and looks only at the accepted list.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use semver::{Version, VersionReq};
use serde::Deserialize;

use crate::cargo;

use super::lock::LockedCrate;

/// Names a directory with a copy of <https://github.com/rustsec/advisory-db>.
pub(crate) const VARIABLE: &str = "ADVISORY_DB";

/// An advisory that concerns a locked crate.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Hit {
    pub(crate) id: String,
    pub(crate) package: String,
    pub(crate) version: String,
}

#[derive(Deserialize)]
struct AdvisoryFile {
    advisory: Head,
    versions: Option<Versions>,
}

#[derive(Deserialize)]
struct Head {
    id: String,
    package: String,
    withdrawn: Option<String>,
}

#[derive(Default, Deserialize)]
struct Versions {
    #[serde(default)]
    patched: Vec<String>,
    #[serde(default)]
    unaffected: Vec<String>,
}

/// Finds a copy: the directory of the variable, or where cargo-audit and cargo-deny keep theirs.
pub(crate) fn find() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os(VARIABLE) {
        return Some(named.into());
    }
    let home = cargo::home()?;
    let mut places = vec![home.join("advisory-db")];
    if let Ok(entries) = fs::read_dir(home.join("advisory-dbs")) {
        places.extend(entries.filter_map(|entry| Some(entry.ok()?.path())));
    }
    places.into_iter().find(|place| place.join("crates").is_dir())
}

/// Returns the advisories that concern these crates, in order.
pub(crate) fn hits(database: &Path, crates: &[LockedCrate]) -> Result<Vec<Hit>> {
    let all = database.join("crates");
    fs::metadata(&all)
        .with_context(|| format!("{} is no advisory database", database.display()))?;
    let mut hits = Vec::new();
    for each in crates.iter().filter(|each| each.source.is_some()) {
        let Ok(entries) = fs::read_dir(all.join(&each.name)) else { continue };
        for entry in entries {
            let path = entry?.path();
            if path.extension().is_none_or(|extension| extension != "md") {
                continue;
            }
            let read = fs::read_to_string(&path).map_err(anyhow::Error::from);
            let hit = read.and_then(|text| advisory_hit(&text, each));
            hits.extend(hit.with_context(|| format!("cannot read {}", path.display()))?);
        }
    }
    hits.sort_by(|a, b| (&a.id, &a.version).cmp(&(&b.id, &b.version)));
    Ok(hits)
}

/// Returns the advisory in this text, if it concerns the crate.
fn advisory_hit(text: &str, each: &LockedCrate) -> Result<Option<Hit>> {
    let block = text.split_once("```toml").and_then(|(_, rest)| rest.split_once("```"));
    let (block, _) = block.context("it has no block that opens with ```toml")?;
    let AdvisoryFile { advisory, versions } = toml::from_str(block)?;
    if advisory.package != each.name || advisory.withdrawn.is_some() {
        return Ok(None);
    }
    let mut version = Version::parse(&each.version)?;
    version.build = semver::BuildMetadata::EMPTY;
    let versions = versions.unwrap_or_default();
    for safe in versions.patched.iter().chain(&versions.unaffected) {
        if VersionReq::parse(safe)?.matches(&version) {
            return Ok(None);
        }
    }
    Ok(Some(Hit { id: advisory.id, package: advisory.package, version: each.version.clone() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADVISORY: &str = "```toml\n[advisory]\nid = \"RUSTSEC-1\"\npackage = \"b\"\ndate = \"2024-01-01\"\n\n\
        [versions]\npatched = [\">= 1.2.0\", \"^0.9.7\"]\nunaffected = [\"< 0.5.0\"]\n```\n\n# Text\n";

    fn locked(version: &str) -> LockedCrate {
        let (name, source) = ("b".to_owned(), Some("registry".to_owned()));
        LockedCrate { name, version: version.to_owned(), source, checksum: None }
    }

    #[test]
    fn versions_between_the_unaffected_and_the_patched_are_hit() {
        for (version, hit) in [
            ("1.1.9", true),
            ("0.5.0+x", true),
            ("0.9.6", true),
            ("1.2.0", false),
            ("0.9.8", false),
            ("0.4.1", false),
        ] {
            assert_eq!(
                advisory_hit(ADVISORY, &locked(version)).unwrap().is_some(),
                hit,
                "{version}"
            );
        }
        let withdrawn = ADVISORY.replace("date", "withdrawn = \"2024-02-02\"\ndate");
        assert_eq!(advisory_hit(&withdrawn, &locked("1.1.9")).unwrap(), None);
        assert!(advisory_hit("nothing", &locked("1.1.9")).is_err());
    }

    #[test]
    fn a_directory_that_is_no_database_fails() {
        assert!(hits(Path::new("/nonexistent"), &[]).is_err());
    }
}
