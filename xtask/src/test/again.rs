//! Finds failed tests and decides whether they are run again alone.
//!
//! Tests with real processes on a shared machine meet delays that no test can foresee, and one such test must not hide
//! the results of all others. So such a test that failed beside others is run once more alone, and is reported by name
//! if it then passes. A program that proves a promise gets this second run only if the test timed out: any other
//! failure of such a test is final.

/// Crates whose tests start real members, peers and processes. Tests of other crates do not depend on time.
const REAL: &[&str] = &["backends", "cli", "client", "fence", "gate", "server"];

/// Programs that prove a promise: one holder at a time, no acknowledged command lost, every event delivered once.
const PROOFS: &[&str] = &[
    "backends-stores",
    "cli-backup",
    "cli-guarded",
    "cli-hold",
    "cli-sdk",
    "client-alone",
    "fence-fences",
    "gate-gate",
    "server-restore",
    "server-watch",
];

/// Words in the output of a test that timed out.
const LATE: &[&str] = &["waited too long", "no answer", "in time", "not over in", "too slow"];

/// Words in the output of any test that saw a broken promise.
const BROKEN: &[&str] = &["violation", "overlap", "acknowledged", "twice"];

/// The kind of a test program, which decides whether a failed test is run again.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Program {
    /// The tests do not depend on time.
    Steady,
    Real,
    Proof,
}

impl Program {
    /// The kind of a program by its name: `server-grpc`, `core-lib`.
    pub(crate) fn named(name: &str) -> Self {
        match name.split_once('-') {
            Some((krate, part)) if REAL.contains(&krate) && part != "lib" && part != "bin" => {
                if PROOFS.contains(&name) {
                    Self::Proof
                } else {
                    Self::Real
                }
            }
            _ => Self::Steady,
        }
    }
}

/// How many lines of a failed test are repeated at the end.
const LINES: usize = 6;

/// A failed test with its output.
#[derive(Debug, PartialEq)]
pub(crate) struct Failure {
    pub(crate) test: String,
    pub(crate) said: Vec<String>,
}

impl Failure {
    /// Whether the test may be run again.
    pub(crate) fn may_be_late(&self, of: Program) -> bool {
        // Skip the first line, which contains the name of the test.
        let says = |words: &[&str]| {
            self.said.iter().skip(1).any(|line| words.iter().any(|word| line.contains(word)))
        };
        match of {
            Program::Steady => false,
            Program::Real => !says(BROKEN),
            Program::Proof => says(LATE) && !says(BROKEN),
        }
    }

    /// The first lines of the output.
    pub(crate) fn short(&self) -> Vec<String> {
        let shown = self.said.iter().take(LINES);
        shown.map(|line| line.chars().take(300).collect()).collect()
    }
}

/// The failed tests of a program, as its test runner lists them.
pub(crate) fn failures(text: &str) -> Vec<Failure> {
    // The list comes last, after the output of each test.
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
        for of in [Program::Real, Program::Proof] {
            let may: Vec<_> = found.iter().map(|it| it.may_be_late(of)).collect();
            assert_eq!(may, [true, false], "{of:?}");
        }
    }

    #[test]
    fn a_proof_that_saw_something_else_is_final() {
        let failure = |said: &str| Failure {
            test: "t".to_owned(),
            said: vec!["thread 't' panicked at in time".to_owned(), said.to_owned()],
        };
        let (strange, late) = (failure("two were at work at once"), failure("it came in time"));
        let may = |it: &Failure, of| it.may_be_late(of);
        assert!(may(&strange, Program::Real) && may(&late, Program::Real));
        assert!(!may(&strange, Program::Proof) && may(&late, Program::Proof));
        assert!(!may(&strange, Program::Steady) && !may(&late, Program::Steady));
    }

    #[test]
    fn only_real_processes_depend_on_time() {
        let expected = [
            ("server-grpc", Program::Real),
            ("cli-hold", Program::Proof),
            ("core-scripts", Program::Steady),
            ("client-lib", Program::Steady),
        ];
        for (name, of) in expected {
            assert_eq!(Program::named(name), of, "{name}");
        }
    }

    #[test]
    fn a_program_that_passed_has_none() {
        assert_eq!(failures("test a ... ok\n\ntest result: ok. 1 passed; 0 failed"), []);
    }
}
