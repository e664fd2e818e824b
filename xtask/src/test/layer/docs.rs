//! Builds the documentation without warnings and runs its examples.

use anyhow::Result;

use crate::cargo::cargo;
use crate::output;

use super::{LayerContext, LayerReport, counted};

pub(super) fn run(stage: &mut LayerContext<'_>) -> Result<LayerReport> {
    let mut doc = cargo(stage.repo, "doc");
    // Always strict: no other layer sees a broken link in the documentation.
    doc.env("RUSTDOCFLAGS", "-D warnings");
    doc.args(["--no-deps", "--workspace", "--message-format=json-render-diagnostics"]);
    let built = stage.log.run(doc)?;
    let root = stage.repo.root().to_string_lossy();
    let pages = output::built(&root, built.lines());
    let crates = pages.iter().filter(|file| file.ends_with("index.html")).count() as u64;

    let mut test = cargo(stage.repo, "test");
    // The same packages as in the layer of unit tests, so that cargo compiles nothing anew.
    test.args(["--doc", "--workspace", "--exclude", crate::fuzz::PACKAGE, "--no-fail-fast"]);
    let ran = stage.log.run(test)?;
    let tests = output::tests(ran.lines());

    let did = format!(
        "documented {}, ran {}",
        counted(crates, "crate"),
        counted(tests.passed, "example")
    );
    let report = LayerReport::did(crates, did).with_tests(tests);
    Ok(match (built.status.success(), ran.status.success()) {
        (true, true) => report,
        (false, _) => report.because("the documentation has warnings or errors"),
        (true, false) => report.because("an example does not run"),
    })
}
