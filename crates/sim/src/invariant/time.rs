//! Checks that a lease lives exactly as long as it may (T1), and that a pause (T2) and a min hold (T5) last as long as
//! they must.

use tenure_core::event::{Cause, Event, Subject};
use tenure_core::outcome::{Answer, Outcome};
use tenure_core::request::{Command, Request, RequestId, Urgency};
use tenure_types::{HolderState, Token};

use super::access::AccessLedger;
use super::ledger::{GrantStanding, KnownGrant};
use super::{CheckResult, Handles, InvariantViolation, ObservedLedger};
use crate::observe::{ObservedCommand, ObservedStep};

/// Checks that ends come neither too early nor without their pause.
pub(super) fn event(
    ledger: &ObservedLedger,
    part: &ObservedCommand<'_>,
    event: &Event,
) -> CheckResult {
    if event.cause == Cause::Granted && ledger.clock < ledger.quiet_least {
        let until = ledger.quiet_least;
        let detail = format!("{event:?} at {}, and it is quiet until {until}", ledger.clock);
        return Err(InvariantViolation::new("T2", detail));
    }
    match (&event.subject, event.token) {
        (Subject::Lease(id), _) if event.cause == Cause::Expired => match ledger.leases.get(id) {
            Some(known) if known.deadline > ledger.clock => {
                let detail = format!("{id:?} {known:?} expired at {}", ledger.clock);
                Err(InvariantViolation::new("T1", detail))
            }
            _ => Ok(()),
        },
        (Subject::Lock(_), Some(token)) => match ledger.grants.get(&token) {
            Some(grant) => grant_event(ledger, part, event, token, grant),
            None => Ok(()),
        },
        _ => Ok(()),
    }
}

/// Checks that a renewal restarts the whole ttl and never shortens a lease.
pub(super) fn renewal(
    ledger: &ObservedLedger,
    handles: &Handles,
    access: &AccessLedger,
    request: &Request<'_>,
    outcome: &Outcome,
) -> CheckResult {
    let (RequestId::None, Command::Renew(leases), Ok(Answer::Renewed(renewals))) =
        (request.id, &request.command, &outcome.result)
    else {
        return Ok(());
    };
    for (reference, renewal) in leases.iter().zip(renewals) {
        let known = handles
            .resolve(ledger, *reference)
            .filter(|key| ledger.live_key(*key))
            .filter(|key| access.renews(request.principal, *key) == Some(true))
            .and_then(|(id, _)| ledger.leases.get(&id));
        let Some(known) = known else { continue };
        let Some(renewal) = renewal else {
            let detail =
                format!("{reference:?} {known:?} is live at {} and not renewed", ledger.clock);
            return Err(InvariantViolation::new("T1", detail));
        };
        let shorter = ledger.deadline(renewal.ttl_ms) < known.deadline;
        if renewal.ttl_ms != known.ttl || shorter {
            let detail = format!("{reference:?} {known:?} renewed as {renewal:?}");
            return Err(InvariantViolation::new("T1", detail));
        }
    }
    Ok(())
}

/// Checks that the remaining times in the views match the ledger.
pub(super) fn views(ledger: &ObservedLedger, seen: &ObservedStep<'_>) -> CheckResult {
    let clock = seen.after.clock;
    if clock < seen.before.clock {
        return Err(InvariantViolation::new("T1", format!("the clock went back to {clock}")));
    }
    for lease in &seen.after.leases {
        if lease.left_ms == 0 || lease.left_ms > ledger.longest(lease.ttl_ms) {
            return Err(InvariantViolation::new(
                "T1",
                format!("{lease:?} cannot have so long to live"),
            ));
        }
        let Some(known) = ledger.leases.get(&lease.id).filter(|_| seen.whole) else { continue };
        // Renewals with a request id are not in the ledger, so a lease may live longer than the ledger says, up to a
        // ttl from now; never shorter.
        if clock + lease.left_ms < known.deadline {
            let detail = format!("{lease:?} has less left than {known:?} at {clock}");
            return Err(InvariantViolation::new("T1", detail));
        }
        let renewed = ledger.renewed_left(lease.ttl_ms, lease.left_ms);
        if clock + lease.left_ms > known.deadline && !(renewed && numbered_renewal(seen)) {
            let detail = format!("{lease:?} has more left than {known:?} at {clock}");
            return Err(InvariantViolation::new("T1", detail));
        }
    }
    if !seen.whole {
        return Ok(());
    }
    for holder in seen.after.locks.iter().flat_map(|lock| &lock.holders) {
        let Some(grant) = ledger.grants.get(&holder.token) else { continue };
        let same = match (holder.state, grant.standing) {
            (HolderState::Held, GrantStanding::Held) => true,
            (HolderState::Cooling { left_ms }, GrantStanding::Cooling(until))
            | (
                HolderState::Delayed { left_ms } | HolderState::Resting { left_ms },
                GrantStanding::Delayed(until),
            ) => left_ms == until.saturating_sub(clock),
            _ => false,
        };
        if !same {
            let detail = format!("{holder:?} stands as {grant:?} by its events at {clock}");
            return Err(InvariantViolation::new("T2", detail));
        }
    }
    Ok(())
}

