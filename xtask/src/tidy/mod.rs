//! Defines the rules of the repository that no compiler knows.

mod alone;
mod arrows;
mod banned;
mod dependencies;
mod documents;
mod examples;
mod footprint;
mod invariants;
mod links;
mod manifest;
mod names;
mod no_std;
mod reasons;
mod source;
mod text;
mod tree;

use std::fmt;

pub(crate) use self::tree::Tree;

/// One rule.
pub(crate) struct TidyCheck {
    pub(crate) name: &'static str,
    check: fn(&Tree) -> TidyFindings,
}

/// How many things were checked, and the faults that it found.
#[derive(Debug, Default)]
pub(crate) struct TidyFindings {
    pub(crate) checked: u64,
    pub(crate) faults: Vec<TidyFault>,
    /// What a reader of the report should know, although no rule is broken.
    pub(crate) notes: Vec<String>,
}

/// One place where a rule is broken.
#[derive(Debug, PartialEq)]
pub(crate) struct TidyFault {
    path: String,
    /// The line, counted from one; `None` if the whole file is meant.
    line: Option<usize>,
    what: String,
}

/// Every rule.
pub(crate) const CHECKS: &[TidyCheck] = &[
    TidyCheck { name: "dependency arrows are those of ARCHITECTURE.md", check: arrows::check },
    TidyCheck { name: "core and types do without std", check: no_std::check },
    TidyCheck { name: "nothing banned is called", check: banned::check },
    TidyCheck { name: "files open by stating their job, and stay readable", check: text::check },
    TidyCheck { name: "the project speaks of itself alone", check: alone::check },
    TidyCheck { name: "crates inherit from the workspace", check: manifest::check },
    TidyCheck { name: "documents name what there is", check: documents::check },
    TidyCheck { name: "a type name has one meaning", check: names::check },
    TidyCheck { name: "client libraries know the passing reasons", check: reasons::check },
    TidyCheck { name: "what others call has an example", check: examples::check },
    TidyCheck { name: "cited invariants exist", check: invariants::check },
    TidyCheck { name: "links lead somewhere", check: links::check },
    TidyCheck { name: "crates from elsewhere follow deny.toml", check: dependencies::check },
    TidyCheck { name: "the SDK adds few crates to a project", check: footprint::check },
    TidyCheck { name: "the compiler is supported", check: dependencies::check_compiler },
];

impl TidyCheck {
    /// Runs the check. A check with nothing to check is a fault as well.
    pub(crate) fn run(&self, tree: &Tree) -> TidyFindings {
        let mut found = (self.check)(tree);
        if found.checked == 0 && found.faults.is_empty() {
            found.fault(".", None, "there was nothing to check");
        }
        found
    }
}

impl TidyFindings {
    fn fault(&mut self, path: &str, line: Option<usize>, what: impl Into<String>) {
        self.faults.push(TidyFault { path: path.to_owned(), line, what: what.into() });
    }
}

impl fmt::Display for TidyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.path, self.what),
            None => write!(f, "{}: {}", self.path, self.what),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repo::Repo;

    /// The faults of one check over sample files, as printed.
    pub(super) fn faults(check: fn(&Tree) -> TidyFindings, files: &[(&str, &str)]) -> Vec<String> {
        check(&Tree::sample(files)).faults.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_repository_is_tidy() {
        let tree = Tree::load(&Repo::find().unwrap()).unwrap();
        let mut faults = Vec::new();
        for check in CHECKS {
            let found = check.run(&tree);
            faults.extend(found.faults.iter().map(|fault| format!("{}: {fault}", check.name)));
        }
        assert!(faults.is_empty(), "\n{}", faults.join("\n"));
    }

    #[test]
    fn a_check_with_nothing_to_look_at_fails() {
        let empty = Tree::sample(&[]);
        for check in CHECKS {
            assert!(!check.run(&empty).faults.is_empty(), "{}", check.name);
        }
    }
}
