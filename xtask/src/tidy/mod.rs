//! Defines the rules of the repository that no compiler knows.

mod alone;
mod arrows;
mod banned;
mod documents;
mod examples;
mod invariants;
mod links;
mod manifest;
mod no_std;
mod source;
mod text;
mod tree;

use std::fmt;

pub(crate) use self::tree::Tree;

/// One rule.
pub(crate) struct Check {
    pub(crate) name: &'static str,
    look: fn(&Tree) -> Found,
}

/// How many things a check looked at, and the faults that it found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) looked_at: u64,
    pub(crate) faults: Vec<Fault>,
}

/// One place where a rule is broken.
#[derive(Debug, PartialEq)]
pub(crate) struct Fault {
    path: String,
    /// The line, counted from one; `None` if the whole file is meant.
    line: Option<usize>,
    what: String,
}

/// Every rule.
pub(crate) const CHECKS: &[Check] = &[
    Check { name: "dependency arrows are those of ARCHITECTURE.md", look: arrows::look },
    Check { name: "core and types do without std", look: no_std::look },
    Check { name: "nothing banned is called", look: banned::look },
    Check { name: "files open by stating their job, and stay readable", look: text::look },
    Check { name: "the project speaks of itself alone", look: alone::look },
    Check { name: "crates inherit from the workspace", look: manifest::look },
    Check { name: "documents name what there is", look: documents::look },
    Check { name: "what others call has an example", look: examples::look },
    Check { name: "cited invariants exist", look: invariants::look },
    Check { name: "links lead somewhere", look: links::look },
];

impl Check {
    /// Runs the check. A check with nothing to look at is a fault as well.
    pub(crate) fn run(&self, tree: &Tree) -> Found {
        let mut found = (self.look)(tree);
        if found.looked_at == 0 && found.faults.is_empty() {
            found.fault(".", None, "there was nothing to look at");
        }
        found
    }
}

impl Found {
    fn fault(&mut self, path: &str, line: Option<usize>, what: impl Into<String>) {
        self.faults.push(Fault { path: path.to_owned(), line, what: what.into() });
    }
}

impl fmt::Display for Fault {
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
    pub(super) fn faults(look: fn(&Tree) -> Found, files: &[(&str, &str)]) -> Vec<String> {
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
