//! Tests that the checks pass what the machine does, and catch every promise that is broken on purpose.

use tenure_core::Filter;
use tenure_core::event::{Batch, Cause, Event, TimeLabel, WallClock};
use tenure_types::{LeaseId, PlaceNumber, Revision, Token};

use super::frame::RevisionRange;
use super::tests::Past;
use super::verify::{HandoverKind, Promise, Verifier, VerifyReport};

/// A lock that is handed over in two ways: its holder expires, and its holder gives it back.
fn honest() -> Vec<Batch> {
    let mut past = Past::new();
    past.acquire(1, "deploy");
    past.wait(100);
    past.acquire(2, "deploy");
    past.acquire(3, "deploy");
    past.wait(10_000);
    past.revoke(2);
    past.acquire(4, "other");
    past.machine.events(Revision(1), Filter::All, 1_000).unwrap().batches
}

fn check(batches: &[Batch]) -> VerifyReport {
    let mut verifier = Verifier::default();
    batches.iter().for_each(|batch| verifier.add(batch));
    verifier.finish()
}

/// The place of the first event with this cause.
fn find(batches: &[Batch], cause: Cause) -> (usize, usize) {
    let found = batches.iter().enumerate().find_map(|(at, batch)| {
        let number = batch.events.iter().position(|it| it.cause == cause && it.token.is_some());
        number.map(|number| (at, number))
    });
    found.unwrap_or_else(|| panic!("no {cause:?}"))
}

#[test]
fn what_the_machine_does_keeps_every_promise() {
    let report = check(&honest());
    assert_eq!(report.broken, []);
    let kinds: Vec<_> = report.handovers.iter().map(|(_, it)| it.kind).collect();
    assert_eq!(kinds, [HandoverKind::Expired, HandoverKind::GivenBack]);
    let margin = report.handovers[0].1.margin_ms;
    // Renewed at 0, a ttl of 10 s, ended by the entry at 10.1 s.
    assert_eq!(margin, 100);
}

type Plant = fn(&mut Vec<Batch>);

/// Moves a batch to another time of the cluster's clock.
fn at(batch: &mut Batch, clock_ms: u64) {
    batch.label = Some(TimeLabel { wall: WallClock { unix_ms: 0 }, clock_ms });
}

#[test]
fn every_promise_that_is_broken_on_purpose_is_caught() {
    let planted: [(&str, Promise, Plant); 9] = [
        ("the end of a hold is missing", Promise::OneHolder, |all| {
            let (batch, number) = find(all, Cause::Released);
            all[batch].events.remove(number);
        }),
        ("a second holder of an exclusive lock", Promise::OneHolder, |all| {
            let (batch, number) = find(all, Cause::Granted);
            let mut second = all[batch].events[number].clone();
            second.token = second.token.map(|token| Token::from_u64(token.get() + 100).unwrap());
            second.lease = LeaseId::new(77);
            all[batch].events.push(second);
        }),
        ("granted while it is being revoked", Promise::OneHolder, |all| {
            let (batch, number) = find(all, Cause::Expired);
            let event = &mut all[batch].events[number];
            (event.cause, event.left_ms) = (Cause::Forced, Some(5_000));
        }),
        ("a token that was there before", Promise::TokensGrow, |all| {
            let first = find(all, Cause::Granted);
            let token = all[first.0].events[first.1].token;
            let last = all.iter_mut().rev().flat_map(|it| &mut it.events);
            let mut last = last.filter(|it| it.cause == Cause::Granted);
            last.next().unwrap().token = token;
        }),
        ("a waiter that is overtaken", Promise::FirstCome, |all| {
            let granted = all.iter_mut().flat_map(|it| &mut it.events);
            let mut granted = granted.filter(|it| it.cause == Cause::Granted);
            let second = granted.nth(1).unwrap();
            second.place = second.place.map(|place| PlaceNumber(place.0 + 1));
        }),
        ("a lease that expired before its ttl was over", Promise::NotEarly, |all| {
            let (batch, _) = find(all, Cause::Expired);
            at(&mut all[batch], 9_000);
        }),
        ("a renewal that was forgotten", Promise::NotEarly, |all| {
            let (batch, number) = find(all, Cause::Expired);
            all[batch].events[number].renewed_ms = Some(5_000);
        }),
        ("a revocation that ended early", Promise::NotEarly, |all| take_away(all, 5_000, 7_000)),
        ("a lock-delay that ended early", Promise::NotEarly, |all| {
            let (batch, number) = find(all, Cause::Expired);
            all[batch].events[number].left_ms = Some(3_000);
            let event = all[batch].events[number].clone();
            let over = Event { cause: Cause::DelayOver, left_ms: None, ..event };
            let rest = all[batch].events.split_off(number + 1);
            let mut next = Batch { revision: all[batch].revision, label: None, events: rest };
            next.events.insert(0, over);
            at(&mut next, 11_000);
            all.insert(batch + 1, next);
        }),
    ];
    for (what, promise, plant) in planted {
        let mut batches = honest();
        plant(&mut batches);
        let broken = check(&batches).broken;
        assert!(broken.iter().any(|it| it.promise == promise), "{what}: {broken:?}");
    }
}

