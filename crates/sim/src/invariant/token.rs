//! Checks that every grant gets a larger token than all before it (S2).

use tenure_core::event::{Cause, Event};
use tenure_types::Epoch;

use super::{CheckResult, InvariantViolation};
use crate::observe::ObservedStep;

/// The largest token seen, of any lock, in any epoch.
#[derive(Default)]
pub(super) struct Tokens {
    highest: u64,
}

impl Tokens {
    /// Checks a grant, or a downgrade or an upgrade, which also get a new token.
    pub(super) fn event(&mut self, event: &Event, epoch: Epoch) -> CheckResult {
        if !matches!(event.cause, Cause::Granted | Cause::Downgraded | Cause::Upgraded) {
            return Ok(());
        }
        let Some(token) = event.token else {
            return Err(InvariantViolation::new(
                "S2",
                format!("a grant without a token: {event:?}"),
            ));
        };
        if token.get() <= self.highest {
            let detail = format!("token {token} after {}: {event:?}", self.highest);
            return Err(InvariantViolation::new("S2", detail));
        }
        if token.get() >> 48 != u64::from(epoch.get()) {
            return Err(InvariantViolation::new(
                "S2",
                format!("token {token} is not of {epoch:?}"),
            ));
        }
        self.highest = token.get();
        Ok(())
    }

    /// Raises the largest token from the grants in force, after events were lost.
    pub(super) fn catch_up(&mut self, seen: &ObservedStep<'_>) {
        for holder in seen.after.locks.iter().flat_map(|lock| &lock.holders) {
            self.highest = self.highest.max(holder.token.get());
        }
    }
}
