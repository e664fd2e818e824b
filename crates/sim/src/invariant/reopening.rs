//! Checks that queues are reopened slice by slice (Q11), and that what is due ends meanwhile (T7).

use tenure_core::event::{Cause, Event, Subject};
use tenure_core::request::{Command, LEVEL_REOPENING, Request};
use tenure_types::Limit;

use super::{CheckResult, InvariantViolation, ObservedLedger};
use crate::observe::{ObservedCommand, ObservedStep};

/// A lower bound of the share of due objects that end with an event of their own: one in so many.
const EVENTS_PER_OBJECT: u64 = 4;

/// How many entries in a row left a lease past its deadline and ended less than they could.
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
    /// Checks that an entry goes on with the reopening, and that it ends as much as it may if it leaves a lease past
    /// its deadline.
    pub(super) fn views(
        &mut self,
        ledger: &ObservedLedger,
        seen: &ObservedStep<'_>,
    ) -> CheckResult {
        if !seen.applied {
            return Ok(());
        }
        goes_on(ledger, seen)?;
        // An entry may end nothing but the quiet period, which has no event.
        let most = u32::from(ledger.quiet_until > 0);
        let ends = seen.batches.iter().flat_map(|batch| &batch.events).filter(|it| is_end(it));
        // An object ends with at least one event, unless the end of another one in the same entry was its end too.
        let ended =
            EVENTS_PER_OBJECT * ends.count() as u64 >= seen.before.limits.get(Limit::EndsPerEntry);
        let late = ledger.leases.iter().find(|(_, known)| {
            known.deadline <= seen.after.clock && known.created <= seen.before.revision
        });
        match late.filter(|_| !ended && seen.whole && !ledger.doubtful()) {
            Some(_) if self.0 < most => self.0 += 1,
            Some(late) => {
                let detail = format!("{late:?} is due at {} and little ends", seen.after.clock);
                return Err(InvariantViolation::new("T7", detail));
            }
            None => self.0 = 0,
        }
        Ok(())
    }
}

/// Checks that a reopening that was under way before the entry has come further, unless it may have begun again.
fn goes_on(ledger: &ObservedLedger, seen: &ObservedStep<'_>) -> CheckResult {
    let (Some(before), Some(after)) = (seen.before.reopening, seen.after.reopening) else {
        return Ok(());
    };
    // The end of the quiet period begins it again too, and a whole round may fit into one slice.
    let begins =
        before.again || ledger.quiet_until > 0 || seen.requests.iter().flatten().any(is_undrain);
    if before.after == after.after && !begins {
        let detail = format!("no queue was served: {before:?}, then {after:?}");
        return Err(InvariantViolation::new("Q11", detail));
    }
    Ok(())
}

fn is_undrain(request: &Request<'_>) -> bool {
    matches!(request.command, Command::Undrain { .. })
}

/// Whether this is the end of something that was due. The places of a lease that is due may end without it.
fn is_end(event: &Event) -> bool {
    match event.cause {
        Cause::Expired => event.token.is_some() || matches!(event.subject, Subject::Lease(_)),
        Cause::Revoked => event.reason.as_deref() == Some("principal revoked"),
        cause => matches!(
            cause,
            Cause::WaitTimeout
                | Cause::MaxHold
                | Cause::NoProgress
                | Cause::Cooled
                | Cause::DelayOver
                | Cause::MinHoldOver
        ),
    }
}
