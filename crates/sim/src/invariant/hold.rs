//! Checks that a command about a grant succeeds only with the token of that grant (S4).

use tenure_core::outcome::Outcome;
use tenure_core::request::{Command, Hold, Request, RequestId, WriteGuard};
use tenure_types::{LeaseId, Token};

use super::ledger::{GrantStanding, KnownGrant};
use super::{CheckResult, Handles, InvariantViolation, ObservedLedger};

/// Checks a command against the grants at the time when it came.
pub(super) fn before_command(
    ledger: &ObservedLedger,
    handles: &Handles,
    request: &Request<'_>,
    outcome: &Outcome,
    moved: bool,
) -> CheckResult {
    // A repeated answer describes an earlier state.
    if outcome.result.is_err() || (request.id != RequestId::None && !moved) {
        return Ok(());
    }
    match &request.command {
        Command::Release(hold)
        | Command::Downgrade(hold)
        | Command::Update { hold, .. }
        | Command::Progress { hold, .. }
        | Command::HandOn { hold, .. } => held(ledger, handles, hold),
        Command::Force { lock, token, .. } => {
            let grant = find(ledger, lock, *token);
            let standing = grant.map(|grant| grant.standing);
            // A rest may be ended, a lock-delay may not. Of a grant from this entry it is not known which one it is,
            // nor of one whose time is over and that no entry has ended yet.
            let is_over = |end: u64, until: u64| end.max(until) <= ledger.clock;
            let is_rest = |end, until| end == until || is_over(end, until);
            let rests =
                |until| grant.is_some_and(|it| it.rests.is_none_or(|end| is_rest(end, until)));
            let good = match standing {
                Some(GrantStanding::Held | GrantStanding::Cooling(_)) => true,
                Some(GrantStanding::Delayed(until)) => rests(until),
                None => false,
            };
            require(good, "forced", lock, *token, grant)
        }
        Command::Stopped { lease, created, lock, token } => {
            let grant = find(ledger, lock, *token);
            let good = grant.is_some_and(|grant| {
                grant.lease == (*lease, *created)
                    && matches!(grant.standing, GrantStanding::Cooling(_))
            });
            require(good, "stopped", lock, *token, grant)
        }
        Command::Put(put) => guarded(ledger, put.guard.as_ref()),
        Command::Delete { guard, .. } => guarded(ledger, guard.as_ref()),
        _ => Ok(()),
    }
}

fn held(ledger: &ObservedLedger, handles: &Handles, hold: &Hold<'_>) -> CheckResult {
    let grant = find(ledger, hold.lock, hold.token);
    let lease = handles.resolve(ledger, hold.lease);
    let good = grant
        .is_some_and(|grant| Some(grant.lease) == lease && grant.standing == GrantStanding::Held);
    require(good, "given back or changed", hold.lock, hold.token, grant)
}

fn guarded(ledger: &ObservedLedger, guard: Option<&WriteGuard<'_>>) -> CheckResult {
    let Some(guard) = guard else { return Ok(()) };
    let grant = find(ledger, guard.lock, guard.token);
    let live = |lease: LeaseId| ledger.live(lease);
    let good =
        grant.is_some_and(|grant| grant.standing == GrantStanding::Held && live(grant.lease.0));
    require(good, "a guarded write", guard.lock, guard.token, grant)
}

fn find<'a>(ledger: &'a ObservedLedger, lock: &str, token: Token) -> Option<&'a KnownGrant> {
    ledger.grants.get(&token).filter(|grant| grant.lock.as_str() == lock)
}

fn require(
    good: bool,
    what: &str,
    lock: &str,
    token: Token,
    grant: Option<&KnownGrant>,
) -> CheckResult {
    if good {
        return Ok(());
    }
    Err(InvariantViolation::new(
        "S4",
        format!("{what}: lock {lock:?} under {token:?}, stands as {grant:?}"),
    ))
}
