//! Checks that an upgrade keeps the hold, goes before all others and is alone (Q8).

use tenure_core::event::{Cause, Event, Subject};
use tenure_core::view::WaiterView;
use tenure_types::{HolderState, Mode};

use super::ledger::GrantStanding;
use super::{CheckResult, InvariantViolation, ObservedLedger};
use crate::observe::ObservedState;

/// Checks that a hold becomes exclusive that was shared, and only if there is no other grant.
pub(super) fn event(ledger: &ObservedLedger, event: &Event) -> CheckResult {
    let (Cause::Upgraded, Subject::Lock(lock)) = (event.cause, &event.subject) else {
        return Ok(());
    };
    let grants = || ledger.grants.values().filter(|grant| grant.lock == *lock);
    let is_own = |lease| Some(lease) == event.lease;
    let own = grants().any(|grant| {
        is_own(grant.lease.0) && grant.mode == Mode::Shared && grant.standing == GrantStanding::Held
    });
    if !own {
        return fail("there was no shared hold", &format!("{event:?}"));
    }
    match grants().find(|grant| !is_own(grant.lease.0)) {
        Some(other) => fail("there is another grant", &format!("{event:?} beside {other:?}")),
        None => Ok(()),
    }
}

/// Checks that a lease that waits for what it holds waits for its upgrade, first and alone.
pub(super) fn views(view: &ObservedState) -> CheckResult {
    for (lock, queue) in view.locks.iter().zip(&view.queues) {
        let upgrades = queue.iter().filter(|waiter| is_one(view, waiter)).count();
        let first = queue.first().is_some_and(|first| is_one(view, first));
        if upgrades > 1 || upgrades == 1 && !first {
            return fail("upgrades are not first and alone", &format!("{lock:?} {queue:?}"));
        }
    }
    Ok(())
}

/// Whether a waiter waits for the upgrade of its shared hold, by the views.
pub(super) fn is_one(view: &ObservedState, waiter: &WaiterView) -> bool {
    let [name] = &waiter.locks[..] else { return false };
    let Ok(index) = view.locks.binary_search_by(|lock| lock.lock.cmp(name)) else { return false };
    waiter.mode == Mode::Exclusive
        && view.locks[index].holders.iter().any(|holder| {
            holder.lease == waiter.lease
                && holder.state == HolderState::Held
                && holder.mode == Mode::Shared
        })
}

fn fail(what: &str, detail: &str) -> CheckResult {
    Err(InvariantViolation::new("Q8", format!("{what}: {detail}")))
}
