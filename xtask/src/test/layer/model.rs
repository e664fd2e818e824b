//! Compares the state machine with its model.

use anyhow::Result;

use crate::output;
use crate::programs::model_command;

use super::{LayerContext, LayerReport};

/// Enough that every pair of commands meets many times. The campaign of this name runs more.
const SEQUENCES: u64 = 4_000;

pub(super) fn run(stage: &mut LayerContext<'_>) -> Result<LayerReport> {
    let mut command = model_command(stage.repo);
    command.args(["--sequences", &SEQUENCES.to_string()]);
    let finished = stage.log.run(command)?;
    let report = judge(finished.last_line())?;
    if report.problem.is_none() && !finished.status.success() {
        return Ok(report.because("the program failed"));
    }
    Ok(report)
}

fn judge(line: &str) -> Result<LayerReport> {
    let Some(fields) = output::fields("model", line) else {
        return Ok(LayerReport::failed("its last line is not `model sequences=…`".to_owned()));
    };
    let sequences = output::field(&fields, "sequences")?;
    let commands = output::field(&fields, "commands")?;
    let violations = output::field(&fields, "violations")?;
    let report = LayerReport::did(sequences.min(commands), line);
    if violations > 0 {
        return Ok(report.because("the machine and its model disagree"));
    }
    if sequences < SEQUENCES {
        return Ok(report.because(format!("fewer than {SEQUENCES} sequences")));
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
    fn only_enough_sequences_without_violation_pass() {
        assert_eq!(problem("model sequences=4000 commands=9 violations=0"), None);
        assert!(problem("model sequences=4000 commands=9 violations=1").is_some());
        assert!(problem("model sequences=3999 commands=9 violations=0").is_some());
        assert!(problem("model sequences=4000 commands=0 violations=0").is_some());
        assert!(problem("done").is_some());
        assert!(judge("model sequences=4000 commands=9").is_err());
    }
}
