//! Runs one sequence against the machine, its copies and the model, and checks every step.
//!
//! Each step goes to the machine, to a twin, to machines read back from snapshots and to the model. Then the runner
//! makes its checks: first those on the observations, because they name the broken promise best, then the machine's
//! own, then the comparison with the model.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use tenure_core::event::{Batch, WallClock};
use tenure_core::outcome::Effects;
use tenure_core::request::{LEVEL_RECORDS, Request};
use tenure_core::{Filter, Machine, StoppedFor, codec};
use tenure_types::{Epoch, Revision, Term};

use crate::compare;
use crate::coverage::Coverage;
use crate::generate::{Generator, SequenceStep, StepCommand};
use crate::invariant::{CheckResult, Checks, Handles, InvariantViolation};
use crate::model::{Model, ModelEntry};
use crate::observe::{ALL, ObservedState, ObservedStep};

/// The interval, in steps, at which the hash of the whole state is compared: it encodes everything.
const FULL_HASH_EVERY: u64 = 8;

/// The most machines read back from snapshots that keep running; each costs as much as the first.
const DECODED_MAX: usize = 2;

/// A sequence that broke a promise.
#[derive(Clone, Debug)]
pub struct BrokenSequence {
    /// The broken promise.
    pub violation: InvariantViolation,
    /// The index of the step, counted from 0.
    pub step: usize,
    /// All steps up to that one.
    pub steps: Vec<SequenceStep>,
}

/// The results of a sequence.
pub struct SequenceResult {
    /// The number of commands.
    pub commands: u64,
    /// The failure, if any.
    pub failure: Option<BrokenSequence>,
}

/// Runs the sequence of a seed. With `trace`, prints every step and its outcomes.
pub fn sequence(
    seed: u64,
    commands: usize,
    coverage: &mut Coverage,
    trace: bool,
) -> SequenceResult {
    let mut steps = Vec::new();
    let result = guarded(|| {
        let mut generator = Generator::new(seed, commands);
        let mut runner = Runner::new();
        while let Some(step) = generator.next(runner.view()) {
            if trace {
                println!("step {}: {step:?}", steps.len());
            }
            steps.push(step);
            let step = steps.last().expect("a step was just pushed");
            let result = runner.step(step, coverage);
            if trace {
                runner.print();
            }
            result?;
            generator.learn(step, runner.effects(), runner.view());
        }
        Ok(())
    });
    let commands = steps.iter().map(|step| step.commands() as u64).sum();
    let failure = result.err().map(|violation| BrokenSequence {
        violation,
        step: steps.len().saturating_sub(1),
        steps,
    });
    SequenceResult { commands, failure }
}

/// Runs given steps. Returns the first violation and the index of its step, if any.
pub fn replay(steps: &[SequenceStep]) -> Option<(InvariantViolation, usize)> {
    let mut at = 0;
    let mut coverage = Coverage::default();
    let result = guarded(|| {
        let mut runner = Runner::new();
        for (index, step) in steps.iter().enumerate() {
            at = index;
            runner.step(step, &mut coverage)?;
        }
        Ok(())
    });
    result.err().map(|violation| (violation, at))
}

thread_local! {
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Reports panics of the machine as violations instead of printing them. Call it once per process.
pub fn silence_panics() {
    std::panic::set_hook(Box::new(|info| {
        let text = info
            .payload()
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| info.payload().downcast_ref::<String>().cloned())
            .unwrap_or_default();
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        PANIC.with(|last| *last.borrow_mut() = format!("{text} (at {place})"));
    }));
}

fn guarded(run: impl FnOnce() -> CheckResult) -> CheckResult {
    // After a panic only the list of steps is used, and nothing else of the runner.
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(result) => result,
        Err(payload) => {
            let hooked = PANIC.with(|last| std::mem::take(&mut *last.borrow_mut()));
            let text = if hooked.is_empty() {
                let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
                text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default()
            } else {
                hooked
            };
            Err(panic_violation(&text))
        }
    }
}

/// The violation for a panic: the invariant whose number begins the message of the assertion, if one does.
fn panic_violation(text: &str) -> InvariantViolation {
    if let Some((id, rest)) = text.split_once(':') {
        let mut letters = id.chars();
        let known = letters.next().is_some_and(|letter| "SQTW".contains(letter));
        let number = letters.as_str();
        if known && !number.is_empty() && number.chars().all(|digit| digit.is_ascii_digit()) {
            return InvariantViolation::new(id, rest.trim());
        }
    }
    InvariantViolation::new("panic", text)
}

/// The machine, its copies, the model and the checks of one sequence.
pub struct Runner {
    machine: Machine,
    twin: Machine,
    decoded: Vec<Machine>,
    model: Model,
    checks: Checks,
    handles: Handles,
    view: ObservedState,
    effects: Effects,
    other: Effects,
    steps: u64,
}

impl Default for Runner {
    fn default() -> Self {
        Self::new()
    }
}

