//! Checks that queues are reopened slice by slice (Q11), and that what is due ends meanwhile (T7).

use tenure_core::event::Cause;
use tenure_core::request::{Command, LEVEL_REOPENING, Request};

use super::{CheckResult, InvariantViolation, ObservedLedger};
use crate::observe::{ObservedCommand, ObservedStep};

/// The entries since the last one that ended something which was due.
#[derive(Default)]
pub(super) struct IdleEntries(u32);

/// Checks that the commands of an entry serve at most one slice, and none after the slice that the entry began with.
pub(super) fn slices(seen: &ObservedStep<'_>, parts: &[ObservedCommand<'_>]) -> CheckResult {
    if seen.before.level < LEVEL_REOPENING {
        return Ok(());
    }
    let opens = |part: &&ObservedCommand<'_>| {
        part.command.is_some_and(|(request, _)| is_undrain(request))
            && part.events.iter().any(|event| event.cause == Cause::Granted)
    };
    let slices = usize::from(seen.before.reopening.is_some()) + parts.iter().filter(opens).count();
    if slices > 1 {
        let detail =
            format!("{slices} slices, {:?} before: {:?}", seen.before.reopening, seen.batches);
        return Err(InvariantViolation::new("Q11", detail));
    }
    Ok(())
}

impl IdleEntries {
    /// Checks that an entry goes on with the reopening, and that it ends something if a lease is past its deadline.
    pub(super) fn views(
        &mut self,
        ledger: &ObservedLedger,
        seen: &ObservedStep<'_>,
    ) -> CheckResult {
        if !seen.applied {
            return Ok(());
        }
        goes_on(seen)?;
        // An entry may end nothing but the quiet period, which has no event.
        let most = u32::from(ledger.quiet_until > 0);
        let ended = seen.batches.iter().flat_map(|batch| &batch.events).any(|it| is_end(it.cause));
        let late = ledger.leases.iter().find(|(_, known)| {
            known.deadline <= seen.after.clock && known.created <= seen.before.revision
        });
        match late.filter(|_| !ended && seen.whole && !ledger.doubtful()) {
            Some(_) if self.0 < most => self.0 += 1,
            Some(late) => {
                let detail = format!("{late:?} is due at {} and nothing ends", seen.after.clock);
                return Err(InvariantViolation::new("T7", detail));
            }
            None => self.0 = 0,
        }
        Ok(())
    }
}

/// Checks that a reopening that was under way before the entry has come further, unless it may have begun again.
fn goes_on(seen: &ObservedStep<'_>) -> CheckResult {
    let (Some(before), Some(after)) = (seen.before.reopening, seen.after.reopening) else {
        return Ok(());
    };
    let begins = before.again || seen.requests.iter().flatten().any(is_undrain);
    if before.after == after.after && !begins {
        let detail = format!("no queue was served: {before:?}, then {after:?}");
        return Err(InvariantViolation::new("Q11", detail));
    }
    Ok(())
}

fn is_undrain(request: &Request<'_>) -> bool {
    matches!(request.command, Command::Undrain { .. })
}

/// Whether a cause ends what was due, among others.
fn is_end(cause: Cause) -> bool {
    matches!(
        cause,
        Cause::Expired
            | Cause::Revoked
            | Cause::WaitTimeout
            | Cause::MaxHold
            | Cause::NoProgress
            | Cause::Cooled
            | Cause::DelayOver
            | Cause::MinHoldOver
    )
}
