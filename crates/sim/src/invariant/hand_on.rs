//! Checks that a hold is handed on to the lease that was named, without a gap and without an overlap (S16).

use tenure_core::event::{Cause, Event, Subject};
use tenure_core::request::Command;

use super::{CheckResult, InvariantViolation, ObservedLedger};
use crate::observe::ObservedCommand;

/// Checks that the holder asked for it, that the receiver waited, and that its grant is the next one.
pub(super) fn event(
    ledger: &ObservedLedger,
    part: &ObservedCommand<'_>,
    event: &Event,
) -> CheckResult {
    let (Cause::HandedOn, Subject::Lock(lock)) = (event.cause, &event.subject) else {
        return Ok(());
    };
    let fail = |what: &str| {
        Err(InvariantViolation::new("S16", format!("{what}: {event:?} of {:?}", part.events)))
    };
    let Some(Command::HandOn { hold, to }) = part.command.map(|(request, _)| &request.command)
    else {
        return fail("no command asked for it");
    };
    if hold.lock != lock.as_str() || Some(hold.token) != event.token {
        return fail("another hold was asked for");
    }
    let queue = ledger.queues.get(lock);
    let waited = |place| queue.is_some_and(|queue| queue.contains(&(place, *to)));
    if !event.place.is_some_and(waited) {
        return fail("the receiver did not wait there");
    }
    let after = part.events.iter().skip_while(|it| *it != event).skip(1);
    // An upgrade that the giver waited for ends with its hold.
    let mut after = after.filter(|it| it.cause != Cause::Left);
    let follows = after.next().is_some_and(|next| {
        next.cause == Cause::Granted
            && next.subject == event.subject
            && next.lease == Some(*to)
            && (next.place, next.mode, next.slot) == (event.place, event.mode, event.slot)
            && next.token > event.token
    });
    if follows { Ok(()) } else { fail("the receiver does not have it next") }
}
