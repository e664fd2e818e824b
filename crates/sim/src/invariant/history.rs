//! Checks that every change since the floor can be read, in order, without a gap (W3).

use tenure_core::event::{Batch, Cause, Event, Subject};
use tenure_core::{Filter, Machine};
use tenure_types::Revision;

use super::{CheckResult, InvariantViolation};
use crate::observe::{ALL, ObservedStep};

/// The interval, in steps, at which the whole history is read: it costs more than everything else.
const EVERY: u64 = 16;

/// The names and prefixes to read.
const NAMES: [&str; 4] = ["a", "a/b", "db/", "k"];

/// Checks the new part, and at intervals the whole history.
pub(super) fn check(machine: &Machine, seen: &ObservedStep<'_>, steps: u64) -> CheckResult {
    let (floor, revision) = (seen.after.floor, seen.after.revision);
    if floor.0 > revision.0 + 1 {
        return fail(format!("the floor {floor} is above the newest revision {revision} by more"));
    }
    gapless(seen.batches, revision)?;
    if seen.after.floor != seen.before.floor || steps.is_multiple_of(EVERY) {
        below_the_floor(machine, floor)?;
    }
    if steps.is_multiple_of(EVERY) {
        whole(machine, floor, revision)?;
    }
    Ok(())
}

fn gapless(batches: &[Batch], newest: Revision) -> CheckResult {
    for (left, right) in batches.iter().zip(batches.iter().skip(1)) {
        if right.revision != left.revision.next() {
            return fail(format!("revision {} follows {}", right.revision, left.revision));
        }
    }
    if batches.iter().any(|batch| batch.events.is_empty()) {
        return fail("a revision without events".into());
    }
    match batches.last() {
        Some(last) if last.revision != newest => {
            fail(format!("the history ends at {}, the newest is {newest}", last.revision))
        }
        _ => Ok(()),
    }
}

fn below_the_floor(machine: &Machine, floor: Revision) -> CheckResult {
    if floor.0 == 0 {
        return Ok(());
    }
    match machine.events(Revision(floor.0 - 1), Filter::All, ALL) {
        Err(compacted) if compacted.floor == floor => Ok(()),
        other => fail(format!("asked below the floor {floor}: {other:?}")),
    }
}

fn whole(machine: &Machine, floor: Revision, revision: Revision) -> CheckResult {
    let all = match machine.events(floor, Filter::All, usize::from(u16::MAX)) {
        Ok(events) => events.batches,
        Err(compacted) => return fail(format!("{compacted:?} at the floor {floor}")),
    };
    gapless(&all, revision)?;
    if all.first().map_or(revision.next(), |batch| batch.revision) != floor {
        return fail(format!("the history does not begin at its floor {floor}"));
    }
    if pages(machine, floor, revision)? != all {
        return fail("read in pages it is another history".into());
    }
    for name in NAMES {
        for filter in [Filter::Exact(name), Filter::Prefix(name)] {
            let expected = naive(&all, filter);
            match machine.events(floor, filter, usize::from(u16::MAX)) {
                Ok(events) if events.batches == expected => {}
                other => return fail(format!("{filter:?}: {other:?}, expected {expected:?}")),
            }
        }
    }
    Ok(())
}

fn pages(
    machine: &Machine,
    floor: Revision,
    revision: Revision,
) -> Result<Vec<Batch>, InvariantViolation> {
    let mut all = Vec::new();
    let mut from = floor;
    while from <= revision {
        match machine.events(from, Filter::All, 3) {
            Ok(events) if events.next > from => {
                all.extend(events.batches);
                from = events.next;
            }
            other => {
                let detail = format!("a page from {from} leads nowhere: {other:?}");
                return Err(InvariantViolation::new("W3", detail));
            }
        }
    }
    Ok(all)
}

fn naive(all: &[Batch], filter: Filter<'_>) -> Vec<Batch> {
    let wanted = |event: &&Event| {
        let (Subject::Lock(name) | Subject::Key(name)) = &event.subject else {
            return drains(event, filter);
        };
        match filter {
            Filter::All => true,
            Filter::Exact(exact) => name.as_str() == exact,
            Filter::Prefix(prefix) => name.as_str().starts_with(prefix),
        }
    };
    all.iter()
        .map(|batch| Batch {
            revision: batch.revision,
            label: batch.label,
            events: batch.events.iter().filter(wanted).cloned().collect(),
        })
        .filter(|batch| !batch.events.is_empty())
        .collect()
}

/// Whether an event drains or opens a prefix that has names in common with that of the filter.
fn drains(event: &Event, filter: Filter<'_>) -> bool {
    let drained = match (event.cause, &event.value) {
        (Cause::Drained | Cause::Undrained, Some(value)) => String::from_utf8_lossy(value),
        _ => return false,
    };
    match filter {
        Filter::Prefix(prefix) => prefix.starts_with(&*drained) || drained.starts_with(prefix),
        Filter::All | Filter::Exact(_) => false,
    }
}

fn fail(detail: String) -> CheckResult {
    Err(InvariantViolation::new("W3", detail))
}
