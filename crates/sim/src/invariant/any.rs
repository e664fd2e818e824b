//! Checks that a request for any of several locks gets one of them, and leaves the queues of the others at once (S19).

use std::collections::BTreeMap;

use tenure_core::event::{ANY, Cause, Event, Subject};
use tenure_core::outcome::Answer;
use tenure_core::request::Command;
use tenure_types::{Name, PlaceNumber};

use super::{CheckResult, InvariantViolation};
use crate::observe::{ObservedCommand, ObservedStep};

/// What is known of the requests for any of several locks that wait.
#[derive(Default)]
pub(super) struct KnownChoices {
    /// The locks of each such request.
    waiting: BTreeMap<PlaceNumber, Vec<Name>>,
    /// What the present command granted such requests, and which queues they left for it.
    granted: BTreeMap<PlaceNumber, Vec<Name>>,
    left: BTreeMap<PlaceNumber, Vec<Name>>,
}

impl KnownChoices {
    pub(super) fn event(&mut self, event: &Event) {
        let (Subject::Lock(lock), Some(place)) = (&event.subject, event.place) else { return };
        match event.cause {
            Cause::Queued if event.reason.as_deref() == Some(ANY) => {
                self.waiting.entry(place).or_default().push(lock.clone());
            }
            Cause::Granted => self.granted.entry(place).or_default().push(lock.clone()),
            Cause::GrantedElsewhere => self.left.entry(place).or_default().push(lock.clone()),
            _ => {}
        }
    }

    /// Checks at the end of a command what it granted.
    pub(super) fn end(&mut self, part: &ObservedCommand<'_>) -> CheckResult {
        let at_once = part.command.and_then(|(request, outcome)| {
            match (&request.command, &outcome.result) {
                (Command::Acquire(ask), Ok(Answer::Acquired(acquired))) if ask.any => {
                    Some((acquired.place, ask.locks.as_slice().len()))
                }
                _ => None,
            }
        });
        let left = std::mem::take(&mut self.left);
        for (place, mut locks) in std::mem::take(&mut self.granted) {
            locks.dedup();
            let Some(waited) = self.waiting.remove(&place) else {
                if at_once.is_some_and(|(number, many)| number == place && many > 1)
                    && locks.len() > 1
                {
                    return broken(format!("{place:?} asked for any and got {locks:?}"));
                }
                continue;
            };
            let mut all = left.get(&place).cloned().unwrap_or_default();
            all.extend(locks.iter().cloned());
            all.sort();
            if locks.len() != 1 || all != waited {
                return broken(format!("{place:?} waited for any of {waited:?}: {locks:?}, {left:?}"));
            }
        }
        Ok(())
    }

    /// Takes over what the queues show.
    pub(super) fn views(&mut self, seen: &ObservedStep<'_>) {
        *self = Self::default();
        for waiter in seen.after.queues.iter().flatten().filter(|waiter| waiter.any) {
            self.waiting.insert(waiter.place, waiter.locks.clone());
        }
    }
}

fn broken(detail: String) -> CheckResult {
    Err(InvariantViolation::new("S19", detail))
}
