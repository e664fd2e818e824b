//! Finds the notices that this member's machine issued before the session that asked could receive them.
//!
//! A member applies the same log as its leader, perhaps before the leader's answer to a forwarded command arrives. Then
//! the notice of a grant, a loss or an end has passed before the answer that it belongs after: the session was not
//! attached to the lease yet, or its client did not know what the notice was about. The session gets that notice again.

use bytes::Bytes;
use tenure_core::codec::decode_request;
use tenure_core::event::{Batch, Cause, Event, Subject};
use tenure_core::outcome::{Acquired, Answer, LeaseGrant, Notice, Outcome};
use tenure_core::request::{Command, Hold, LeaseRef};
use tenure_core::{Filter, Machine};
use tenure_types::{
    Handle, Limit, Mode, Name, PlaceNumber, Refusal, Revision, SupersededBy, Token,
};

use crate::io::Outcomes;

/// The most revisions searched for the cause of a loss or an end.
const LOOK_MAX: usize = 1_024;

/// The notices that a session must hear after these outcomes of these requests.
pub(crate) fn missed(machine: &Machine, requests: &[Bytes], outcomes: &Outcomes) -> Vec<Notice> {
    let mut missed = Vec::new();
    for (request, outcome) in requests.iter().zip(outcomes) {
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
            Answer::Downgraded { token } => {
                missed.extend(lost_since_downgrade(machine, request, *token, *revision));
                continue;
            }
            _ => continue,
        };
        if !machine.has_lease(LeaseRef::Handle(lease.handle)) {
            let subject = Subject::Lease(lease.id);
            let is_its = |event: &Event| event.subject == subject;
            let cause = cause_of(machine, lease.handle, *revision, Filter::All, is_its);
            let (lease, revision) = (lease.handle, machine.revision());
            missed.push(Notice::LeaseEnded { lease, revision, cause, word: None });
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
        let is_its = |event: &Event| event.token == Some(token);
        if machine.holding(&Hold { lease: LeaseRef::Id(lease.id), lock, token }).is_err() {
            missed.push(Notice::Lost {
                lease: lease.handle,
                lock: grant.lock.clone(),
                token,
                revision: machine.revision(),
                cause: cause_of(machine, lease.handle, since, Filter::Exact(lock), is_its),
                word: None,
            });
        }
    }
}

/// The loss of a hold that a downgrade gave a new token. The client did not know this token when the notice of the loss
/// arrived. A lease that has ended needs no notice: the session was attached to it and got the notice of its end.
fn lost_since_downgrade(
    machine: &Machine,
    request: &[u8],
    token: Token,
    since: Revision,
) -> Option<Notice> {
    let Command::Downgrade(Hold { lease, lock, .. }) = decode_request(request).ok()?.command else {
        return None;
    };
    let lease = machine.lease(lease)?;
    // A hold that was upgraded since goes on under a larger token.
    if lease.holds.iter().any(|(name, held)| name.as_str() == lock && *held >= token) {
        return None;
    }
    let (handle, revision) = (lease.handle, machine.revision());
    let is_its = |event: &Event| event.token == Some(token);
    let cause = cause_of(machine, handle, since, Filter::Exact(lock), is_its);
    let lock = Name::new(lock).ok()?;
    Some(Notice::Lost { lease: handle, lock, token, revision, cause, word: None })
}

/// Why a place is gone other than by its wait limit, as far as the history tells: a newer request of its group has
/// replaced it, its semaphore has too few slots, or the hold that it was to upgrade has ended. A request for any of
/// several locks may have left other queues before, so the last event counts.
fn wait_ended(machine: &Machine, place: PlaceNumber, since: Revision) -> Option<Refusal> {
    let events = machine.events(since.next(), Filter::All, LOOK_MAX).ok()?;
    let leaves = |cause| {
        use Cause::{Left, Superseded, TooManySlots, WaitTimeout};
        matches!(cause, Superseded | TooManySlots | Left | WaitTimeout)
    };
    let is_it = |event: &&Event| leaves(event.cause) && event.place == Some(place);
    let batch = events.batches.iter().rfind(|batch| batch.events.iter().any(|it| is_it(&it)))?;
    if batch.events.iter().any(|event| is_it(&event) && event.cause == Cause::WaitTimeout) {
        return None;
    }
    if let Some(left) = batch.events.iter().find(|event| is_it(event) && event.cause == Cause::Left)
    {
        return hold_ended(batch, left);
    }
    // The newer request joined the queue in the same revision.
    let superseded = |event: &&Event| is_it(event) && event.cause == Cause::Superseded;
    if batch.events.iter().any(|event| superseded(&event))
        && let Some(newer) = batch.events.iter().find(|event| event.cause == Cause::Queued)
    {
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
            && ends(event.cause)
    };
    batch.events.iter().find(of_hold).map(|_| Refusal::NotHolder { lock: lock.clone() })
}

