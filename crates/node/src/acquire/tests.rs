//! Checks each transition of an acquire without a session.

use tenure_core::codec::decode_request;
use tenure_core::outcome::{Grants, LeaseGrant};
use tenure_types::{LeaseId, Revision, SupersededBy};

use super::*;

const DEADLINE_US: u64 = 1_000_000;
const WAIT_US: u64 = 5_000_000;
const LEASE: Handle = Handle { slot: 3, generation: 7 };
const PLACE: PlaceNumber = PlaceNumber(11);

fn pending(place: PlaceFate) -> PendingAcquire {
    let terms = AcquireTerms { within_us: DEADLINE_US, wait_us: WAIT_US, place };
    PendingAcquire::new(Principal::anyone(), RequestId::Key("k"), terms, 0)
}

fn lease() -> LeaseGrant {
    LeaseGrant { id: LeaseId::new(9).unwrap(), created: Revision(1), handle: LEASE, ttl_ms: 10_000 }
}

fn outcome(result: Result<Answer, Refusal>) -> Result<Outcome, NodeFailure> {
    Ok(Outcome { revision: Revision(5), result })
}

fn acquired() -> Result<Outcome, NodeFailure> {
    let grants = Grants::Many(Vec::new());
    outcome(Ok(Answer::Acquired(Acquired { lease: lease(), place: PLACE, grants })))
}

fn queued() -> Result<Outcome, NodeFailure> {
    outcome(Ok(Answer::Queued(Queued { lease: lease(), place: PLACE, ahead: 2 })))
}

fn refused(refusal: Refusal) -> Result<Outcome, NodeFailure> {
    outcome(Err(refusal))
}

fn granted(place: PlaceNumber) -> AcquireInput {
    let (revision, grants) = (Revision(5), Grants::Many(Vec::new()));
    AcquireInput::Notice(Notice::Granted { lease: LEASE, place, revision, grants })
}

/// An acquire that has a place since `now_us` 0.
fn waiting(place: PlaceFate) -> PendingAcquire {
    let mut pending = pending(place);
    assert_eq!(pending.handle(0, AcquireInput::Answered(queued())), None);
    assert_eq!(pending.wake_us(), WAIT_US);
    pending
}

fn replies(output: Option<AcquireOutput>, expected: &Result<Outcome, NodeFailure>) {
    assert_eq!(output, Some(AcquireOutput::Reply(expected.clone())));
}

/// The output takes the ask back, as the command says that the log decides on.
fn abandons(output: Option<AcquireOutput>, now_us: u64) {
    let Some(AcquireOutput::Abandon { request, deadline_us }) = output else {
        panic!("{output:?}");
    };
    assert_eq!(deadline_us, now_us + ABANDON_US);
    let lease = LeaseRef::Handle(LEASE);
    let abandon = Abandon { ask: AskId::Key("k"), lease, place: PLACE };
    assert_eq!(decode_request(&request).unwrap().command, Command::Abandon(abandon));
}

#[test]
fn a_grant_is_told_and_then_nothing_is_due() {
    for place in [PlaceFate::GivenUp, PlaceFate::Kept] {
        let mut pending = pending(place);
        assert!(!pending.is_over());
        replies(pending.handle(1, AcquireInput::Answered(acquired())), &acquired());
        assert_eq!((pending.is_over(), pending.wake_us()), (false, u64::MAX));
        assert_eq!(pending.handle(2, AcquireInput::Told), None);
        assert!(pending.is_over());
    }
}

#[test]
fn a_grant_that_no_caller_was_told_of_is_taken_back_unless_it_is_to_be_kept() {
    let mut given_up = pending(PlaceFate::GivenUp);
    given_up.handle(1, AcquireInput::Answered(acquired()));
    abandons(given_up.handle(2, AcquireInput::NotTold), 2);
    assert!(given_up.is_over(), "no caller waits for the result");
    let mut kept = pending(PlaceFate::Kept);
    kept.handle(1, AcquireInput::Answered(acquired()));
    assert_eq!(kept.handle(2, AcquireInput::NotTold), None);
    assert!(kept.is_over());
}

