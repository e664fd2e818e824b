//! Checks that no two clients can believe that they hold the same lock (S1).

use tenure_core::event::{Cause, Event, Subject};
use tenure_core::request::Command;
use tenure_types::Mode;

use super::ledger::GrantStanding;
use super::shares::LEVEL_SHARES;
use super::{CheckResult, InvariantViolation, ObservedLedger};
use crate::observe::{ObservedCommand, ObservedState};

/// Checks that all grants of a lock, including cooling and delayed ones, are compatible.
pub(super) fn views(view: &ObservedState) -> CheckResult {
    for lock in &view.locks {
        let fail = |what: &str| {
            Err(InvariantViolation::new(
                "S1",
                format!("lock {:?}: {what}: {:?}", lock.lock, lock.holders),
            ))
        };
        let many = lock.holders.len();
        if let Some(of) = lock.slots {
            let mut slots: Vec<u32> =
                lock.holders.iter().filter_map(|holder| holder.slot).collect();
            slots.sort_unstable();
            slots.dedup();
            // A semaphore that was made smaller keeps its holders.
            let too_large = view.level < LEVEL_SHARES && slots.iter().any(|slot| *slot >= of);
            if slots.len() != many || too_large {
                return fail("slots repeat, are missing or too large");
            }
            if lock.holders.iter().any(|holder| holder.mode != Mode::slot(of)) {
                return fail("a holder of another kind");
            }
            continue;
        }
        if lock.holders.iter().any(|holder| holder.slot.is_some()) {
            return fail("a slot without slots");
        }
        if many > 1 && lock.holders.iter().any(|holder| holder.mode != Mode::Shared) {
            return fail("an exclusive holder is not alone");
        }
    }
    Ok(())
}

/// Checks that a grant is compatible with every grant in force. Grants that keep others out only because they cool or
/// are delayed are the subject of T2.
pub(super) fn event(
    ledger: &ObservedLedger,
    part: &ObservedCommand<'_>,
    event: &Event,
) -> CheckResult {
    let (Cause::Granted, Subject::Lock(lock)) = (event.cause, &event.subject) else {
        return Ok(());
    };
    for (token, grant) in ledger.grants.iter().filter(|(_, grant)| grant.lock == *lock) {
        let admits = match (event.mode, grant.mode) {
            (Some(Mode::Shared), Mode::Shared) => true,
            // The number of slots may have been set since the other one was granted.
            (Some(Mode::Slot { .. }), Mode::Slot { .. }) => event.slot != grant.slot,
            _ => false,
        };
        if !admits {
            let invariant = if grant.standing == GrantStanding::Held { "S1" } else { "T2" };
            let detail = format!("{event:?} while {token:?} stands as {grant:?}");
            return Err(InvariantViolation::new(invariant, detail));
        }
    }
    let command = part.command.map(|(request, _)| &request.command);
    // A slot that is handed on stays what it was, also if the semaphore was made smaller.
    let Some(Mode::Slot { of, .. }) =
        event.mode.filter(|_| !matches!(command, Some(Command::HandOn { .. })))
    else {
        return Ok(());
    };
    let others = ledger.grants.values().filter(|grant| grant.lock == *lock).count() as u64;
    if others >= u64::from(of) || event.slot.is_none_or(|slot| slot >= of) {
        let detail = format!("{event:?} beside {others} others");
        return Err(InvariantViolation::new("S1", detail));
    }
    Ok(())
}
