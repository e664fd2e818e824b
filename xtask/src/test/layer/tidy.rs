//! Checks the rules of the repository that no compiler knows.

use anyhow::Result;

use crate::output::Tests;
use crate::tidy::{self, Tree};

use super::{LayerContext, LayerReport, counted};

pub(super) fn run(stage: &mut LayerContext<'_>) -> Result<LayerReport> {
    let tree = Tree::load(stage.repo)?;
    let mut tests = Tests::default();
    let mut looked_at = 0;
    for check in tidy::CHECKS {
        let found = check.run(&tree);
        looked_at += found.looked_at;
        stage.log.line(&format!("{}: looked at {}", check.name, found.looked_at))?;
        for fault in &found.faults {
            stage.log.line(&format!("  {fault}"))?;
        }
        for note in &found.notes {
            stage.log.line(&format!("  note: {note}"))?;
        }
        if found.faults.is_empty() { tests.passed += 1 } else { tests.failed += 1 }
    }
    let checks = counted(tests.passed + tests.failed, "check");
    let did = format!("{checks} looked at {}", counted(looked_at, "thing"));
    let report = LayerReport::did(looked_at, did).with_tests(tests);
    if tests.failed == 0 {
        return Ok(report);
    }
    Ok(report.because(format!("{} found something", counted(tests.failed, "check"))))
}
