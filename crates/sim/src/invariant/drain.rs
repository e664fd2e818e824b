//! Checks that nothing is granted below a drained prefix (S15).

use tenure_core::event::{Cause, Event, Subject};

use super::{CheckResult, InvariantViolation, ObservedLedger};

/// Checks that a grant is not below a prefix that is drained at this time.
pub(super) fn event(ledger: &ObservedLedger, event: &Event) -> CheckResult {
    let (Cause::Granted, Subject::Lock(lock)) = (event.cause, &event.subject) else {
        return Ok(());
    };
    match ledger.drains.iter().find(|prefix| lock.starts_with(prefix.as_str())) {
        Some(prefix) => {
            let detail = format!("{event:?} while {prefix:?} is drained");
            Err(InvariantViolation::new("S15", detail))
        }
        None => Ok(()),
    }
}