impl Runner {
    /// A new cluster in every copy.
    pub fn new() -> Self {
        let epoch = Epoch::default();
        let machine = Machine::new(epoch);
        Self {
            view: ObservedState::of_machine(&machine),
            machine,
            twin: Machine::new(epoch),
            decoded: Vec::new(),
            model: Model::new(epoch),
            checks: Checks::default(),
            handles: Handles::default(),
            effects: Effects::default(),
            other: Effects::default(),
            steps: 0,
        }
    }

    /// The view after the last step.
    pub fn view(&self) -> &ObservedState {
        &self.view
    }

    /// The effects of the last step.
    pub fn effects(&self) -> &Effects {
        &self.effects
    }

    /// Runs one step and all checks.
    pub fn step(&mut self, step: &SequenceStep, coverage: &mut Coverage) -> CheckResult {
        self.steps += 1;
        self.effects.clear();
        match step {
            SequenceStep::Entry { log_term, payload_term, count_ms, items } => {
                let bytes: Vec<Vec<u8>> = items.iter().map(StepCommand::bytes).collect();
                let sealed = bytes.iter().map(Vec::as_slice);
                let wall = (self.machine.level() >= LEVEL_RECORDS).then(|| jumping(self.steps));
                let term = Term(*payload_term);
                let payload = codec::seal_labelled(term, *count_ms, wall, sealed);
                // The model gets what the machine will decode: random bytes may be a valid request after all.
                let requests: Vec<Option<Request<'_>>> =
                    bytes.iter().map(|bytes| codec::decode_request(bytes).ok()).collect();
                for (item, request) in items.iter().zip(&requests) {
                    if let StepCommand::Request(owned) = item
                        && request.as_ref() != Some(&owned.lend())
                    {
                        let detail = format!("{:?} was read back as {request:?}", owned.lend());
                        return Err(InvariantViolation::new("S10", detail));
                    }
                }
                let entry = ModelEntry {
                    term: Term(*payload_term),
                    count_ms: *count_ms,
                    wall,
                    requests: &requests,
                };
                self.entry(Term(*log_term), Some(&payload), Some(entry), coverage)
            }
            SequenceStep::Empty { log_term } => self.entry(Term(*log_term), None, None, coverage),
            SequenceStep::Unreadable { log_term, payload } => {
                self.entry(Term(*log_term), Some(payload), None, coverage)
            }
            SequenceStep::Snapshot => self.snapshot(),
            SequenceStep::Restore { epoch, stopped } => self.restore(*epoch, *stopped),
        }
    }

    /// Prints the effects of the last step.
    pub fn print(&self) {
        for outcome in &self.effects.outcomes {
            println!("    {outcome:?}");
        }
        for notice in &self.effects.notices {
            println!("    {notice:?}");
        }
        println!(
            "    clock {} revision {} next due {:?}",
            self.machine.clock_ms(),
            self.machine.revision(),
            self.machine.next_due_ms(),
        );
    }

    fn entry(
        &mut self,
        log_term: Term,
        payload: Option<&[u8]>,
        entry: Option<ModelEntry<'_>>,
        coverage: &mut Coverage,
    ) -> CheckResult {
        self.machine.apply(log_term, payload, &mut self.effects);
        self.follow(log_term, payload)?;
        let before = std::mem::replace(&mut self.view, ObservedState::of_machine(&self.machine));
        let (batches, whole) = self.new_batches(before.revision)?;
        coverage.count(&self.effects, &batches);
        self.handles.learn(&self.effects)?;
        self.handles.learn_view(&self.view)?;
        let requests = entry.map_or(&[][..], |entry| entry.requests);
        let seen = ObservedStep {
            before: &before,
            after: &self.view,
            epoch: self.machine.epoch(),
            requests,
            effects: &self.effects,
            batches: &batches,
            whole,
            applied: entry.is_some_and(|entry| entry.term == log_term),
            foreign: entry.is_some_and(|entry| entry.term != log_term),
        };
        self.checks.entry(&self.machine, &seen, &self.handles)?;
        own_checks(&self.machine)?;
        let handles = &self.handles;
        let expected = self.model.apply(log_term, entry, &|handle| handles.lease_of(handle));
        let history = self.model.history();
        let known = history.partition_point(|batch| batch.revision <= before.revision);
        compare::refusals(&self.effects, &expected)?;
        compare::events(&batches, &history[known..])?;
        compare::outcomes(requests, &self.effects, &expected, before.revision)?;
        compare::notices(&self.effects, &expected)?;
        compare::views(&self.view, &ObservedState::of_model(&self.model))
    }

