//! Tests that the checker notices every kind of violation.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::history::{Acknowledged, Done, History, Holds, Unsure};
use crate::common::watch::{Judged, LeaderPoll, ObservedLease, PolledLeaders};

fn told(asked_us: u64, told_us: u64, revision: u64, done: Done) -> Acknowledged {
    Acknowledged { asked_us, told_us, once: true, revision, done }
}

fn put(value: &str, version: u64) -> Done {
    Done::Put { key: "k".into(), value: value.into(), version }
}

fn granted(lease: u64, place: u64, token: u64) -> Done {
    Done::Granted { lock: "l".into(), lease, place, token }
}

fn released(token: u64) -> Done {
    Done::Released { lock: "l".into(), token }
}

/// Two clients, one key, and a lock that goes from one client to the other and back.
fn good() -> (History, Holds) {
    let queued = Done::Queued { lock: "l".into(), lease: 2, place: 2 };
    let history = History {
        told: vec![
            told(0, 1, 1, Done::Leased { lease: 1 }),
            told(0, 2, 2, Done::Leased { lease: 2 }),
            told(3, 4, 3, put("a", 1)),
            told(5, 6, 4, granted(1, 1, 1)),
            told(7, 8, 5, queued),
            told(9, 12, 6, released(1)),
            told(7, 13, 6, granted(2, 2, 2)),
            told(14, 15, 7, put("b", 2)),
            told(16, 17, 8, released(2)),
            told(18, 19, 9, granted(1, 3, 3)),
        ],
        unsure: Vec::new(),
    };
    let holds = Holds {
        keys: BTreeMap::from([("k".to_owned(), ("b".to_owned(), 2))]),
        locks: BTreeMap::from([("l".to_owned(), (1, 3))]),
        leases: BTreeSet::from([1, 2]),
        revision: 9,
    };
    (history, holds)
}

/// Checks that the checker reports this violation after one change of a correct history.
fn complains(about: &str, change: impl FnOnce(&mut History, &mut Holds)) {
    let (mut history, mut holds) = good();
    change(&mut history, &mut holds);
    let found = history.complaints(&holds);
    assert!(found.iter().any(|complaint| complaint.contains(about)), "{about}: {found:#?}");
}

#[test]
fn a_history_in_which_all_is_well_passes() {
    let (mut history, mut holds) = good();
    assert_eq!(history.complaints(&holds), [""; 0]);
    // A request that was never answered may have happened or not.
    history.unsure.push(Unsure::Put { key: "k".into() });
    let release = Unsure::Release { lock: "l".into(), token: 3, asked_us: 20 };
    history.unsure.push(release);
    assert_eq!(history.complaints(&holds), [""; 0]);
    holds.keys.insert("k".into(), ("c".into(), 3));
    holds.locks.clear();
    assert_eq!(history.complaints(&holds), [""; 0]);
}

#[test]
fn what_was_acknowledged_and_is_gone_is_noticed() {
    complains("lost: key k is absent", |_, holds| holds.keys.clear());
    complains("lost: key k holds a", |_, holds| {
        holds.keys.insert("k".into(), ("a".into(), 1));
    });
    complains("lost: key k holds x", |_, holds| {
        holds.keys.insert("k".into(), ("x".into(), 2));
    });
    complains("lost: lease 2", |_, holds| {
        holds.leases.remove(&2);
    });
    complains("lost: lock l", |_, holds| holds.locks.clear());
    complains("lost: the release of l", |_, holds| {
        holds.locks.insert("l".into(), (2, 2));
    });
    complains("the cluster is at revision 8", |_, holds| holds.revision = 8);
}

#[test]
fn what_was_done_twice_is_noticed() {
    complains("no client wrote after 2", |_, holds| {
        holds.keys.insert("k".into(), ("b".into(), 3));
    });
    complains("version 3 after 1", |history, _| history.told[7].done = put("b", 3));
    complains("one revision for two changes", |history, _| history.told[7].revision = 6);
    complains("revision went back", |history, _| history.told[9].revision = 3);
}

#[test]
fn tokens_that_do_not_grow_are_noticed() {
    complains("token 2 was granted twice", |history, _| history.told[9].done = granted(1, 3, 2));
    complains("token 1 was granted after 3", |history, _| {
        history.told[3].done = granted(1, 1, 3);
        history.told[5].done = released(3);
        history.told[9].done = granted(1, 3, 1);
    });
    complains("which no client got", |history, _| history.told[8].done = released(7));
}

#[test]
fn two_holders_are_noticed() {
    complains("two holders of l: 1 was never released", |history, _| {
        history.told.remove(5);
    });
    complains("two holders of l: 2 before the release of 1", |history, _| {
        history.told[5].asked_us = 14;
        history.told[5].told_us = 15;
    });
    complains("two holders of l: 2 at revision 6, 1 until 7", |history, _| {
        history.told[5].revision = 7;
    });
}

#[test]
fn a_place_that_was_passed_over_is_noticed() {
    complains("queue order: lock l went to token 2 before 3", |history, _| {
        history.told[6].done = granted(2, 9, 2);
    });
    complains("queue order: place 0 was asked for after 2", |history, _| {
        history.told[9].done = granted(1, 0, 3);
    });
}

/// One leader is seen for four seconds, then none for half a second, then another. The clock loses the half second,
/// and 300 ms that were counted but in no entry.
fn judged(renewed_ms: u64, gone_ms: u64) -> Judged {
    let poll = |at_ms: u64| {
        let (term, clock_ms) = if at_ms < 4_000 { (1, at_ms) } else { (2, at_ms - 800) };
        let (asked_us, told_us) = (at_ms * 1_000, at_ms * 1_000 + 100);
        // A revision in every millisecond.
        LeaderPoll { asked_us, told_us, term, clock_ms, revision: at_ms }
    };
    let moments = (0..4_000).step_by(10).chain((4_500..12_000).step_by(10));
    let seen = PolledLeaders::new(moments.map(poll).collect());
    let (asked_us, told_us) = (renewed_ms * 1_000, renewed_ms * 1_000 + 500);
    let lease =
        ObservedLease { lease: 1, asked_us, told_us, gone_us: gone_ms * 1_000, revision: gone_ms };
    seen.judge(&[lease], 3_000)
}

#[test]
fn a_lease_that_ends_too_early_or_too_late_is_noticed() {
    let outcome = |renewed_ms, gone_ms| {
        let judged = judged(renewed_ms, gone_ms);
        (judged.early, judged.late)
    };
    assert_eq!(outcome(500, 3_550), (0, 0), "in time under one leader");
    assert_eq!(outcome(500, 3_450), (1, 0), "before its ttl by any clock");
    assert_eq!(outcome(500, 3_950), (0, 1), "too late under one leader");
    assert_eq!(outcome(2_000, 5_850), (0, 0), "in time, a leader later");
    assert_eq!(outcome(2_000, 5_500), (1, 0), "before its ttl by the machine's clock only");
    assert_eq!(outcome(2_000, 6_800), (0, 0), "a checkpoint later");
    assert_eq!(outcome(2_000, 7_000), (0, 1), "longer than that");
    assert_eq!(judged(2_000, 7_000).leaderless_ms, 510);
}
