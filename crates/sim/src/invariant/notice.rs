//! Checks that each notice reaches the lease that it is about.

use tenure_core::event::{Cause, Event, Subject};
use tenure_core::outcome::{Notice, TakenBy};
use tenure_types::{Handle, LeaseId, Refusal, Revision};

use super::{CheckResult, Handles, InvariantViolation};
use crate::observe::ObservedStep;

/// Checks that every notice has a matching event of the same revision and lease.
pub(super) fn check(seen: &ObservedStep<'_>, handles: &Handles) -> CheckResult {
    for notice in &seen.effects.notices {
        let good = match notice {
            Notice::Granted { lease, place, revision, .. } => {
                told(seen, handles, *lease, *revision, |event| {
                    matches!(event.cause, Cause::Granted | Cause::Upgraded)
                        && event.place == Some(*place)
                })
            }
            Notice::Lost { lease, token, revision, cause, word, .. } => {
                told(seen, handles, *lease, *revision, |event| {
                    Some(event.cause) == *cause
                        && event.token == Some(*token)
                        && says(event, word.as_deref())
                })
            }
            Notice::WaitEnded { lease, place, revision, refusal } => {
                told(seen, handles, *lease, *revision, |event| {
                    let (right, client) = match refusal.as_deref() {
                        // An upgrade leaves the queue when its hold has ended, which older levels do not tell.
                        None => (matches!(event.cause, Cause::WaitTimeout | Cause::Left), None),
                        Some(Refusal::NotHolder { .. } | Refusal::PoolEmpty { .. }) => {
                            (event.cause == Cause::Left, None)
                        }
                        Some(Refusal::Superseded(by)) => {
                            (event.cause == Cause::Superseded, Some(&by.client))
                        }
                        Some(_) => (event.cause == Cause::TooManySlots, None),
                    };
                    right && event.place == Some(*place) && event.by.as_ref() == client
                })
            }
            Notice::LeaseEnded { lease, revision, cause, word } => {
                told(seen, handles, *lease, *revision, |event| {
                    let lease = matches!(event.subject, Subject::Lease(_));
                    Some(event.cause) == *cause && lease && says(event, word.as_deref())
                })
            }
        };
        if !good {
            return Err(InvariantViolation::new(
                "model",
                format!("no event says what {notice:?} says"),
            ));
        }
    }
    Ok(())
}

/// Whether an event has the same name and reason.
fn says(event: &Event, word: Option<&TakenBy>) -> bool {
    let by = word.and_then(|word| word.by.as_ref());
    let reason = word.and_then(|word| word.reason.as_ref());
    event.by.as_ref() == by && event.reason.as_ref() == reason
}

fn told(
    seen: &ObservedStep<'_>,
    handles: &Handles,
    lease: Handle,
    revision: Revision,
    says: impl Fn(&Event) -> bool,
) -> bool {
    let id: Option<LeaseId> = handles.lease_of(lease).map(|(id, _)| id);
    let batch = seen.batches.iter().find(|batch| batch.revision == revision);
    id.is_some()
        && batch
            .is_some_and(|batch| batch.events.iter().any(|event| event.lease == id && says(event)))
}
