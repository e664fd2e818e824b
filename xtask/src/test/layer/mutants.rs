//! Checks that the tests catch every planted bug.

use std::process::Command;

use anyhow::Result;

use crate::programs::mutants_command;
use crate::said;

use super::{Report, Stage};

/// The fewest planted bugs: fewer would mean that they were not compiled in.
const PLANTED_MIN: u64 = 10;

pub(super) fn of_the_machine(stage: &mut Stage<'_>) -> Result<Report> {
    run(stage, mutants_command(stage.repo, "mutants"))
}

pub(super) fn of_the_log(stage: &mut Stage<'_>) -> Result<Report> {
    let mut command = mutants_command(stage.repo, "cluster-mutants");
    // A few of these bugs need many clusters before one shows them; the search for the others ends much earlier.
    command.args(["--seeds", "3000"]);
    run(stage, command)
}

fn run(stage: &mut Stage<'_>, command: Command) -> Result<Report> {
    let finished = stage.log.run(command)?;
    let report = judge(finished.lines());
    if report.problem.is_none() && !finished.status.success() {
        return Ok(report.because("the program failed"));
    }
    Ok(report)
}

fn judge<'a>(lines: impl Iterator<Item = &'a str>) -> Report {
    let Some((caught, planted)) = lines.filter_map(said::caught).last() else {
        return Report::failed("no line says `mutants caught=n/n`".to_owned());
    };
    let report = Report::did(planted, format!("caught {caught} of {planted} planted bugs"));
    if caught != planted {
        return report.because("a planted bug was not caught");
    }
    if planted < PLANTED_MIN {
        return report.because(format!("fewer than {PLANTED_MIN} bugs are planted"));
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(line: &str) -> Option<String> {
        judge([line].into_iter()).problem
    }

    #[test]
    fn only_all_of_enough_pass() {
        assert_eq!(problem("mutants caught=10/10"), None);
        assert!(problem("mutants caught=11/12").is_some());
        assert!(problem("mutants caught=9/9").is_some());
        assert!(problem("mutants").is_some());
    }
}
