//! Which layers of tests are there, and what does each report?

mod bench;
mod docs;
mod format;
mod fuzz;
mod lint;
mod model;
mod mutants;
mod processes;
mod sim;
mod tidy;
mod unit;

use anyhow::Result;

use crate::programs::{BENCH, CLI, SIM};
use crate::repo::Repo;
use crate::said::Tests;

use super::log::Log;

/// One layer of tests.
pub(crate) struct Layer {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// The crate whose work it is. That it is missing is a failure, not a reason to skip.
    pub(crate) package: Option<&'static str>,
    pub(crate) run: fn(&mut Stage<'_>) -> Result<Report>,
}

/// What a layer may use.
pub(crate) struct Stage<'a> {
    pub(crate) repo: &'a Repo,
    pub(crate) log: Log,
    /// Whether warnings fail even outside continuous integration.
    pub(crate) strict: bool,
}

/// What a layer did.
#[derive(Debug, PartialEq)]
pub(crate) struct Report {
    did: String,
    count: u64,
    pub(crate) tests: Tests,
    pub(crate) problem: Option<String>,
    /// What its failed tests said.
    pub(crate) words: Vec<String>,
}

/// Every layer, the quick ones first.
pub(crate) const LAYERS: &[Layer] = &[
    Layer { name: "format", about: "every file is formatted", package: None, run: format::run },
    Layer {
        name: "tidy",
        about: "the rules of the repository that no compiler knows",
        package: None,
        run: tidy::run,
    },
    Layer {
        name: "lint",
        about: "clippy; warnings fail in continuous integration and with --strict",
        package: None,
        run: lint::run,
    },
    Layer {
        name: "unit",
        about: "the tests of every crate but tenure-fuzz",
        package: None,
        run: unit::run,
    },
    Layer {
        name: "processes",
        about: "real members killed, stopped, wiped and cut off: nothing acknowledged is lost",
        package: Some(CLI),
        run: processes::run,
    },
    Layer {
        name: "docs",
        about: "the documentation builds without warnings and its examples run",
        package: None,
        run: docs::run,
    },
    Layer {
        name: "model",
        about: "random sequences of commands: the machine agrees with its model",
        package: Some(SIM),
        run: model::run,
    },
    Layer {
        name: "sim",
        about: "whole clusters on one thread, everything failing: their promises hold",
        package: Some(SIM),
        run: sim::run,
    },
    Layer {
        name: "mutants",
        about: "bugs planted in the machine: each one is caught",
        package: Some(SIM),
        run: mutants::of_the_machine,
    },
    Layer {
        name: "cluster-mutants",
        about: "bugs planted in the replicated log, the node and the store: each one is caught",
        package: Some(SIM),
        run: mutants::of_the_log,
    },
    Layer {
        name: "fuzz",
        about: "the committed inputs of every fuzz target, once more",
        package: Some(crate::fuzz::PACKAGE),
        run: fuzz::run,
    },
    Layer {
        name: "bench",
        about: "the benchmark of the machine runs; its speed decides nothing",
        package: Some(BENCH),
        run: bench::run,
    },
];

/// The names of the layers, in order.
pub(crate) fn names() -> Vec<&'static str> {
    LAYERS.iter().map(|layer| layer.name).collect()
}

impl Report {
    /// A layer that looked at `count` things.
    pub(crate) fn did(count: u64, did: impl Into<String>) -> Self {
        let (tests, words) = Default::default();
        Self { did: did.into(), count, tests, problem: None, words }
    }

    /// A layer that could not do its work.
    pub(crate) fn failed(problem: String) -> Self {
        Self::did(0, "").because(problem)
    }

    /// The same, with its tests counted.
    pub(crate) fn with_tests(self, tests: Tests) -> Self {
        Self { tests, ..self }
    }

    /// The same, with what its failed tests said.
    pub(crate) fn with_words(self, words: Vec<String>) -> Self {
        Self { words, ..self }
    }

    /// This work and another's, as one.
    pub(crate) fn and(self, other: &Report) -> Self {
        let parts = [self.did.as_str(), other.did.as_str()];
        let did: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        Self { did: did.join(", "), count: self.count + other.count, ..self }
    }

    /// The same, failed.
    pub(crate) fn because(self, problem: impl Into<String>) -> Self {
        Self { problem: Some(problem.into()), ..self }
    }

    /// The same, failed if it did nothing: silence proves nothing.
    pub(crate) fn settled(self) -> Self {
        if self.problem.is_some() || self.count > 0 {
            return self;
        }
        self.because("it did nothing")
    }

    /// What it did, and before that why it failed if it did.
    pub(crate) fn sentence(&self) -> String {
        match (&self.problem, self.did.as_str()) {
            (None, did) => did.to_owned(),
            (Some(problem), "") => format!("failed: {problem}"),
            (Some(problem), did) => format!("failed: {problem} ({did})"),
        }
    }
}

/// `1 file`, `2 files`.
fn counted(count: u64, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}
