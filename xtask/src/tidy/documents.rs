//! Checks that the required documents exist and name the current commands and crates.

use super::{TidyFindings, Tree};

/// The files that every copy of the project must contain.
const NEEDED: &[&str] =
    &["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT", ".ci/run"];
/// The two commands that the README must show: one to try the project, one to test it.
const COMMANDS: &[&str] = &["cargo run --release -- ", "cargo xtask test"];

pub(super) fn check(tree: &Tree) -> TidyFindings {
    let mut found = TidyFindings::default();
    for name in NEEDED {
        match tree.has(name) {
            true => found.checked += 1,
            false => found.fault(name, None, "is missing"),
        }
    }
    if let Some(readme) = tree.text("README.md") {
        for command in COMMANDS.iter().filter(|command| !readme.contains(**command)) {
            found.fault("README.md", None, format!("does not show `{command}`"));
        }
    }
    if let Some(script) = tree.text(".ci/run") {
        look_at_script(script, &mut found);
    }
    if let Some(map) = tree.text("ARCHITECTURE.md") {
        for each in &tree.crates {
            found.checked += 1;
            let name = each.name();
            let forms = [each.dir.clone(), format!("`{name}`"), format!("{name}/")];
            if !forms.iter().any(|form| map.contains(form.as_str())) {
                found.fault("ARCHITECTURE.md", None, format!("does not mention `{}`", each.dir));
            }
        }
    }
    found
}

/// Checks the script of continuous integration: it must run what every developer can run, so it may only prepare that.
fn look_at_script(script: &str, found: &mut TidyFindings) {
    let mut calls = 0;
    for (index, line) in script.lines().enumerate() {
        let line = line.trim();
        let first = line.split_whitespace().next().unwrap_or("#");
        if first.starts_with('#') || (["set", "cd"].contains(&first) && is_plain(line)) {
            continue;
        }
        match line.strip_prefix("exec ").unwrap_or(line) {
            "cargo xtask test" => calls += 1,
            _ => {
                let what = format!("`{line}` is more than `cargo xtask test`");
                found.fault(".ci/run", Some(index + 1), what);
            }
        }
    }
    if calls != 1 {
        found.fault(".ci/run", None, format!("calls `cargo xtask test` {calls} times, not once"));
    }
}

/// Whether no other command is chained to the line.
fn is_plain(line: &str) -> bool {
    !line.contains([';', '&', '|'])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Crate;

    const GOOD: [(&str, &str); 6] = [
        ("README.md", "$ cargo run --release -- dev\n$ cargo xtask test\n"),
        ("ARCHITECTURE.md", "`core` decides\n"),
        ("CHANGELOG.md", ""),
        ("LICENSE-APACHE", ""),
        ("LICENSE-MIT", ""),
        (
            ".ci/run",
            "#!/bin/sh\n# Why.\nset -e\ncd \"$(dirname \"$0\")/..\"\nexec cargo xtask test\n",
        ),
    ];

    fn faults_with(name: &str, text: Option<&str>) -> Vec<String> {
        let files: Vec<(&str, &str)> = GOOD
            .into_iter()
            .filter_map(
                |(file, good)| if file == name { Some((file, text?)) } else { Some((file, good)) },
            )
            .collect();
        let core = Crate {
            dir: "crates/core".to_owned(),
            package: "tenure-core".to_owned(),
            inside: [].into(),
            outside: [].into(),
            tests: [].into(),
        };
        let tree = Tree::sample(&files).with_crates(vec![core]);
        check(&tree).faults.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn complete_documents_pass() {
        assert_eq!(faults_with("", None), Vec::<String>::new());
    }

    #[test]
    fn each_missing_document_fails() {
        for name in NEEDED {
            assert_eq!(faults_with(name, None), [format!("{name}: is missing")]);
        }
    }

    #[test]
    fn a_readme_without_the_commands_fails() {
        assert_eq!(faults_with("README.md", Some("hello")).len(), 2);
    }

    #[test]
    fn a_map_that_forgets_a_crate_fails() {
        let expected = ["ARCHITECTURE.md: does not mention `crates/core`"];
        assert_eq!(faults_with("ARCHITECTURE.md", Some("the score is kept")), expected);
    }

    #[test]
    fn a_script_that_does_more_or_less_fails() {
        let more = "cargo xtask test\ncargo build\n";
        let expected = [".ci/run:2: `cargo build` is more than `cargo xtask test`"];
        assert_eq!(faults_with(".ci/run", Some(more)), expected);
        let less = [".ci/run: calls `cargo xtask test` 0 times, not once"];
        assert_eq!(faults_with(".ci/run", Some("# nothing\n")), less);
        assert_eq!(faults_with(".ci/run", Some("cd x && make\ncargo xtask test\n")).len(), 1);
    }
}
