//! Checks that no crate calls functions that are banned in it.

use super::source::has_word;
use super::{TidyFindings, Tree};

/// Crates that decide: the same input must give the same answer on every member.
const BELOW_THE_SHELL: &[&str] =
    &["crates/core/", "crates/types/", "crates/raft/", "crates/store/", "crates/node/"];

/// Files in which a crate below the shell touches the outside: the real disk measures how long a sync took, and no
/// decision depends on it.
const THE_OUTSIDE: &[&str] = &["crates/store/src/real.rs"];

/// Names that would make answers differ between members, or that mark unfinished code.
const BELOW_ANYWHERE: &[(&str, &str)] = &[
    ("Instant", "time comes in from outside"),
    ("SystemTime", "no wall clock takes part in a decision"),
    ("thread_rng", "randomness comes in from outside"),
    ("HashMap", "its order differs between processes; use BTreeMap"),
    ("HashSet", "its order differs between processes; use BTreeSet"),
    ("unimplemented!", "say what is missing in a type, or leave it out"),
    ("dbg!", "take it out again"),
];

/// Names that tests may use and shipped code may not.
const BELOW_OUTSIDE_TESTS: &[(&str, &str)] = &[
    ("unwrap()", "use expect with the reason it holds, or handle the case"),
    ("println!", "answers are returned, not printed"),
    ("eprintln!", "answers are returned, not printed"),
];

pub(super) fn check(tree: &Tree) -> TidyFindings {
    let mut found = TidyFindings::default();
    for (name, source, is_test) in tree.sources(&[""]) {
        found.checked += 1;
        let below =
            BELOW_THE_SHELL.iter().any(|dir| name.starts_with(dir)) && !THE_OUTSIDE.contains(&name);
        for (line, code) in source.code() {
            if is_ignored(&code) {
                found.fault(name, Some(line), "a test is ignored; repair it or delete it");
            }
            report(&mut found, name, (line, &code), &[("todo!", "finish it or leave it out")]);
            if below {
                report(&mut found, name, (line, &code), BELOW_ANYWHERE);
            }
        }
        if below && !is_test {
            for (line, code) in source.outside_tests() {
                report(&mut found, name, (line, &code), BELOW_OUTSIDE_TESTS);
            }
        }
    }
    for (name, text) in tree.rust() {
        for (index, line) in text.lines().enumerate() {
            let doc = line.trim().strip_prefix("///").or(line.trim().strip_prefix("//!"));
            if doc.is_some_and(|doc| doc.trim().starts_with("```ignore")) {
                found.fault(name, Some(index + 1), "an example is ignored; let it compile");
            }
        }
    }
    found
}

fn report(
    found: &mut TidyFindings,
    name: &str,
    (line, code): (usize, &str),
    words: &[(&str, &str)],
) {
    for (word, why) in words.iter().filter(|(word, _)| has_word(code, word)) {
        found.fault(name, Some(line), format!("`{word}` is banned here: {why}"));
    }
}

fn is_ignored(code: &str) -> bool {
    code.contains("#[ignore") || (code.contains("cfg_attr(") && has_word(code, "ignore"))
}

#[cfg(test)]
mod tests {
    use super::super::tests::faults;
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(&Tree::sample(&[(path, text)])).faults.iter().filter_map(|fault| fault.line).collect()
    }

    #[test]
    fn the_message_names_place_word_and_reason() {
        let expected =
            ["crates/core/src/a.rs:2: `Instant` is banned here: time comes in from outside"];
        assert_eq!(faults(check, &[("crates/core/src/a.rs", "//! A\nuse x::Instant;")]), expected);
    }

    #[test]
    fn every_banned_word_is_found_below_the_shell() {
        for (word, _) in BELOW_ANYWHERE.iter().chain(BELOW_OUTSIDE_TESTS) {
            for dir in BELOW_THE_SHELL {
                assert_eq!(lines(&format!("{dir}src/a.rs"), &format!("x.{word}")), [1], "{word}");
            }
            assert!(lines("crates/cli/src/a.rs", &format!("x.{word}")).is_empty(), "{word}");
        }
    }

    #[test]
    fn tests_may_unwrap_but_not_read_a_clock() {
        let text = "#[cfg(test)]\nmod tests {\nfn f() { x.unwrap() }\nuse Instant;\n}";
        assert_eq!(lines("crates/core/src/a.rs", text), [4]);
        assert_eq!(lines("crates/core/tests/a.rs", "x.unwrap();\nHashMap"), [2]);
    }

    #[test]
    fn unfinished_code_and_ignored_tests_are_found_everywhere() {
        for path in ["crates/cli/src/a.rs", "crates/core/tests/a.rs", "xtask/src/a.rs"] {
            assert_eq!(lines(path, "todo!()\n#[ignore]\n#[ignore = \"slow\"]"), [1, 2, 3]);
            assert_eq!(lines(path, "#[cfg_attr(miri, ignore)]"), [1]);
            assert_eq!(lines(path, "/// ```ignore"), [1]);
        }
    }

    #[test]
    fn sentences_and_longer_names_are_fine() {
        let text = "// unwrap() a HashMap\nBootInstant; f(\"todo!\"); x.unwrap_or(1)";
        assert!(lines("crates/core/src/a.rs", text).is_empty());
    }
}
