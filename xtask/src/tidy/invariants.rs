//! Checks that ARCHITECTURE.md lists every invariant that the code cites.
//!
//! Code cites an invariant at the start of a message: `assert!(a < b, "S1: tokens only grow")`. The document has an
//! item, a heading or a row that begins with it: `- **S1** tokens only grow`.

use std::collections::BTreeSet;

use super::source::SourceFile;
use super::{TidyFindings, Tree};

const MAP: &str = "ARCHITECTURE.md";

pub(super) fn check(tree: &Tree) -> TidyFindings {
    let mut found = TidyFindings::default();
    let map = tree.text(MAP).unwrap_or_default();
    let written: BTreeSet<&str> = map.lines().filter_map(written).collect();
    found.checked += written.len() as u64;
    for (name, text) in tree.rust() {
        for literal in SourceFile::read(text).literals() {
            let Some(id) = cited(&literal.text) else { continue };
            found.checked += 1;
            if !written.contains(id) {
                let what = format!("`{id}` is not among the numbered invariants of {MAP}");
                found.fault(name, Some(literal.line), what);
            }
        }
    }
    found
}

/// The invariant that a line of the document defines. A line of prose that begins with an id only mentions it, so a
/// mark must precede the id, or a full stop or colon must follow it.
fn written(line: &str) -> Option<&str> {
    let line = line.trim();
    let rest = line.trim_start_matches(|c: char| c.is_ascii_digit() || " .*-|#`".contains(c));
    let id = leading_id(rest)?;
    let behind = &rest[id.len()..];
    let whole = !behind.starts_with(|c: char| c.is_alphanumeric() || c == '_');
    let marked = rest.len() < line.len() || behind.starts_with(['.', ':']);
    (whole && marked).then_some(id)
}

/// The invariant that a message begins with, if a colon follows.
fn cited(message: &str) -> Option<&str> {
    let id = leading_id(message)?;
    message[id.len()..].starts_with(':').then_some(id)
}

/// A capital letter and digits at the start.
fn leading_id(text: &str) -> Option<&str> {
    let digits = text.strip_prefix(|c: char| c.is_ascii_uppercase())?;
    let len = digits.bytes().take_while(u8::is_ascii_digit).count();
    (len > 0).then(|| &text[..1 + len])
}

#[cfg(test)]
mod tests {
    use super::super::tests::faults;
    use super::*;

    #[test]
    fn a_cited_invariant_that_is_written_passes() {
        for line in
            ["- **S1** tokens", "1. S1: tokens", "| S1 | tokens |", "S1. tokens", "### `S1`"]
        {
            let code = "//! A\nfn f() { assert!(a < b, \"S1: tokens only grow\"); }\n";
            assert!(faults(check, &[(MAP, line), ("a.rs", code)]).is_empty(), "{line}");
        }
    }

    #[test]
    fn a_cited_invariant_that_is_not_written_fails() {
        let code = "//! A\nfn f() { assert!(a < b, \"S12: tokens only grow\"); }\n";
        let map = "- **S1** tokens\nS12 was dropped\n- **S120** other\n";
        let expected = ["a.rs:2: `S12` is not among the numbered invariants of ARCHITECTURE.md"];
        assert_eq!(faults(check, &[(MAP, map), ("a.rs", code)]), expected);
    }

    #[test]
    fn other_messages_cite_nothing() {
        for message in ["tokens only grow", "S: x", "S1 x", "s1: x", "1: x", "see S9: x", "S1a: x"]
        {
            assert_eq!(cited(message), None, "{message}");
        }
    }
}
