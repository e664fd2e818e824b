//! Runs hostile clients and overload against real members, at release speed.

use std::process::ExitCode;

use anyhow::{Result, ensure};

use crate::programs::{CLI, abuse_command};
use crate::repo::Repo;
use crate::workspace::Workspace;

use super::CampaignTable;
use super::scenario::{self, Scenario};

/// A test that takes a number of seconds and prints one line of numbers.
pub(super) struct Abuse {
    /// The campaign's name, which is also the first word of the line.
    word: &'static str,
    variable: &'static str,
    test: &'static str,
}

pub(super) const HOSTILE: Abuse = Abuse {
    word: "hostile",
    variable: "TENURE_HOSTILE_SECONDS",
    test: "hostile::honest_clients_keep_their_leases_under_every_attack",
};

pub(super) const OVERLOAD: Abuse = Abuse {
    word: "overload",
    variable: "TENURE_OVERLOAD_SECONDS",
    test: "overload::a_member_that_is_offered_ten_times_its_capacity_keeps_all_leases",
};

/// Runs one campaign and adds its row, also if it failed.
pub(super) fn run(repo: &Repo, abuse: &Abuse, seconds: u64) -> Result<ExitCode> {
    let Abuse { word, variable, test } = abuse;
    ensure!(seconds > 0, "a campaign needs at least a second");
    Workspace::load(repo)?.require(CLI)?;
    let mut record = CampaignTable::open(repo)?;
    let scenario = Scenario { test, word, variable, count: seconds };
    scenario::run(abuse_command(repo), &mut record, word, &scenario)?;
    Ok(ExitCode::SUCCESS)
}
