//! Encodes the machine's outcomes, views and events for clients.

use tenure_core::event::{Cause, Event, Subject, TimeLabel};
use tenure_core::outcome::{Answer, Grants, LeaseGrant, LockGrant, Outcome, Renewal, TakenBy};
use tenure_core::request::Purpose;
use tenure_core::view::{DrainView, HolderView, KeyView, LeaseView, LockView, WaiterView};
use tenure_core::{Explained, Freed};
use tenure_types::{Name, PlaceNumber, Refusal, Revision};
use tenure_wire::{convert, v1};

use v1::answer::Result as Wire;

/// What the response to an acquire contains beside the token.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct AnswerForm {
    /// The lease: only if the same command may have granted it.
    pub(crate) lease: bool,
    /// The name of a single lock, in the list of locks: only if the caller cannot know which one it is.
    pub(crate) locks: bool,
}

impl AnswerForm {
    /// The form of the answer to this request.
    pub(crate) fn of(ask: &v1::AcquireRequest) -> Self {
        let choice = !ask.any_of.is_empty() || !ask.pool.is_empty();
        Self { lease: ask.new_lease.is_some(), locks: choice }
    }
}

/// An outcome as the answer to a session's request.
pub(crate) fn answer(outcome: &Outcome, form: AnswerForm) -> Wire {
    match &outcome.result {
        Ok(answer) => done(answer, form),
        Err(refusal) => Wire::Error(Box::new(refusal.into())),
    }
}

fn done(answer: &Answer, form: AnswerForm) -> Wire {
    let shown = |grant: &LeaseGrant| form.lease.then(|| lease(grant));
    match answer {
        Answer::LeaseGranted(grant) => Wire::LeaseGranted(lease(grant)),
        Answer::Renewed(renewals) => Wire::Renewed(renewed(renewals)),
        Answer::Revoked => Wire::Revoked(v1::RevokeResponse { header: None }),
        Answer::Acquired(acquired) => {
            let mut response = granted(&acquired.grants, acquired.place, form);
            response.lease_created = convert::revision(acquired.lease.created);
            response.lease = shown(&acquired.lease);
            Wire::Acquired(response)
        }
        Answer::Queued(queued) => Wire::Queued(v1::Queued {
            place: queued.place.0,
            ahead: queued.ahead,
            lease_created: convert::revision(queued.lease.created),
            lease: shown(&queued.lease),
        }),
        Answer::Ended => Wire::Ended(v1::Ended {}),
        Answer::Released => Wire::Released(v1::ReleaseResponse { header: None }),
        Answer::Left => Wire::Left(v1::LeaveResponse { header: None, held: Vec::new() }),
        Answer::AlreadyHeld(grants) => {
            Wire::Left(v1::LeaveResponse { header: None, held: lock_grants(grants) })
        }
        Answer::Downgraded { token } => {
            Wire::Downgraded(v1::DowngradeResponse { header: None, token: token.get() })
        }
        Answer::Updated { version } => {
            Wire::Updated(v1::UpdateResponse { header: None, version: *version })
        }
        Answer::Forced { left_ms } => {
            Wire::Forced(v1::ForceResponse { header: None, left_ms: *left_ms })
        }
        Answer::Stopped => Wire::Stopped(v1::StoppedResponse { header: None }),
        Answer::Put(written) => Wire::Put(v1::PutResponse {
            header: None,
            version: written.version,
            created: convert::revision(written.created),
        }),
        Answer::Deleted { existed } => {
            Wire::Deleted(v1::DeleteResponse { header: None, existed: *existed })
        }
        Answer::HandedOn { token } => {
            Wire::HandedOn(v1::HandOnResponse { header: None, token: token.get() })
        }
        Answer::Progressed { left_ms } => {
            Wire::Progressed(v1::ProgressResponse { header: None, left_ms: *left_ms })
        }
        Answer::Drained => Wire::Drained(v1::DrainResponse { header: None }),
        Answer::Resized => Wire::Resized(v1::ResizeResponse { header: None }),
        Answer::Undrained { existed } => {
            Wire::Undrained(v1::UndrainResponse { header: None, existed: *existed })
        }
        // A session has no command with such an answer.
        Answer::LimitsSet
        | Answer::Compacted { .. }
        | Answer::LevelRaised
        | Answer::AccessSet
        | Answer::Abandoned { .. } => {
            Wire::Error(Box::new((&tenure_wire::Failure::Internal).into()))
        }
    }
}

