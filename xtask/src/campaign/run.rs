//! Tests `tenure run` for long: every scene many times, and a storm.

use std::collections::BTreeMap;
use std::process::{ExitCode, Stdio};

use anyhow::{Context, Result, ensure};

use crate::programs::{CLI, run_command};
use crate::repo::Repo;
use crate::workspace::Workspace;

use super::CampaignTable;

/// The tests that take a number of runs; each prints lines that begin with one of `WORDS`.
const RUNS: &[&str] = &[
    "scenes::nothing_is_left_at_the_next_grant_whatever_is_done_to_it",
    "successor::a_queued_run_starts_once_its_predecessor_has_ended_and_waits_for_no_lease",
    "frozen::frozen_with_its_watchdog_it_runs_nothing_and_dies_when_thawed",
    "peers::",
];
const STORM: &str = "storm::twenty_who_want_one_lock_never_meet_and_none_starves";
/// The beginnings of the lines that are kept.
const WORDS: &[&str] = &["run scene=", "peer name=", "storm seconds="];
/// The divisor of the runs for other tools: they take as long and prove less.
const PEER_RUNS_PART: u64 = 10;

/// Runs every scene of `tenure run` this many times.
pub(super) fn runs(repo: &Repo, runs: u64) -> Result<ExitCode> {
    ensure!(runs > 0, "a campaign needs at least one run");
    let mut record = open(repo)?;
    for test in RUNS {
        let part = if test.starts_with("peers") { PEER_RUNS_PART } else { 1 };
        let runs = (runs / part).max(1).to_string();
        let (lines, failed) = lines(repo, test, ("TENURE_RUNS", &runs))?;
        for line in added_up(&lines) {
            println!("{line}");
            record.add("run", &line)?;
        }
        ensure!(!failed, "{test} failed; its output is above");
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs a storm of this many seconds.
pub(super) fn storm(repo: &Repo, seconds: u64) -> Result<ExitCode> {
    ensure!(seconds > 0, "a storm takes at least a second");
    let mut record = open(repo)?;
    let seconds = seconds.to_string();
    let (lines, failed) = lines(repo, STORM, ("TENURE_STORM_SECONDS", &seconds))?;
    for line in lines {
        println!("{line}");
        record.add("storm", &line)?;
    }
    ensure!(!failed, "{STORM} failed; its output is above");
    Ok(ExitCode::SUCCESS)
}

fn open(repo: &Repo) -> Result<CampaignTable> {
    Workspace::load(repo)?.require(CLI)?;
    CampaignTable::open(repo)
}

/// Runs a test to its end, with its progress on the terminal. Returns the lines with its totals, and whether it
/// failed: the totals of a failed test belong in the record too.
fn lines(repo: &Repo, test: &str, (name, value): (&str, &str)) -> Result<(Vec<String>, bool)> {
    let mut command = run_command(repo);
    command.args(["--", test, "--nocapture"]).env(name, value).env("CARGO_TERM_QUIET", "true");
    let output = command.stderr(Stdio::inherit()).output().context("cannot start cargo")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let failed = !output.status.success();
    if failed {
        print!("{text}");
    }
    let found: Vec<String> = text.lines().filter_map(total).collect();
    ensure!(failed || !found.is_empty(), "{test} said nothing of what it did");
    Ok((found, failed))
}

/// The part of a line that contains totals. It may follow what the test runner prints about the test.
fn total(line: &str) -> Option<String> {
    WORDS.iter().find_map(|word| line.find(word)).map(|at| line[at..].to_owned())
}

/// Merges lines that differ only in their numbers: counts are added, times become their median.
fn added_up(lines: &[String]) -> Vec<String> {
    let mut groups: BTreeMap<String, Vec<&String>> = BTreeMap::new();
    for line in lines {
        let name = line.split(" runs=").next().unwrap_or(line);
        groups.entry(name.to_owned()).or_default().push(line);
    }
    let mut all = Vec::new();
    for (name, lines) in groups {
        let [first, _, ..] = lines[..] else {
            all.extend(lines.into_iter().cloned());
            continue;
        };
        let mut line = name;
        for word in first.split(' ').filter_map(|word| word.split_once('=')).map(|it| it.0) {
            let mut numbers: Vec<u64> = lines.iter().filter_map(|it| number(it, word)).collect();
            numbers.sort_unstable();
            if numbers.is_empty() {
                continue;
            }
            let is_time = word.ends_with("_ms") || word.ends_with("_us");
            let value =
                if is_time { numbers[numbers.len() / 2] } else { numbers.iter().sum::<u64>() };
            line.push_str(&format!(" {word}={value}"));
        }
        all.push(line);
    }
    all
}

fn number(line: &str, name: &str) -> Option<u64> {
    let start = format!("{name}=");
    line.split(' ').find_map(|word| word.strip_prefix(&start))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_found_behind_the_words_of_the_test_runner() {
        let line = "test a ... run scene=kill runs=2 violations=0";
        assert_eq!(total(line).unwrap(), "run scene=kill runs=2 violations=0");
        assert!(total("test a ... ok").is_none());
    }

    #[test]
    fn counts_are_added_and_times_are_medians() {
        let lines =
            [7, 3, 5].map(|ms| format!("peer name=x scene=stop runs=1 overlaps=1 beside_ms={ms}"));
        let expected = "peer name=x scene=stop runs=3 overlaps=3 beside_ms=5";
        assert_eq!(added_up(&lines), [expected]);
        let alone = ["run scene=kill runs=50 margin_min_ms=9 violations=0".to_owned()];
        assert_eq!(added_up(&alone), alone);
    }
}
