//! Measures the state machine on one core.

mod due;
mod handover;
pub(crate) mod load;
mod snapshot;
mod uncontended;

use anyhow::Result;

use crate::figure::RunFigures;
use crate::memory;

/// Takes all measurements. `quick` does a hundredth of the work.
pub(crate) fn run(quick: bool) -> Result<RunFigures> {
    let scale = if quick { 100 } else { 1 };
    let mut figures = RunFigures::default();
    uncontended::measure(scale, &mut figures);
    handover::measure(scale, &mut figures);
    due::measure(scale, &mut figures);
    snapshot::measure(scale, &mut figures);
    memory::measure(scale, &mut figures)?;
    Ok(figures)
}
