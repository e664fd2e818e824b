//! Captures what is visible of a machine after a step, and what the step changed.

use tenure_core::Machine;
use tenure_core::event::{Batch, Cause, Event, Subject};
use tenure_core::outcome::{Effects, Outcome};
use tenure_core::request::Request;
use tenure_core::view::{DrainView, KeyView, LeaseView, LockView, ReopeningView, WaiterView};
use tenure_types::{Epoch, Limits, PlaceNumber, Revision};

use crate::model::Model;

/// More than any sequence creates of anything, and small enough to reserve.
pub const ALL: usize = 1_000;

/// Everything in the views of a machine.
#[derive(Clone, Debug)]
pub struct ObservedState {
    /// The clock.
    pub clock: u64,
    /// The level of the rules.
    pub level: u16,
    /// The newest revision.
    pub revision: Revision,
    /// The oldest revision that can be read.
    pub floor: Revision,
    /// The earliest deadline.
    pub next_due: Option<u64>,
    /// The weight of the state.
    pub state_bytes: u64,
    /// The limits.
    pub limits: Limits,
    /// All locks.
    pub locks: Vec<LockView>,
    /// Their queues, in the same order.
    pub queues: Vec<Vec<WaiterView>>,
    /// All live leases.
    pub leases: Vec<LeaseView>,
    /// All keys.
    pub keys: Vec<KeyView>,
    /// All drained prefixes.
    pub drains: Vec<DrainView>,
    /// Which queues are still to be served after a prefix was opened or the quiet period ended.
    pub reopening: Option<ReopeningView>,
}

impl ObservedState {
    /// The view of the machine.
    pub fn of_machine(machine: &Machine) -> Self {
        let sorted = machine.sorted_locks(usize::MAX).expect("without a bound all are sorted");
        let locks = sorted.locks("", None, ALL);
        Self {
            clock: machine.clock_ms(),
            level: machine.level(),
            revision: machine.revision(),
            floor: machine.floor(),
            next_due: machine.next_due_ms(),
            state_bytes: machine.state_bytes(),
            limits: machine.limits().clone(),
            queues: locks.iter().map(|lock| machine.queue(&lock.lock, None, ALL)).collect(),
            locks,
            leases: machine.leases(None, ALL),
            keys: machine.keys("", None, ALL),
            drains: machine.drains(),
            reopening: machine.reopening(),
        }
    }

    /// The view of the model.
    pub fn of_model(model: &Model) -> Self {
        let locks = model.locks();
        Self {
            clock: model.clock_ms(),
            level: model.level(),
            revision: model.revision(),
            floor: model.floor(),
            next_due: model.next_due_ms(),
            state_bytes: model.state_bytes(),
            limits: model.limits().clone(),
            queues: locks.iter().map(|lock| model.queue(&lock.lock)).collect(),
            locks,
            leases: model.leases(),
            keys: model.keys(),
            drains: model.drains(),
            reopening: model.reopening(),
        }
    }

    /// Whether something is already due and waits for its slice.
    pub fn backlog(&self) -> bool {
        self.next_due.is_some_and(|due| due <= self.clock)
    }

    /// Whether this place is in any queue.
    pub fn waits(&self, place: PlaceNumber) -> bool {
        self.queues.iter().flatten().any(|waiter| waiter.place == place)
    }
}

/// The observed effects of one step.
pub struct ObservedStep<'a> {
    /// The machine before the step.
    pub before: &'a ObservedState,
    /// The machine after the step.
    pub after: &'a ObservedState,
    /// The epoch after the step.
    pub epoch: Epoch,
    /// The requests of the step; `None` for one that cannot be read.
    pub requests: &'a [Option<Request<'a>>],
    /// The effects that the machine returned.
    pub effects: &'a Effects,
    /// The new part of the history.
    pub batches: &'a [Batch],
    /// Whether `batches` has every event of the step: a small history may have dropped some already.
    pub whole: bool,
    /// Whether the machine read the entry, so that it ended what was due.
    pub applied: bool,
    /// Whether the entry was refused as a whole because it named another term.
    pub foreign: bool,
}

