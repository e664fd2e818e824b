//! Checks that only a newer request of the same group ends a wait as superseded, and that it leaves none (Q6).

use tenure_core::event::{Cause, Event, Subject};
use tenure_core::outcome::Answer;
use tenure_core::request::Command;
use tenure_core::view::WaiterView;

use super::{CheckResult, InvariantViolation, ObservedLedger};
use crate::observe::{ObservedCommand, ObservedStep};

/// Checks that a superseded place waited in the group that the command of the event names, at one of its locks.
pub(super) fn event(
    ledger: &ObservedLedger,
    part: &ObservedCommand<'_>,
    event: &Event,
) -> CheckResult {
    if event.cause != Cause::Superseded {
        return Ok(());
    }
    let fail = |what: &str| {
        let detail = format!("{what}: {event:?} by {:?}", part.command);
        Err(InvariantViolation::new("Q6", detail))
    };
    let (Subject::Lock(_), Some(place), None) = (&event.subject, event.place, event.token) else {
        return fail("not a waiter");
    };
    let Some((request, outcome)) = part.command else { return fail("no command asked for it") };
    let (Command::Acquire(ask), Ok(answer)) = (&request.command, &outcome.result) else {
        return fail("no ask");
    };
    let newer = match answer {
        Answer::Queued(queued) => queued.place,
        Answer::Acquired(acquired) => acquired.place,
        _ => return fail("an ask that neither waits nor holds"),
    };
    if newer <= place {
        return fail("by an older ask");
    }
    if event.reason.as_deref() != ask.supersede {
        return fail("of another group");
    }
    // What was queued in this entry shows its group and its owner later.
    let Some(known) = ledger.groups.get(&place) else { return Ok(()) };
    if known.group.as_deref() != ask.supersede {
        return fail("it is of another group");
    }
    let locks = ask.locks.as_slice();
    let named = |lock: &str| match ask.pool() {
        Some(pool) => lock.starts_with(pool),
        None => locks.iter().any(|ask| ask.lock == lock),
    };
    if !known.locks.iter().any(|lock| named(lock)) {
        return fail("it waits for other locks");
    }
    Ok(())
}

/// Checks that no two live waiters of a lock are of one group of one principal.
pub(super) fn views(seen: &ObservedStep<'_>) -> CheckResult {
    let view = seen.after;
    let live = |waiter: &WaiterView| view.leases.iter().any(|lease| lease.id == waiter.lease);
    for (lock, queue) in view.locks.iter().zip(&view.queues) {
        let grouped: Vec<&WaiterView> =
            queue.iter().filter(|waiter| waiter.group.is_some() && live(waiter)).collect();
        for (at, waiter) in grouped.iter().enumerate() {
            let same = |other: &&&WaiterView| {
                other.group == waiter.group && other.principal == waiter.principal
            };
            if let Some(other) = grouped[..at].iter().find(same) {
                let detail = format!("lock {:?}: {other:?} beside {waiter:?}", lock.lock);
                return Err(InvariantViolation::new("Q6", detail));
            }
        }
    }
    Ok(())
}
