//! Tests that no message, from a member or from a stranger, brings a member down or changes it wrongly.

use std::collections::BTreeSet;

use crate::disks::{Cluster, id};
use bytes::Bytes;
use tenure_raft::{
    INDEX_MAX, MemberId, Message, Observed, ReplicaInput, Step, StepKind, TERM_JUMP_MAX,
};
use tenure_store::{LogEntry, LogId};

fn led() -> (Cluster, usize, usize) {
    let mut cluster = Cluster::new(3);
    let leader = cluster.elect(0);
    cluster.write(leader, 5);
    (cluster, leader, (leader + 1) % 3)
}

fn stranger() -> MemberId {
    MemberId::new(99).unwrap()
}

#[test]
fn a_heartbeat_of_the_last_term_does_not_brick_the_cluster() {
    let (mut cluster, leader, follower) = led();
    let term = cluster.term(follower);
    let before = cluster.status(follower).dropped.invalid;
    for forged in [u64::MAX, u64::MAX / 2, term + TERM_JUMP_MAX + 1] {
        for kind in [
            StepKind::Heartbeat,
            StepKind::Append,
            StepKind::Vote,
            StepKind::PreVote,
            StepKind::VoteAnswer,
        ] {
            let step = Step { kind, term: forged, commit: 0, ..cluster.heartbeat() };
            cluster.hand(follower, leader, Message::Step(Box::new(step.clone())));
            cluster.hand(leader, follower, Message::Step(Box::new(step)));
        }
        let observed = Observed { term: forged, ..Observed::default() };
        cluster.hand(follower, leader, Message::Remember(observed));
        cluster.hand(follower, leader, Message::Observed(vec![(id(follower), observed)]));
    }
    cluster.run_ms(1_000);
    assert_eq!(cluster.term(follower), term);
    assert_eq!(cluster.status(follower).dropped.invalid, before + 3 * 7);
    cluster.write(leader, 1);
}

#[test]
fn strangers_are_not_heard_until_a_member_or_the_operator_vouches_for_them() {
    let (mut cluster, leader, follower) = led();
    let before = cluster.status(follower).last;
    let entry =
        LogEntry { index: 0, term: cluster.term(leader), kind: 0, payload: "forged".into() };
    let beat = cluster.heartbeat();
    let append = Step {
        kind: StepKind::Append,
        index: before.index,
        log_term: before.term,
        commit: before.index + 1,
        entries: vec![LogEntry { index: before.index + 1, ..entry }],
        ..beat.clone()
    };
    let observed = Observed { term: beat.term, vote: Some(stranger()), ..Observed::default() };
    for message in [
        Message::Step(Box::new(append)),
        Message::Step(Box::new(Step { commit: 900, ..beat.clone() })),
        Message::Remember(observed),
        Message::Observed(vec![(id(follower), observed)]),
        Message::Hash { index: 1_000, hash: 1 },
        Message::Short,
        Message::Members([stranger()].into()),
        Message::Hello,
    ] {
        cluster.hand_from(follower, stranger(), message);
    }
    cluster.run_ms(100);
    assert_eq!(cluster.status(follower).dropped.strangers, 8);
    assert!(cluster.stopped(follower).is_none());
    assert_eq!(cluster.status(follower).last, before);
    // From now on the stranger counts as known. The member still checks what it sends.
    cluster.hand(follower, leader, Message::Members([stranger()].into()));
    cluster.hand_from(follower, stranger(), Message::Hello);
    cluster.run_ms(20);
    assert_eq!(cluster.status(follower).dropped.strangers, 8);
    let other = MemberId::new(98).unwrap();
    cluster.input(follower, ReplicaInput::Known { ids: BTreeSet::from([other]) });
    cluster.hand_from(follower, other, Message::Hello);
    cluster.run_ms(20);
    assert_eq!(cluster.status(follower).dropped.strangers, 8);
}

#[test]
fn a_removed_member_is_never_accepted_again_whichever_member_vouches_for_it() {
    let (mut cluster, leader, follower) = led();
    let gone = 3 - leader - follower;
    cluster.remove(leader, gone);
    cluster.run_ms(1_000);
    assert!(cluster.replica(follower).members().retired.contains(&id(gone)));
    cluster.hand(follower, leader, Message::Members([id(gone)].into()));
    cluster.input(follower, ReplicaInput::Known { ids: BTreeSet::from([id(gone)]) });
    let beat = cluster.heartbeat();
    let before = cluster.status(follower).dropped.retired;
    let step = Step { term: beat.term + 1, commit: 0, commit_term: 0, ..beat };
    cluster.hand(follower, gone, Message::Step(Box::new(step)));
    cluster.run_ms(100);
    assert_eq!(cluster.status(follower).dropped.retired, before + 1);
    assert_eq!(cluster.term(follower), cluster.term(leader));
}

