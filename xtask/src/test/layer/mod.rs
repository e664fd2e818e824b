//! Defines the layers of tests and the report of a layer.

mod bench;
mod clients;
mod console;
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

use crate::output::Tests;
use crate::programs::{BENCH, CLI, SIM};
use crate::repo::Repo;

use super::log::LayerLog;

/// One layer of tests.
pub(crate) struct Layer {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// The crate that the layer needs. A missing crate is a failure, not a reason to skip.
    pub(crate) package: Option<&'static str>,
    pub(crate) lane: Lane,
    pub(crate) run: fn(&mut LayerContext<'_>) -> Result<LayerReport>,
}

/// Which layers a layer runs beside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lane {
    /// One after another: their programs meet deadlines, or share the build directory.
    Main,
    /// All at once, beside the layers of the main lane that are listed after the first of them: they mostly wait.
    Waiting,
    /// Beside those of the main lane, at low priority: they only compute, in a build directory of their own, and use
    /// the time in which the tests of the main lane wait.
    Beside,
}

/// What a layer may use.
pub(crate) struct LayerContext<'a> {
    pub(crate) repo: &'a Repo,
    pub(crate) log: LayerLog,
    /// Whether warnings fail even outside continuous integration.
    pub(crate) strict: bool,
    pub(crate) depth: Depth,
}

/// How much the layers do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Depth {
    /// What a developer runs after each change: minutes.
    Check,
    /// What continuous integration runs.
    Full,
}

/// The result of a layer.
#[derive(Debug, PartialEq)]
pub(crate) struct LayerReport {
    did: String,
    count: u64,
    pub(crate) tests: Tests,
    pub(crate) problem: Option<String>,
    /// The failed tests with their output.
    pub(crate) words: Vec<String>,
}

/// Every layer, the quick ones first.
pub(crate) const LAYERS: &[Layer] = &[
    Layer {
        name: "format",
        about: "every file is formatted",
        package: None,
        lane: Lane::Main,
        run: format::run,
    },
    Layer {
        name: "tidy",
        about: "the rules of the repository that no compiler knows",
        package: None,
        lane: Lane::Main,
        run: tidy::run,
    },
    Layer {
        name: "lint",
        about: "clippy; warnings fail in continuous integration and with --strict",
        package: None,
        lane: Lane::Main,
        run: lint::run,
    },
    Layer {
        name: "unit",
        about: "the tests of every crate but tenure-fuzz",
        package: None,
        lane: Lane::Main,
        run: unit::run,
    },
    Layer {
        name: "processes",
        about: "real members killed, stopped, wiped and cut off: nothing acknowledged is lost",
        package: Some(CLI),
        lane: Lane::Main,
        run: processes::run,
    },
    Layer {
        name: "clients",
        about: "every client library: vectors, and scenarios with frozen, killed and cut-off processes",
        package: Some(CLI),
        lane: Lane::Waiting,
        run: clients::run,
    },
    Layer {
        name: "console",
        about: "the web console in a browser: its pages, its acts, and what it must not do",
        package: Some(CLI),
        lane: Lane::Waiting,
        run: console::run,
    },
    Layer {
        name: "docs",
        about: "the documentation builds without warnings and its examples run",
        package: None,
        lane: Lane::Main,
        run: docs::run,
    },
    Layer {
        name: "model",
        about: "random sequences of commands: the machine agrees with its model",
        package: Some(SIM),
        lane: Lane::Beside,
        run: model::run,
    },
    Layer {
        name: "mutants",
        about: "bugs planted in the machine: each one is caught",
        package: Some(SIM),
        lane: Lane::Beside,
        run: mutants::of_the_machine,
    },
    Layer {
        name: "cluster-mutants",
        about: "bugs planted in the replicated log, the node and the store: each one is caught",
        package: Some(SIM),
        lane: Lane::Beside,
        run: mutants::of_the_log,
    },
    // The last of its lane: it keeps all processors busy when the other layers have ended.
    Layer {
        name: "sim",
        about: "whole clusters on one thread, everything failing: their promises hold",
        package: Some(SIM),
        lane: Lane::Beside,
        run: sim::run,
    },
    Layer {
        name: "fuzz",
        about: "the committed inputs of every fuzz target, once more",
        package: Some(crate::fuzz::PACKAGE),
        lane: Lane::Main,
        run: fuzz::run,
    },
    Layer {
        name: "bench",
        about: "the benchmark of the machine runs; its speed decides nothing",
        package: Some(BENCH),
        lane: Lane::Main,
        run: bench::run,
    },
];

/// The layers of a check. It leaves out everything that starts members or plants bugs, and everything that needs a
/// build in another profile: that compiles core, the node and the simulator a second time. Some sequences of the model
/// and some seeds of clusters are tests of `unit` (`crates/sim/tests`).
pub(crate) const CHECKED: &[&str] = &["format", "tidy", "lint", "unit"];

/// The names of the layers, in order.
pub(crate) fn names() -> Vec<&'static str> {
    LAYERS.iter().map(|layer| layer.name).collect()
}

impl LayerReport {
    /// A layer that checked `count` things.
    pub(crate) fn did(count: u64, did: impl Into<String>) -> Self {
        let (tests, words) = Default::default();
        Self { did: did.into(), count, tests, problem: None, words }
    }

    /// A layer that could not do its work.
    pub(crate) fn failed(problem: String) -> Self {
        Self::did(0, "").because(problem)
    }

    /// Adds the counts of tests.
    pub(crate) fn with_tests(self, tests: Tests) -> Self {
        Self { tests, ..self }
    }

    /// Adds the output of failed tests.
    pub(crate) fn with_words(self, words: Vec<String>) -> Self {
        Self { words, ..self }
    }

    /// Combines this report with that of another part of the same layer.
    pub(crate) fn and(self, other: &LayerReport) -> Self {
        let parts = [self.did.as_str(), other.did.as_str()];
        let did: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        Self { did: did.join(", "), count: self.count + other.count, ..self }
    }

    /// Marks the layer as failed because of this problem.
    pub(crate) fn because(self, problem: impl Into<String>) -> Self {
        Self { problem: Some(problem.into()), ..self }
    }

    /// Marks the layer as failed if it did nothing: an empty run proves nothing.
    pub(crate) fn settled(self) -> Self {
        if self.problem.is_some() || self.count > 0 {
            return self;
        }
        self.because("it did nothing")
    }

    /// What the layer did, preceded by the problem if it failed.
    pub(crate) fn sentence(&self) -> String {
        match (&self.problem, self.did.as_str()) {
            (None, did) => did.to_owned(),
            (Some(problem), "") => format!("failed: {problem}"),
            (Some(problem), did) => format!("failed: {problem} ({did})"),
        }
    }
}

/// What a summary adds if some tests passed only at their second try.
fn unsteady_note(tests: u64) -> String {
    if tests == 0 {
        return String::new();
    }
    format!(", {tests} of them UNSTEADY: only at the second try")
}

/// A count with its noun: `1 file`, `2 files`.
fn counted(count: u64, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}