/// Why a grant or a lease ended. `None` if the history does not tell: it was compacted, or more than [`LOOK_MAX`]
/// revisions have passed. The client is then told of the loss without a cause, because a wrong one would mislead an
/// operator who looks into the loss.
fn cause_of(
    machine: &Machine,
    lease: Handle,
    since: Revision,
    filter: Filter<'_>,
    is_its: impl Fn(&Event) -> bool,
) -> Option<Cause> {
    let history = machine.events(since.next(), filter, LOOK_MAX).ok()?;
    let mut events = history.batches.iter().flat_map(|batch| &batch.events);
    if let Some(end) = events.find(|event| is_its(event) && ends(event.cause)) {
        return Some(end.cause);
    }
    // A lease that is due counts as expired before the entry that removes it and records its end.
    let is_due = !machine.has_lease(LeaseRef::Handle(lease)) && !machine.has_forgotten(lease);
    (is_due && history.next > machine.revision()).then_some(Cause::Expired)
}

/// Whether an event with this cause ends the hold or the lease that it is about. Every cause is listed, so that the
/// author of a new one has to decide.
fn ends(cause: Cause) -> bool {
    match cause {
        Cause::Released
        | Cause::Expired
        | Cause::Revoked
        | Cause::Forced
        | Cause::MaxHold
        | Cause::NoProgress
        | Cause::HandedOn => true,
        // The event of an upgrade has the new token; the history does not tell which one it replaced.
        Cause::Granted
        | Cause::Upgraded
        | Cause::Downgraded
        | Cause::Updated
        // These follow the end of a hold.
        | Cause::Cooled
        | Cause::DelayOver
        | Cause::MinHoldOver
        | Cause::Vacant
        // These are about places in a queue.
        | Cause::Queued
        | Cause::Left
        | Cause::WaitTimeout
        | Cause::Superseded
        | Cause::TooManySlots
        | Cause::GrantedElsewhere
        | Cause::Deadlock
        // These are neither about a hold nor about the end of a lease.
        | Cause::LeaseGranted
        | Cause::KeyPut
        | Cause::KeyDeleted
        | Cause::LimitsSet
        | Cause::LevelRaised
        | Cause::HistoryCompacted
        | Cause::AccessChanged
        | Cause::Drained
        | Cause::Undrained
        | Cause::Resized => false,
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::LEVEL_MAX;
    use tenure_core::codec::{encode_request, seal_entry};
    use tenure_core::outcome::Effects;
    use tenure_core::request::{
        Acquire, Ask, AskLease, AskWait, Asks, Command, NewLease, Purpose, Request, RequestId,
        Revoker, Upgrade, Urgency,
    };
    use tenure_types::{Epoch, LeaseId, Term};

    use super::*;

    const TTL_MS: u64 = 10_000;

    struct Held {
        machine: Machine,
        /// The request whose answer the session gets late, and that answer.
        request: Bytes,
        answer: Outcomes,
        token: Token,
    }

    fn encoded(command: Command<'_>) -> Bytes {
        let mut bytes = Vec::new();
        encode_request(&Request { principal: "", id: RequestId::None, command }, &mut bytes);
        bytes.into()
    }

    fn apply(machine: &mut Machine, now_ms: u64, command: Command<'_>) -> Outcome {
        let (term, bytes, mut effects) = (Term(1), encoded(command), Effects::default());
        machine.apply(term, Some(&seal_entry(term, now_ms, [&bytes[..]])), &mut effects);
        effects.outcomes.remove(0)
    }

    /// A lease that got a lock.
    fn held(max_hold_ms: Option<u64>) -> Held {
        let mut machine = Machine::new(Epoch::default());
        apply(&mut machine, 0, Command::RaiseLevel { level: LEVEL_MAX });
        let id = LeaseId::new(1).unwrap();
        let lease = NewLease { id, ttl_ms: TTL_MS, client: "c", metadata: b"" };
        let acquire = Acquire {
            lease: AskLease::New(lease),
            locks: Asks::One(Ask { lock: "deploy", mode: Mode::Exclusive }),
            any: false,
            wait: AskWait::Unlimited,
            metadata: b"",
            lock_delay_ms: 0,
            max_hold_ms,
            min_hold_ms: 0,
            progress_within_ms: 0,
            supersede: None,
            resume: false,
            priority: 0,
            purpose: Purpose::Lock,
            independent: false,
        };
        let request = encoded(Command::Acquire(acquire.clone()));
        let outcome = apply(&mut machine, 0, Command::Acquire(acquire));
        let Ok(Answer::Acquired(acquired)) = &outcome.result else { panic!("{outcome:?}") };
        let token = acquired.grants.as_slice()[0].token;
        Held { machine, request, answer: vec![Ok(outcome)], token }
    }

    impl Held {
        fn then(&mut self, now_ms: u64, command: Command<'_>) {
            let outcome = apply(&mut self.machine, now_ms, command);
            assert!(outcome.result.is_ok(), "{outcome:?}");
        }

        /// What the session is told after the answer: of the lock, and of the lease.
        fn told(&self) -> (Option<Option<Cause>>, Option<Option<Cause>>) {
            let (mut lock, mut lease) = (None, None);
            for notice in missed(&self.machine, std::slice::from_ref(&self.request), &self.answer) {
                match notice {
                    Notice::Lost { cause, token, .. } if token == self.token => lock = Some(cause),
                    Notice::LeaseEnded { cause, .. } => lease = Some(cause),
                    other => panic!("{other:?}"),
                }
            }
            (lock, lease)
        }
    }

    fn force(token: Token) -> Command<'static> {
        Command::Force { lock: "deploy", token, by: "ops", reason: "", urgency: Urgency::Now }
    }

    fn revoke() -> Command<'static> {
        let by = Revoker::Other { name: "ops", reason: "", urgency: Urgency::Now };
        Command::Revoke { lease: LeaseRef::Id(LeaseId::new(1).unwrap()), by }
    }

    /// Changes nothing about the lock.
    fn put() -> Command<'static> {
        Command::SetLimits(vec![(Limit::Leases, 1_000)])
    }

    #[test]
    fn a_session_that_is_late_is_told_the_cause_in_the_history() {
        assert_eq!(held(None).told(), (None, None));
        let mut forced = held(None);
        forced.then(1, force(forced.token));
        assert_eq!(forced.told(), (Some(Some(Cause::Forced)), None));
        let mut longest = held(Some(12_000));
        longest.then(8_000, Command::Renew(vec![LeaseRef::Id(LeaseId::new(1).unwrap())]));
        longest.then(13_000, put());
        assert_eq!(longest.told(), (Some(Some(Cause::MaxHold)), None));
        let mut revoked = held(None);
        revoked.then(1, revoke());
        assert_eq!(revoked.told(), (Some(Some(Cause::Revoked)), Some(Some(Cause::Revoked))));
        let mut expired = held(None);
        expired.then(3 * TTL_MS, put());
        assert_eq!(expired.told(), (Some(Some(Cause::Expired)), Some(Some(Cause::Expired))));
    }

    /// A lease whose lock was downgraded. The session gets the answer late.
    fn downgraded() -> Held {
        let mut held = held(None);
        let lease = LeaseRef::Id(LeaseId::new(1).unwrap());
        let token = held.token;
        let downgrade = || Command::Downgrade(Hold { lease, lock: "deploy", token });
        held.request = encoded(downgrade());
        let outcome = apply(&mut held.machine, 0, downgrade());
        let Ok(Answer::Downgraded { token }) = outcome.result else { panic!("{outcome:?}") };
        (held.answer, held.token) = (vec![Ok(outcome)], token);
        held
    }

    #[test]
    fn a_hold_that_is_lost_before_the_answer_to_its_downgrade_is_told_as_lost() {
        let mut held = downgraded();
        assert_eq!(held.told(), (None, None));
        held.then(1, force(held.token));
        assert_eq!(held.told(), (Some(Some(Cause::Forced)), None));
    }

    #[test]
    fn a_hold_that_is_lost_after_its_downgrade_is_told_without_a_cause_that_is_not_known() {
        let mut compacted = downgraded();
        compacted.then(1, force(compacted.token));
        compacted.then(1, Command::SetLimits(vec![(Limit::HistoryRevisions, 1)]));
        assert_eq!(compacted.told(), (Some(None), None));
        let mut long_ago = downgraded();
        for value in 0..LOOK_MAX as u64 {
            long_ago.then(1, Command::SetLimits(vec![(Limit::Leases, 1_000 + value)]));
        }
        long_ago.then(1, force(long_ago.token));
        assert_eq!(long_ago.told(), (Some(None), None));
    }

    #[test]
    fn a_hold_that_goes_on_under_a_larger_token_is_not_told_as_lost() {
        let mut held = downgraded();
        let lease = LeaseId::new(1).unwrap();
        held.then(
            1,
            Command::Upgrade(Upgrade {
                lease: LeaseRef::Id(lease),
                lock: "deploy",
                wait: AskWait::No,
                resume: false,
                independent: false,
            }),
        );
        assert_eq!(held.told(), (None, None));
    }

    #[test]
    fn a_lease_that_is_due_has_expired_before_its_end_is_in_the_history() {
        let mut held = held(None);
        let other = NewLease {
            id: LeaseId::new(2).unwrap(),
            ttl_ms: TTL_MS - 1,
            client: "c",
            metadata: b"",
        };
        held.then(0, Command::GrantLease(other));
        held.then(0, Command::SetLimits(vec![(Limit::EndsPerEntry, 1)]));
        // This entry ends the other lease, and leaves ours to the next one.
        held.then(3 * TTL_MS, put());
        let Ok(Outcome { result: Ok(Answer::Acquired(acquired)), .. }) = &held.answer[0] else {
            unreachable!()
        };
        assert!(!held.machine.has_forgotten(acquired.lease.handle));
        assert_eq!(held.told(), (Some(Some(Cause::Expired)), Some(Some(Cause::Expired))));
    }

    #[test]
    fn a_cause_that_the_history_no_longer_has_is_not_told_as_another() {
        let mut held = held(None);
        held.then(1, force(held.token));
        held.then(1, revoke());
        held.then(1, Command::SetLimits(vec![(Limit::HistoryRevisions, 1)]));
        assert_eq!(held.told(), (Some(None), Some(None)));
    }
}
