//! Checks that an abandoned ask frees nothing that another ask relies on (Q5).

use std::collections::BTreeMap;

use tenure_core::event::{Cause, Event};
use tenure_core::outcome::{Answer, Outcome};
use tenure_core::request::{Command, Request};
use tenure_types::PlaceNumber;

use super::{CheckResult, InvariantViolation};
use crate::observe::{ObservedCommand, ObservedStep};

/// For each place, the number of asks that were answered with it and not taken back since.
#[derive(Default)]
pub(super) struct AskCounts(BTreeMap<PlaceNumber, i64>);

impl AskCounts {
    /// Checks one command with its events.
    pub(super) fn command(&mut self, part: &ObservedCommand<'_>) -> CheckResult {
        let Some((request, outcome)) = part.command else { return Ok(()) };
        self.count(request, outcome);
        let Command::Abandon(abandon) = &request.command else { return Ok(()) };
        let told = self.0.get(&abandon.place).copied().unwrap_or(0);
        let freed = part.events.iter().find(|event| gives_up(event));
        match freed {
            Some(event) if told > 0 => {
                let detail = format!("{abandon:?} made {event:?}, and {told} asks rely on it");
                Err(InvariantViolation::new("Q5", detail))
            }
            _ => Ok(()),
        }
    }

    /// Counts the commands of an entry of which some events are unknown.
    pub(super) fn catch_up(&mut self, seen: &ObservedStep<'_>) {
        for (request, outcome) in seen.requests.iter().zip(&seen.effects.outcomes) {
            if let Some(request) = request {
                self.count(request, outcome);
            }
        }
    }

    fn count(&mut self, request: &Request<'_>, outcome: &Outcome) {
        let (place, change) = match (&request.command, &outcome.result) {
            (Command::Acquire(_) | Command::Upgrade(_), Ok(Answer::Acquired(acquired))) => {
                (acquired.place, 1)
            }
            (Command::Acquire(_) | Command::Upgrade(_), Ok(Answer::Queued(queued))) => {
                (queued.place, 1)
            }
            // A repeated abandon takes nothing off, but looks the same as one that ran. Taking off too much may hide a
            // fault but never invents one.
            (Command::Abandon(abandon), Ok(Answer::Abandoned { .. })) => (abandon.place, -1),
            _ => return,
        };
        *self.0.entry(place).or_default() += change;
    }
}

/// Whether the lease itself gave up a place or a lock.
fn gives_up(event: &Event) -> bool {
    matches!(event.cause, Cause::Released | Cause::Left)
}
