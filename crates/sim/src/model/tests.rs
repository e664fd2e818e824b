//! Tests that the model itself follows the rules.

use tenure_core::StoppedFor;
use tenure_core::event::Cause;
use tenure_core::outcome::{Acquired, Answer, Effects, Notice, Queued};
use tenure_core::request::{
    Acquire, Ask, AskLease, AskWait, Asks, Command, Hold, LeaseRef, NewLease, Purpose, Request,
    RequestId, Urgency,
};
use tenure_types::{
    Epoch, HolderState, LeaseId, Mode, PlaceNumber, Refusal, Revision, Term, Token,
};

use super::{Model, ModelEntry, Verdict};

const X: Mode = Mode::Exclusive;
const S: Mode = Mode::Shared;

/// A model, and the only place where these tests touch its interface.
struct TestModel {
    model: Model,
    term: u64,
    last: Effects,
}

impl TestModel {
    fn new() -> Self {
        let model = Model::new(Epoch::default());
        Self { model, term: 1, last: Effects::default() }
    }

    fn send(&mut self, at_ms: u64, id: RequestId<'_>, command: Command<'_>) -> Verdict {
        let requests = [Some(Request { principal: "", id, command })];
        self.entry(at_ms, &requests);
        self.last.outcomes[0].result.clone()
    }

    fn run(&mut self, at_ms: u64, command: Command<'_>) -> Verdict {
        self.send(at_ms, RequestId::None, command)
    }

    fn pass_time(&mut self, at_ms: u64) {
        self.entry(at_ms, &[]);
    }

    fn entry(&mut self, at_ms: u64, requests: &[Option<Request<'_>>]) {
        let term = Term(self.term);
        let entry = ModelEntry { term, count_ms: at_ms, wall: None, requests };
        self.last = self.model.apply(term, Some(entry), &|_| None);
    }

    fn lease(&mut self, at_ms: u64, number: u64, ttl_ms: u64) -> Revision {
        let client = format!("client-{number}");
        let new = NewLease { id: id(number), ttl_ms, client: &client, metadata: b"" };
        match self.run(at_ms, Command::GrantLease(new)) {
            Ok(Answer::LeaseGranted(lease)) => lease.created,
            other => panic!("lease {number}: {other:?}"),
        }
    }

    fn ask(&mut self, at_ms: u64, lease: u64, locks: &[(&str, Mode)]) -> Verdict {
        self.run(at_ms, Command::Acquire(ask(lease, locks)))
    }

    fn held(&mut self, at_ms: u64, lease: u64, locks: &[(&str, Mode)]) -> Acquired {
        match self.ask(at_ms, lease, locks) {
            Ok(Answer::Acquired(acquired)) => acquired,
            other => panic!("{locks:?}: {other:?}"),
        }
    }

    fn queued(&mut self, at_ms: u64, lease: u64, locks: &[(&str, Mode)]) -> Queued {
        match self.ask(at_ms, lease, locks) {
            Ok(Answer::Queued(queued)) => queued,
            other => panic!("{locks:?}: {other:?}"),
        }
    }

    fn release(&mut self, at_ms: u64, lease: u64, lock: &str, counter: u64) -> Verdict {
        self.run(at_ms, Command::Release(Hold { lease: by(lease), lock, token: token(counter) }))
    }

    /// The places granted by the last entry.
    fn granted(&self) -> Vec<u64> {
        let granted = self.last.notices.iter().filter_map(|notice| match notice {
            Notice::Granted { place, .. } => Some(place.0),
            _ => None,
        });
        granted.collect()
    }

    /// The causes of the newest revision.
    fn causes(&self) -> Vec<Cause> {
        let newest = self.model.history().last().expect("something happened");
        newest.events.iter().map(|event| event.cause).collect()
    }

    /// The states of a lock's grants.
    fn states(&self, lock: &str) -> Vec<(u64, HolderState)> {
        let locks = self.model.locks();
        let Some(found) = locks.iter().find(|view| &*view.lock == lock) else { return Vec::new() };
        found.holders.iter().map(|holder| (holder.lease.get(), holder.state)).collect()
    }
}

fn id(number: u64) -> LeaseId {
    LeaseId::new(number).unwrap()
}

fn by(number: u64) -> LeaseRef {
    LeaseRef::Id(id(number))
}

fn token(counter: u64) -> Token {
    Token::new(Epoch::default(), counter).unwrap()
}

fn ask<'a>(lease: u64, locks: &[(&'a str, Mode)]) -> Acquire<'a> {
    Acquire {
        lease: AskLease::Existing(by(lease)),
        locks: Asks::Many(locks.iter().map(|&(lock, mode)| Ask { lock, mode }).collect()),
        any: false,
        wait: AskWait::Unlimited,
        metadata: b"",
        lock_delay_ms: 0,
        max_hold_ms: None,
        min_hold_ms: 0,
        progress_within_ms: 0,
        supersede: None,
        resume: false,
        priority: 0,
        purpose: Purpose::Lock,
        independent: false,
    }
}

