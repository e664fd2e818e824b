//! Builds events with the fields that the rules prescribe.

use tenure_core::event::{Cause, Event, Subject};
use tenure_core::outcome::TakenBy;
use tenure_types::{Mode, Name};

use super::{Grant, Lease, Place};

/// An event without any optional fields.
pub(super) fn blank(cause: Cause, subject: Subject) -> Event {
    Event {
        cause,
        subject,
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
    }
}

/// An event about a place in the queue of one of its locks.
pub(super) fn place_event(cause: Cause, place: &Place, lock: &Name, mode: Mode) -> Event {
    Event {
        lease: Some(place.lease),
        client: Some(place.client.clone()),
        place: Some(place.number),
        mode: Some(mode),
        priority: (cause == Cause::Queued && place.priority > 0).then_some(place.priority),
        reason: match (cause, place.upgrade, place.any) {
            (Cause::Queued, true, _) => Some("upgrade".into()),
            (Cause::Queued, false, true) => Some("any".into()),
            _ => None,
        },
        ..blank(cause, Subject::Lock(lock.clone()))
    }
}

/// An event about a grant, with the fields that most of them have.
pub(super) fn held_event(cause: Cause, lock: &Name, grant: &Grant) -> Event {
    Event {
        lease: Some(grant.lease),
        client: Some(grant.client.clone()),
        token: Some(grant.token),
        mode: Some(grant.mode),
        slot: grant.slot,
        ..blank(cause, Subject::Lock(lock.clone()))
    }
}

/// An event about a lease.
pub(super) fn lease_event(cause: Cause, lease: &Lease) -> Event {
    Event {
        lease: Some(lease.id),
        client: Some(lease.client.clone()),
        ..blank(cause, Subject::Lease(lease.id))
    }
}

/// The name and reason given for taking something away, for the notice to the lease; `None` if neither was given.
pub(super) fn word((by, reason): (&str, &str)) -> Option<Box<TakenBy>> {
    let by = (!by.is_empty()).then(|| Name::new(by).expect("the name was looked at"));
    let reason = (!reason.is_empty()).then(|| reason.into());
    (by.is_some() || reason.is_some()).then(|| Box::new(TakenBy { by, reason }))
}

/// The same in the form of an event.
pub(super) fn name_and_reason(word: Option<&TakenBy>) -> (Option<Name>, Option<Box<str>>) {
    word.map_or((None, None), |word| (word.by.clone(), word.reason.clone()))
}
