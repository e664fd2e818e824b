//! Runs the long tests of real clients against real members.

use std::process::ExitCode;

use anyhow::{Result, ensure};

use crate::programs::{CLI, sdk_command};
use crate::repo::Repo;
use crate::workspace::Workspace;

use super::CampaignTable;
use super::scenario::{self, Scenario};

/// A test that takes a number and ends with a line of numbers.
pub(super) struct Long {
    /// The campaign's name, which is also the first word of the line.
    word: &'static str,
    /// What the number counts; the second word of the line begins with it.
    unit: &'static str,
    variable: &'static str,
    test: &'static str,
}

pub(super) const SDK: Long = Long {
    word: "sdk",
    unit: "runs",
    variable: "TENURE_RUNS",
    test: "scripts::guards_never_overlap_and_those_that_ignore_their_loss_do",
};

pub(super) const LOSSES: Long = Long {
    word: "losses",
    unit: "kills",
    variable: "TENURE_KILLS",
    test: "losses::no_lease_is_lost_while_leaders_are_killed",
};

/// Runs one campaign and adds its row.
pub(super) fn run(repo: &Repo, long: &Long, count: u64) -> Result<ExitCode> {
    let Long { word, unit, variable, test } = long;
    ensure!(count > 0, "a campaign needs some {unit}");
    Workspace::load(repo)?.require(CLI)?;
    let mut record = CampaignTable::open(repo)?;
    let scenario = Scenario { test, word, variable, count };
    scenario::run(sdk_command(repo), &mut record, word, &scenario)?;
    Ok(ExitCode::SUCCESS)
}
