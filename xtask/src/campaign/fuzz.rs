//! Fuzzes decoders for a given time and records the totals.

use std::process::{ExitCode, Stdio};

use anyhow::{Context, Result, ensure};

use crate::fuzz;
use crate::repo::Repo;
use crate::workspace::Workspace;

use super::CampaignTable;

/// The prefix of the fuzzer's final line with the number of inputs.
const TRIED: &str = "stat::number_of_executed_units:";

/// Fuzzes all targets, or the named ones, one after another, and records one row for each.
pub(super) fn run(repo: &Repo, named: &[String], seconds: u64) -> Result<ExitCode> {
    ensure!(seconds > 0, "a campaign needs at least one second");
    Workspace::load(repo)?.require(fuzz::PACKAGE)?;
    let named = named.iter().map(|target| fuzz::known(repo, target)).collect::<Result<Vec<_>>>()?;
    let targets = if named.is_empty() { fuzz::targets(repo)? } else { named };
    let mut record = CampaignTable::open(repo)?;
    for target in targets {
        let mut fuzzer = fuzz::fuzzer(repo, &target, seconds)?;
        fuzzer.arg("-print_final_stats=1").stdout(Stdio::inherit());
        let output = fuzzer.output().with_context(|| format!("cannot start target `{target}`"))?;
        let text = String::from_utf8_lossy(&output.stderr);
        let inputs = tried(&text).with_context(|| format!("`{target}` tried nothing:\n{text}"))?;
        let violations = u8::from(!output.status.success());
        let line = format!(
            "fuzz target={target} seconds={seconds} inputs={inputs} violations={violations}"
        );
        println!("{line}");
        record.add("fuzz", &line)?;
        ensure!(violations == 0, "target `{target}` failed:\n{text}");
    }
    Ok(ExitCode::SUCCESS)
}

fn tried(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(TRIED)?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fuzzer_says_how_much_it_tried() {
        let said = "#2 INITED\nstat::number_of_executed_units: 1234\nstat::peak_rss_mb: 40\n";
        assert_eq!(tried(said), Some(1_234));
        assert_eq!(tried("stat::peak_rss_mb: 40"), None);
    }
}
