//! Checks that a name which several types of the workspace have is listed with the reason.

use std::collections::BTreeMap;

use super::{TidyFindings, Tree};

/// The list: `| name | crates | why it stays |`. A crate that defines the name twice is written as `client ×2`.
const LIST: &str = "docs/internals/names.md";

/// The words that begin the definition of a type.
const KINDS: &[&str] = &["struct", "enum", "trait", "type", "union"];

pub(super) fn check(tree: &Tree) -> TidyFindings {
    let mut found = TidyFindings::default();
    let shared = shared(tree);
    let Some((_, list)) = tree.texts().find(|(name, _)| *name == LIST) else {
        if !shared.is_empty() {
            found.fault(LIST, None, "there is no list of names that several types have");
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
        let crates = written(crates);
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
        found.fault(LIST, Some(line), format!("`{name}` is defined only once"));
    }
    found
}

/// The names that several types have, with how many of these types each crate defines.
fn shared(tree: &Tree) -> BTreeMap<&str, BTreeMap<&str, usize>> {
    let mut all: BTreeMap<&str, BTreeMap<&str, usize>> = BTreeMap::new();
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
            *all.entry(name).or_default().entry(krate).or_default() += 1;
        }
    }
    all.retain(|_, crates| crates.values().sum::<usize>() > 1);
    all
}

/// The crates as the list has them.
fn written(crates: &BTreeMap<&str, usize>) -> String {
    let each = crates.iter().map(|(krate, types)| match types {
        1 => (*krate).to_owned(),
        _ => format!("{krate} ×{types}"),
    });
    each.collect::<Vec<String>>().join(", ")
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
    fn a_name_of_several_types_of_one_crate_needs_a_row_too() {
        let again = ("crates/a/src/y.rs", "type Line = u8;\n");
        let expected =
            "docs/internals/names.md: `Line` is in a ×2: rename one, or list it with a reason";
        assert_eq!(faults(check, &[ONE, again, (LIST, "| name | crates | why |\n")]), [expected]);
        let listed = (LIST, "| `Line` | a ×2, b | the same |\n");
        assert_eq!(faults(check, &[ONE, again, OTHER, listed]), [""; 0]);
    }

    #[test]
    fn a_row_without_such_a_name_is_old() {
        let listed = (LIST, "| `Line` | a, b | the same |\n| `Gone` | a, b | the same |\n");
        let expected = "docs/internals/names.md:2: `Gone` is defined only once";
        assert_eq!(faults(check, &[ONE, OTHER, listed]), [expected]);
        let expected = "docs/internals/names.md:1: `Line` is defined only once";
        assert_eq!(faults(check, &[ONE, (LIST, "| `Line` | a, b | the same |\n")]), [expected]);
    }

    #[test]
    fn a_row_names_the_crates() {
        let listed = (LIST, "| `Line` | a, c | the same |\n");
        let expected = "docs/internals/names.md:1: `Line` is in a, b, not in a, c";
        assert_eq!(faults(check, &[ONE, OTHER, listed]), [expected]);
    }
}