/// One command of an entry, or what was due before the first command.
pub struct ObservedCommand<'a> {
    /// The command with its outcome; `None` for what was due.
    pub command: Option<(&'a Request<'a>, &'a Outcome)>,
    /// Whether this part advanced the revision.
    pub moved: bool,
    /// The revision after this part.
    pub revision: Revision,
    /// The events of this part.
    pub events: &'a [Event],
}

impl<'a> ObservedStep<'a> {
    /// Splits the step into its parts. Leaves out commands that cannot be read: they have no events.
    pub fn parts(&self) -> Vec<ObservedCommand<'a>> {
        let mut parts = Vec::with_capacity(self.effects.outcomes.len() + 1);
        let mut revision = self.before.revision;
        if self.due_moved() {
            revision = revision.next();
            parts.push(self.part(None, true, revision));
        }
        for (request, outcome) in self.requests.iter().zip(&self.effects.outcomes) {
            // A repeated answer has the revision of the first.
            let moved = outcome.revision > revision;
            revision = revision.max(outcome.revision);
            if let Some(request) = request {
                parts.push(self.part(Some((request, outcome)), moved, revision));
            }
        }
        parts
    }

    fn part(
        &self,
        command: Option<(&'a Request<'a>, &'a Outcome)>,
        moved: bool,
        revision: Revision,
    ) -> ObservedCommand<'a> {
        let batch = self.batches.iter().find(|batch| moved && batch.revision == revision);
        ObservedCommand {
            command,
            moved,
            revision,
            events: batch.map_or(&[], |batch| &batch.events),
        }
    }

    /// Whether the first new revision belongs to what was due rather than to the first command.
    fn due_moved(&self) -> bool {
        let newer = |outcome: &&Outcome| outcome.revision > self.before.revision;
        let newer = self.effects.outcomes.iter().find(newer).map(|outcome| outcome.revision);
        let first = newer.unwrap_or(self.after.revision);
        match first.0.saturating_sub(self.before.revision.0) {
            0 => false,
            1 if newer.is_some() => {
                // Anything due ends with an event of its own, except the quiet period and a slice of queues to serve,
                // which show only in the grants to the waiters.
                let due = self.before.next_due.is_some_and(|due| due <= self.after.clock);
                let batch = self.batches.iter().find(|batch| batch.revision == first);
                due && batch.is_none_or(|batch| self.is_due(&batch.events))
            }
            _ => true,
        }
    }

    /// Whether these events can only come from what was due.
    fn is_due(&self, events: &[Event]) -> bool {
        // A command may end a lease of the same id that is due, and serve a queue that was not reopened yet.
        let commanded = |event: &Event| {
            matches!(
                event.cause,
                Cause::LeaseGranted
                    | Cause::Queued
                    | Cause::KeyPut
                    | Cause::Released
                    | Cause::HandedOn
                    | Cause::Drained
                    | Cause::Undrained
                    | Cause::Resized
            )
        };
        if events.iter().any(commanded) {
            return false;
        }
        let ends = |event: &Event| {
            matches!(
                event.cause,
                Cause::WaitTimeout | Cause::MaxHold | Cause::NoProgress | Cause::DelayOver
            )
                // A rest that an operator ends has a reason.
                || (event.cause == Cause::MinHoldOver && event.reason.is_none())
                || (event.cause == Cause::Expired && matches!(event.subject, Subject::Lease(_)))
                // The lease of a revoked principal.
                || event.reason.as_deref() == Some("principal revoked")
        };
        events.iter().any(ends)
            || events.first().is_some_and(|event| match event.cause {
                Cause::Expired => true,
                // A cooling that a command ends has a reason.
                Cause::Cooled => event.reason.is_none(),
                Cause::Granted | Cause::GrantedElsewhere => {
                    event.place.is_some_and(|place| self.before.waits(place))
                }
                _ => false,
            })
    }
}
