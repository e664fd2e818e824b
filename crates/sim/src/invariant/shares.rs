//! Checks that a request gets all its slots at once (S17), and that no place waits for more slots than there are (Q9).

use std::collections::BTreeMap;

use tenure_core::event::{Cause, Event, Subject};
use tenure_core::outcome::Answer;
use tenure_core::request::Command;
use tenure_types::{Mode, Name, PlaceNumber};

use super::{CheckResult, InvariantViolation};
use crate::observe::{ObservedCommand, ObservedStep};

/// The level from which on a request may take several slots, and the number of slots can be set.
pub(super) const LEVEL_SHARES: u16 = 11;

/// How many slots of each semaphore the waiting places want.
#[derive(Default)]
pub(super) struct KnownShares {
    wanted: BTreeMap<(PlaceNumber, Name), u32>,
    /// How many each place was granted by the present command.
    granted: BTreeMap<(PlaceNumber, Name), u32>,
}

fn take(mode: Mode) -> u32 {
    match mode {
        Mode::Slot { take, .. } => take,
        Mode::Exclusive | Mode::Shared => 1,
    }
}

impl KnownShares {
    /// Counts what is granted, and checks that only a place that wants too many slots ends for that.
    pub(super) fn event(&mut self, part: &ObservedCommand<'_>, event: &Event) -> CheckResult {
        let (Subject::Lock(lock), Some(place)) = (&event.subject, event.place) else {
            return Ok(());
        };
        let key = (place, lock.clone());
        match (event.cause, event.mode) {
            (Cause::Queued, Some(mode)) => {
                self.wanted.insert(key, take(mode));
            }
            (Cause::Granted, _) => *self.granted.entry(key).or_insert(0) += 1,
            (Cause::TooManySlots, _) => {
                let resized = match part.command.map(|(request, _)| &request.command) {
                    Some(Command::Resize { lock, slots: Some(slots), .. }) => Some((lock, slots)),
                    _ => None,
                };
                // Every lock of the place has such an event; the semaphore that was resized may be another one.
                let too_large = resized.is_some_and(|(resized, slots)| {
                    let mut wanted = self.wanted.iter();
                    wanted.any(|((number, name), take)| {
                        *number == place && name.as_str() == *resized && take > slots
                    })
                });
                if !too_large {
                    let detail = format!("{event:?} by {:?}", part.command);
                    return Err(InvariantViolation::new("Q9", detail));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Checks at the end of a command that every place that was granted has all that it wanted.
    pub(super) fn end(&mut self, part: &ObservedCommand<'_>) -> CheckResult {
        let asked = match part.command {
            Some((request, outcome)) => match (&request.command, &outcome.result) {
                (Command::Acquire(ask), Ok(Answer::Acquired(acquired))) => {
                    Some((acquired.place, ask.locks.as_slice()))
                }
                _ => None,
            },
            None => None,
        };
        for ((place, lock), many) in std::mem::take(&mut self.granted) {
            let waited = self.wanted.remove(&(place, lock.clone()));
            let at_once = asked.filter(|(number, _)| *number == place).and_then(|(_, asks)| {
                asks.iter().find(|ask| ask.lock == lock.as_str()).map(|ask| take(ask.mode))
            });
            // A place whose wait began while events were lost is not known.
            if let Some(wanted) = waited.or(at_once).filter(|wanted| *wanted != many) {
                let detail = format!("{place:?} wanted {wanted} of {lock:?} and got {many}");
                return Err(InvariantViolation::new("S17", detail));
            }
        }
        Ok(())
    }

    /// Checks the queues, and takes over what they show.
    pub(super) fn views(&mut self, seen: &ObservedStep<'_>) -> CheckResult {
        self.wanted.clear();
        self.granted.clear();
        for (lock, queue) in seen.after.locks.iter().zip(&seen.after.queues) {
            for waiter in queue {
                let wanted = take(waiter.mode);
                if lock.slots.is_some_and(|slots| wanted > slots) {
                    let detail = format!("{waiter:?} of {:?} slots", lock.slots);
                    return Err(InvariantViolation::new("Q9", detail));
                }
                self.wanted.insert((waiter.place, lock.lock.clone()), wanted);
            }
        }
        Ok(())
    }
}
