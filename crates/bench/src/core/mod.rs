//! Measures the state machine on one core.

mod due;
mod handover;
pub(crate) mod load;
mod snapshot;
mod uncontended;

use anyhow::Result;

use crate::memory;
use crate::run_results::RunResults;

/// Takes all measurements. `quick` does a hundredth of the work.
pub(crate) fn run(quick: bool) -> Result<RunResults> {
    let scale = if quick { 100 } else { 1 };
    let mut results = RunResults::default();
    uncontended::measure(scale, &mut results);
    handover::measure(scale, &mut results);
    due::measure(scale, &mut results);
    snapshot::measure(scale, &mut results);
    memory::measure(scale, &mut results)?;
    Ok(results)
}