#[test]
fn a_refusal_or_failure_is_told_and_leaves_nothing_to_take_back() {
    for answer in
        [refused(Refusal::LeaseNotFound), Err(NodeFailure::NoLeader), Err(NodeFailure::Unknown)]
    {
        let mut pending = pending(PlaceFate::GivenUp);
        replies(pending.handle(1, AcquireInput::Answered(answer.clone())), &answer);
        assert_eq!(pending.handle(2, AcquireInput::NotTold), None);
        assert!(pending.is_over());
    }
}

#[test]
fn without_an_answer_the_outcome_is_unknown_a_moment_after_the_deadline() {
    let mut pending = pending(PlaceFate::GivenUp);
    let until_us = DEADLINE_US + ANSWER_US;
    assert_eq!(pending.wake_us(), until_us);
    assert_eq!(pending.turn(until_us - 1), None);
    replies(pending.turn(until_us), &Err(NodeFailure::Unknown));
    assert_eq!(pending.handle(until_us, AcquireInput::Answered(acquired())), None, "too late");
}

#[test]
fn a_caller_that_goes_before_the_answer_is_not_replied_to() {
    let gone = |place, answer| {
        let mut pending = pending(place);
        assert_eq!(pending.handle(1, AcquireInput::CallerGone), None);
        assert!(!pending.is_over(), "whether there is something to take back is not known yet");
        let output = pending.handle(2, AcquireInput::Answered(answer));
        assert!(pending.is_over());
        output
    };
    abandons(gone(PlaceFate::GivenUp, acquired()), 2);
    abandons(gone(PlaceFate::GivenUp, queued()), 2);
    assert_eq!(gone(PlaceFate::Kept, acquired()), None);
    assert_eq!(gone(PlaceFate::Kept, queued()), None);
    assert_eq!(gone(PlaceFate::GivenUp, Err(NodeFailure::Unknown)), None);
    assert_eq!(gone(PlaceFate::GivenUp, refused(Refusal::LeaseNotFound)), None);
}

#[test]
fn a_caller_that_goes_before_a_failure_is_known_leaves_nothing_behind() {
    let mut pending = pending(PlaceFate::GivenUp);
    pending.handle(1, AcquireInput::CallerGone);
    assert_eq!(pending.turn(DEADLINE_US + ANSWER_US), None);
    assert!(pending.is_over());
}

#[test]
fn a_place_becomes_a_grant_by_its_own_notice_only() {
    let mut pending = waiting(PlaceFate::GivenUp);
    assert_eq!(pending.handle(1, granted(PlaceNumber(12))), None);
    let other = Handle { slot: 4, generation: 8 };
    let ended = |lease| Notice::LeaseEnded {
        lease,
        revision: Revision(5),
        cause: Some(tenure_core::event::Cause::Expired),
        word: None,
    };
    assert_eq!(pending.handle(1, AcquireInput::Notice(ended(other))), None);
    replies(pending.handle(2, granted(PLACE)), &acquired());
    abandons(pending.handle(3, AcquireInput::NotTold), 3);
    let mut lost = waiting(PlaceFate::GivenUp);
    let refusal = refused(Refusal::LeaseNotFound);
    replies(lost.handle(2, AcquireInput::Notice(ended(LEASE))), &refusal);
}

#[test]
fn a_place_whose_wait_the_log_ended_is_a_refusal() {
    let mut pending = waiting(PlaceFate::GivenUp);
    let ended =
        Notice::WaitEnded { lease: LEASE, place: PLACE, revision: Revision(5), refusal: None };
    replies(pending.handle(1, AcquireInput::Notice(ended)), &refused(Refusal::WaitTimeout));
    pending.handle(1, AcquireInput::Told);
    assert!(pending.is_over());
}

#[test]
fn a_place_that_a_newer_request_has_replaced_is_a_refusal_that_names_it() {
    let mut pending = waiting(PlaceFate::GivenUp);
    let client = tenure_types::Name::new("ci-9").unwrap();
    let by = Box::new(SupersededBy { client, lease: LeaseId::new(7).unwrap() });
    let (lease, revision) = (LEASE, Revision(5));
    let superseded = Refusal::Superseded(by);
    let refusal = Some(Box::new(superseded.clone()));
    let ended = Notice::WaitEnded { lease, place: PLACE, revision, refusal };
    let refusal = refused(superseded);
    replies(pending.handle(1, AcquireInput::Notice(ended)), &refusal);
    pending.handle(1, AcquireInput::Told);
    assert!(pending.is_over());
}

