//! Shrinks a failing sequence to a short one that violates the same invariant.

use std::time::{Duration, Instant};

use crate::generate::SequenceStep;
use crate::run::{self, BrokenSequence};

/// Long enough to remove most steps, short enough to wait for.
const TIME: Duration = Duration::from_secs(2);

/// Removes steps, then commands, as long as the same invariant fails.
#[allow(clippy::disallowed_methods, reason = "bounds how long we try, decides nothing else")]
pub fn shrink(failure: &BrokenSequence) -> BrokenSequence {
    let end = Instant::now() + TIME;
    let late = || Instant::now() >= end;
    let mut best = failure.clone();
    let mut chunk = best.steps.len().div_ceil(2).max(1);
    loop {
        let before = best.steps.len();
        let mut from = 0;
        while from < best.steps.len() && !late() {
            let mut steps = best.steps.clone();
            steps.drain(from..(from + chunk).min(best.steps.len()));
            if !try_steps(&mut best, steps) {
                from += chunk;
            }
        }
        if late() || (chunk == 1 && best.steps.len() == before) {
            break;
        }
        chunk = (chunk / 2).max(1);
    }
    let mut index = 0;
    while index < best.steps.len() && !late() {
        shrink_entry(&mut best, index, &late);
        index += 1;
    }
    best
}

fn shrink_entry(best: &mut BrokenSequence, index: usize, late: &dyn Fn() -> bool) {
    let mut at = 0;
    while !late() {
        let mut steps = best.steps.clone();
        match steps.get_mut(index) {
            Some(SequenceStep::Entry { items, .. }) if at < items.len() => {
                items.remove(at);
            }
            _ => return,
        }
        if !try_steps(best, steps) {
            at += 1;
        }
    }
}

/// Keeps these steps if they fail in the same way.
fn try_steps(best: &mut BrokenSequence, mut steps: Vec<SequenceStep>) -> bool {
    match run::replay(&steps) {
        Some((violation, step)) if violation.invariant == best.violation.invariant => {
            steps.truncate(step + 1);
            *best = BrokenSequence { violation, step, steps };
            true
        }
        _ => false,
    }
}
