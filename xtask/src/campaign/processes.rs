//! Runs real processes for long: many kills, many abandoned acquires, or every scenario many times.

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};

use crate::clock::Stopwatch;
use crate::output;
use crate::programs::{CLI, processes_command};
use crate::repo::Repo;
use crate::workspace::Workspace;

use super::CampaignTable;
use super::scenario::{self, Scenario};

/// The scenarios that take a number of kills, and the first word of the last line of each.
const KILLS: &[(&str, &str)] = &[
    ("leases::leases_live_their_time_while_leaders_are_killed", "kills"),
    ("kill::nothing_acknowledged_is_lost_by_kills_under_load", "load"),
    ("watches::watchers_hop_over_killed_leaders_and_see_everything_once_or_are_told", "watch"),
];
/// The scenario that takes a number of acquires to abandon.
const ABANDONED: (&str, &str) =
    ("abandoned::a_retry_that_was_told_that_it_has_the_lock_keeps_it", "abandoned");
/// How many scenarios run at once, as in the layer of `test`.
const AT_ONCE: &str = "6";

/// Kills leaders and followers, under leases and under load; one row for each.
pub(super) fn kills(repo: &Repo, kills: u64) -> Result<ExitCode> {
    ensure!(kills > 0, "a campaign needs at least one kill");
    Workspace::load(repo)?.require(CLI)?;
    let mut record = CampaignTable::open(repo)?;
    for (test, word) in KILLS {
        let scenario = Scenario { test, word, variable: "TENURE_KILLS", count: kills };
        scenario::run(processes_command(repo), &mut record, "kills", &scenario)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Abandons acquires and repeats them; one row.
pub(super) fn abandoned(repo: &Repo, acquires: u64) -> Result<ExitCode> {
    ensure!(acquires > 0, "a campaign needs at least one acquire");
    Workspace::load(repo)?.require(CLI)?;
    let mut record = CampaignTable::open(repo)?;
    let (test, word) = ABANDONED;
    let scenario = Scenario { test, word, variable: "TENURE_ACQUIRES", count: acquires };
    scenario::run(processes_command(repo), &mut record, "abandoned", &scenario)?;
    Ok(ExitCode::SUCCESS)
}

/// Runs every scenario this many times.
pub(super) fn scenarios(repo: &Repo, rounds: u64) -> Result<ExitCode> {
    ensure!(rounds > 0, "a campaign needs at least one round");
    Workspace::load(repo)?.require(CLI)?;
    let record = CampaignTable::open(repo)?;
    let watch = Stopwatch::start();
    let mut totals: BTreeMap<&str, u64> = BTreeMap::new();
    for round in 1..=rounds {
        let mut command = processes_command(repo);
        command.args(["--", "--test-threads", AT_ONCE]);
        let output = command.output().context("cannot start cargo")?;
        let text = String::from_utf8_lossy(&output.stdout);
        let tests = output::tests(text.lines());
        let skipped = String::from_utf8_lossy(&output.stderr).matches("SKIPPED: ").count() as u64;
        // The checker's own tests start no member, so they do not count.
        let checker = text.lines().filter(|line| line.starts_with("test checker::")).count() as u64;
        let ran = (tests.passed + tests.failed).saturating_sub(skipped + checker);
        *totals.entry("scenarios").or_default() += ran;
        let failed = tests.failed.max(u64::from(!output.status.success()));
        *totals.entry("violations").or_default() += failed;
        let (scenarios, violations) = (totals["scenarios"], totals["violations"]);
        let line =
            format!("processes rounds={round} scenarios={scenarios} violations={violations}");
        // Replace the row after every round: the totals then survive an interrupt without a signal handler.
        record.replace("processes", &line)?;
        println!("{line}, of {rounds} rounds, in {}s", watch.elapsed().as_secs());
        if failed > 0 {
            print!("{text}");
            ensure!(false, "round {round} failed; its output is above");
        }
    }
    Ok(ExitCode::SUCCESS)
}
