//! Checks that links between documents lead to existing files.

use super::{TidyFindings, Tree};

pub(super) fn check(tree: &Tree) -> TidyFindings {
    let mut found = TidyFindings::default();
    for (name, text) in tree.texts().filter(|(name, _)| name.ends_with(".md")) {
        found.checked += 1;
        for (line, target) in links(text) {
            let Some(path) = resolve(name, &target) else {
                found.fault(name, Some(line), format!("`{target}` leads out of the repository"));
                continue;
            };
            if !tree.has(&path) {
                found.fault(name, Some(line), format!("`{target}` leads nowhere"));
            }
        }
    }
    found
}

/// The relative targets of a document, outside its code, with their lines.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut links = Vec::new();
    let mut in_code = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") || line.trim_start().starts_with("~~~") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        // Every other piece between backticks is code.
        let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
        let inline = prose.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        let reference =
            prose.trim_start().strip_prefix('[').and_then(|rest| rest.split_once("]: "));
        let all = inline.chain(reference.map(|(_, target)| target));
        for target in all.filter_map(|target| target.split_whitespace().next()) {
            let target = target.trim_matches(['<', '>']);
            if is_relative(target) {
                links.push((index + 1, target.to_owned()));
            }
        }
    }
    links
}

fn is_relative(target: &str) -> bool {
    !target.is_empty()
        && !target.starts_with('#')
        && !target.contains("://")
        && !target.starts_with("mailto:")
}

/// The file that a target means, relative to the top; `None` if it is above the top.
fn resolve(document: &str, target: &str) -> Option<String> {
    let path = target.split(['#', '?']).next().unwrap_or_default();
    let mut parts: Vec<&str> = match path.strip_prefix('/') {
        Some(_) => Vec::new(),
        None => document.rsplit_once('/').map_or(Vec::new(), |(dir, _)| dir.split('/').collect()),
    };
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::super::tests::faults;
    use super::*;

    #[test]
    fn links_to_files_directories_anchors_and_addresses_pass() {
        let text = "[a](../README.md#top) [b](.) [c](#here) [d](https://example.org/x) \
            ![e](b.md \"title\")\n[f]: /docs/b.md\n`[g](nowhere)`\n```\n[h](nowhere)\n```\n";
        let files = [("README.md", ""), ("docs/a.md", text), ("docs/b.md", "")];
        assert_eq!(faults(check, &files), Vec::<String>::new());
    }

    #[test]
    fn links_that_lead_nowhere_fail() {
        let text = "# A\n\n[x](b.md) and [y](../../c.md)\n[z]: d.md\n";
        let expected = [
            "docs/a.md:3: `b.md` leads nowhere",
            "docs/a.md:3: `../../c.md` leads out of the repository",
            "docs/a.md:4: `d.md` leads nowhere",
        ];
        assert_eq!(faults(check, &[("docs/a.md", text)]), expected);
    }
}
