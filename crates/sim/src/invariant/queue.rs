//! Checks that queues are fair (Q1, Q7) and never idle (Q2), and that each ask has one place (Q3).

use tenure_core::event::{Cause, Event, Subject};
use tenure_core::outcome::{Answer, Outcome};
use tenure_core::request::{AskLease, Command, Request};
use tenure_core::view::{LockView, WaiterView};
use tenure_types::{HolderState, Mode, Name};

use super::priority::{AskedAt, Precedes, of_order};
use super::upgrade;
use super::{CheckResult, Handles, InvariantViolation, ObservedLedger};
use crate::observe::{ObservedState, ObservedStep};

/// Checks that a lease that already waits and asks again keeps its place.
pub(super) fn before_command(
    ledger: &ObservedLedger,
    handles: &Handles,
    request: &Request<'_>,
    outcome: &Outcome,
) -> CheckResult {
    let (Command::Acquire(acquire), Ok(Answer::Queued(queued))) =
        (&request.command, &outcome.result)
    else {
        return Ok(());
    };
    let lease = match acquire.lease {
        AskLease::Existing(lease) => handles.resolve(ledger, lease).map(|(id, _)| id),
        AskLease::New(new) => Some(new.id),
    };
    // The prefix of a pool may be the name of a lock, which it does not mean.
    let asks = if acquire.pool().is_some() { &[] } else { acquire.locks.as_slice() };
    for ask in asks {
        let Some(queue) = ledger.queues.get(ask.lock.as_bytes()) else { continue };
        let Some((place, _)) = queue.iter().find(|(_, other)| Some(*other) == lease) else {
            continue;
        };
        if *place != queued.place {
            let detail = format!("{lease:?} waited at {place:?}, asked again, is at {queued:?}");
            return Err(InvariantViolation::new("Q3", detail));
        }
    }
    Ok(())
}

