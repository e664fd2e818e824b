//! Checks that a request for any of several locks gets one of them, and leaves the queues of the others at once (S19),
//! and that one for a pool waits for slots of that pool (Q10).

use std::collections::BTreeMap;

use tenure_core::event::{ANY, Cause, Event, Subject};
use tenure_core::outcome::Answer;
use tenure_core::request::Command;
use tenure_core::view::{HolderView, WaiterView};
use tenure_types::{HolderState, Limits, Name, PlaceNumber};

use super::{CheckResult, InvariantViolation};
use crate::observe::{ObservedCommand, ObservedState, ObservedStep};

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
            Cause::Left | Cause::TooManySlots => {
                if let Some(locks) = self.waiting.get_mut(&place) {
                    locks.retain(|other| other != lock);
                }
            }
            Cause::Granted => self.granted.entry(place).or_default().push(lock.clone()),
            Cause::GrantedElsewhere => self.left.entry(place).or_default().push(lock.clone()),
            _ => {}
        }
    }

    /// Checks at the end of a command what it granted.
    pub(super) fn end(&mut self, part: &ObservedCommand<'_>) -> CheckResult {
        let at_once =
            part.command.and_then(|(request, outcome)| match (&request.command, &outcome.result) {
                (Command::Acquire(ask), Ok(Answer::Acquired(acquired)))
                    if ask.pool().is_some() || ask.any && ask.locks.as_slice().len() > 1 =>
                {
                    Some(acquired.place)
                }
                _ => None,
            });
        let left = std::mem::take(&mut self.left);
        for (place, mut locks) in std::mem::take(&mut self.granted) {
            locks.dedup();
            let Some(mut waited) = self.waiting.remove(&place) else {
                if at_once == Some(place) && locks.len() > 1 {
                    return broken(format!("{place:?} asked for any and got {locks:?}"));
                }
                continue;
            };
            let mut all = left.get(&place).cloned().unwrap_or_default();
            all.extend(locks.iter().cloned());
            all.sort();
            waited.sort();
            if locks.len() != 1 || all != waited {
                return broken(format!(
                    "{place:?} waited for any of {waited:?}: {locks:?}, {left:?}"
                ));
            }
        }
        Ok(())
    }

    /// Checks the queues, and takes over what they show.
    pub(super) fn views(&mut self, seen: &ObservedStep<'_>) -> CheckResult {
        *self = Self::default();
        let view = seen.after;
        for waiter in view.queues.iter().flatten().filter(|waiter| waiter.any) {
            if let Some(pool) = &waiter.pool {
                in_pool(view, waiter, pool)?;
            }
            self.waiting.insert(waiter.place, waiter.locks.clone());
        }
        Ok(())
    }
}

/// Checks that a waiter stands in the queue of every slot of its pool that it can have, and in no other.
fn in_pool(view: &ObservedState, waiter: &WaiterView, pool: &Name) -> CheckResult {
    for lock in &view.locks {
        let is_slot = lock.sized && lock.lock.starts_with(pool.as_str());
        let waits = waiter.locks.contains(&lock.lock);
        let has = |it: &HolderView| it.lease == waiter.lease && it.state == HolderState::Held;
        let fits = lock.slots.is_some_and(|slots| waiter.mode.grants() <= slots);
        // The limits, or another request of its lease or group, may keep it out of a queue.
        let alone = waiter.group.is_none()
            && !lock.holders.iter().any(has)
            && view.limits == Limits::default()
            && !view.leases.iter().any(|lease| {
                lease.id == waiter.lease && lease.waits.iter().any(|it| it.0 != waiter.place)
            });
        if waits && !is_slot || !waits && is_slot && fits && alone {
            let detail = format!("{waiter:?} and lock {:?} of pool {pool:?}", lock.lock);
            return Err(InvariantViolation::new("Q10", detail));
        }
    }
    Ok(())
}

fn broken(detail: String) -> CheckResult {
    Err(InvariantViolation::new("S19", detail))
}
