//! Checks that a watch delivered exactly what it should have.

use std::time::Duration;

use tenure_core::event::{Batch, Event, Subject};
use tenure_server::watch::{OwnedFilter, WatchReader, WatchStep};
use tenure_types::Revision;
use tokio::time::timeout;

use crate::cluster::DEADLINE;

/// An item that a watch delivered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Seen {
    Batch(Batch),
    Mark(Revision),
}

/// How often tests request progress marks.
pub(crate) const MARKS: Duration = Duration::from_millis(20);

/// Takes one step; fails if it takes too long.
pub(crate) async fn step(watch: &mut WatchReader) -> WatchStep {
    timeout(DEADLINE, watch.next()).await.expect("a watch has something to say in time")
}

/// Records the steps of a watch until it has reached a revision. Returns that revision, or the step that ended the
/// watch.
pub(crate) async fn follow(
    watch: &mut WatchReader,
    to: Revision,
    seen: &mut Vec<Seen>,
) -> Result<Revision, WatchStep> {
    loop {
        let reached = match step(watch).await {
            WatchStep::Batch(batch) => {
                let (revision, label, events) = (batch.revision, batch.label, batch.events.clone());
                seen.push(Seen::Batch(Batch { revision, label, events }));
                revision
            }
            WatchStep::Progress(mark) => {
                seen.push(Seen::Mark(mark));
                mark
            }
            end => return Err(end),
        };
        if reached >= to {
            return Ok(reached);
        }
    }
}

/// The batches that a filter admits, from a revision on, without previous values.
pub(crate) fn expected(history: &[Batch], filter: &OwnedFilter, from: Revision) -> Vec<Batch> {
    let admitted = |event: &&Event| match (&event.subject, filter) {
        (_, OwnedFilter::All) => true,
        (Subject::Lock(name) | Subject::Key(name), OwnedFilter::Exact(exact)) => {
            name.as_str() == exact
        }
        (Subject::Lock(name) | Subject::Key(name), OwnedFilter::Prefix(prefix)) => {
            name.as_str().starts_with(prefix.as_str())
        }
        _ => false,
    };
    let bare = |event: &Event| Event { previous: None, ..event.clone() };
    let batches = history.iter().filter(|batch| batch.revision >= from).map(|batch| Batch {
        revision: batch.revision,
        label: batch.label,
        events: batch.events.iter().filter(admitted).map(bare).collect(),
    });
    batches.filter(|batch| !batch.events.is_empty()).collect()
}

/// Checks that every event from `from` up to `to` was delivered once, in order, by whole revisions, and each mark after
/// everything before it (W1, W2, W4, W5).
pub(crate) fn check(expected: &[Batch], seen: &[Seen], to: Revision) -> Result<(), String> {
    let mut left = expected.iter().peekable();
    for seen in seen {
        match seen {
            Seen::Batch(batch) => match left.next() {
                Some(next) if next == batch => {}
                next => return Err(format!("{:?} handed out, expected {next:?}", batch.revision)),
            },
            Seen::Mark(mark) => {
                if let Some(next) = left.peek().filter(|next| next.revision <= *mark) {
                    return Err(format!("a mark at {mark} before {}", next.revision));
                }
            }
        }
    }
    match left.next() {
        Some(next) if next.revision <= to => Err(format!("{} was never handed out", next.revision)),
        _ => Ok(()),
    }
}

mod tests {
    use super::*;
    use tenure_core::event::Cause;
    use tenure_types::Name;

    type Plant = fn(&mut Vec<Seen>);

    fn history() -> Vec<Batch> {
        let event = |name: &str| Event {
            cause: Cause::KeyPut,
            subject: Subject::Key(Name::new(name).unwrap()),
            lease: None,
            client: None,
            token: None,
            mode: None,
            slot: None,
            place: None,
            left_ms: None,
            by: None,
            reason: None,
            principal: None,
            value: None,
            previous: None,
            ttl_ms: None,
            renewed_ms: None,
            priority: None,
        };
        let names = [&["a", "b"][..], &["b"], &["a/1"], &["a", "a"]];
        let batches = names.iter().zip(1..).map(|(names, revision)| Batch {
            revision: Revision(revision),
            label: None,
            events: names.iter().map(|name| event(name)).collect(),
        });
        batches.collect()
    }

    #[test]
    fn every_planted_fault_of_a_watch_is_noticed() {
        let filter = OwnedFilter::Prefix("a".into());
        let expected = expected(&history(), &filter, Revision(1));
        let good: Vec<Seen> = expected.iter().cloned().map(Seen::Batch).collect();
        let good = [good, vec![Seen::Mark(Revision(4))]].concat();
        let to = Revision(4);
        assert_eq!(check(&expected, &good, to), Ok(()));
        let planted: [(&str, Plant); 7] = [
            ("dropped", |seen| drop(seen.remove(1))),
            ("dropped at the end", |seen| drop(seen.drain(2..))),
            ("doubled", |seen| seen.insert(1, seen[1].clone())),
            ("out of order", |seen| seen.swap(0, 1)),
            ("a mark too early", |seen| seen.swap(2, 3)),
            ("one event of a revision lost", |seen| {
                let Seen::Batch(batch) = &mut seen[2] else { panic!("a batch") };
                batch.events.pop();
            }),
            ("a revision in two steps", |seen| {
                let Seen::Batch(batch) = &mut seen[2] else { panic!("a batch") };
                let (revision, label) = (batch.revision, batch.label);
                let rest = Batch { revision, label, events: batch.events.split_off(1) };
                seen.insert(3, Seen::Batch(rest));
            }),
        ];
        for (what, plant) in planted {
            let mut seen = good.clone();
            plant(&mut seen);
            assert!(check(&expected, &seen, to).is_err(), "{what} was not noticed");
        }
        let later = super::expected(&history(), &filter, Revision(2));
        assert!(check(&later, &good, to).is_err(), "something before the start was not noticed");
    }
}
