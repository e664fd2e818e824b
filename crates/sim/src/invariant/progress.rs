//! Checks that a holder keeps what it promised to progress on exactly as long as its number grows in time (T6).

use std::collections::BTreeMap;

use tenure_core::event::Cause;
use tenure_core::request::Command;
use tenure_core::view::HolderView;
use tenure_types::{HolderState, Token};

use super::{CheckResult, InvariantViolation};
use crate::observe::ObservedStep;

/// The largest clock, by the rules.
const CLOCK_MAX: u64 = (1 << 60) - 1;

/// What is known of a promise: the number, since when it stands, and how long it may.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct KnownPromise {
    number: u64,
    since: u64,
    within: u64,
}

impl KnownPromise {
    /// When a larger number is due. A promised time lasts a millisecond of the clock longer.
    fn due(self) -> u64 {
        self.since.saturating_add(self.within).saturating_add(1).min(CLOCK_MAX)
    }
}

/// The promises of the grants in force, as they were last seen.
#[derive(Default)]
pub(super) struct KnownPromises(BTreeMap<Token, KnownPromise>);

impl KnownPromises {
    /// Compares the promises with those before the step, the reports in it and its events.
    pub(super) fn views(&mut self, seen: &ObservedStep<'_>) -> CheckResult {
        let clock = seen.after.clock;
        for event in seen.batches.iter().flat_map(|batch| &batch.events) {
            let known = event.token.and_then(|token| self.0.get(&token));
            if let Some(known) = known.filter(|_| event.cause == Cause::NoProgress)
                && known.due() > clock
            {
                return fail("taken away too early", &format!("{event:?}, {known:?} at {clock}"));
            }
        }
        let mut now = BTreeMap::new();
        for holder in seen.after.locks.iter().flat_map(|lock| &lock.holders) {
            let Some(promise) = promise_of(holder, clock) else { continue };
            let known = self.0.get(&holder.token);
            check(known, promise, holder, seen)?;
            now.insert(holder.token, promise);
        }
        self.0 = now;
        Ok(())
    }
}

fn promise_of(holder: &HolderView, clock: u64) -> Option<KnownPromise> {
    let shown = holder.progress.filter(|_| holder.state == HolderState::Held)?;
    let since = clock.saturating_sub(shown.still_ms);
    Some(KnownPromise { number: shown.number, since, within: shown.within_ms })
}

fn check(
    known: Option<&KnownPromise>,
    now: KnownPromise,
    holder: &HolderView,
    seen: &ObservedStep<'_>,
) -> CheckResult {
    let clock = seen.after.clock;
    let detail = || format!("{holder:?} at {clock}, before {known:?}");
    // What is due may wait for its slice.
    if now.due() <= clock && clock < CLOCK_MAX && !seen.after.backlog() {
        return fail("held without progress", &detail());
    }
    let reported = seen.requests.iter().flatten().any(|request| {
        matches!(request.command, Command::Progress { number, .. } if number == now.number)
    });
    let since_grant = clock.saturating_sub(holder.held_ms);
    let good = match known {
        Some(known) if known.number == now.number => *known == now,
        Some(known) => now.number > known.number && now.since == clock && reported,
        // A new grant. One that was downgraded has a new token, and its promise is as old as it was.
        None if now.number == 0 => now.since == since_grant,
        None => now.since >= since_grant,
    };
    if good { Ok(()) } else { fail("a number moved by itself", &detail()) }
}

fn fail(what: &str, detail: &str) -> CheckResult {
    Err(InvariantViolation::new("T6", format!("{what}: {detail}")))
}