/// Checks that a grant goes to the first place of the queue, and that a new place is the newest of it.
pub(super) fn event(ledger: &ObservedLedger, event: &Event) -> CheckResult {
    let (Subject::Lock(lock), Some(place)) = (&event.subject, event.place) else {
        return Ok(());
    };
    let Some(queue) = ledger.queues.get(lock) else { return Ok(()) };
    match event.cause {
        // Its giver chose it.
        Cause::Granted if ledger.handed_on == Some(place) => Ok(()),
        Cause::Granted => {
            // A place that never waited has no priority to pass others by.
            let asked = |it| ledger.asked.get(&it).copied().unwrap_or(AskedAt::plain(ledger.clock));
            let own = (asked(place), place);
            let others = queue.iter().map(|(other, _)| (asked(*other), *other));
            let Some(first) = others.filter(|other| other.1 != place).find(|it| it.precedes(own))
            else {
                return Ok(());
            };
            let detail = format!("{event:?} while the queue is {queue:?} and {first:?} is first");
            Err(InvariantViolation::new(of_order(first.0, own.0), detail))
        }
        Cause::Queued => {
            if queue.iter().any(|(_, lease)| Some(*lease) == event.lease) {
                let detail = format!("a second place for one lease: {event:?} in {queue:?}");
                return Err(InvariantViolation::new("Q3", detail));
            }
            match queue.back() {
                // A request for a pool joins the queue of a slot that is added while it waits.
                Some((last, _)) if *last >= place && !ledger.asked.contains_key(&place) => {
                    Err(InvariantViolation::new(
                        "Q1",
                        format!("{event:?} is not the newest of {queue:?}"),
                    ))
                }
                _ => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

/// Checks that no place waits for nothing, twice, or after the end of its lease.
pub(super) fn views(ledger: &ObservedLedger, seen: &ObservedStep<'_>) -> CheckResult {
    let view = seen.after;
    for (lock, queue) in view.locks.iter().zip(&view.queues) {
        in_order(view, lock, queue)?;
        for waiter in queue {
            waits_rightly(ledger, seen, lock, waiter)?;
        }
        if let Some(first) = queue.first() {
            let quiet =
                view.clock < ledger.quiet_until || (ledger.quiet_until > 0 && view.backlog());
            let later = view.reopening.is_some_and(|it| it.is_ahead(first.lease));
            if !quiet && !later && grantable(view, first) {
                let detail = format!("lock {:?} could be had by {first:?}", lock.lock);
                return Err(InvariantViolation::new("Q2", detail));
            }
        }
    }
    Ok(())
}

fn in_order(view: &ObservedState, lock: &LockView, queue: &[WaiterView]) -> CheckResult {
    let asked = |it: &WaiterView| {
        let (clock, upgrade) = (view.clock - it.waiting_ms, upgrade::is_one(view, it));
        (AskedAt { clock, priority: it.priority, upgrade }, it.place)
    };
    let mut before: Option<&WaiterView> = None;
    for (ahead, waiter) in (0u64..).zip(queue) {
        if let Some(before) = before.filter(|before| !asked(before).precedes(asked(waiter))) {
            let detail = format!("lock {:?}: {waiter:?} after {before:?}", lock.lock);
            return Err(InvariantViolation::new(
                of_order(asked(before).0, asked(waiter).0),
                detail,
            ));
        }
        if waiter.ahead != ahead || waiter.behind != before.map(|before| before.place) {
            let detail = format!("lock {:?}: {waiter:?} after {before:?}", lock.lock);
            return Err(InvariantViolation::new("Q1", detail));
        }
        before = Some(waiter);
    }
    if lock.waiting != queue.len() as u64 {
        let detail = format!("lock {:?}: {} wait, {} shown", lock.lock, lock.waiting, queue.len());
        return Err(InvariantViolation::new("Q1", detail));
    }
    Ok(())
}

fn waits_rightly(
    ledger: &ObservedLedger,
    seen: &ObservedStep<'_>,
    lock: &LockView,
    waiter: &WaiterView,
) -> CheckResult {
    let view = seen.after;
    let live = view.leases.iter().find(|lease| lease.id == waiter.lease);
    // A lease that is due may still have its places until its slice comes. The event of its grant may be lost.
    let known = ledger.leases.contains_key(&waiter.lease) || ledger.doubtful() || !seen.whole;
    if live.is_none() && !(view.backlog() && known) {
        let detail = format!("lock {:?}: {waiter:?} waits for an ended lease", lock.lock);
        return Err(InvariantViolation::new("Q2", detail));
    }
    let held = lock.holders.iter().any(|holder| {
        holder.state == HolderState::Held
            && holder.lease == waiter.lease
            && live.is_some_and(|lease| lease.created == holder.lease_created)
    });
    if held && !upgrade::is_one(view, waiter) {
        let detail = format!("lock {:?}: its holder waits for it too: {waiter:?}", lock.lock);
        return Err(InvariantViolation::new("Q3", detail));
    }
    Ok(())
}

/// Whether a place is first in all its queues and every lock admits it, by the views; in one of them, if one of its
/// locks is enough.
fn grantable(view: &ObservedState, waiter: &WaiterView) -> bool {
    let live = view.leases.iter().any(|lease| lease.id == waiter.lease);
    let free = |name: &Name| {
        let Some((lock, queue)) = find(view, name) else { return false };
        let Some(first) = queue.first().filter(|first| first.place == waiter.place) else {
            return false;
        };
        if upgrade::is_one(view, first) {
            return lock.holders.len() == 1;
        }
        let drained = |prefix: &str| lock.lock.starts_with(prefix);
        if view.drains.iter().any(|drain| drained(&drain.prefix)) {
            return false;
        }
        match first.mode {
            Mode::Exclusive => lock.holders.is_empty(),
            Mode::Shared => lock.holders.iter().all(|holder| holder.mode == Mode::Shared),
            Mode::Slot { of, take } => lock.holders.len() as u64 + u64::from(take) <= u64::from(of),
        }
    };
    let mut locks = waiter.locks.iter();
    live && if waiter.any { locks.any(free) } else { locks.all(free) }
}

fn find<'a>(view: &'a ObservedState, name: &Name) -> Option<(&'a LockView, &'a [WaiterView])> {
    let index = view.locks.binary_search_by(|lock| lock.lock.cmp(name)).ok()?;
    Some((&view.locks[index], view.queues[index].as_slice()))
}
