//! Parses Cargo.lock: every crate of every platform, with its source and checksum.

use anyhow::{Context, Result};
use serde::Deserialize;

/// One crate in one version.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct LockedCrate {
    pub(crate) name: String,
    pub(crate) version: String,
    /// Where it comes from; `None` for a crate of this workspace.
    pub(crate) source: Option<String>,
    /// The SHA-256 of the downloaded file.
    pub(crate) checksum: Option<String>,
}

#[derive(Deserialize)]
struct LockFile {
    package: Vec<LockedCrate>,
}

/// Returns the crates in the order of the file.
pub(crate) fn parse(text: &str) -> Result<Vec<LockedCrate>> {
    let file: LockFile = toml::from_str(text).context("Cargo.lock cannot be parsed")?;
    Ok(file.package)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_of_the_workspace_have_no_source() {
        let text = "version = 4\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\ndependencies = [\"b\"]\n\
            [[package]]\nname = \"b\"\nversion = \"2.0.0\"\nsource = \"registry+x\"\nchecksum = \"ff\"\n";
        let crates = parse(text).unwrap();
        assert_eq!((crates.len(), crates[0].source.as_deref()), (2, None));
        assert_eq!(crates[1].checksum.as_deref(), Some("ff"));
        assert!(parse("what").is_err());
    }
}
