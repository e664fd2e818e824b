//! Runs the store and the proxy for long: many kills, many numbers added to a set, or a real Terraform.

use std::process::ExitCode;

use anyhow::{Result, ensure};

use crate::programs::{CLI, guarded_command};
use crate::repo::Repo;
use crate::workspace::Workspace;

use super::CampaignTable;
use super::scenario::{self, Scenario};

/// A test, and the first word of its last line.
type Test = (&'static str, &'static str);

const KILLS: &[Test] = &[
    ("kill::a_store_killed_in_the_middle_of_writes_loses_nothing", "store"),
    ("kill::a_proxy_killed_in_the_middle_of_writes_lets_no_late_write_in", "proxy"),
];
const TERRAFORM: &[Test] =
    &[("terraform::real_terraform_keeps_its_state_in_the_store", "terraform")];
const SET: &[Test] = &[
    ("set::with_the_fence_no_number_is_lost", "set"),
    ("set::without_the_fence_some_are_lost", "unfenced"),
];

/// Kills a store and a proxy in the middle of writes; one row for each.
pub(super) fn kills(repo: &Repo, kills: u64) -> Result<ExitCode> {
    ensure!(kills > 0, "a campaign needs at least one kill");
    run(repo, "gate", KILLS, ("TENURE_KILLS", kills))
}

/// Adds numbers to a set with the fence, and without.
pub(super) fn set(repo: &Repo, adds: u64) -> Result<ExitCode> {
    ensure!(adds > 0, "a campaign needs at least one number");
    run(repo, "set", SET, ("TENURE_ADDS", adds))
}

/// Runs an installed Terraform or OpenTofu against a store.
pub(super) fn terraform(repo: &Repo, rounds: u64) -> Result<ExitCode> {
    ensure!(rounds > 0, "a campaign needs at least one round");
    run(repo, "terraform", TERRAFORM, ("TENURE_TERRAFORM_ROUNDS", rounds))
}

fn run(
    repo: &Repo,
    campaign: &str,
    tests: &[Test],
    (variable, count): (&str, u64),
) -> Result<ExitCode> {
    Workspace::load(repo)?.require(CLI)?;
    let mut record = CampaignTable::open(repo)?;
    for (test, word) in tests {
        let scenario = Scenario { test, word, variable, count };
        scenario::run(guarded_command(repo), &mut record, campaign, &scenario)?;
    }
    Ok(ExitCode::SUCCESS)
}
