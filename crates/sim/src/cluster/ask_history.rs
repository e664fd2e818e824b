//! Records what clients asked for, and compares it with the results: S7 and S13.
//!
//! Every command names the number of its ask as its principal. The client, or a member on the way, may submit one ask
//! several times: then all submissions carry the same bytes.

use std::collections::{BTreeMap, BTreeSet};

use tenure_core::outcome::{Answer, Outcome};

use super::oracle::ensure;
use crate::invariant::{CheckResult, InvariantViolation};

/// What may happen to a command that is submitted more than once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Repeats {
    /// It has a request id: it takes effect once, and every repetition is answered alike.
    Recognised,
    /// It may take effect several times.
    Harmless,
    /// Each submission takes effect once at most.
    Never,
}

/// All asks, by number.
#[derive(Default)]
pub(super) struct AcquireHistory {
    asks: BTreeMap<u64, TrackedAcquire>,
}

struct TrackedAcquire {
    repeats: Repeats,
    submissions: usize,
    /// Submissions that were not reported as having no effect.
    open: BTreeSet<u64>,
    applied: Vec<(u64, Outcome)>,
    /// Submissions that were open when it was first applied, and were not reported as not done since.
    suspects: BTreeSet<u64>,
}

impl AcquireHistory {
    /// Records that a client submits an ask.
    pub(super) fn submit(&mut self, ask: u64, submission: u64, repeats: Repeats) {
        let found = self.asks.entry(ask).or_insert_with(|| TrackedAcquire {
            repeats,
            submissions: 0,
            open: BTreeSet::new(),
            applied: Vec::new(),
            suspects: BTreeSet::new(),
        });
        found.submissions += 1;
        found.open.insert(submission);
    }

    /// The command of an ask is applied.
    pub(super) fn applied(&mut self, ask: u64, index: u64, outcome: &Outcome) -> CheckResult {
        let Some(found) = self.asks.get_mut(&ask) else {
            return Err(InvariantViolation::new(
                "N6",
                format!("entry {index} has ask {ask}, of no client"),
            ));
        };
        ensure(!found.open.is_empty(), "S13", || {
            format!("ask {ask} was reported as not done and is entry {index}")
        })?;
        if found.applied.is_empty() {
            found.suspects = found.open.clone();
        }
        let first = found.applied.first();
        match found.repeats {
            Repeats::Never => ensure(found.applied.len() < found.submissions, "S7", || {
                format!("ask {ask} has no id and was applied again, at {index}")
            })?,
            Repeats::Recognised => {
                ensure(first.is_none_or(|(_, first)| is_repetition(first, outcome)), "S7", || {
                    format!("ask {ask} was answered {first:?} and {outcome:?}")
                })?;
            }
            Repeats::Harmless => {}
        }
        found.applied.push((index, outcome.clone()));
        Ok(())
    }

    /// Checks the result that a client gets for an ask, and returns the index at which it was applied.
    pub(super) fn answered(&self, ask: u64, outcome: &Outcome) -> Result<u64, InvariantViolation> {
        let found = self.asks.get(&ask);
        let applied = found.and_then(|ask| ask.applied.iter().find(|(_, told)| told == outcome));
        applied.map(|(index, _)| *index).ok_or_else(|| {
            let agreed = found.map(|found| &found.applied);
            InvariantViolation::new(
                "S13",
                format!("ask {ask} was answered {outcome:?}, agreed: {agreed:?}"),
            )
        })
    }

    /// Records that a client is told that a submission had no effect.
    pub(super) fn not_applied(&mut self, ask: u64, submission: u64) -> CheckResult {
        let Some(found) = self.asks.get_mut(&ask) else { return Ok(()) };
        found.open.remove(&submission);
        found.suspects.remove(&submission);
        ensure(found.applied.is_empty() || !found.suspects.is_empty(), "S13", || {
            format!("ask {ask} was applied and submission {submission} is reported as not done")
        })
    }
}

/// Whether an outcome may follow the first one of the same request id.
fn is_repetition(first: &Outcome, again: &Outcome) -> bool {
    match (&first.result, &again.result) {
        // A repeated ask is answered with its present state.
        (Ok(Answer::Acquired(one)), Ok(Answer::Acquired(two))) => one.place == two.place,
        (Ok(Answer::Queued(one)), Ok(Answer::Acquired(two))) => one.place == two.place,
        (Ok(Answer::Queued(one)), Ok(Answer::Queued(two))) => one.place == two.place,
        (Ok(Answer::Acquired(_) | Answer::Queued(_)), Ok(Answer::Ended)) => true,
        // The lease of the ask has ended, or the ask was given up.
        (_, Err(_)) => true,
        (Err(_), Ok(_)) => false,
        (one, two) => one == two,
    }
}
