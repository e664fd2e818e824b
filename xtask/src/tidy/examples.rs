//! Checks that every item of the public crates has an example.
//!
//! The compiler checks that the examples compile: the layer of documentation builds every one.

use super::{TidyFindings, Tree};

/// Crates with callers outside this repository.
const FOR_OTHERS: &[&str] = &["crates/client/src/", "crates/backends/src/", "crates/testkit/src/"];
/// Kinds of items that can be public and have a page in the documentation.
const KINDS: &[&str] =
    &["fn", "async", "const", "struct", "enum", "trait", "type", "static", "unsafe"];

pub(super) fn check(tree: &Tree) -> TidyFindings {
    let mut found = TidyFindings::default();
    for (name, _, is_test) in tree.sources(FOR_OTHERS) {
        if is_test {
            continue;
        }
        let Some(text) = tree.text(name) else { continue };
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        // A file that is hidden as a whole has this attribute at its top.
        if lines.contains(&"#![doc(hidden)]") {
            continue;
        }
        for (at, line) in lines.iter().enumerate() {
            let Some(item) = public(line) else { continue };
            let about = about(&lines[..at]);
            if about.iter().any(|line| line.starts_with("#[doc(hidden)]")) {
                continue;
            }
            found.checked += 1;
            if !about.iter().any(|line| line.starts_with("/// ```")) {
                found.fault(name, Some(at + 1), format!("`{item}` has no example"));
            }
        }
    }
    found
}

/// The name of the item that a line makes public.
fn public(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("pub ")?;
    let mut words = rest.split_whitespace();
    words.next().filter(|kind| KINDS.contains(kind))?;
    let name = words.find(|word| !KINDS.contains(word))?;
    Some(name.split(['(', '<', ':', '{', ';', '=']).next().unwrap_or(name))
}

/// The comments and attributes directly before a line.
fn about<'a>(before: &[&'a str]) -> Vec<&'a str> {
    let belongs =
        |line: &&&str| line.starts_with("///") || line.starts_with("#[") || line.ends_with(")]");
    before.iter().rev().take_while(belongs).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::faults;
    use super::*;

    fn fault(text: &str) -> String {
        faults(check, &[("crates/client/src/a.rs", text)]).join("\n")
    }

    #[test]
    fn an_item_with_an_example_passes_and_one_without_does_not() {
        assert_eq!(
            fault("/// Does.\n///\n/// ```\n/// f();\n/// ```\n#[must_use]\npub fn f() {}"),
            ""
        );
        let without = "/// Does.\npub async fn f<T>() {}";
        assert_eq!(fault(without), "crates/client/src/a.rs:2: `f` has no example");
        assert!(fault("/// ```\npub fn f() {}\npub struct A;").contains(":3: `A`"));
        assert!(fault("pub const fn micros(self) {}").contains("`micros`"));
    }

    #[test]
    fn items_not_visible_outside_need_none() {
        assert_eq!(fault("pub(crate) fn f() {}\npub use a::B;\npub mod c;\nfn g() {}"), "");
        assert_eq!(fault("/// For tests.\n#[doc(hidden)]\npub fn f() {}"), "");
        assert_eq!(fault("//! For tests.\n#![doc(hidden)]\n\npub fn f() {}"), "");
        assert_eq!(faults(check, &[("crates/core/src/a.rs", "pub fn f() {}")]).join("\n"), "");
    }
}
