//! Checks that `core` and `types` do not use `std`.

use super::source::has_word;
use super::{TidyFindings, Tree};

const DIRS: &[&str] = &["crates/core/", "crates/types/"];

pub(super) fn check(tree: &Tree) -> TidyFindings {
    let mut found = TidyFindings::default();
    for dir in DIRS {
        let root = format!("{dir}src/lib.rs");
        let declared = tree
            .text(&root)
            .is_some_and(|text| text.lines().any(|line| line.trim() == "#![no_std]"));
        if !declared {
            found.fault(&root, None, "does not say `#![no_std]`");
        }
    }
    let sources = tree.sources(DIRS);
    for (name, source, _) in sources.iter().filter(|(_, _, is_test)| !is_test) {
        found.checked += 1;
        // Search for the name alone, because `extern crate std` and `std::` both contain it.
        for (line, code) in source.outside_tests().iter().filter(|(_, code)| has_word(code, "std"))
        {
            let what = format!("`{}` needs std outside tests", code.trim());
            found.fault(name, Some(*line), what);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::tests::faults;
    use super::*;

    const TYPES: (&str, &str) = ("crates/types/src/lib.rs", "//! T\n#![no_std]\n");

    #[test]
    fn std_in_tests_and_sentences_is_fine() {
        let core = "//! std::x\n#![no_std]\n#[cfg(test)]\nextern crate std;\n// std\n";
        let script = ("crates/core/tests/script.rs", "use std::fmt;");
        assert!(faults(check, &[TYPES, ("crates/core/src/lib.rs", core), script]).is_empty());
    }

    #[test]
    fn std_outside_tests_fails() {
        let core = "//! C\n#![no_std]\nextern crate std;\nfn f() { std::process::abort() }\n";
        let expected = [
            "crates/core/src/lib.rs:3: `extern crate std;` needs std outside tests",
            "crates/core/src/lib.rs:4: `fn f() { std::process::abort() }` needs std outside tests",
        ];
        assert_eq!(faults(check, &[TYPES, ("crates/core/src/lib.rs", core)]), expected);
    }

    #[test]
    fn a_crate_that_does_not_declare_it_fails() {
        let expected = ["crates/core/src/lib.rs: does not say `#![no_std]`"];
        assert_eq!(faults(check, &[TYPES, ("crates/core/src/lib.rs", "//! C\n")]), expected);
    }
}
