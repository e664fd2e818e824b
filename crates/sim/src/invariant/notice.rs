//! Does each notice reach the lease it is about?

use tenure_core::event::{Cause, Event, Subject};
use tenure_core::outcome::Notice;
use tenure_types::{Handle, LeaseId, Revision};

use super::{Check, Handles, Violation};
use crate::observe::Seen;

/// Every notice has an event of its revision that says the same of the same lease.
pub(super) fn check(seen: &Seen<'_>, handles: &Handles) -> Check {
    for notice in &seen.effects.notices {
        let good = match notice {
            Notice::Granted { lease, place, revision, .. } => {
                told(seen, handles, *lease, *revision, |event| {
                    event.cause == Cause::Granted && event.place == Some(*place)
                })
            }
            Notice::Lost { lease, token, revision, cause, .. } => {
                told(seen, handles, *lease, *revision, |event| {
                    event.cause == *cause && event.token == Some(*token)
                })
            }
            Notice::WaitEnded { lease, place, revision } => {
                told(seen, handles, *lease, *revision, |event| {
                    event.cause == Cause::WaitTimeout && event.place == Some(*place)
                })
            }
            Notice::LeaseEnded { lease, revision, cause } => {
                told(seen, handles, *lease, *revision, |event| {
                    event.cause == *cause && matches!(event.subject, Subject::Lease(_))
                })
            }
        };
        if !good {
            return Err(Violation::new("model", format!("no event says what {notice:?} says")));
        }
    }
    Ok(())
}

fn told(
    seen: &Seen<'_>,
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