fn numbered_renewal(seen: &ObservedStep<'_>) -> bool {
    seen.requests.iter().flatten().any(|request| {
        request.id != RequestId::None && matches!(request.command, Command::Renew(_))
    })
}

fn grant_event(
    ledger: &ObservedLedger,
    part: &ObservedCommand<'_>,
    event: &Event,
    token: Token,
    grant: &KnownGrant,
) -> CheckResult {
    let fail = |what: &str| {
        let detail = format!("{what} at {}: {event:?}, stood as {grant:?}", ledger.clock);
        Err(InvariantViolation::new("T2", detail))
    };
    match event.cause {
        Cause::Cooled => {
            let GrantStanding::Cooling(until) = grant.standing else {
                return fail("cooled without cooling");
            };
            if until > ledger.clock && !ends_cooling(part, token) {
                return fail("cooled too early");
            }
        }
        Cause::DelayOver => match grant.standing {
            GrantStanding::Delayed(until) if until <= ledger.clock => {
                return rests(ledger, event, grant);
            }
            _ => return fail("the lock-delay is over too early"),
        },
        Cause::MinHoldOver => {
            let over = grant.standing != GrantStanding::Held
                && grant.rests.is_none_or(|until| until <= ledger.clock);
            return if over || is_forced(part, token) {
                Ok(())
            } else {
                fail_min_hold(ledger, event, grant)
            };
        }
        Cause::Released if is_abandoned(part) => {
            let handed = ledger.handed_rests.get(&token).is_some_and(|until| *until > ledger.clock);
            return if handed { fail_min_hold(ledger, event, grant) } else { Ok(()) };
        }
        Cause::Released => return rests(ledger, event, grant),
        Cause::Forced | Cause::Revoked | Cause::MaxHold | Cause::NoProgress
            if ledger.cools(part, event.cause, token) =>
        {
            let lease = ledger.leases.get(&grant.lease.0);
            let left = lease.map(|lease| lease.deadline.saturating_sub(ledger.clock));
            let maybe = ledger.maybe_renewed.contains(&grant.lease.0)
                && lease.zip(event.left_ms).is_some_and(|(lease, left)| {
                    let since = |renewed| ledger.left_since(lease.ttl, renewed, left);
                    ledger.renewed_left(lease.ttl, left) || event.renewed_ms.is_some_and(since)
                });
            return if event.left_ms == left || maybe {
                Ok(())
            } else {
                fail("cools for another time")
            };
        }
        // When the holder itself revokes, nothing cools and nothing is delayed.
        Cause::Revoked if own_word(part) => return rests(ledger, event, grant),
        Cause::Expired | Cause::Forced | Cause::Revoked | Cause::MaxHold | Cause::NoProgress => {}
        _ => return Ok(()),
    }
    // At the largest clock the delay is cut short.
    let delay = |ms| ledger.deadline(ms).saturating_sub(ledger.clock);
    match grant.delay.map(delay) {
        None => Ok(()),
        Some(0) => rests(ledger, event, grant),
        Some(left) if event.left_ms == Some(left) => Ok(()),
        Some(_) => fail("the lock-delay is missing"),
    }
}

/// Checks that a grant whose hold and delay are over rests for exactly the rest of its min hold.
fn rests(ledger: &ObservedLedger, event: &Event, grant: &KnownGrant) -> CheckResult {
    let left = grant.rests.map(|until| until.saturating_sub(ledger.clock));
    if left.is_none_or(|left| left == event.left_ms.unwrap_or(0)) {
        Ok(())
    } else {
        fail_min_hold(ledger, event, grant)
    }
}

fn fail_min_hold(ledger: &ObservedLedger, event: &Event, grant: &KnownGrant) -> CheckResult {
    let detail = format!("not the min hold at {}: {event:?}, stood as {grant:?}", ledger.clock);
    Err(InvariantViolation::new("T5", detail))
}

fn is_abandoned(part: &ObservedCommand<'_>) -> bool {
    part.command.is_some_and(|(request, _)| matches!(request.command, Command::Abandon(_)))
}

/// Whether this command takes the grant with this token away.
fn is_forced(part: &ObservedCommand<'_>, token: Token) -> bool {
    part.command.is_some_and(|(request, _)| {
        matches!(request.command, Command::Force { token: named, .. } if named == token)
    })
}

fn own_word(part: &ObservedCommand<'_>) -> bool {
    use tenure_core::request::Revoker;
    part.command.is_some_and(|(request, _)| {
        matches!(request.command, Command::Revoke { by: Revoker::Holder, .. })
    })
}

/// Whether this command ends a cooling early.
fn ends_cooling(part: &ObservedCommand<'_>, token: Token) -> bool {
    match part.command.map(|(request, _)| &request.command) {
        Some(Command::Stopped { token: named, .. }) => *named == token,
        Some(Command::Force { token: named, urgency, .. }) => {
            *named == token && *urgency == Urgency::Now
        }
        _ => false,
    }
}
