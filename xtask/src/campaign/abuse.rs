//! Runs hostile clients and overload against real members, at release speed.

use std::process::{ExitCode, Stdio};

use anyhow::{Context, Result, ensure};

use crate::output;
use crate::programs::{CLI, abuse_command};
use crate::repo::Repo;
use crate::workspace::Workspace;

use super::CampaignTable;

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
    let mut command = abuse_command(repo);
    command.args(["--", "--exact", test, "--nocapture"]);
    command.env(variable, seconds.to_string()).env("CARGO_TERM_QUIET", "true");
    let output = command.stderr(Stdio::inherit()).output().context("cannot start cargo")?;
    let text = String::from_utf8_lossy(&output.stdout);
    // The word may follow what the test runner prints about the test.
    let lines =
        text.lines().filter_map(|line| line.find(&format!("{word} ")).map(|at| &line[at..]));
    let mut lines = lines.filter(|line| line.contains(" violations="));
    let line = lines.find(|line| output::fields(word, line).is_some());
    if let Some(line) = line {
        println!("{line}");
        record.add(word, line)?;
    }
    let fields = line.and_then(|line| output::fields(word, line));
    let violations = fields.map(|fields| output::field(&fields, "violations")).transpose()?;
    if !output.status.success() || violations != Some(0) {
        print!("{text}");
        ensure!(false, "{test} failed; its output is above");
    }
    Ok(ExitCode::SUCCESS)
}
