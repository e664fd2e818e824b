//! Finds the notices that this member's machine issued before the session that asked could receive them.
//!
//! A member applies the same log as its leader, perhaps before the leader's answer to a forwarded command arrives. Then
//! the notice of a grant, a loss or an end has passed before the answer that it belongs after: the session was not
//! attached to the lease yet, or its client did not know what the notice was about. The session gets that notice again.

use tenure_core::event::{Batch, Cause, Event, Subject};
use tenure_core::outcome::{Acquired, Answer, LeaseGrant, Notice, Outcome};
use tenure_core::request::{Hold, LeaseRef};
use tenure_core::{Filter, Machine};
use tenure_types::{Limit, Mode, PlaceNumber, Refusal, Revision, SupersededBy, Token};

use crate::io::Outcomes;

/// The most revisions searched for the cause of a loss.
const LOOK_MAX: usize = 1_024;

/// The notices that a session must hear after these outcomes.
pub(crate) fn missed(machine: &Machine, outcomes: &Outcomes) -> Vec<Notice> {
    let mut missed = Vec::new();
    for outcome in outcomes {
        let Ok(Outcome { revision, result: Ok(answer) }) = outcome else { continue };
        if machine.revision() < *revision {
            continue;
        }
        let lease = match answer {
            Answer::LeaseGranted(lease) => lease,
            Answer::Acquired(acquired) => {
                lost(machine, acquired, *revision, &mut missed);
                &acquired.lease
            }
            Answer::Queued(queued) => {
                let LeaseGrant { id, created, handle, .. } = queued.lease;
                let outcome_revision = *revision;
                let (place, revision) = (queued.place, machine.revision());
                match machine.what_became_of(id, created, place) {
                    Answer::Acquired(Acquired { grants, .. }) => {
                        missed.push(Notice::Granted { lease: handle, place, revision, grants });
                    }
                    Answer::Ended => {
                        let refusal = wait_ended(machine, place, outcome_revision).map(Box::new);
                        missed.push(Notice::WaitEnded { lease: handle, place, revision, refusal });
                    }
                    _ => {}
                }
                &queued.lease
            }
            _ => continue,
        };
        if !machine.has_lease(LeaseRef::Handle(lease.handle)) {
            let (lease, revision) = (lease.handle, machine.revision());
            missed.push(Notice::LeaseEnded { lease, revision, cause: Cause::Expired, word: None });
        }
    }
    missed
}

/// Adds a notice for each grant that is lost by now.
fn lost(machine: &Machine, acquired: &Acquired, since: Revision, missed: &mut Vec<Notice>) {
    if mutant!("early_loss_not_told") {
        return;
    }
    let lease = acquired.lease;
    for grant in acquired.grants.as_slice() {
        let (lock, token) = (grant.lock.as_str(), grant.token);
        if machine.holding(&Hold { lease: LeaseRef::Id(lease.id), lock, token }).is_err() {
            missed.push(Notice::Lost {
                lease: lease.handle,
                lock: grant.lock.clone(),
                token,
                revision: machine.revision(),
                cause: cause_of(machine, lock, token, since),
                word: None,
            });
        }
    }
}

/// Why a place is gone other than by its wait limit, as far as the history tells: a newer request of its group has
/// replaced it, its semaphore has too few slots, or the hold that it was to upgrade has ended.
fn wait_ended(machine: &Machine, place: PlaceNumber, since: Revision) -> Option<Refusal> {
    let events = machine.events(since.next(), Filter::All, LOOK_MAX).ok()?;
    let ends = |cause| matches!(cause, Cause::Superseded | Cause::TooManySlots | Cause::Left);
    let is_it = |event: &&Event| ends(event.cause) && event.place == Some(place);
    let batch = events.batches.iter().find(|batch| batch.events.iter().any(|it| is_it(&it)))?;
    if let Some(left) = batch.events.iter().find(|event| is_it(event) && event.cause == Cause::Left)
    {
        return hold_ended(batch, left);
    }
    // The newer request joined the queue in the same revision.
    if let Some(newer) = batch.events.iter().find(|event| event.cause == Cause::Queued) {
        let (client, lease) = (newer.client.clone()?, newer.lease?);
        return Some(Refusal::Superseded(Box::new(SupersededBy { client, lease })));
    }
    let too_large = |event: &Event| match event.mode {
        Some(Mode::Slot { of, take }) if take > of => {
            let (bound, asked) = (u64::from(of), u64::from(take));
            Some(Refusal::Limit { limit: Limit::Slots, bound, asked })
        }
        _ => None,
    };
    batch.events.iter().filter(is_it).find_map(too_large)
}

/// The refusal of an upgrade whose hold ended in the same revision in which it left the queue.
fn hold_ended(batch: &Batch, left: &Event) -> Option<Refusal> {
    let Subject::Lock(lock) = &left.subject else { return None };
    let of_hold = |event: &&Event| {
        event.subject == left.subject
            && event.lease == left.lease
            && event.token.is_some()
            && ends_hold(event.cause)
    };
    batch.events.iter().find(of_hold).map(|_| Refusal::NotHolder { lock: lock.clone() })
}

/// Why a grant ended, as far as the history tells.
fn cause_of(machine: &Machine, lock: &str, token: Token, since: Revision) -> Cause {
    let events = machine.events(since.next(), Filter::Exact(lock), LOOK_MAX).ok();
    let events = events.into_iter().flat_map(|events| events.batches).flat_map(|it| it.events);
    let mut causes = events.filter(|event| event.token == Some(token)).map(|event| event.cause);
    causes.find(|cause| ends_hold(*cause)).unwrap_or(Cause::Expired)
}

/// Whether an event with this cause and a token ends a hold.
fn ends_hold(cause: Cause) -> bool {
    matches!(
        cause,
        Cause::Released
            | Cause::Expired
            | Cause::Revoked
            | Cause::Forced
            | Cause::MaxHold
            | Cause::NoProgress
            | Cause::HandedOn
    )
}
