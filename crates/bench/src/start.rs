//! Measures how soon the binary prints something, and how large it is.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use tenure_bench::percentile;

use crate::clock::timed;
use crate::run_results::RunResults;

/// The number of measured starts of each command, and of warm-up starts before them.
const STARTS: usize = 100;
const WARM_UP: usize = 10;

/// Commands that only print.
const COMMANDS: [(&str, &[&str]); 4] = [
    ("version", &["--version"]),
    ("help", &["help", "lock"]),
    ("plan", &["plan", "--ttl", "15s"]),
    ("completions", &["completions", "bash"]),
];

/// Takes all measurements of a binary.
pub(crate) fn run(binary: &Path) -> Result<RunResults> {
    let mut results = RunResults::default();
    let size = std::fs::metadata(binary).with_context(|| format!("looking at {binary:?}"))?.len();
    results.add("binary_mb", size as f64 / 1e6, "MB on disk");
    for (name, arguments) in COMMANDS {
        let mut times_ms = Vec::new();
        for _ in 0..WARM_UP + STARTS {
            let mut command = Command::new(binary);
            command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null());
            let (status, took) = timed(|| command.status());
            ensure!(status?.success(), "`{name}` does not succeed");
            times_ms.push(took.as_secs_f64() * 1_000.0);
        }
        times_ms.drain(..WARM_UP);
        times_ms.sort_unstable_by(f64::total_cmp);
        let meaning = "ms from start to end (to stay below: 20)";
        for (percent, per_mille) in [(50, 500), (99, 990)] {
            let time_ms = percentile(&times_ms, per_mille).unwrap_or(f64::NAN);
            results.add(format!("start_{name}_p{percent}_ms"), time_ms, meaning);
        }
    }
    Ok(results)
}