#[test]
fn a_released_lock_goes_to_the_first_in_the_queue() {
    let mut cluster = TestModel::new();
    for lease in 1..=3 {
        cluster.lease(0, lease, 60_000);
    }
    assert_eq!(cluster.held(1, 1, &[("deploy", X)]).grants.as_slice()[0].token, token(1));
    assert_eq!(cluster.queued(2, 2, &[("deploy", X)]).ahead, 0);
    assert_eq!(cluster.queued(3, 3, &[("deploy", X)]).ahead, 1);
    assert_eq!(cluster.release(4, 1, "deploy", 1), Ok(Answer::Released));
    assert_eq!(cluster.granted(), [2]);
    assert_eq!(cluster.causes(), [Cause::Released, Cause::Granted]);
    assert_eq!(cluster.states("deploy"), [(2, HolderState::Held)]);
    assert!(matches!(cluster.release(5, 1, "deploy", 1), Err(Refusal::NotHolder { .. })));
}

#[test]
fn expiry_removes_the_places_of_a_lease_before_its_grants() {
    let mut cluster = TestModel::new();
    cluster.lease(0, 1, 10_000);
    cluster.lease(0, 2, 60_000);
    cluster.held(1, 1, &[("a", X)]);
    cluster.held(1, 2, &[("b", X)]);
    let mut alone = ask(1, &[("b", X)]);
    alone.independent = true;
    assert!(matches!(cluster.run(2, Command::Acquire(alone)), Ok(Answer::Queued(_))));
    cluster.queued(3, 2, &[("a", X)]);
    assert_eq!(cluster.model.next_due_ms(), Some(10_000));
    cluster.pass_time(10_000);
    let expected = [Cause::Expired, Cause::Expired, Cause::Expired, Cause::Granted];
    assert_eq!(cluster.causes(), expected);
    let batch = cluster.model.history().last().unwrap();
    assert_eq!(batch.events[0].place, Some(PlaceNumber(3)), "the place goes first");
    assert_eq!(batch.events[1].token, Some(token(1)), "then the grant");
    assert_eq!(cluster.states("a"), [(2, HolderState::Held)]);
    assert!(matches!(cluster.last.notices[0], Notice::Lost { cause: Some(Cause::Expired), .. }));
    assert!(matches!(cluster.last.notices[1], Notice::LeaseEnded { .. }));
}

#[test]
fn readers_come_in_together_and_the_writer_after_them() {
    let mut cluster = TestModel::new();
    for lease in 1..=4 {
        cluster.lease(0, lease, 60_000);
    }
    cluster.held(1, 1, &[("file", X)]);
    cluster.queued(1, 2, &[("file", S)]);
    cluster.queued(1, 3, &[("file", S)]);
    cluster.queued(1, 4, &[("file", X)]);
    cluster.release(2, 1, "file", 1).unwrap();
    assert_eq!(cluster.granted(), [2, 3]);
    cluster.release(3, 2, "file", 2).unwrap();
    assert_eq!(cluster.granted(), [0_u64; 0]);
    cluster.release(4, 3, "file", 3).unwrap();
    assert_eq!(cluster.granted(), [4]);
}

#[test]
fn a_semaphore_gives_its_lowest_free_slot() {
    let mut cluster = TestModel::new();
    let slot = Mode::slot(2);
    for lease in 1..=3 {
        cluster.lease(0, lease, 60_000);
    }
    assert_eq!(cluster.held(1, 1, &[("pool", slot)]).grants.as_slice()[0].slot, Some(0));
    assert_eq!(cluster.held(1, 2, &[("pool", slot)]).grants.as_slice()[0].slot, Some(1));
    cluster.queued(1, 3, &[("pool", slot)]);
    cluster.release(2, 1, "pool", 1).unwrap();
    assert_eq!(cluster.granted(), [3]);
    let locks = cluster.model.locks();
    let slots: Vec<_> = locks[0].holders.iter().map(|it| (it.lease.get(), it.slot)).collect();
    assert_eq!(slots, [(3, Some(0)), (2, Some(1))]);
    let refused = cluster.ask(3, 1, &[("pool", Mode::slot(3))]);
    assert!(matches!(refused, Err(Refusal::OtherKind { slots: Some(2), .. })));
}

