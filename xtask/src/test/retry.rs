//! Decides which failed tests get a second try: those of programs that start real processes, if they are few.
//!
//! Such a test can meet a delay that it cannot foresee: a disk or a machine that stands still for seconds, while other
//! programs run beside it. It runs once more, alone. What its panic says decides nothing, and a test that passed only
//! at the second try is named in the summary of its layer, so that it is looked at. Tests that start no process are
//! never repeated.

/// Crates whose integration tests start members, peers and processes.
pub(crate) const REAL: &[&str] = &["backends", "bench", "cli", "client", "fence", "gate", "server"];

/// The most failed tests of one program that run again. More of them have another cause than a delay.
pub(crate) const AGAIN_MAX: usize = 4;

/// How many lines of a failed test's output the summary repeats.
const LINES: usize = 12;

/// One test that failed, and the lines that it printed from its panic on.
#[derive(Debug, PartialEq)]
pub(crate) struct FailedTest {
    pub(crate) test: String,
    pub(crate) said: Vec<String>,
}

/// Whether these tests of a crate's integration test may run again: all that failed, if the runner counted `count`.
pub(crate) fn may_try_again(krate: &str, failed: &[FailedTest], count: u64) -> bool {
    let are_few = !failed.is_empty() && failed.len() <= AGAIN_MAX;
    REAL.contains(&krate) && are_few && failed.len() as u64 == count
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
    fn a_few_tests_of_real_processes_have_a_second_try() {
        let failed = failures(OUTPUT);
        assert!(may_try_again("cli", &failed, 2));
        assert!(!may_try_again("core", &failed, 2), "nothing delays it");
        assert!(!may_try_again("cli", &failed, 3), "one is not listed");
        assert!(!may_try_again("cli", &[], 0), "it did not run to its end");
        let many: Vec<FailedTest> = (0..3).flat_map(|_| failures(OUTPUT)).collect();
        assert!(!may_try_again("cli", &many, 6), "this is no delay");
    }
}
