//! Checks that every crate inherits lints, edition and licence from the workspace.

use super::{TidyFindings, Tree};

pub(super) fn check(tree: &Tree) -> TidyFindings {
    let mut found = TidyFindings::default();
    for (name, text) in tree.texts() {
        // The other manifests inherit from the one at the top.
        if !name.ends_with("/Cargo.toml") {
            continue;
        }
        found.checked += 1;
        let says = |section, key| says_workspace(text, section, key);
        if !says("lints", None) {
            found.fault(name, None, "has no `[lints]` with `workspace = true`");
        }
        for key in ["edition", "license"] {
            if !says("package", Some(key)) {
                found.fault(name, None, format!("does not say `{key}.workspace = true`"));
            }
        }
    }
    found
}

/// Whether the section, or one key of it, is inherited, in any of the ways to write that.
fn says_workspace(text: &str, section: &str, key: Option<&str>) -> bool {
    let wanted = match key {
        None => vec!["workspace=true".to_owned()],
        Some(key) => {
            vec![format!("{key}.workspace=true"), format!("{key}={{workspace=true}}")]
        }
    };
    let mut current = String::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default();
        let line: String = line.chars().filter(|c| !c.is_whitespace()).collect();
        if let Some(header) = line.strip_prefix('[') {
            current = header.trim_end_matches(']').to_owned();
        } else if current == section && wanted.contains(&line) {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::super::tests::faults;
    use super::*;

    const GOOD: &str = "[package]\nname = \"a\"\nedition.workspace = true\n\
        license = { workspace = true } # both\n\n[lints]\nworkspace = true\n";

    #[test]
    fn a_crate_that_inherits_passes() {
        assert!(faults(check, &[("crates/a/Cargo.toml", GOOD)]).is_empty());
    }

    #[test]
    fn each_thing_not_inherited_fails() {
        let broken = [
            ("edition.workspace = true", "edition = \"2024\"", "edition.workspace"),
            ("license = { workspace = true }", "license = \"MIT\"", "license.workspace"),
            ("[lints]", "[lints.rust]", "[lints]"),
        ];
        for (good, bad, named) in broken {
            let faults = faults(check, &[("crates/a/Cargo.toml", &GOOD.replace(good, bad))]);
            assert_eq!(faults.len(), 1, "{bad}");
            assert!(faults[0].contains(named), "{}", faults[0]);
        }
    }
}
