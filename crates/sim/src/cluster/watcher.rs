//! Checks that a cursor which hops between members sees every event once, or is told that it cannot.
//!
//! A watcher asks any running member, however far behind, for a part of the history from its cursor on, and compares it
//! with the events that the oracle saw. W1, W2 and W4: it gets everything that matches between its old and its new
//! cursor, by whole revisions. W3: if not, it gets an error, and the error is true. W5: its new cursor is a mark, so it
//! never passes what the member has.

use fastrand::Rng;
use tenure_core::event::{Batch, Event as Change, Subject};
use tenure_core::{Filter, Machine, Most};
use tenure_types::Revision;

use super::event::SimEvent;
use super::oracle::ensure;
use super::world::SimCluster;
use super::{MS, S};
use crate::invariant::CheckResult;

/// One cursor.
pub(super) struct Watcher {
    /// A separate generator, so that watching changes nothing else in the run.
    rng: Rng,
    filter: Filter<'static>,
    next: Revision,
    member: usize,
}

impl Watcher {
    pub(super) fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let filters =
            [Filter::All, Filter::Exact("alpha"), Filter::Prefix("b"), Filter::Prefix("")];
        let filter = filters[rng.usize(0..filters.len())];
        let next = Revision(if rng.bool() { 1 } else { rng.u64(1..200) });
        Self { rng, filter, next, member: 0 }
    }
}

impl SimCluster {
    pub(super) fn watch(&mut self, number: usize) -> CheckResult {
        let count = self.sim_members.len();
        let watcher = &mut self.watchers[number];
        // Sometimes it is away for long, and history is given up meanwhile.
        let away = watcher.rng.u8(0..20) == 0;
        let pause_us = watcher.rng.u64(if away { 5 * S..30 * S } else { 20 * MS..500 * MS });
        let member = watcher.rng.usize(0..count);
        let max = watcher.rng.usize(1..60);
        let (filter, next) = (watcher.filter, watcher.next);
        let hops = std::mem::replace(&mut watcher.member, member) != member;
        self.queue.push(self.now_us + pause_us, SimEvent::Watch { watcher: number });
        let process =
            self.sim_members[member].process.as_ref().filter(|_| !self.is_survivor(member));
        let Some(process) = process else { return Ok(()) };
        let machine = process.node.machine();
        self.faults.count_by("watch_hop", u64::from(hops));
        let events = match machine.events(next, filter, max) {
            Ok(events) => events,
            Err(told) => {
                let floor = told.floor;
                ensure(next < floor && floor <= self.oracle.floor(), "W3", || {
                    format!("{member} says that {next} is below {floor}, which is not so")
                })?;
                self.faults.count("watch_compacted");
                self.watchers[number].next = floor;
                return Ok(());
            }
        };
        let expected = self.oracle.happened(next, events.next);
        let expected: Vec<Batch> = expected.filter_map(|batch| part(batch, filter)).collect();
        ensure(events.batches == expected, "W1", || {
            let seen: Vec<_> = events.batches.iter().map(|batch| batch.revision.0).collect();
            format!("{member} gave {seen:?} from {next} to before {}", events.next)
        })?;
        let reached = machine.revision().next();
        ensure(events.next <= next.max(reached), "W5", || {
            format!("{member} is at {reached} and marks {}", events.next)
        })?;
        ensure(events.next > next || next >= reached, "W1", || {
            format!("{member} is at {reached} and has nothing from {next}")
        })?;
        ensure(copied(machine, next, filter, max) == Some(events.batches), "W1", || {
            format!("{member} copies something else from {next}")
        })?;
        self.faults.count_by("watch_event", expected.len() as u64);
        self.watchers[number].next = events.next;
        Ok(())
    }
}

/// The same part, by the way that members hand it to their hubs.
fn copied(machine: &Machine, from: Revision, filter: Filter<'_>, max: usize) -> Option<Vec<Batch>> {
    let records = machine.records(from, Most { revisions: max, bytes: usize::MAX }).ok()?;
    let batches = records.iter().map(|record| Batch {
        revision: record.revision,
        label: record.label(),
        events: record
            .events()
            .filter(|event| event.is_admitted(filter))
            .map(|event| event.to_event())
            .collect(),
    });
    Some(batches.filter(|batch| !batch.events.is_empty()).collect())
}

/// What a filter lets through, said a second time.
fn part(batch: &Batch, filter: Filter<'_>) -> Option<Batch> {
    let admitted = |event: &&Change| match (&event.subject, filter) {
        (_, Filter::All) => true,
        (Subject::Lock(name) | Subject::Key(name), Filter::Exact(exact)) => name.as_str() == exact,
        (Subject::Lock(name) | Subject::Key(name), Filter::Prefix(prefix)) => {
            name.as_str().starts_with(prefix)
        }
        _ => false,
    };
    let events: Vec<Change> = batch.events.iter().filter(admitted).cloned().collect();
    (!events.is_empty()).then_some(Batch { revision: batch.revision, label: batch.label, events })
}