pub(crate) fn lease(grant: &LeaseGrant) -> v1::Lease {
    v1::Lease {
        lease: convert::lease(grant.id),
        created: convert::revision(grant.created),
        lease_slot: grant.handle.slot,
        lease_generation: grant.handle.generation,
        ttl_ms: grant.ttl_ms,
    }
}

/// The grants of an acquire: a single one goes into the response itself, several into a list.
fn granted(grants: &Grants, place: PlaceNumber, form: AnswerForm) -> v1::AcquireResponse {
    let mut response = v1::AcquireResponse { place: place.0, ..Default::default() };
    match grants.as_slice() {
        [one] if !form.locks => {
            response.token = one.token.get();
            response.slot = one.slot;
        }
        _ => response.locks = lock_grants(grants),
    }
    response
}

pub(crate) fn lock_grants(grants: &Grants) -> Vec<v1::LockGrant> {
    grants.as_slice().iter().map(lock_grant).collect()
}

fn lock_grant(grant: &LockGrant) -> v1::LockGrant {
    let lock = grant.lock.as_str().to_owned();
    v1::LockGrant { lock, token: grant.token.get(), slot: grant.slot }
}

fn renewed(renewals: &[Option<Renewal>]) -> v1::Renewed {
    let ttl_ms = renewals.iter().map(|it| it.map_or(0, |it| it.ttl_ms)).collect();
    let changed = |it: &Option<Renewal>| it.map_or(0, |it| convert::revision(it.changed));
    let any = renewals.iter().any(|it| changed(it) != 0);
    let changed = if any { renewals.iter().map(changed).collect() } else { Vec::new() };
    v1::Renewed { ttl_ms, changed }
}

/// A refusal as an error, also where none is expected.
pub(crate) fn refused(refusal: &Refusal) -> v1::Error {
    refusal.into()
}

pub(crate) fn lock_view(view: &LockView) -> v1::LockView {
    v1::LockView {
        lock: view.lock.as_str().to_owned(),
        slots: view.slots,
        sized: view.sized,
        created: convert::revision(view.created),
        modified: convert::revision(view.modified),
        version: view.version,
        holders: view.holders.iter().map(holder_view).collect(),
        more_holders: view.more_holders,
        waiting: view.waiting,
    }
}

pub(crate) fn holder_view(view: &HolderView) -> v1::HolderView {
    let (state, left_ms) = convert::holder_state(view.state);
    v1::HolderView {
        lease: convert::lease(view.lease),
        lease_created: convert::revision(view.lease_created),
        client: view.client.as_str().to_owned(),
        token: view.token.get(),
        mode: convert::mode(view.mode).0.into(),
        slot: view.slot,
        place: view.place.0,
        held_ms: view.held_ms,
        state: state.into(),
        left_ms,
        election: view.purpose == Purpose::Election,
        metadata: view.metadata.to_vec().into(),
        lock_delay_ms: view.lock_delay_ms,
        max_hold_ms: view.max_hold_ms,
        min_hold_ms: view.min_hold_ms,
        progress: view.progress.map(|it| v1::ProgressView {
            number: it.number,
            within_ms: it.within_ms,
            still_ms: it.still_ms,
            left_ms: it.left_ms,
        }),
        renewed_ms: None,
    }
}

pub(crate) fn waiter_view(view: &WaiterView) -> v1::WaiterView {
    let (mode, slots) = convert::mode(view.mode);
    v1::WaiterView {
        place: view.place.0,
        lease: convert::lease(view.lease),
        client: view.client.as_str().to_owned(),
        mode: mode.into(),
        slots,
        take: convert::take(view.mode),
        created: convert::revision(view.created),
        ahead: view.ahead,
        behind: view.behind.map_or(0, |place| place.0),
        waiting_ms: view.waiting_ms,
        left_ms: view.left_ms,
        election: view.purpose == Purpose::Election,
        locks: view.locks.iter().map(|lock| lock.as_str().to_owned()).collect(),
        supersede: view.group.as_ref().map(ToString::to_string).unwrap_or_default(),
        priority: view.priority.into(),
        passable_ms: view.passable_ms,
        any: view.any,
        pool: view.pool.as_ref().map(ToString::to_string).unwrap_or_default(),
    }
}

