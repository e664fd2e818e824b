//! Checks the numbered invariants on what was observed, independently of the model.
//!
//! Each file checks one group of the numbered invariants. They share a [`ObservedLedger`], which derives the state from
//! answers and events alone.

mod abandon;
mod access;
mod any;
mod drain;
mod exclusion;
mod hand_on;
mod handle;
mod history;
mod hold;
mod lease;
mod ledger;
mod notice;
mod once;
mod priority;
mod progress;
mod queue;
mod reopening;
mod shares;
mod supersede;
mod time;
mod token;
mod upgrade;

use tenure_core::{Machine, StoppedFor};

pub use handle::Handles;
pub use ledger::ObservedLedger;

use crate::observe::ObservedStep;

/// A broken promise.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InvariantViolation {
    /// The number of the invariant in the architecture, or a word for what has none.
    pub invariant: String,
    /// A sentence about the state that breaks it.
    pub detail: String,
}

impl InvariantViolation {
    /// A violation of this invariant.
    pub fn new(invariant: &str, detail: impl Into<String>) -> Self {
        Self { invariant: invariant.to_owned(), detail: detail.into() }
    }
}

/// The result of a check: `Ok` if the promise holds.
pub type CheckResult = Result<(), InvariantViolation>;

/// All checks, and their state from step to step.
#[derive(Default)]
pub struct Checks {
    ledger: ObservedLedger,
    tokens: token::Tokens,
    once: once::Once,
    asks: abandon::AskCounts,
    access: access::AccessLedger,
    progress: progress::KnownPromises,
    shares: shares::KnownShares,
    choices: any::KnownChoices,
    idle: reopening::IdleEntries,
    steps: u64,
}

impl Checks {
    /// Checks an entry.
    pub fn entry(
        &mut self,
        machine: &Machine,
        seen: &ObservedStep<'_>,
        handles: &Handles,
    ) -> CheckResult {
        self.steps += 1;
        self.ledger.begin(seen);
        if seen.whole && !seen.foreign {
            self.walk(seen, handles)?;
            notice::check(seen, handles)?;
        } else {
            self.ledger.level = seen.after.level;
            self.tokens.catch_up(seen);
            self.asks.catch_up(seen);
            // A foreign entry changes nothing.
            if !seen.foreign && seen.after.level >= 3 {
                self.access.catch_up();
            }
            self.once.catch_up(&self.ledger, handles, seen);
        }
        self.views(machine, seen)
    }

    /// Checks the result of a restore. It has no events.
    pub fn restored(
        &mut self,
        machine: &Machine,
        seen: &ObservedStep<'_>,
        stopped: StoppedFor,
    ) -> CheckResult {
        self.steps += 1;
        self.ledger.restored(seen, stopped);
        let used = seen.after.locks.iter().any(|lock| !lock.sized || !lock.holders.is_empty());
        if !seen.after.leases.is_empty() || used {
            return Err(InvariantViolation::new("S5", "a lease or lock survived the restore"));
        }
        self.views(machine, seen)
    }

    /// Checks the commands of an entry in order, each before and after its events.
    fn walk(&mut self, seen: &ObservedStep<'_>, handles: &Handles) -> CheckResult {
        let parts = seen.parts();
        reopening::slices(seen, &parts)?;
        for part in parts {
            if let Some((request, outcome)) = part.command {
                let ledger = &self.ledger;
                self.access.before_command(ledger, handles, request, outcome, part.moved)?;
                lease::before_command(ledger, handles, request, outcome, part.moved)?;
                hold::before_command(ledger, handles, request, outcome, part.moved)?;
                queue::before_command(ledger, handles, request, outcome)?;
                self.once.command(ledger, handles, request, part.moved)?;
            }
            self.asks.command(&part)?;
            for event in part.events {
                self.ledger.learn_renewal(event);
                let ledger = &self.ledger;
                self.access.event(ledger, &part, event)?;
                self.tokens.event(event, seen.epoch)?;
                lease::event(ledger, event)?;
                queue::event(ledger, event)?;
                exclusion::event(ledger, &part, event)?;
                drain::event(ledger, event)?;
                supersede::event(ledger, &part, event)?;
                upgrade::event(ledger, event)?;
                hand_on::event(ledger, &part, event)?;
                time::event(ledger, &part, event)?;
                self.shares.event(&part, event)?;
                self.choices.event(event);
                self.ledger.event(&part, event);
            }
            self.shares.end(&part)?;
            self.choices.end(&part)?;
            if let Some((request, outcome)) = part.command {
                time::renewal(&self.ledger, handles, &self.access, request, outcome)?;
                self.ledger.answered(handles, request, outcome);
            }
        }
        Ok(())
    }

    fn views(&mut self, machine: &Machine, seen: &ObservedStep<'_>) -> CheckResult {
        self.access.views(seen.after)?;
        exclusion::views(seen.after)?;
        lease::views(&self.ledger, seen)?;
        time::views(&self.ledger, seen)?;
        queue::views(&self.ledger, seen)?;
        self.idle.views(&self.ledger, seen)?;
        self.progress.views(seen)?;
        self.shares.views(seen)?;
        self.choices.views(seen)?;
        supersede::views(seen)?;
        upgrade::views(seen.after)?;
        history::check(machine, seen, self.steps)?;
        self.ledger.settle(seen);
        Ok(())
    }
}
