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
    look: fn(&Tree) -> TidyFindings,
}

/// How many things a check looked at, and the faults that it found.
#[derive(Debug, Default)]
pub(crate) struct TidyFindings {
    pub(crate) looked_at: u64,
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
    TidyCheck { name: "dependency arrows are those of ARCHITECTURE.md", look: arrows::look },
    TidyCheck { name: "core and types do without std", look: no_std::look },
    TidyCheck { name: "nothing banned is called", look: banned::look },
    TidyCheck { name: "files open by stating their job, and stay readable", look: text::look },
    TidyCheck { name: "the project speaks of itself alone", look: alone::look },
    TidyCheck { name: "crates inherit from the workspace", look: manifest::look },
    TidyCheck { name: "documents name what there is", look: documents::look },
    TidyCheck { name: "a type name has one meaning", look: names::look },
    TidyCheck { name: "client libraries know the passing reasons", look: reasons::look },
    TidyCheck { name: "what others call has an example", look: examples::look },
    TidyCheck { name: "cited invariants exist", look: invariants::look },
    TidyCheck { name: "links lead somewhere", look: links::look },
    TidyCheck { name: "crates from elsewhere follow deny.toml", look: dependencies::look },
    TidyCheck { name: "the SDK adds few crates to a project", look: footprint::look },
    TidyCheck { name: "the compiler is supported", look: dependencies::look_at_compiler },
];

impl TidyCheck {
    /// Runs the check. A check with nothing to look at is a fault as well.
    pub(crate) fn run(&self, tree: &Tree) -> TidyFindings {
        let mut found = (self.look)(tree);
        if found.looked_at == 0 && found.faults.is_empty() {
            found.fault(".", None, "there was nothing to look at");
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
    pub(super) fn faults(look: fn(&Tree) -> TidyFindings, files: &[(&str, &str)]) -> Vec<String> {
        look(&Tree::sample(files)).faults.iter().map(ToString::to_string).collect()
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
