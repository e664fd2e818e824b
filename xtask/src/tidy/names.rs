//! Checks that a type name which several crates use is listed with the reason.

use std::collections::{BTreeMap, BTreeSet};

use super::{TidyFindings, Tree};

/// The list: `| name | crates | why it stays |`.
const LIST: &str = "docs/internals/names.md";

/// The words that begin the definition of a type.
const KINDS: &[&str] = &["struct", "enum", "trait", "type", "union"];

pub(super) fn check(tree: &Tree) -> TidyFindings {
    let mut found = TidyFindings::default();
    let shared = shared(tree);
    let Some((_, list)) = tree.texts().find(|(name, _)| *name == LIST) else {
        if !shared.is_empty() {
            found.fault(LIST, None, "there is no list of names that several crates use");
        }
        return found;
    };
    let mut listed = BTreeMap::new();
    for (index, line) in list.lines().enumerate() {
        if let Some((name, crates)) = row(line) {
            listed.insert(name, (crates, index + 1));
        }
    }
    for (name, crates) in &shared {
        found.checked += 1;
        let crates: Vec<&str> = crates.iter().copied().collect();
        let crates = crates.join(", ");
        match listed.remove(*name) {
            Some((written, _)) if written == crates => {}
            Some((written, line)) => {
                let what = format!("`{name}` is in {crates}, not in {written}");
                found.fault(LIST, Some(line), what);
            }
            None => {
                let what = format!("`{name}` is in {crates}: rename one, or list it with a reason");
                found.fault(LIST, None, what);
            }
        }
    }
    for (name, (_, line)) in listed {
        found.fault(LIST, Some(line), format!("`{name}` is not in several crates"));
    }
    found
}

/// The names that types of several crates have, with these crates.
fn shared(tree: &Tree) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut all: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (path, text) in tree.texts() {
        let Some((krate, file)) = path.strip_prefix("crates/").and_then(|it| it.split_once('/'))
        else {
            continue;
        };
        if !file.starts_with("src/") || !file.ends_with(".rs") || file.ends_with("tests.rs") {
            continue;
        }
        // Types inside of others, and those of tests, are indented.
        for name in text.lines().filter_map(defined) {
            all.entry(name).or_default().insert(krate);
        }
    }
    all.retain(|_, crates| crates.len() > 1);
    all
}

/// The name of the type that a line defines.
fn defined(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace();
    let first = words.next().filter(|_| !line.starts_with(' '))?;
    let kind = if first.starts_with("pub") { words.next()? } else { first };
    let name = words.next().filter(|_| KINDS.contains(&kind))?;
    let end = name.find(|c: char| !c.is_alphanumeric()).unwrap_or(name.len());
    Some(&name[..end])
}

/// The name and the crates of a row.
fn row(line: &str) -> Option<(&str, &str)> {
    let mut cells = line.strip_prefix("| `")?.split('|').map(str::trim);
    Some((cells.next()?.strip_suffix('`')?, cells.next()?))
}

#[cfg(test)]
mod tests {
    use super::super::tests::faults;
    use super::*;

    const ONE: (&str, &str) =
        ("crates/a/src/x.rs", "pub(crate) struct Line<'a> {\n    type Item;\n}\n");
    const OTHER: (&str, &str) = ("crates/b/src/y.rs", "enum Line {}\n");

    #[test]
    fn a_name_of_several_crates_needs_a_row() {
        let expected =
            "docs/internals/names.md: `Line` is in a, b: rename one, or list it with a reason";
        assert_eq!(faults(check, &[ONE, OTHER, (LIST, "| name | crates | why |\n")]), [expected]);
        let listed = (LIST, "| `Line` | a, b | the same |\n");
        assert_eq!(faults(check, &[ONE, OTHER, listed]), [""; 0]);
    }

    #[test]
    fn a_row_without_such_a_name_is_old() {
        let listed = (LIST, "| `Line` | a, b | the same |\n| `Gone` | a, b | the same |\n");
        let expected = "docs/internals/names.md:2: `Gone` is not in several crates";
        assert_eq!(faults(check, &[ONE, OTHER, listed]), [expected]);
        let expected = "docs/internals/names.md:1: `Line` is not in several crates";
        assert_eq!(faults(check, &[ONE, (LIST, "| `Line` | a, b | the same |\n")]), [expected]);
    }

    #[test]
    fn a_row_names_the_crates() {
        let listed = (LIST, "| `Line` | a, c | the same |\n");
        let expected = "docs/internals/names.md:1: `Line` is in a, b, not in a, c";
        assert_eq!(faults(check, &[ONE, OTHER, listed]), [expected]);
    }
}
