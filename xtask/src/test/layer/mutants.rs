//! Runs the planted bugs: each one must be caught.

use std::process::Command;

use anyhow::Result;

use crate::output;
use crate::programs::{PLANTED_TESTS, keep_mutants, mutants_build, mutants_program};

use super::super::binaries::{self, Binary};
use super::{LayerContext, LayerReport};

/// The fewest planted bugs: fewer would mean that they were not compiled in.
const PLANTED_MIN: u64 = 10;

pub(super) fn of_the_machine(stage: &mut LayerContext<'_>) -> Result<LayerReport> {
    if build(stage)?.is_none() {
        return Ok(does_not_build());
    }
    run(stage, mutants_program(stage.repo, "mutants"))
}

/// In whole clusters, then in the tests that show what clusters do not.
pub(super) fn of_the_log(stage: &mut LayerContext<'_>) -> Result<LayerReport> {
    let Some(programs) = build(stage)? else { return Ok(does_not_build()) };
    let mut command = mutants_program(stage.repo, "cluster-mutants");
    // A few of these bugs need many clusters before one shows them; the search for the others ends much earlier.
    command.args(["--seeds", "3000"]);
    let in_clusters = run(stage, command)?;
    let in_tests = run_tests(stage, programs)?;
    Ok(both(in_clusters, in_tests))
}

/// Builds everything with planted bugs and returns the programs of tests among it; `None` if it does not build.
fn build(stage: &mut LayerContext<'_>) -> Result<Option<Vec<Binary>>> {
    let built = stage.log.run(mutants_build(stage.repo)?)?;
    let mut programs = binaries::built(built.lines());
    programs.retain(|each| each.krate != "sim");
    let is_whole = built.status.success() && programs.len() == PLANTED_TESTS.len();
    if !is_whole {
        return Ok(None);
    }
    keep_mutants(stage.repo)?;
    Ok(Some(programs))
}

fn does_not_build() -> LayerReport {
    LayerReport::failed("the planted bugs do not build".to_owned())
}

fn run_tests(stage: &mut LayerContext<'_>, programs: Vec<Binary>) -> Result<LayerReport> {
    let (mut counted, mut problem) = (Vec::new(), None);
    for program in programs {
        let finished = stage.log.run(program.with_output())?;
        counted.push(finished.lines().find_map(output::caught));
        if !finished.status.success() {
            problem = Some(format!("{} failed", program.name));
        }
    }
    let report = judge_tests(&counted);
    Ok(match (&report.problem, problem) {
        (None, Some(problem)) => report.because(problem),
        _ => report,
    })
}

/// Sums what each program of tests caught. A program that says nothing had no bugs planted.
fn judge_tests(counted: &[Option<(u64, u64)>]) -> LayerReport {
    let known = || counted.iter().flatten();
    let caught: u64 = known().map(|(caught, _)| caught).sum();
    let planted: u64 = known().map(|(_, planted)| planted).sum();
    let report = LayerReport::did(planted, format!("{caught} of {planted} in tests"));
    if counted.iter().any(|each| each.is_none_or(|(_, planted)| planted == 0)) {
        return report.because("a program of tests says of no planted bug that it was caught");
    }
    if caught != planted {
        return report.because("a test did not catch its planted bug");
    }
    report
}

/// One report of what clusters and tests have caught.
fn both(in_clusters: LayerReport, in_tests: LayerReport) -> LayerReport {
    let problems = [in_clusters.problem.clone(), in_tests.problem.clone()];
    let problems: Vec<String> = problems.into_iter().flatten().collect();
    let report = in_clusters.and(&in_tests);
    if problems.is_empty() { report } else { report.because(problems.join("; ")) }
}

fn run(stage: &mut LayerContext<'_>, command: Command) -> Result<LayerReport> {
    let finished = stage.log.run(command)?;
    let report = judge(finished.lines());
    if report.problem.is_none() && !finished.status.success() {
        return Ok(report.because("the program failed"));
    }
    Ok(report)
}

fn judge<'a>(lines: impl Iterator<Item = &'a str>) -> LayerReport {
    let Some(line) = lines.filter(|line| output::caught(line).is_some()).last() else {
        return LayerReport::failed("no line says `mutants caught=n/n`".to_owned());
    };
    let (caught, planted) = output::caught(line).unwrap_or_default();
    let mut did = format!("caught {caught} of {planted} planted bugs");
    // A search takes minutes where a remembered seed takes a second: this line shows when to write new seeds down.
    if let Some(searched) = output::whole(line, "searched=").filter(|searched| *searched > 0) {
        did.push_str(&format!(", {searched} of them by a search for new seeds"));
    }
    let report = LayerReport::did(planted, did);
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
        assert_eq!(problem("cluster-mutants caught=10/10 searched=3"), None);
        assert!(problem("mutants caught=11/12").is_some());
        assert!(problem("mutants caught=9/9").is_some());
        assert!(problem("mutants").is_some());
    }

    #[test]
    fn a_program_of_tests_that_is_silent_or_misses_a_bug_fails_the_layer() {
        let did = |counted: &[_]| {
            both(LayerReport::did(41, "caught 41 of 41 planted bugs"), judge_tests(counted))
        };
        let good = did(&[Some((3, 3)), Some((8, 8))]);
        assert_eq!(good.problem, None);
        assert_eq!(good.sentence(), "caught 41 of 41 planted bugs, 11 of 11 in tests");
        assert!(did(&[Some((3, 3)), None]).problem.is_some());
        assert!(did(&[Some((3, 3)), Some((0, 0))]).problem.is_some());
        assert!(did(&[Some((2, 3)), Some((8, 8))]).problem.is_some());
        let bad = both(
            LayerReport::failed("the program failed".to_owned()),
            judge_tests(&[Some((3, 3))]),
        );
        assert!(bad.problem.is_some());
    }
}
