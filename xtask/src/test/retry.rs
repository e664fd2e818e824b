//! Decides which failed tests get a second try: those that a marker in their source allows.
//!
//! A test that depends on real time, because it requires an answer within a second or a short lease that is renewed,
//! can meet a machine that stands still for as long. Such a test carries the comment `// Retry once: REASON` above its
//! attributes, and runs once more, alone. Every other failed test fails at once, whatever its panic says. Tests that
//! check a safety invariant carry no marker: a violation must not be repeated until it is gone. The totals count every
//! retry, and a test that passed only then is named in the summary of its layer. Scenarios of the client libraries have
//! a line `retry: REASON` instead (`clients/scenarios`).

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result};

use crate::repo::Repo;

/// The beginning of the comment that allows a second try.
const MARKER: &str = "// Retry once: ";

/// How many lines of a failed test's output the summary repeats.
const LINES: usize = 12;

/// One test that failed, and the lines that it printed from its panic on.
#[derive(Debug, PartialEq)]
pub(crate) struct FailedTest {
    pub(crate) test: String,
    pub(crate) said: Vec<String>,
}

/// The integration tests that may run twice, each as its crate, modules and function: `cli::processes::faults::name`.
#[derive(Debug, Default)]
pub(crate) struct RetryMarkers(BTreeSet<String>);

impl RetryMarkers {
    /// Reads the markers in the integration tests of every crate.
    pub(crate) fn load(repo: &Repo) -> Result<Self> {
        let mut all = Self::default();
        for krate in list(&repo.path("crates"))? {
            let tests = krate.join("tests");
            if tests.is_dir() {
                all.read(&tests, &name(&krate))?;
            }
        }
        Ok(all)
    }

    /// Reads the markers of the files in a directory, which stands for a module.
    fn read(&mut self, dir: &Path, module: &str) -> Result<()> {
        for path in list(dir)? {
            let inner = match name(&path).as_str() {
                "main" | "mod" => module.to_owned(),
                name => format!("{module}::{name}"),
            };
            if path.is_dir() {
                self.read(&path, &inner)?;
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path)
                    .with_context(|| format!("cannot read {}", path.display()))?;
                self.add(&inner, &text);
            }
        }
        Ok(())
    }

    /// Adds the marked functions of a module.
    pub(crate) fn add(&mut self, module: &str, text: &str) {
        let mut is_marked = false;
        for line in text.lines() {
            if let Some(reason) = line.strip_prefix(MARKER) {
                is_marked = !reason.is_empty();
            }
            let function = line.strip_prefix("async fn ").or_else(|| line.strip_prefix("fn "));
            if let Some(function) = function
                && std::mem::take(&mut is_marked)
            {
                let end = function.find(['(', '<']).unwrap_or(function.len());
                self.0.insert(format!("{module}::{}", &function[..end]));
            }
        }
    }

    /// Whether these failed tests of a crate may run again: if the runner counted no others, and all are marked.
    pub(crate) fn allow(&self, krate: &str, failed: &[FailedTest], count: u64) -> bool {
        let is_marked = |failed: &FailedTest| {
            // The runner names the modules below the file of the program, but not the program.
            let end = format!("::{}", failed.test);
            let of_crate = self.0.iter().filter_map(|marked| marked.strip_prefix(krate));
            of_crate.into_iter().any(|marked| marked.starts_with("::") && marked.ends_with(&end))
        };
        !failed.is_empty() && failed.len() as u64 == count && failed.iter().all(is_marked)
    }
}

fn list(dir: &Path) -> Result<Vec<std::path::PathBuf>> {
    let entries =
        std::fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))?;
    entries.map(|entry| Ok(entry?.path())).collect()
}

/// The name of a file or directory, without its extension.
fn name(path: &Path) -> String {
    path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
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
    let said: Vec<&str> = said.filter(|line| !line.is_empty() && !is_backtrace(line)).collect();
    // What a test printed before its panic is of less use; a test may also fail without a panic.
    let panic = said.iter().position(|line| line.contains("panicked at")).unwrap_or(0);
    let said = said[panic..].iter().map(|line| (*line).to_owned()).collect();
    FailedTest { test: test.to_owned(), said }
}

/// Whether the line belongs to a backtrace: its first line, or a frame with its place.
fn is_backtrace(line: &str) -> bool {
    let text = line.trim_start();
    let is_frame = || {
        let number = text.split_once(": ").map(|(number, _)| number);
        number.is_some_and(|it| !it.is_empty() && it.bytes().all(|byte| byte.is_ascii_digit()))
    };
    text == "stack backtrace:"
        || text.starts_with("note: ")
        || line.starts_with(' ') && (text.starts_with("at ") || is_frame())
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
stack backtrace:
   0: __rustc::rust_begin_unwind
             at /rustc/library/std/src/panicking.rs:689:5
the lock waits for nothing
note: Some details are omitted, run with `RUST_BACKTRACE=full`

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
        assert_eq!(found[0].said[2..], ["the lock waits for nothing"], "without the backtrace");
    }

    #[test]
    fn only_marked_tests_have_a_second_try() {
        let failed = failures(OUTPUT);
        let mut markers = RetryMarkers::default();
        markers.add("cli::sdk::b", "// Retry once: a reason\n#[test]\nfn c() {\n}\n\nfn d() {\n");
        assert!(markers.allow("cli", &failed[..1], 1));
        assert!(!markers.allow("cl", &failed[..1], 1), "another crate");
        assert!(!markers.allow("cli", &failed, 2), "`d` has no marker");
        assert!(!markers.allow("cli", &failed[..1], 2), "one is not listed");
        assert!(!markers.allow("cli", &[], 0), "it did not run to its end");
        markers.add("cli::sdk", "// Retry once: a reason\nasync fn d() {\n");
        assert!(markers.allow("cli", &failed, 2));
        let mut empty = RetryMarkers::default();
        empty.add("cli::sdk::b", "// Retry once: \nfn c() {\n");
        assert!(!empty.allow("cli", &failed[..1], 1), "a marker has a reason");
    }

    #[test]
    fn markers_of_this_repository_are_found() {
        let markers = RetryMarkers::load(&Repo::find().unwrap()).unwrap();
        let test = "no_quorum::a_leader_that_is_left_alone_refuses_soon".to_owned();
        assert!(markers.allow("cli", &[FailedTest { test, said: Vec::new() }], 1));
    }
}