    /// Applies the same entry to the copies, which must do the same.
    fn follow(&mut self, log_term: Term, payload: Option<&[u8]>) -> CheckResult {
        let full = self.steps.is_multiple_of(FULL_HASH_EVERY);
        let hash = if full { self.machine.full_hash() } else { 0 };
        let twin = std::iter::once((&mut self.twin, "S9"));
        let decoded = self.decoded.iter_mut().map(|machine| (machine, "S10"));
        for (machine, invariant) in twin.chain(decoded) {
            machine.apply(log_term, payload, &mut self.other);
            if self.other != self.effects {
                let detail = format!("effects {:?}, of the other {:?}", self.effects, self.other);
                return Err(InvariantViolation::new(invariant, detail));
            }
            if invariant == "S9" && machine.rolling_hash() != self.machine.rolling_hash() {
                return Err(InvariantViolation::new(invariant, "rolling hashes differ"));
            }
            if full && machine.full_hash() != hash {
                return Err(InvariantViolation::new(invariant, "hashes of the whole state differ"));
            }
        }
        Ok(())
    }

    /// The events since a revision, and whether they are complete.
    fn new_batches(&self, old: Revision) -> Result<(Vec<Batch>, bool), InvariantViolation> {
        if self.view.revision == old {
            return Ok((Vec::new(), true));
        }
        let from = old.next().max(self.view.floor);
        match self.machine.events(from, Filter::All, ALL) {
            Ok(events) => Ok((events.batches, from == old.next())),
            Err(compacted) => {
                let detail = format!("{compacted:?}, asked from {from}, floor {}", self.view.floor);
                Err(InvariantViolation::new("W3", detail))
            }
        }
    }

    fn snapshot(&mut self) -> CheckResult {
        let bytes = self.machine.encode();
        let Ok(decoded) = Machine::decode(&bytes) else {
            return Err(InvariantViolation::new("S10", "a snapshot cannot be read back"));
        };
        if decoded.encode() != bytes {
            return Err(InvariantViolation::new(
                "S10",
                "a snapshot read back is written differently",
            ));
        }
        if decoded.full_hash() != self.machine.full_hash() {
            return Err(InvariantViolation::new("S10", "a snapshot read back has another hash"));
        }
        compare_machines(&self.view, &ObservedState::of_machine(&decoded))?;
        // The first decoded machine runs to the end; a newer one replaces each later one.
        self.decoded.truncate(DECODED_MAX - 1);
        self.decoded.push(decoded);
        Ok(())
    }

    fn restore(&mut self, epoch: u16, stopped: StoppedFor) -> CheckResult {
        let Some(epoch) = Epoch::new(epoch) else { return Ok(()) };
        let done = self.machine.restore(epoch, stopped);
        let hash = self.machine.full_hash();
        let twin = std::iter::once((&mut self.twin, "S9"));
        let decoded = self.decoded.iter_mut().map(|machine| (machine, "S10"));
        for (machine, invariant) in twin.chain(decoded) {
            if machine.restore(epoch, stopped) != done || machine.full_hash() != hash {
                return Err(InvariantViolation::new(invariant, "restored to different states"));
            }
        }
        let expected = self.model.restore(epoch, stopped);
        if expected != done {
            let detail = format!("restore to {epoch:?}: machine {done}, model {expected}");
            return Err(InvariantViolation::new("model", detail));
        }
        let before = std::mem::replace(&mut self.view, ObservedState::of_machine(&self.machine));
        if done {
            let seen = ObservedStep {
                before: &before,
                after: &self.view,
                epoch: self.machine.epoch(),
                requests: &[],
                effects: &self.effects,
                batches: &[],
                whole: true,
                applied: false,
                foreign: false,
            };
            self.checks.restored(&self.machine, &seen, stopped)?;
        }
        own_checks(&self.machine)?;
        compare::views(&self.view, &ObservedState::of_model(&self.model))
    }
}

/// A wall clock that jumps to and fro, over more than all of time.
fn jumping(step: u64) -> WallClock {
    let mixed = step.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    WallClock { unix_ms: mixed >> (mixed % 64) }
}

fn own_checks(machine: &Machine) -> CheckResult {
    machine
        .check_invariants()
        .map_err(|broken| InvariantViolation::new(broken.invariant, broken.detail))
}

fn compare_machines(left: &ObservedState, right: &ObservedState) -> CheckResult {
    let same = left.locks == right.locks
        && left.queues == right.queues
        && left.leases == right.leases
        && left.keys == right.keys
        && left.limits == right.limits
        && (left.clock, left.revision, left.floor) == (right.clock, right.revision, right.floor)
        && (left.next_due, left.state_bytes) == (right.next_due, right.state_bytes);
    if same {
        Ok(())
    } else {
        Err(InvariantViolation::new("S10", "a snapshot read back shows another state"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_that_names_an_invariant_is_reported_under_it() {
        assert_eq!(panic_violation("S2: a token repeats").invariant, "S2");
        assert_eq!(panic_violation("S10: bytes differ").invariant, "S10");
        assert_eq!(panic_violation("index out of bounds: the len is 3").invariant, "panic");
        assert_eq!(panic_violation("not implemented").invariant, "panic");
    }
}
