//! Checks that only live leases get locks (S3), and that an ended lease stays ended (S5).

use tenure_core::event::{Cause, Event};
use tenure_core::outcome::{Answer, Outcome};
use tenure_core::request::{AskLease, Command, LeaseRef, Request, RequestId};
use tenure_types::HolderState;

use super::ledger::CLOCK_MAX;
use super::{CheckResult, Handles, InvariantViolation, ObservedLedger};
use crate::observe::ObservedStep;

/// Checks that every grant goes to a lease that is live at that time.
pub(super) fn event(ledger: &ObservedLedger, event: &Event) -> CheckResult {
    if event.cause != Cause::Granted {
        return Ok(());
    }
    match event.lease {
        Some(lease) if ledger.live(lease) => Ok(()),
        // At the largest clock a lease is due as soon as it is granted, together with its locks, and the difference is
        // not observable. The comparison with the model still covers this case.
        Some(_) if ledger.clock == CLOCK_MAX => Ok(()),
        lease => {
            let known = lease.and_then(|lease| ledger.leases.get(&lease));
            let detail = format!("granted to {lease:?} ({known:?}) at {}: {event:?}", ledger.clock);
            Err(InvariantViolation::new("S3", detail))
        }
    }
}

/// Checks that a command in the name of a lease has an effect only while that lease is live.
pub(super) fn before_command(
    ledger: &ObservedLedger,
    handles: &Handles,
    request: &Request<'_>,
    outcome: &Outcome,
    moved: bool,
) -> CheckResult {
    let Ok(answer) = &outcome.result else { return Ok(()) };
    if let RequestId::Seq { lease, .. } = request.id {
        must_live(ledger, handles, lease, "numbers a request")?;
    }
    // A repeated answer may be older than the end of its lease.
    if request.id != RequestId::None && !moved {
        return Ok(());
    }
    match (&request.command, answer) {
        (Command::Renew(leases), Answer::Renewed(renewals)) => {
            for (lease, renewal) in leases.iter().zip(renewals) {
                if renewal.is_some() {
                    must_live(ledger, handles, *lease, "is renewed")?;
                }
            }
            Ok(())
        }
        (Command::Revoke { lease, .. }, _) => must_live(ledger, handles, *lease, "is revoked"),
        (Command::Release(hold) | Command::Downgrade(hold), _)
        | (Command::Update { hold, .. } | Command::Progress { hold, .. }, _) => {
            must_live(ledger, handles, hold.lease, "holds")
        }
        (Command::HandOn { hold, .. }, _) => must_live(ledger, handles, hold.lease, "hands on"),
        (Command::Upgrade(it), _) => must_live(ledger, handles, it.lease, "upgrades"),
        (Command::Leave { lease, .. }, _) => must_live(ledger, handles, *lease, "leaves"),
        (Command::Acquire(acquire), _) => match acquire.lease {
            AskLease::Existing(lease) => must_live(ledger, handles, lease, "asks"),
            AskLease::New(_) => Ok(()),
        },
        (Command::Put(put), _) => match put.lease {
            Some(lease) => must_live(ledger, handles, lease, "binds a key"),
            None => Ok(()),
        },
        _ => Ok(()),
    }
}

/// Checks that nothing in the views belongs to an ended lease, except grants that cool or are delayed.
pub(super) fn views(ledger: &ObservedLedger, seen: &ObservedStep<'_>) -> CheckResult {
    for lease in &seen.after.leases {
        if ledger.ended.contains(&(lease.id, lease.created)) {
            return Err(InvariantViolation::new(
                "S5",
                format!("an ended lease is back: {lease:?}"),
            ));
        }
    }
    for lock in &seen.after.locks {
        for holder in &lock.holders {
            let ended = ledger.ended.contains(&(holder.lease, holder.lease_created));
            if ended && holder.state == HolderState::Held {
                let detail = format!("lock {:?} is held by an ended lease: {holder:?}", lock.lock);
                return Err(InvariantViolation::new("S5", detail));
            }
        }
    }
    Ok(())
}

fn must_live(
    ledger: &ObservedLedger,
    handles: &Handles,
    lease: LeaseRef,
    what: &str,
) -> CheckResult {
    let key = handles.resolve(ledger, lease);
    if key.is_some_and(|key| ledger.live_key(key)) {
        return Ok(());
    }
    // A lease that is due and has not ended violates T1; one that has ended or never existed violates S5.
    let due = key.is_some_and(|(id, created)| {
        ledger.leases.get(&id).is_some_and(|known| known.created == created)
    });
    let detail = format!("{lease:?} ({key:?}) is not live at {} and {what}", ledger.clock);
    Err(InvariantViolation::new(if due { "T1" } else { "S5" }, detail))
}
