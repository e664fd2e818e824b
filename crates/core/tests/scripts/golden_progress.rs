//! Tests that the bytes of entries and snapshots with the rules of level 9 stay as released versions wrote them.

use tenure_core::Machine;
use tenure_core::codec::{decode_request, encode_request, open_entry};
use tenure_core::request::{
    Acquire, Ask, AskLease, AskWait, Asks, Command, Hold, LeaseRef, Purpose, Request, RequestId,
};
use tenure_types::{Epoch, LeaseId, Mode, Token};

use crate::golden::{hex, unhex, write_entry};
use crate::script::play;

#[test]
fn an_entry_with_the_rules_of_level_9_is_read_and_written_as_ever() {
    let bytes = unhex(include_str!("../golden/entry_progress.hex"));
    assert_eq!(hex(&write_entry(&requests())), hex(&bytes));
    let entry = open_entry(&bytes).expect("the entry can be opened");
    let read: Vec<Request<'_>> =
        entry.map(|request| decode_request(request).expect("every request can be read")).collect();
    assert_eq!(read, requests());
}

#[test]
fn a_promise_of_progress_has_one_form_only() {
    let mut bytes = Vec::new();
    encode_request(&requests()[0], &mut bytes);
    assert_eq!(bytes.pop(), Some(100));
    for (last, good) in [(0, false), (1, true)] {
        bytes.push(last);
        assert_eq!(decode_request(&bytes).is_ok(), good, "{last}");
        bytes.pop();
    }
}

#[test]
fn a_snapshot_with_the_rules_of_level_9_is_read_and_written_as_ever() {
    let bytes = unhex(include_str!("../golden/snapshot_progress.hex"));
    assert_eq!(hex(&play(STATE).machine.encode()), hex(&bytes));
    let machine = Machine::decode(&bytes).expect("the snapshot can be read");
    assert_eq!(hex(&machine.encode()), hex(&bytes));
    let copy = machine.lock("copy").expect("a lock").holders[0].progress.expect("a promise");
    assert_eq!((copy.number, copy.within_ms, copy.left_ms), (7, 30_000, 29_001));
    let fresh = machine.lock("fresh").expect("a lock").holders[0].progress.expect("a promise");
    assert_eq!((fresh.number, fresh.still_ms, fresh.left_ms), (0, 1_000, 9_001));
}

/// A hold with a report, one without, one that lost its lock, and a waiter that promises.
const STATE: &str = "
         0s  level 9                             raised
         0s  A lease 60s                         granted
         0s  B lease 60s                         granted
         0s  A lock slow progress=1s             held token=1
         1s  A lock copy progress=30s min=10s    held token=2
         2s  A progress copy 7                   noted, due in 30001ms; A lost slow, no_progress
         2s  A lock fresh progress=10s           held token=3
         3s  B lock copy progress=5s             queued ahead=0
    ";

/// Requests with the new option, and the new command.
fn requests() -> Vec<Request<'static>> {
    let plain = Acquire {
        lease: AskLease::Existing(LeaseRef::Id(LeaseId::new(1).expect("a lease's number"))),
        locks: Asks::One(Ask { lock: "copy", mode: Mode::Exclusive }),
        any: false,
        wait: AskWait::Unlimited,
        metadata: b"",
        lock_delay_ms: 0,
        max_hold_ms: None,
        min_hold_ms: 0,
        progress_within_ms: 100,
        supersede: None,
        resume: false,
        priority: 0,
        purpose: Purpose::Lock,
        independent: false,
    };
    let full = Acquire {
        min_hold_ms: 54_000,
        progress_within_ms: 300_000,
        supersede: Some("main"),
        resume: true,
        priority: 1,
        purpose: Purpose::Election,
        independent: true,
        ..plain.clone()
    };
    let hold = Hold {
        lease: LeaseRef::Id(LeaseId::new(1).expect("a lease's number")),
        lock: "copy",
        token: Token::new(Epoch::default(), 2).expect("a token"),
    };
    let request = |command| Request { principal: "ann", id: RequestId::None, command };
    vec![
        request(Command::Acquire(plain)),
        request(Command::Acquire(full)),
        request(Command::Progress { hold, number: 7 }),
    ]
}