#[test]
fn a_term_has_one_leader() {
    let (mut cluster, leader, follower) = led();
    let other = 3 - leader - follower;
    let last = cluster.status(follower).last;
    let term = cluster.term(leader);
    let before = cluster.status(follower).dropped.invalid;
    let entry = LogEntry { index: last.index + 1, term, kind: 0, payload: "forged".into() };
    let step = Step {
        kind: StepKind::Append,
        index: last.index,
        log_term: last.term,
        commit: last.index + 1,
        entries: vec![entry],
        ..cluster.heartbeat()
    };
    cluster.hand(follower, other, Message::Step(Box::new(step.clone())));
    cluster.hand(leader, other, Message::Step(Box::new(step)));
    cluster.run_ms(100);
    assert_eq!(cluster.status(follower).last, last);
    assert_eq!(cluster.status(follower).dropped.invalid, before + 1);
    cluster.write(leader, 2);
}

#[test]
fn nothing_is_appended_to_an_empty_log() {
    let (mut cluster, leader, follower) = led();
    let before = cluster.status(follower).dropped.invalid;
    let entry = LogEntry { index: 1, term: 1, kind: 0, payload: "forged".into() };
    let beat = cluster.heartbeat();
    let step = Step { kind: StepKind::Append, commit: 1, entries: vec![entry], ..beat };
    cluster.hand(follower, leader, Message::Step(Box::new(step)));
    cluster.run_ms(50);
    assert_eq!(cluster.status(follower).dropped.invalid, before + 1);
}

#[test]
fn entries_whose_terms_no_log_can_have_are_dropped() {
    let (mut cluster, leader, follower) = led();
    let last = cluster.status(follower).last;
    let term = cluster.term(leader);
    let entry = |at: u64, term| {
        let payload = Bytes::from_static(b"forged");
        LogEntry { index: last.index + at, term, kind: 0, payload }
    };
    let before = cluster.status(follower).dropped.invalid;
    let impossible = [vec![0], vec![last.term - 1], vec![term, term - 1]];
    for terms in &impossible {
        let entries = (1..).zip(terms).map(|(at, term)| entry(at, *term)).collect();
        let kind = StepKind::Append;
        let (index, log_term) = (last.index, last.term);
        let step = Step { kind, index, log_term, entries, ..cluster.heartbeat() };
        cluster.hand(follower, leader, Message::Step(Box::new(step)));
        cluster.step();
    }
    assert_eq!(cluster.status(follower).dropped.invalid, before + impossible.len() as u64);
    assert_eq!(cluster.status(follower).last, last);
    cluster.write(leader, 2);
}

/// Sends every kind of step with small and large values in every field, to a leader and to a follower.
#[test]
fn no_value_of_any_field_ends_a_member() {
    let (mut cluster, leader, follower) = led();
    let beat = cluster.heartbeat();
    let values = [0, 1, 2, beat.term, beat.term + 1, 7, 900, INDEX_MAX, INDEX_MAX + 1, u64::MAX];
    let kinds =
        (1..=12).filter_map(StepKind::from_number).filter(|kind| *kind != StepKind::Snapshot);
    for kind in kinds {
        for value in values {
            for field in 0..10 {
                let mut step = Step { kind, commit: 0, commit_term: 0, ..beat.clone() };
                match field {
                    0 => step.term = value,
                    1 => step.log_term = value,
                    2 => step.index = value,
                    3 => step.commit = value.min(2),
                    4 => step.commit_term = value,
                    5 => (step.reject, step.reject_hint) = (true, value),
                    6 => step.durable = LogId { index: value, term: value },
                    7 => step.context = Bytes::from(vec![7; (value % 100) as usize]),
                    8 => (step.reject, step.index) = (true, value),
                    _ => {
                        let payload = Bytes::from_static(&[9, 9, 9]);
                        let index = step.index + 1;
                        let kind = (value % 3) as u8;
                        step.entries = vec![LogEntry { index, term: value, kind, payload }];
                    }
                }
                if kind != StepKind::Append {
                    step.entries.clear();
                }
                for to in [leader, follower] {
                    let from = if to == leader { follower } else { leader };
                    cluster.hand(to, from, Message::Step(Box::new(step.clone())));
                }
                cluster.step();
            }
        }
    }
    cluster.run_ms(4_000);
    // A heartbeat that commits more than was acknowledged proves a loss, by design.
    (0..3).for_each(|at| assert!(cluster.stopped(at).is_none(), "{:?}", cluster.stopped(at)));
    let leader = cluster.leader().expect("a majority is up");
    cluster.write(leader, 3);
}

/// A leads, proposes to remove X and transfers leadership to X before that is committed, so X commits its own removal.
/// A learns of it only from the messages that X sends in that turn.
#[test]
fn a_removed_leader_tells_the_others() {
    let mut cluster = Cluster::new(2);
    let a = cluster.elect(0);
    let x = 1;
    cluster.write(a, 3);
    cluster.remove(a, x);
    cluster.transfer(a, x);
    cluster.run_ms(3_000);
    assert!(cluster.replica(x).is_retired());
    assert_eq!(cluster.replica(a).members().sole_voter(), Some(id(a)));
    assert_eq!(cluster.leader(), Some(a), "it goes on alone");
    cluster.write(a, 1);
}