#[test]
fn a_caller_that_goes_while_it_waits_leaves_the_queue_unless_its_place_is_kept() {
    abandons(waiting(PlaceFate::GivenUp).handle(9, AcquireInput::CallerGone), 9);
    let mut kept = waiting(PlaceFate::Kept);
    assert_eq!(kept.handle(9, AcquireInput::CallerGone), None);
    assert!(kept.is_over());
}

#[test]
fn when_the_wait_is_over_a_place_that_is_kept_is_told() {
    let mut pending = waiting(PlaceFate::Kept);
    assert_eq!(pending.turn(WAIT_US - 1), None);
    replies(pending.turn(WAIT_US), &queued());
    assert_eq!(pending.handle(WAIT_US, AcquireInput::NotTold), None);
    assert!(pending.is_over());
}

#[test]
fn when_the_wait_is_over_the_place_is_taken_back_before_the_caller_is_told() {
    let after = |answer| {
        let mut pending = waiting(PlaceFate::GivenUp);
        abandons(pending.turn(WAIT_US), WAIT_US);
        assert!(!pending.is_over());
        assert_eq!(pending.handle(WAIT_US, granted(PLACE)), None, "the grant is being given up");
        pending.handle(WAIT_US + 1, AcquireInput::Abandoned(answer))
    };
    let abandoned = outcome(Ok(Answer::Abandoned { released: true }));
    replies(after(abandoned), &refused(Refusal::WaitTimeout));
    replies(after(refused(Refusal::LeaseNotFound)), &refused(Refusal::LeaseNotFound));
    // The place stands: that the command had no effect does not mean that the acquire had none.
    replies(after(refused(Refusal::NotLeader)), &Err(NodeFailure::Unknown));
    for failure in [NodeFailure::NoLeader, NodeFailure::Overloaded, NodeFailure::Expired] {
        replies(after(Err(failure)), &Err(NodeFailure::Unknown));
    }
}

#[test]
fn an_ask_that_may_or_may_not_be_taken_back_is_unknown() {
    let mut pending = waiting(PlaceFate::GivenUp);
    pending.turn(WAIT_US);
    let until_us = WAIT_US + ABANDON_US + ANSWER_US;
    assert_eq!(pending.wake_us(), until_us);
    replies(pending.turn(until_us), &Err(NodeFailure::Unknown));
}

#[test]
fn a_caller_that_goes_while_its_ask_is_taken_back_ends_the_acquire() {
    let mut pending = waiting(PlaceFate::GivenUp);
    pending.turn(WAIT_US);
    assert_eq!(pending.handle(WAIT_US + 1, AcquireInput::CallerGone), None);
    assert!(pending.is_over());
}

#[test]
fn a_closed_session_makes_the_outcome_unknown() {
    let mut asked = pending(PlaceFate::GivenUp);
    replies(asked.handle(1, AcquireInput::Closed), &Err(NodeFailure::Unknown));
    assert_eq!(asked.handle(2, AcquireInput::Closed), None, "there is one reply");
    replies(waiting(PlaceFate::Kept).handle(1, AcquireInput::Closed), &Err(NodeFailure::Unknown));
    let mut abandoning = waiting(PlaceFate::GivenUp);
    abandoning.turn(WAIT_US);
    replies(abandoning.handle(WAIT_US, AcquireInput::Closed), &Err(NodeFailure::Unknown));
}

#[test]
fn a_caller_that_does_not_wait_at_all_gives_its_place_up_at_once() {
    let terms = AcquireTerms { within_us: DEADLINE_US, wait_us: 0, place: PlaceFate::GivenUp };
    let mut pending = PendingAcquire::new(Principal::anyone(), RequestId::Key("k"), terms, 0);
    abandons(pending.handle(1, AcquireInput::Answered(queued())), 1);
}