pub(crate) fn lease_view(view: &LeaseView) -> v1::LeaseView {
    let hold = |(lock, token): &(tenure_types::Name, tenure_types::Token)| v1::LockGrant {
        lock: lock.as_str().to_owned(),
        token: token.get(),
        slot: None,
    };
    let wait = |(place, lock): &(PlaceNumber, tenure_types::Name)| v1::LockWait {
        place: place.0,
        lock: lock.as_str().to_owned(),
    };
    v1::LeaseView {
        lease: Some(v1::Lease {
            lease: convert::lease(view.id),
            created: convert::revision(view.created),
            lease_slot: view.handle.slot,
            lease_generation: view.handle.generation,
            ttl_ms: view.ttl_ms,
        }),
        // The cluster waits a millisecond longer than the ttl; a client must not count on it.
        left_ms: view.left_ms.min(view.ttl_ms),
        client: view.client.as_str().to_owned(),
        metadata: view.metadata.to_vec().into(),
        changed: convert::revision(view.changed),
        holds: view.holds.iter().map(hold).collect(),
        waits: view.waits.iter().map(wait).collect(),
        keys: view.keys.iter().map(|key| key.as_str().to_owned()).collect(),
    }
}

pub(crate) fn key_value(view: &KeyView) -> v1::KeyValue {
    v1::KeyValue {
        key: view.key.as_str().to_owned(),
        create_revision: convert::revision(view.created),
        mod_revision: convert::revision(view.modified),
        version: view.version,
        value: view.value.to_vec().into(),
        lease: view.lease.map_or(0, convert::lease),
    }
}

pub(crate) fn explained(it: &Explained) -> v1::ExplainResponse {
    let step = |step: &tenure_core::ChainStep| v1::ChainStep {
        lock: step.lock.as_str().to_owned(),
        lease: convert::lease(step.holder),
        client: step.client.as_str().to_owned(),
    };
    v1::ExplainResponse {
        header: None,
        lock: Some(lock_view(&it.lock)),
        ahead: it.ahead.iter().map(waiter_view).collect(),
        own: it.own.as_ref().map(waiter_view),
        chain: it.chain.steps.iter().map(step).collect(),
        chain_goes_on: it.chain.goes_on,
        // While the prefix is drained, nothing tells when the lock can be granted.
        freed: it.drained.is_none().then(|| freed(it.freed)),
        usually_held_ms: None,
        usually_of: 0,
        quiet_ms: it.quiet_ms,
        drained: it.drained.as_ref().map(drain_view),
        reopening_ms: it.reopening_ms,
    }
}

/// What concerns the caller's own lease of a lock that it may not read.
pub(crate) fn explained_own(
    lock: &Name,
    holders: &[HolderView],
    own: Option<&WaiterView>,
    quiet_ms: Option<u64>,
    drained: Option<&DrainView>,
) -> v1::ExplainResponse {
    let lock = v1::LockView {
        lock: lock.as_str().to_owned(),
        holders: holders.iter().map(holder_view).collect(),
        ..Default::default()
    };
    let own = own.map(waiter_view);
    let drained = drained.map(drain_view);
    v1::ExplainResponse { lock: Some(lock), own, quiet_ms, drained, ..Default::default() }
}

/// A lock without holders or waiters. During the quiet period after a restore, and while it is drained, the cluster
/// does not grant it either.
pub(crate) fn free(quiet_ms: Option<u64>, drained: Option<&DrainView>) -> v1::ExplainResponse {
    let freed = Some(v1::Freed { in_ms: quiet_ms.unwrap_or(0), at_latest: true });
    let drained = drained.map(drain_view);
    v1::ExplainResponse { freed, quiet_ms, drained, ..Default::default() }
}

/// A drained prefix, without the holders below it.
pub(crate) fn drain_view(it: &DrainView) -> v1::DrainView {
    let text = |name: &Option<Name>| name.as_ref().map(ToString::to_string).unwrap_or_default();
    v1::DrainView {
        prefix: it.prefix.to_string(),
        drained_ms: it.drained_ms,
        by: text(&it.by),
        principal: text(&it.principal),
        reason: it.reason.to_string(),
        created: convert::revision(it.created),
        ..Default::default()
    }
}

fn freed(freed: Freed) -> v1::Freed {
    match freed {
        Freed::Now => v1::Freed { in_ms: 0, at_latest: true },
        Freed::IfSilentMs(in_ms) => v1::Freed { in_ms, at_latest: false },
        Freed::AtLatestMs(in_ms) => v1::Freed { in_ms, at_latest: true },
    }
}

