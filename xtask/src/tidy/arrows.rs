//! Compares the crates' real dependencies with those in ARCHITECTURE.md.
//!
//! The document has a block that opens with "```arrows". In it `core -> types` stands for a crate of this workspace,
//! and `core => thiserror` for one from elsewhere. Development dependencies are not listed.

use std::collections::BTreeMap;

use super::{TidyFindings, Tree};

const MAP: &str = "ARCHITECTURE.md";
const OPENING: &str = "```arrows";

/// The dependent crate, the kind of arrow (`->` or `=>`), and the dependency.
type Arrow = (String, &'static str, String);

pub(super) fn check(tree: &Tree) -> TidyFindings {
    let mut found = TidyFindings::default();
    let Some(map) = tree.text(MAP) else {
        found.fault(MAP, None, "is missing");
        return found;
    };
    let Some(written) = read_block(map, &mut found) else {
        found.fault(MAP, None, format!("has no block that opens with {OPENING}"));
        return found;
    };
    for each in &tree.crates {
        found.checked += 1;
        let inside = each.inside.iter().map(|to| (each.name().to_owned(), "->", to.clone()));
        let outside = each.outside.iter().map(|to| (each.name().to_owned(), "=>", to.clone()));
        let real: Vec<Arrow> = inside.chain(outside).collect();
        for arrow in real.iter().filter(|arrow| !written.contains_key(*arrow)) {
            let what = format!("`{}` is a dependency that {MAP} does not have", shown(arrow));
            found.fault(&each.manifest(), None, what);
        }
        for (arrow, line) in written.iter().filter(|((from, ..), _)| from == each.name()) {
            if !real.contains(arrow) {
                let what = format!("`{}` is not a dependency any more, or not yet", shown(arrow));
                found.fault(MAP, Some(*line), what);
            }
        }
    }
    for (arrow, line) in &written {
        if !tree.crates.iter().any(|each| each.name() == arrow.0) {
            found.fault(MAP, Some(*line), format!("there is no crate `{}`", arrow.0));
        }
    }
    found
}

/// The arrows with their line numbers.
fn read_block(map: &str, found: &mut TidyFindings) -> Option<BTreeMap<Arrow, usize>> {
    let mut lines = map.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
    lines.find(|(_, line)| *line == OPENING)?;
    let mut arrows = BTreeMap::new();
    for (number, line) in lines {
        if line == "```" {
            return Some(arrows);
        }
        if line.is_empty() {
            continue;
        }
        let sides = ["->", "=>"].into_iter().find_map(|how| Some((how, line.split_once(how)?)));
        let Some((how, (from, to))) = sides else {
            found.fault(MAP, Some(number), format!("`{line}` is no arrow"));
            continue;
        };
        for to in to.split(',').map(str::trim).filter(|to| !to.is_empty()) {
            arrows.insert((from.trim().to_owned(), how, to.to_owned()), number);
        }
    }
    Some(arrows)
}

fn shown((from, how, to): &Arrow) -> String {
    format!("{from} {how} {to}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Crate;

    fn faults(block: &str) -> Vec<String> {
        let core = Crate {
            dir: "crates/core".to_owned(),
            package: "tenure-core".to_owned(),
            inside: ["types".to_owned()].into(),
            outside: ["thiserror".to_owned()].into(),
            tests: [].into(),
        };
        let map = format!("# Map\n\n```arrows\n{block}\n```\n");
        let tree = Tree::sample(&[(MAP, &map)]).with_crates(vec![core]);
        check(&tree).faults.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_same_arrows_pass() {
        assert!(faults("core -> types\ncore => thiserror").is_empty());
    }

    #[test]
    fn a_dependency_that_is_not_written_fails() {
        let expected = [
            "crates/core/Cargo.toml: `core -> types` is a dependency that ARCHITECTURE.md does not have",
            "crates/core/Cargo.toml: `core => thiserror` is a dependency that ARCHITECTURE.md does not have",
        ];
        assert_eq!(faults(""), expected);
    }

    #[test]
    fn a_written_arrow_that_is_no_dependency_fails() {
        let expected =
            ["ARCHITECTURE.md:4: `core -> store` is not a dependency any more, or not yet"];
        assert_eq!(faults("core -> types, store\ncore => thiserror"), expected);
    }

    #[test]
    fn unknown_crates_and_unreadable_lines_fail() {
        let lines = faults("core -> types\ncore => thiserror\nsky -> core\nwhat");
        let expected =
            ["ARCHITECTURE.md:7: `what` is no arrow", "ARCHITECTURE.md:6: there is no crate `sky`"];
        assert_eq!(lines, expected);
    }

    #[test]
    fn a_map_without_the_block_fails() {
        let found = check(&Tree::sample(&[(MAP, "# Map\n")]));
        assert_eq!(found.faults.len(), 1);
    }
}
