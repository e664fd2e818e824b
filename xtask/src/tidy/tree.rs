//! Reads the files of the repository for the checks.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context, Result};

use crate::repo::Repo;
use crate::supply::external::{self, ExternalCrate};
use crate::workspace::{Crate, Workspace};

use super::footprint::{self, Footprint};
use super::source::SourceFile;

/// The directory of fuzz corpora, which are generated and count as bytes even if they are valid text.
const CORPUS: &str = "fuzz/corpus/";

/// The content of every file, and every crate.
pub(crate) struct Tree {
    files: BTreeMap<String, Vec<u8>>,
    pub(super) crates: Vec<Crate>,
    /// The crates from elsewhere that this platform builds.
    pub(super) external: Vec<ExternalCrate>,
    /// How many crates the SDK adds to a project.
    pub(super) footprint: Footprint,
}

impl Tree {
    /// Reads the repository.
    pub(crate) fn load(repo: &Repo) -> Result<Self> {
        let mut files = BTreeMap::new();
        for name in repo.files()? {
            let bytes =
                fs::read(repo.path(&name)).with_context(|| format!("cannot read {name}"))?;
            files.insert(name, bytes);
        }
        Ok(Self {
            files,
            crates: Workspace::load(repo)?.crates,
            external: external::load(repo)?,
            footprint: footprint::load(repo)?,
        })
    }

    /// A repository of these files, without crates.
    #[cfg(test)]
    pub(super) fn sample(files: &[(&str, &str)]) -> Self {
        let files = files.iter().map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec()));
        Self {
            files: files.collect(),
            crates: Vec::new(),
            external: Vec::new(),
            footprint: Footprint::default(),
        }
    }

    /// Adds crates to a sample.
    #[cfg(test)]
    pub(super) fn with_crates(self, crates: Vec<Crate>) -> Self {
        Self { crates, ..self }
    }

    /// Sets the number of crates that the SDK adds, in a sample.
    #[cfg(test)]
    pub(super) fn with_footprint(self, footprint: Footprint) -> Self {
        Self { footprint, ..self }
    }

    /// Every file, as bytes.
    pub(super) fn bytes(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.files.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice()))
    }

    /// Every text file outside the fuzz corpora.
    pub(super) fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        let written =
            self.bytes().filter(|(name, bytes)| !name.starts_with(CORPUS) && !bytes.contains(&0));
        written.filter_map(|(name, bytes)| Some((name, std::str::from_utf8(bytes).ok()?)))
    }

    /// Every Rust file.
    pub(super) fn rust(&self) -> impl Iterator<Item = (&str, &str)> {
        self.texts().filter(|(name, _)| name.ends_with(".rs"))
    }

    /// One file, if it exists and is text.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        std::str::from_utf8(self.files.get(name)?).ok()
    }

    /// Whether there is such a file, or a directory with files.
    pub(super) fn has(&self, path: &str) -> bool {
        let below = format!("{path}/");
        path.is_empty()
            || self.files.contains_key(path)
            || self
                .files
                .range(below.clone()..)
                .next()
                .is_some_and(|(name, _)| name.starts_with(&below))
    }

    /// The Rust files under some directories, each with its code and whether the whole file is test code.
    pub(super) fn sources<'a>(&'a self, dirs: &[&str]) -> Vec<(&'a str, SourceFile, bool)> {
        let under: Vec<(&str, SourceFile)> = self
            .rust()
            .filter(|(name, _)| dirs.iter().any(|dir| name.starts_with(dir)))
            .map(|(name, text)| (name, SourceFile::read(text)))
            .collect();
        let mut test_modules = BTreeSet::new();
        for (name, source) in &under {
            test_modules.extend(source.test_modules().iter().map(|module| below(name, module)));
        }
        let is_test = |name: &str| {
            let stem = name.trim_end_matches(".rs");
            name.split('/').any(|part| part == "tests" || part == "benches")
                || test_modules
                    .iter()
                    .any(|module| stem == module || stem.starts_with(&format!("{module}/")))
        };
        under.into_iter().map(|(name, source)| (name, source, is_test(name))).collect()
    }
}

/// The path, without `.rs`, of the module `module` that `file` declares.
fn below(file: &str, module: &str) -> String {
    let stem = file.trim_end_matches(".rs");
    let (dir, last) = stem.rsplit_once('/').unwrap_or(("", stem));
    match last {
        "lib" | "main" | "mod" => format!("{dir}/{module}"),
        _ => format!("{stem}/{module}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_there_when_they_hold_a_file() {
        let tree = Tree::sample(&[("docs/a/b.md", "")]);
        assert!(tree.has("docs") && tree.has("docs/a") && tree.has("docs/a/b.md"));
        assert!(!tree.has("doc") && !tree.has("docs/b.md"));
    }

    #[test]
    fn a_test_module_in_a_file_of_its_own_is_all_tests() {
        let tree = Tree::sample(&[
            ("crates/core/src/lib.rs", "#[cfg(test)]\nmod samples;\nmod state;"),
            ("crates/core/src/samples.rs", ""),
            ("crates/core/src/samples/more.rs", ""),
            ("crates/core/src/state.rs", "#[cfg(test)] mod checks;"),
            ("crates/core/src/state/checks.rs", ""),
            ("crates/core/tests/script.rs", ""),
        ]);
        let tests: Vec<bool> =
            tree.sources(&["crates/core/"]).iter().map(|(_, _, is_test)| *is_test).collect();
        assert_eq!(tests, [false, true, true, false, true, true]);
    }

    #[test]
    fn corpora_and_bytes_are_not_text() {
        let tree = Tree::sample(&[("fuzz/corpus/name/a", "x "), ("b", "\0"), ("c", "text")]);
        assert_eq!(tree.texts().collect::<Vec<_>>(), [("c", "text")]);
    }
}