/// Turns the expiry into a revocation at one clock whose cooling ends at another, without a reason.
fn take_away(all: &mut Vec<Batch>, forced_ms: u64, cooled_ms: u64) {
    let (batch, number) = find(all, Cause::Expired);
    let deadline_ms = 10_000;
    let event = all[batch].events[number].clone();
    let mut rest = all[batch].events.split_off(number);
    rest[0] = Event {
        cause: Cause::Cooled,
        left_ms: None,
        ttl_ms: None,
        renewed_ms: None,
        ..event.clone()
    };
    let left_ms = Some(deadline_ms - forced_ms);
    all[batch].events.push(Event { cause: Cause::Forced, left_ms, ..event });
    at(&mut all[batch], forced_ms);
    let mut next = Batch { revision: all[batch].revision, label: None, events: rest };
    at(&mut next, cooled_ms);
    all.insert(batch + 1, next);
}

#[test]
fn a_lock_that_was_taken_away_has_a_margin_unless_it_was_taken_at_once() {
    let mut batches = honest();
    take_away(&mut batches, 5_000, 10_001);
    let report = check(&batches);
    assert_eq!(report.broken, []);
    assert_eq!(report.handovers[0].1.kind, HandoverKind::TakenAway);
    assert_eq!(report.handovers[0].1.margin_ms, 1);
    // Without waiting: no promise, so nothing is broken, and it is counted apart.
    let mut batches = honest();
    let (batch, number) = find(&batches, Cause::Expired);
    batches[batch].events[number].cause = Cause::Forced;
    batches[batch].events.retain(|event| event.cause != Cause::Expired);
    at(&mut batches[batch], 5_000);
    let report = check(&batches);
    assert_eq!(report.broken, []);
    assert_eq!(report.handovers[0].1.kind, HandoverKind::Unprotected);
    assert_eq!(report.handovers[0].1.promised_margin_ms(), None);
}

#[test]
fn what_is_missing_is_unknown_and_not_broken() {
    let batches = honest();
    let (granted, _) = find(&batches, Cause::Granted);
    let mut verifier = Verifier::default();
    // The first holder's end is in a hole, and so is a part of the queue.
    for batch in &batches[..=granted] {
        verifier.add(batch);
    }
    let next = batches[batches.len() - 1].revision;
    verifier.skip(RevisionRange { from: batches[granted].revision.next(), next });
    verifier.add(&batches[batches.len() - 1]);
    let report = verifier.finish();
    assert_eq!((report.broken.len(), report.holes.len()), (0, 1));
    // Neither is what came before the archive.
    assert_eq!(check(&batches[batches.len() / 2..]).broken, []);
}
