//! Runs every client library through the vectors and the scenarios, and prints the table.

pub(crate) mod language;
mod runner;
mod vectors;

use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};

use crate::clock::Stopwatch;
use crate::repo::Repo;

use self::language::{Installed, Language};
pub(crate) use runner::sample_arguments;
pub(crate) use vectors::{
    commands as vector_commands, count as vector_count, verdict as vector_verdict,
};

/// The name of Rust, which needs nothing to be installed.
pub(crate) const RUST: &str = "rust";

/// Which languages to run, and what.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The languages; all of them if none is named
    languages: Vec<String>,
    /// Run only the tests of each library: its checks, adapters, packages and documents
    #[arg(long)]
    tests: bool,
    /// Play only scenarios whose name contains this word; may be given again
    #[arg(long = "scenario", value_name = "WORD")]
    scenarios: Vec<String>,
    /// Let 20 clients of all languages compete for one lock for so many seconds, instead
    #[arg(long, value_name = "SECONDS")]
    overlap: Option<u64>,
    /// Measure 1,000 idle leases and the cycles per second of each client, instead
    #[arg(long)]
    measure: bool,
    /// Plant each bug in each client, and show what caught it, instead
    #[arg(long)]
    planted: bool,
}

/// Runs `cargo xtask clients`.
pub(crate) fn run(repo: &Repo, args: &Args) -> Result<ExitCode> {
    let languages = chosen(repo, &args.languages)?;
    let program = runner::build(repo)?;
    let mut failed = 0;
    let mut installed = Vec::new();
    for language in &languages {
        let watch = Stopwatch::start();
        match language::install(repo, language) {
            Ok(it) => {
                println!("{:12} built in {}s", language.name, watch.elapsed().as_secs());
                installed.push(it);
            }
            Err(error) => {
                println!("{:12} FAILED: {error:#}", language.name);
                failed += 1;
            }
        }
    }
    if let Some(seconds) = args.overlap {
        return runner::overlap(repo, &program, &installed, seconds);
    }
    if args.measure {
        return runner::hand_over(repo, &program, &installed, &["measure".to_owned()]);
    }
    if args.planted {
        let vectors = installed.iter().filter(|it| !it.vectors.is_empty());
        let vectors = vectors.flat_map(|it| ["--vectors".to_owned(), it.vectors.clone()]);
        let more: Vec<String> = std::iter::once("planted".to_owned()).chain(vectors).collect();
        return runner::hand_over(repo, &program, &installed, &more);
    }
    if args.tests {
        failed += tests(repo, &languages);
        println!("clients tests languages={} failed={failed}", installed.len());
        return Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    // Scenarios that are named are being worked on: the rest would only take time.
    if args.scenarios.is_empty() {
        failed += vectors::replay(repo, &installed)?;
        failed += tests(repo, &languages);
    }
    let played = runner::play(repo, &program, &installed, &args.scenarios)?;
    failed += played.failed;
    let count = installed.len();
    println!("clients scenarios={} languages={count} failed={failed}", played.scenarios);
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The languages of these names, or all.
fn chosen(repo: &Repo, names: &[String]) -> Result<Vec<Language>> {
    let all = language::all(repo)?;
    let known: Vec<String> = all.iter().map(|it| it.name.clone()).collect();
    for name in names {
        ensure!(known.contains(name), "there is no client for `{name}`: {}", known.join(", "));
    }
    let wanted = |it: &Language| names.is_empty() || names.contains(&it.name);
    Ok(all.into_iter().filter(wanted).collect())
}

/// Runs the further tests of each language, and returns how many commands failed.
fn tests(repo: &Repo, languages: &[Language]) -> u64 {
    let mut failed = 0;
    for language in languages {
        for command in language.checks.iter().chain(&language.tests) {
            let watch = Stopwatch::start();
            let ran = language::run(repo, language, command);
            let word = if ran.is_ok() { "ok" } else { "FAILED" };
            println!("{:12} {word:6} {command} ({}s)", language.name, watch.elapsed().as_secs());
            if let Err(error) = ran {
                println!("{error:#}");
                failed += 1;
            }
        }
    }
    failed
}

/// The quick checks of every language, each with its name.
pub(crate) fn check_commands(
    repo: &Repo,
    installed: &[Installed],
) -> impl Iterator<Item = (String, Command)> {
    installed.iter().flat_map(move |it| {
        let checks = it.language.checks.iter();
        checks
            .map(|command| (it.language.name.clone(), language::shell(repo, &it.language, command)))
    })
}

/// What the layer of `cargo xtask test` needs: everything installed, and how to play a sample.
pub(crate) struct Sample {
    pub(crate) installed: Vec<Installed>,
    /// Languages that could not be built, and why.
    pub(crate) missing: Vec<String>,
}

/// Installs every language for a sample.
pub(crate) fn prepare(repo: &Repo) -> Result<Sample> {
    let (mut installed, mut missing) = (Vec::new(), Vec::new());
    for language in language::all(repo).context("the languages cannot be read")? {
        match language::install(repo, &language) {
            Ok(it) => installed.push(it),
            Err(error) => missing.push(format!("{}: {error:#}", language.name)),
        }
    }
    Ok(Sample { installed, missing })
}
