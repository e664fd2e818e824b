//! Simulates whole clusters under faults and checks their promises.

use anyhow::Result;

use crate::output;
use crate::programs::sim_command;

use super::{LayerContext, LayerReport};

/// Enough that every kind of fault happens often; a few minutes on two cores.
const SEEDS: u64 = 500;

/// The least simulated cluster time, in hours.
const HOURS_MIN: u64 = 10;

pub(super) fn run(stage: &mut LayerContext<'_>) -> Result<LayerReport> {
    let mut command = sim_command(stage.repo);
    command.args(["--seeds", &SEEDS.to_string()]);
    let finished = stage.log.run(command)?;
    let report = judge(finished.last_line())?;
    if report.problem.is_none() && !finished.status.success() {
        return Ok(report.because("the program failed"));
    }
    Ok(report)
}

fn judge(line: &str) -> Result<LayerReport> {
    let Some(fields) = output::fields("sim", line) else {
        return Ok(LayerReport::failed("its last line is not `sim seeds=…`".to_owned()));
    };
    let seeds = output::field(&fields, "seeds")?;
    let violations = output::field(&fields, "violations")?;
    let report = LayerReport::did(seeds, line);
    if violations > 0 {
        return Ok(report.because("a promise was broken"));
    }
    let happened = output::ratio(line, "faults=");
    if happened.is_none_or(|(happened, kinds)| happened < kinds || kinds == 0) {
        return Ok(report.because("a kind of fault never happened"));
    }
    if seeds < SEEDS || output::whole(line, "sim_hours=").is_none_or(|hours| hours < HOURS_MIN) {
        return Ok(report.because(format!("fewer than {SEEDS} seeds or {HOURS_MIN} hours")));
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(line: &str) -> Option<String> {
        judge(line).unwrap().settled().problem
    }

    #[test]
    fn only_enough_seeds_with_every_fault_and_no_violation_pass() {
        assert_eq!(problem("sim seeds=500 sim_hours=10.3 faults=25/25 violations=0"), None);
        assert!(problem("sim seeds=500 sim_hours=10.3 faults=24/25 violations=0").is_some());
        assert!(problem("sim seeds=500 sim_hours=10.3 faults=25/25 violations=1").is_some());
        assert!(problem("sim seeds=499 sim_hours=10.3 faults=25/25 violations=0").is_some());
        assert!(problem("sim seeds=500 sim_hours=9.9 faults=25/25 violations=0").is_some());
        assert!(problem("sim seeds=500 sim_hours=10.3 violations=0").is_some());
        assert!(problem("done").is_some());
    }
}
