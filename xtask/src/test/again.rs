//! Which tests failed, with what words, and may they be tried again by themselves?
//!
//! Real processes on a shared machine meet delays that no test can foresee, and one such test must not hide what all
//! the others say. So a test that failed beside others is run once more alone, and named if it passes then. What broke
//! a promise is no question of timing: it stays failed.

/// Words of a test that has seen a promise broken.
const BROKEN: &[&str] = &["violation", "overlap", "acknowledged"];

/// Crates whose tests start real members, peers and processes. Elsewhere time plays no part.
const REAL: &[&str] = &["backends", "cli", "client", "fence", "gate", "server"];

/// Whether a test program (`server-grpc`, `core-lib`) depends on how busy the machine is.
pub(crate) fn depends_on_time(program: &str) -> bool {
    let Some((krate, part)) = program.split_once('-') else { return false };
    REAL.contains(&krate) && part != "lib" && part != "bin"
}

/// How much of what a failed test said is repeated at the end.
const LINES: usize = 6;

/// One test that failed, and its words.
#[derive(Debug, PartialEq)]
pub(crate) struct Failure {
    pub(crate) test: String,
    pub(crate) said: Vec<String>,
}

impl Failure {
    /// Whether it may be tried again.
    pub(crate) fn is_final(&self) -> bool {
        // Not the first line, which has the name of the test.
        self.said.iter().skip(1).any(|line| BROKEN.iter().any(|word| line.contains(word)))
    }

    /// The first words of it.
    pub(crate) fn short(&self) -> Vec<String> {
        let shown = self.said.iter().take(LINES);
        shown.map(|line| line.chars().take(300).collect()).collect()
    }
}

/// The failed tests of a program, as its runner lists them.
pub(crate) fn failures(text: &str) -> Vec<Failure> {
    // The list comes last, after the words of each.
    let Some((before, list)) = text.rsplit_once("\nfailures:\n") else { return Vec::new() };
    let names = list.lines().take_while(|line| line.starts_with("    "));
    names.map(|name| failure(before, name.trim())).collect()
}

fn failure(text: &str, test: &str) -> Failure {
    let head = format!("---- {test} stdout ----");
    let said = text.split_once(&head).map_or("", |(_, said)| said);
    let said = said.lines().take_while(|line| !line.starts_with("---- "));
    let said = said.skip_while(|line| !line.contains("panicked at"));
    Failure { test: test.to_owned(), said: said.map(str::to_owned).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "\
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
    fn failed_tests_are_found_with_their_words() {
        let found = failures(SAID);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].test, "b::c");
        assert_eq!(found[0].said[1], "no answer in time: it waits");
        assert_eq!(found[0].said[0], "thread 'b::c' (7) panicked at tests/b.rs:9:5:");
    }

    #[test]
    fn a_broken_promise_is_final_and_a_late_answer_is_not() {
        let found = failures(SAID);
        assert_eq!(found.iter().map(Failure::is_final).collect::<Vec<_>>(), [false, true]);
    }

    #[test]
    fn only_real_processes_depend_on_time() {
        let expected = [("server-grpc", true), ("core-scripts", false), ("client-lib", false)];
        for (program, depends) in expected {
            assert_eq!(depends_on_time(program), depends, "{program}");
        }
    }

    #[test]
    fn a_program_that_passed_has_none() {
        assert_eq!(failures("test a ... ok\n\ntest result: ok. 1 passed; 0 failed"), []);
    }
}