/// All events of one revision.
pub(crate) fn batch(revision: Revision, label: Option<TimeLabel>, events: &[Event]) -> v1::Batch {
    let revision_number = convert::revision(revision);
    v1::Batch {
        revision: revision_number,
        events: events.iter().map(|it| event(revision, label, it)).collect(),
    }
}

/// One event. An event that ends something is a deletion; any other is a put.
pub(crate) fn event(revision: Revision, label: Option<TimeLabel>, event: &Event) -> v1::Event {
    let (subject, key) = match &event.subject {
        Subject::Lock(name) => (v1::Subject::Lock, name.as_str().to_owned()),
        Subject::Key(name) => (v1::Subject::Key, name.as_str().to_owned()),
        Subject::Lease(lease) => (v1::Subject::Lease, lease.get().to_string()),
        Subject::Settings => (v1::Subject::Settings, String::new()),
    };
    let lease = event.lease.map_or(0, convert::lease);
    let kv = v1::KeyValue {
        key: key.clone(),
        mod_revision: convert::revision(revision),
        value: event.value.as_ref().map(|value| value.to_vec().into()).unwrap_or_default(),
        lease,
        ..Default::default()
    };
    let previous = event.previous.as_ref().map(|previous| v1::KeyValue {
        key,
        mod_revision: convert::revision(previous.modified),
        value: previous.value.to_vec().into(),
        ..Default::default()
    });
    let mode = event.mode.map(convert::mode);
    let kind = if ends(event.cause) { v1::EventType::Delete } else { v1::EventType::Put };
    v1::Event {
        r#type: kind.into(),
        kv: Some(kv),
        prev_kv: previous,
        cause: cause(event.cause).into(),
        subject: subject.into(),
        lease,
        client: event.client.as_ref().map(|it| it.as_str().to_owned()).unwrap_or_default(),
        token: event.token.map_or(0, tenure_types::Token::get),
        mode: mode.map(|(mode, _)| mode.into()),
        slots: mode.map_or(0, |(_, slots)| slots),
        take: event.mode.map_or(0, convert::take),
        slot: event.slot,
        place: event.place.map_or(0, |place| place.0),
        left_ms: event.left_ms,
        reason: event.reason.as_ref().map(ToString::to_string),
        by: event.by.as_ref().map(ToString::to_string),
        at_unix_ms: label.map(|label| label.wall.unix_ms),
        clock_ms: label.map(|label| label.clock_ms),
        ttl_ms: event.ttl_ms,
        renewed_clock_ms: event.renewed_ms,
        priority: event.priority.map(u32::from),
    }
}

/// The actor that took something away, and its reason; each is empty if it was not given.
pub(crate) fn word(word: Option<Box<TakenBy>>) -> (String, String) {
    word.map_or_else(Default::default, |word| {
        let by = word.by.map(|by| by.as_str().to_owned());
        (by.unwrap_or_default(), word.reason.map(String::from).unwrap_or_default())
    })
}

/// Causes have the same numbers on the wire: a test checks it.
pub(crate) fn cause(cause: Cause) -> v1::Cause {
    v1::Cause::try_from(i32::from(cause as u8)).unwrap_or_default()
}

fn ends(cause: Cause) -> bool {
    match cause {
        Cause::Released
        | Cause::Expired
        | Cause::Revoked
        | Cause::Forced
        | Cause::MaxHold
        | Cause::NoProgress
        | Cause::HandedOn
        | Cause::Cooled
        | Cause::DelayOver
        | Cause::MinHoldOver
        | Cause::Left
        | Cause::WaitTimeout
        | Cause::Superseded
        | Cause::TooManySlots
        | Cause::GrantedElsewhere
        | Cause::Vacant
        | Cause::Undrained
        | Cause::KeyDeleted => true,
        Cause::Granted
        | Cause::Downgraded
        | Cause::Upgraded
        | Cause::Updated
        | Cause::Queued
        | Cause::KeyPut
        | Cause::LeaseGranted
        | Cause::LimitsSet
        | Cause::LevelRaised
        | Cause::HistoryCompacted
        | Cause::AccessChanged
        | Cause::Drained
        | Cause::Resized
        | Cause::Deadlock => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_have_the_same_numbers_and_words_everywhere() {
        for it in Cause::ALL {
            assert_eq!(convert::cause_word(cause(it)), it.word());
        }
    }
}
