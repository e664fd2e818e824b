//! Decides which failed tests get a second try: those that a marker in their source allows.
//!
//! A test of real processes on a shared machine can meet a delay that it cannot foresee. Such a test carries the
//! comment `// Retry once: REASON` directly above its attributes. Everything else that fails stays failed, whatever
//! its panic says. A test that passed only at the second try is named in the summary of its layer.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result};

use crate::repo::Repo;

/// The beginning of the comment that allows a second try.
const MARKER: &str = "// Retry once: ";

/// How many lines of a failed test's output the summary repeats.
const LINES: usize = 6;

/// The tests that may be tried twice, by crate and function.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Markers(BTreeSet<(String, String)>);

/// One test that failed, and the lines that it printed from its panic on.
#[derive(Debug, PartialEq)]
pub(crate) struct FailedTest {
    pub(crate) test: String,
    pub(crate) said: Vec<String>,
}

impl Markers {
    /// Reads the markers of every crate's integration tests.
    pub(crate) fn load(repo: &Repo) -> Result<Self> {
        let mut all = Self::default();
        for entry in read_dir(&repo.path("crates"))? {
            let tests = entry.join("tests");
            if let Some(krate) = entry.file_name().and_then(|name| name.to_str())
                && tests.is_dir()
            {
                all.read(krate, &tests)?;
            }
        }
        Ok(all)
    }

    fn read(&mut self, krate: &str, dir: &Path) -> Result<()> {
        for path in read_dir(dir)? {
            if path.is_dir() {
                self.read(krate, &path)?;
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path)
                    .with_context(|| format!("cannot read {}", path.display()))?;
                self.0.extend(marked(&text).map(|test| (krate.to_owned(), test)));
            }
        }
        Ok(())
    }

    /// The markers of some tests, by crate and function.
    #[cfg(test)]
    pub(crate) fn of(tests: &[(&str, &str)]) -> Self {
        let owned = |(krate, test): &(&str, &str)| ((*krate).to_owned(), (*test).to_owned());
        Self(tests.iter().map(owned).collect())
    }

    /// Whether a test of a crate may be tried again. The name may have modules before it.
    pub(crate) fn allow(&self, krate: &str, test: &str) -> bool {
        let function = test.rsplit("::").next().unwrap_or(test);
        self.0.contains(&(krate.to_owned(), function.to_owned()))
    }
}

fn read_dir(dir: &Path) -> Result<Vec<std::path::PathBuf>> {
    let entries =
        std::fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))?;
    entries.map(|entry| Ok(entry?.path())).collect()
}

/// The functions below a marker.
fn marked(text: &str) -> impl Iterator<Item = String> {
    let mut is_marked = false;
    text.lines().map(str::trim_start).filter_map(move |line| {
        if let Some(reason) = line.strip_prefix(MARKER) {
            is_marked = !reason.trim().is_empty();
        }
        let function = line.strip_prefix("async fn ").or_else(|| line.strip_prefix("fn "))?;
        let name = function.split(['(', '<']).next()?;
        std::mem::take(&mut is_marked).then(|| name.to_owned())
    })
}

impl FailedTest {
    /// The first lines of the output.
    pub(crate) fn short(&self) -> Vec<String> {
        let shown = self.said.iter().take(LINES);
        shown.map(|line| line.chars().take(300).collect()).collect()
    }
}

/// The failed tests of a program, as its runner lists them.
pub(crate) fn failures(text: &str) -> Vec<FailedTest> {
    // The runner prints the output of each failed test first and the list of their names last.
    let Some((before, list)) = text.rsplit_once("\nfailures:\n") else { return Vec::new() };
    let names = list.lines().take_while(|line| line.starts_with("    "));
    names.map(|name| failure(before, name.trim())).collect()
}

fn failure(text: &str, test: &str) -> FailedTest {
    let head = format!("---- {test} stdout ----");
    let said = text.split_once(&head).map_or("", |(_, said)| said);
    let said = said.lines().take_while(|line| !line.starts_with("---- "));
    let said = said.skip_while(|line| !line.contains("panicked at"));
    FailedTest { test: test.to_owned(), said: said.map(str::to_owned).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
running 3 tests
test a ... ok
test b::c ... FAILED

failures:

---- b::c stdout ----
figures before

thread 'b::c' (7) panicked at tests/b.rs:9:5:
no answer in time: it waits
note: run with `RUST_BACKTRACE=1`

---- d stdout ----

thread 'd' (8) panicked at tests/d.rs:9:5:
violation: two at once

failures:
    b::c
    d

test result: FAILED. 1 passed; 2 failed; 0 ignored
";

    #[test]
    fn failed_tests_are_found_with_their_output() {
        let found = failures(OUTPUT);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].test, "b::c");
        assert_eq!(found[0].said[1], "no answer in time: it waits");
        assert_eq!(found[0].said[0], "thread 'b::c' (7) panicked at tests/b.rs:9:5:");
    }

    #[test]
    fn only_a_marker_with_a_reason_allows_a_second_try() {
        let text = "\
            // Retry once: an election takes as long as the machine lets it.\n\
            #[test]\nfn marked() {}\n\
            #[test]\nfn the_next_one() {}\n\
            // Retry once: \n#[test]\nfn without_a_reason() {}\n";
        let functions: Vec<String> = super::marked(text).collect();
        assert_eq!(functions, ["marked"]);
        let markers = Markers::of(&[("cli", "marked")]);
        assert!(markers.allow("cli", "module::marked"));
        assert!(!markers.allow("server", "module::marked"));
        assert!(!markers.allow("cli", "marked::other"));
    }

    #[test]
    fn a_program_that_passed_has_none() {
        assert_eq!(failures("test a ... ok\n\ntest result: ok. 1 passed; 0 failed"), []);
    }
}
