//! Checks the rules of the repository that no compiler knows.

use anyhow::Result;

use crate::output::Tests;
use crate::tidy::{self, Tree};

use super::{LayerContext, LayerReport, counted};

pub(super) fn run(stage: &mut LayerContext<'_>) -> Result<LayerReport> {
    let tree = Tree::load(stage.repo)?;
    let mut tests = Tests::default();
    let mut checked = 0;
    for check in tidy::CHECKS {
        let found = check.run(&tree);
        checked += found.checked;
        stage.log.line(&format!("{}: checked {}", check.name, found.checked))?;
        for fault in &found.faults {
            stage.log.line(&format!("  {fault}"))?;
        }
        for note in &found.notes {
            stage.log.line(&format!("  note: {note}"))?;
        }
        if found.faults.is_empty() { tests.passed += 1 } else { tests.failed += 1 }
    }
    let checks = counted(tests.passed + tests.failed, "check");
    let did = format!("{checks} of {}", counted(checked, "thing"));
    let report = LayerReport::did(checked, did).with_tests(tests);
    if tests.failed == 0 {
        return Ok(report);
    }
    Ok(report.because(format!("{} found something", counted(tests.failed, "check"))))
}
