//! Checks that a request for any of several locks gets one of them, and leaves the queues of the others at once (S19),
//! and that one for a pool waits for slots of that pool (Q10).

use std::collections::{BTreeMap, BTreeSet};

use tenure_core::access::AccessChange;
use tenure_core::event::{ANY, Cause, Event, Subject};
use tenure_core::outcome::Answer;
use tenure_core::request::Command;
use tenure_core::view::{HolderView, LockView, WaiterView};
use tenure_types::{HolderState, LeaseId, Limits, Name, PlaceNumber, Quotas};

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
    /// The slots of whose queues requests for a pool had to stay out when the slot was resized. They stay out until it
    /// is resized again, also after what kept them out has ended.
    kept_out: BTreeSet<(PlaceNumber, Name)>,
    /// The locks of which a lease had something at some time of the present step.
    had: BTreeSet<(LeaseId, Name)>,
    /// Whether the present step changed a limit, and whether there has ever been a quota.
    limits_set: bool,
    quotas_set: bool,
}

impl KnownChoices {
    pub(super) fn event(&mut self, event: &Event) {
        let Subject::Lock(lock) = &event.subject else { return };
        if event.cause == Cause::Resized {
            self.kept_out.retain(|(_, slot)| slot != lock);
        }
        self.had.extend(event.lease.map(|lease| (lease, lock.clone())));
        let Some(place) = event.place else { return };
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
        match part.command.map(|(request, _)| &request.command) {
            Some(Command::SetLimits(_)) => self.limits_set = true,
            Some(Command::SetAccess(change)) => self.quotas_set |= sets_quotas(change),
            _ => {}
        }
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
        let before = std::mem::take(self);
        self.quotas_set = before.quotas_set;
        let view = seen.after;
        for waiter in view.queues.iter().flatten().filter(|waiter| waiter.any) {
            if let Some(pool) = &waiter.pool {
                self.in_pool(&before, view, waiter, pool)?;
            }
            self.waiting.insert(waiter.place, waiter.locks.clone());
        }
        Ok(())
    }

    /// Checks that a waiter stands in the queue of every slot of its pool that it can have, and in no other.
    fn in_pool(
        &mut self,
        before: &Self,
        view: &ObservedState,
        waiter: &WaiterView,
        pool: &Name,
    ) -> CheckResult {
        for lock in &view.locks {
            let is_slot = lock.sized && lock.lock.starts_with(pool.as_str());
            let waits = waiter.locks.contains(&lock.lock);
            let fits = lock.slots.is_some_and(|slots| waiter.mode.grants() <= slots);
            let missing = !waits && is_slot && fits;
            let at = (waiter.place, lock.lock.clone());
            if missing && (before.kept_out.contains(&at) || before.may_keep_out(view, waiter, lock))
            {
                self.kept_out.insert(at);
            } else if missing || waits && !is_slot {
                let detail = format!("{waiter:?} and lock {:?} of pool {pool:?}", lock.lock);
                return Err(InvariantViolation::new("Q10", detail));
            }
        }
        Ok(())
    }

    /// Whether limits, quotas, or another request of its lease or group may have kept a waiter out of a queue in the
    /// present step.
    fn may_keep_out(&self, view: &ObservedState, waiter: &WaiterView, lock: &LockView) -> bool {
        let has = |it: &HolderView| it.lease == waiter.lease && it.state == HolderState::Held;
        waiter.group.is_some()
            || self.limits_set
            || self.quotas_set
            || view.limits != Limits::default()
            || lock.holders.iter().any(has)
            || self.had.contains(&(waiter.lease, lock.lock.clone()))
            || view.leases.iter().any(|lease| {
                lease.id == waiter.lease && lease.waits.iter().any(|it| it.0 != waiter.place)
            })
    }
}

fn sets_quotas(change: &AccessChange<'_>) -> bool {
    match change {
        AccessChange::PutPrincipal(new) => new.quotas != Quotas::default(),
        AccessChange::SetDefaultQuotas(quotas) => *quotas != Quotas::default(),
        AccessChange::Replace(replacement) => sets_quotas(&replacement.change),
        _ => false,
    }
}

fn broken(detail: String) -> CheckResult {
    Err(InvariantViolation::new("S19", detail))
}