#[test]
fn several_locks_are_granted_all_or_none() {
    let mut cluster = TestModel::new();
    for lease in 1..=3 {
        cluster.lease(0, lease, 60_000);
    }
    cluster.held(1, 1, &[("b", X)]);
    cluster.queued(1, 2, &[("b", X), ("a", X)]);
    assert!(cluster.states("a").is_empty(), "a free lock waits with the others of its ask");
    cluster.queued(1, 3, &[("a", X)]);
    cluster.release(2, 1, "b", 1).unwrap();
    assert_eq!(cluster.granted(), [2]);
    assert_eq!(cluster.states("a"), [(2, HolderState::Held)]);
    assert_eq!(cluster.states("b"), [(2, HolderState::Held)]);
    let overlap = cluster.ask(3, 2, &[("a", X)]);
    assert!(matches!(overlap, Err(Refusal::Overlap { .. })));
    assert_eq!(cluster.held(3, 2, &[("a", X), ("b", X)]).place, PlaceNumber(2));
}

#[test]
fn a_wait_that_closes_a_ring_is_refused_with_the_ring() {
    let mut cluster = TestModel::new();
    for lease in 1..=3 {
        cluster.lease(0, lease, 60_000);
    }
    cluster.held(1, 1, &[("a", X)]);
    cluster.held(1, 2, &[("b", X)]);
    cluster.held(1, 3, &[("c", X)]);
    cluster.queued(2, 1, &[("b", X)]);
    cluster.queued(2, 2, &[("c", X)]);
    let revision = cluster.model.revision();
    let Err(Refusal::Deadlock { ring }) = cluster.ask(3, 3, &[("a", X)]) else {
        panic!("a ring of three")
    };
    let ring: Vec<_> = ring.iter().map(|link| (link.lease.get(), &*link.lock)).collect();
    assert_eq!(ring, [(3, "a"), (1, "b"), (2, "c")]);
    assert_eq!(cluster.model.revision(), revision);
    assert!(cluster.model.queue("a").is_empty());
    let mut alone = ask(3, &[("a", X)]);
    alone.independent = true;
    let Ok(Answer::Queued(queued)) = cluster.run(4, Command::Acquire(alone)) else {
        panic!("an independent wait closes no ring")
    };
    assert_eq!(queued.place, PlaceNumber(6), "the refused ask used no number up");
}

#[test]
fn a_forced_lock_cools_until_its_holder_has_stopped() {
    let mut cluster = TestModel::new();
    let created = cluster.lease(0, 1, 10_000);
    cluster.lease(0, 2, 60_000);
    let mut election = ask(1, &[("leader", X)]);
    election.purpose = Purpose::Election;
    cluster.run(1, Command::Acquire(election)).unwrap();
    cluster.queued(2, 2, &[("leader", X)]);
    let force = |urgency| Command::Force {
        lock: "leader",
        token: token(1),
        by: "ops",
        reason: "",
        urgency,
    };
    let answer = cluster.run(4_000, force(Urgency::Cooling));
    assert_eq!(answer, Ok(Answer::Forced { left_ms: 6_000 }));
    assert_eq!(cluster.causes(), [Cause::Forced, Cause::Vacant]);
    assert_eq!(cluster.model.leases()[0].changed, cluster.model.revision());
    assert!(cluster.model.leases()[0].holds.is_empty());
    let again = cluster.run(5_000, force(Urgency::Cooling));
    assert_eq!(again, Ok(Answer::Forced { left_ms: 5_000 }));
    let stopped =
        |created| Command::Stopped { lease: id(1), created, lock: "leader", token: token(1) };
    let wrong = cluster.run(5_000, stopped(created.next()));
    assert!(matches!(wrong, Err(Refusal::NotCooling { .. })));
    assert_eq!(cluster.run(5_000, stopped(created)), Ok(Answer::Stopped));
    assert_eq!(cluster.causes(), [Cause::Cooled, Cause::Granted]);
    assert_eq!(cluster.states("leader"), [(2, HolderState::Held)]);
}

#[test]
fn a_lock_delay_keeps_others_out_after_an_expiry() {
    let mut cluster = TestModel::new();
    cluster.lease(0, 1, 10_000);
    cluster.lease(0, 2, 60_000);
    let mut delayed = ask(1, &[("disk", X)]);
    delayed.lock_delay_ms = 3_000;
    cluster.run(0, Command::Acquire(delayed)).unwrap();
    cluster.queued(0, 2, &[("disk", X)]);
    cluster.pass_time(11_000);
    assert_eq!(cluster.model.history().last().unwrap().events[0].left_ms, Some(3_000));
    assert_eq!(cluster.states("disk"), [(1, HolderState::Delayed { left_ms: 3_000 })]);
    assert_eq!(cluster.model.next_due_ms(), Some(14_000));
    cluster.pass_time(13_999);
    assert!(cluster.granted().is_empty());
    cluster.pass_time(14_000);
    assert_eq!(cluster.causes(), [Cause::DelayOver, Cause::Granted]);
    assert_eq!(cluster.states("disk"), [(2, HolderState::Held)]);
}

