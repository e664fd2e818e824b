//! Tests the exact moments at which a lease changes its standing.

use std::time::Duration;

use tenure_types::{Revision, Token};

use super::{
    AckEffect, Cause, ClockReading, EndMessage, LeaseState, LeaseTiming, Lost, Moment,
    PendingGrant, Standing,
};

const TTL: Duration = Duration::from_secs(24);
const NONE: Revision = Revision(0);

/// A reading this many seconds after the start, without any suspend.
fn at(seconds: f64) -> ClockReading {
    slept(seconds, 0.0)
}

fn slept(seconds: f64, slept: f64) -> ClockReading {
    let moment =
        |seconds: f64| Moment::from_micros(1_000_000_000) + Duration::from_secs_f64(seconds);
    ClockReading { boot: moment(seconds), awake: moment(seconds - slept) }
}

fn token(number: u64) -> Token {
    Token::from_u64(number).unwrap()
}

/// A lease that was requested at 0, was granted at 1, and holds a lock.
fn granted() -> LeaseState {
    let mut asking = PendingGrant::new(LeaseTiming::new(TTL).unwrap());
    asking.sent(at(0.0));
    let mut state = asking.granted(at(1.0)).unwrap();
    state.granted("lock", token(1), Revision(1), at(1.0)).unwrap();
    state
}

fn cause(checked: Result<(), Lost>) -> Option<Cause> {
    checked.err().map(|lost| lost.cause())
}

#[test]
fn it_is_renewed_at_a_third_then_every_twentyfourth_doubtful_between_and_lost_at_half() {
    let mut state = granted();
    assert!(!state.poll(at(7.9)));
    assert!(state.poll(at(8.0)));
    state.renewing(at(8.0));
    assert!(!state.poll(at(8.9)), "each try has its time");
    assert!(state.poll(at(9.0)));
    state.renewing(at(9.0));
    assert_eq!(state.standing(at(9.9)), Standing::Valid);
    assert_eq!(state.standing(at(10.0)), Standing::Doubtful);
    assert!(state.check(at(11.9)).is_ok());
    assert!(matches!(cause(state.check(at(12.0))), Some(Cause::Unreachable { .. })));
    assert!(!state.poll(at(13.0)), "nothing is renewed any more");
}

#[test]
fn a_grant_older_than_a_loss_that_was_read_becomes_no_guard() {
    let mut state = granted();
    let number = state.renewing(at(8.0));
    assert_eq!(state.renewed(number, TTL, Revision(9), at(8.5)), AckEffect::ReadHoldings);
    state.holdings(Revision(9), Revision(9), &[token(1)], at(8.6));
    // A member that was behind reports a grant of revision 5. It may be the one that ended at revision 9, and the
    // acknowledged renewal has moved the local deadline beyond the time for which that grant kept others out.
    assert!(state.granted("other", token(2), Revision(5), at(8.7)).is_err());
    assert!(state.check_grant(token(1), at(8.7)).is_ok(), "other locks are not affected");
    state.granted("other", token(3), Revision(10), at(8.8)).unwrap();
}

#[test]
fn each_try_counts_from_its_own_sending_and_a_late_answer_revives_nothing() {
    let mut state = granted();
    let (first, second) = (state.renewing(at(8.0)), state.renewing(at(9.0)));
    state.renewed(first, TTL, NONE, at(11.0));
    assert_eq!(state.lost_at(), at(20.0).boot);
    // An acknowledgement older than the newest one changes nothing.
    let mut other = granted();
    let (old, new) = (other.renewing(at(8.0)), other.renewing(at(9.0)));
    other.renewed(new, TTL, NONE, at(10.0));
    other.renewed(old, TTL, NONE, at(10.5));
    assert_eq!(other.lost_at(), at(21.0).boot);

    assert!(state.check(at(20.0)).is_err());
    state.renewed(second, TTL, NONE, at(20.1));
    assert!(state.check(at(20.2)).is_err());
}

#[test]
fn a_request_sent_again_counts_from_the_first_time_and_may_come_too_late() {
    let mut asking = PendingGrant::new(LeaseTiming::new(TTL).unwrap());
    asking.sent(at(0.0));
    asking.sent(at(10.0));
    assert_eq!(asking.granted(at(11.0)).unwrap().lost_at(), at(12.0).boot);
    assert!(asking.granted(at(12.0)).is_err());
}

#[test]
fn an_acknowledgement_that_tells_of_a_loss_counts_after_the_holdings_were_read() {
    let mut state = granted();
    state.granted("other", token(2), Revision(2), at(2.0)).unwrap();
    let number = state.renewing(at(8.0));
    assert_eq!(state.renewed(number, TTL, Revision(7), at(8.1)), AckEffect::ReadHoldings);
    assert_eq!(state.lost_at(), at(12.0).boot, "not yet");
    // Granted after the reading, so rightly not in it.
    state.granted("third", token(9), Revision(9), at(8.2)).unwrap();
    state.holdings(Revision(8), Revision(7), &[token(2)], at(8.3));
    assert_eq!(state.lost_at(), at(20.0).boot);
    assert_eq!(cause(state.check_grant(token(1), at(8.4))), Some(Cause::Gone));
    assert_eq!(state.check_grant(token(2), at(8.4)), Ok(()));
    assert_eq!(state.check_grant(token(9), at(8.4)), Ok(()));
}

#[test]
fn nothing_is_said_before_the_work_has_stopped() {
    let mut state = granted();
    state.granted("other", token(2), Revision(2), at(2.0)).unwrap();
    state.taken(token(1), Cause::Forced);
    assert!(state.farewells().is_empty() && !state.is_idle());
    state.stopped(token(1));
    assert_eq!(state.farewells(), [(token(1), "lock".to_owned(), EndMessage::Confirm)]);
    state.stopped(token(2));
    assert_eq!(state.farewells(), [(token(2), "other".to_owned(), EndMessage::Release)]);
    assert!(state.farewells().is_empty() && state.is_idle());
}

#[test]
fn a_lease_that_was_ended_for_its_revocation_takes_no_grant() {
    let mut state = granted();
    assert!(!state.end_if_idle(), "work runs under it");
    assert_eq!(state.check_grant(token(1), at(2.0)), Ok(()));
    state.stopped(token(1));
    assert!(state.end_if_idle());
    let late = state.granted("other", token(2), Revision(2), at(2.0));
    assert_eq!(cause(late), Some(Cause::Released));
}

#[test]
fn the_cause_tells_whose_fault_it_was() {
    let mut stalled = granted();
    assert!(!stalled.poll(at(30.0)));
    assert!(matches!(cause(stalled.check(at(30.0))), Some(Cause::Stalled { .. })));
    let mut asleep = granted();
    assert!(!asleep.poll(slept(30.0, 25.0)));
    assert!(matches!(cause(asleep.check(slept(30.0, 25.0))), Some(Cause::Suspended { .. })));
    let mut refused = granted();
    let number = refused.renewing(at(8.0));
    refused.renewed(number, Duration::ZERO, NONE, at(8.1));
    assert_eq!(
        cause(refused.check(at(8.2))),
        Some(Cause::Gone),
        "the answer does not say who ended it"
    );
}