#[test]
fn a_max_hold_takes_the_lock_away_one_ttl_early() {
    let mut cluster = TestModel::new();
    cluster.lease(0, 1, 10_000);
    let mut short = ask(1, &[("disk", X)]);
    short.max_hold_ms = Some(10_000);
    let refused = cluster.run(0, Command::Acquire(short.clone()));
    assert_eq!(refused, Err(Refusal::MaxHoldTooShort { ttl_ms: 10_000 }));
    short.max_hold_ms = Some(15_000);
    cluster.run(0, Command::Acquire(short)).unwrap();
    assert_eq!(cluster.model.next_due_ms(), Some(5_000));
    cluster.run(4_000, Command::Renew(vec![by(1)])).unwrap();
    cluster.pass_time(5_000);
    assert_eq!(cluster.causes(), [Cause::MaxHold]);
    assert_eq!(cluster.states("disk"), [(1, HolderState::Cooling { left_ms: 9_000 })]);
}

#[test]
fn a_repeated_request_gets_the_present_standing() {
    let mut cluster = TestModel::new();
    cluster.lease(0, 1, 60_000);
    cluster.lease(0, 2, 60_000);
    cluster.held(1, 1, &[("a", X)]);
    let seq = |seq, done| RequestId::Seq { lease: by(2), seq, done };
    let request = || Command::Acquire(ask(2, &[("a", X)]));
    let weight = cluster.model.state_bytes();
    assert!(matches!(cluster.send(2, seq(1, 0), request()), Ok(Answer::Queued(_))));
    assert_eq!(cluster.model.state_bytes(), weight + 64 + 32 + 96);
    let revision = cluster.model.revision();
    assert!(matches!(cluster.send(3, seq(1, 0), request()), Ok(Answer::Queued(_))));
    assert_eq!(cluster.model.revision(), revision, "a repetition changes nothing");
    cluster.release(4, 1, "a", 1).unwrap();
    assert!(matches!(cluster.send(5, seq(1, 0), request()), Ok(Answer::Acquired(_))));
    cluster.release(6, 2, "a", 2).unwrap();
    assert_eq!(cluster.send(7, seq(1, 0), request()), Ok(Answer::Ended));
    let other = Command::Acquire(ask(2, &[("b", X)]));
    assert_eq!(cluster.send(8, seq(1, 0), other), Err(Refusal::RequestConflict));
    assert_eq!(cluster.send(9, seq(1, 1), request()), Err(Refusal::RequestStale));
    let far = cluster.send(9, seq(258, 1), request());
    assert_eq!(far, Err(Refusal::RequestWindow { window: 256 }));
}

#[test]
fn after_a_restore_nothing_is_granted_until_unknown_leases_would_have_ended() {
    let mut cluster = TestModel::new();
    cluster.lease(0, 1, 10_000);
    cluster.held(5_000, 1, &[("a", X)]);
    let epoch = Epoch::new(1).unwrap();
    assert!(!cluster.model.restore(Epoch::default(), StoppedFor::ForMs(0)));
    assert!(cluster.model.restore(epoch, StoppedFor::ForMs(3_650_000)));
    assert!(cluster.model.locks().is_empty());
    assert!(cluster.model.leases().is_empty());
    assert_eq!(cluster.model.floor(), cluster.model.revision().next());
    assert_eq!(cluster.model.next_due_ms(), Some(15_000));
    // The new leader counts from zero; the clock continues from where the backup had it.
    cluster.lease(0, 2, 60_000);
    let mut hasty = ask(2, &[("a", X)]);
    hasty.wait = AskWait::No;
    let refused = cluster.run(1_000, Command::Acquire(hasty));
    assert_eq!(refused, Err(Refusal::Quiet { left_ms: 9_000 }));
    cluster.queued(2_000, 2, &[("a", X)]);
    cluster.pass_time(9_999);
    assert!(cluster.granted().is_empty());
    cluster.pass_time(10_000);
    assert_eq!(cluster.granted(), [2]);
    assert_eq!(cluster.model.locks()[0].holders[0].token, Token::new(epoch, 1).unwrap());
}
