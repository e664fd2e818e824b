//! Tests that the bytes of entries and snapshots with the rules of level 8 stay as released versions wrote them.

use tenure_core::Machine;
use tenure_core::codec::{decode_request, encode_request, open_entry};
use tenure_core::request::{
    Acquire, Ask, AskLease, AskWait, Asks, Command, LeaseRef, Purpose, Request, RequestId,
};
use tenure_types::{LeaseId, Mode};

use crate::golden::{hex, unhex, write_entry};
use crate::script::play;

#[test]
fn an_entry_with_the_rules_of_level_8_is_read_and_written_as_ever() {
    let bytes = unhex(include_str!("../golden/entry_priority.hex"));
    assert_eq!(hex(&write_entry(&requests())), hex(&bytes));
    let entry = open_entry(&bytes).expect("the entry can be opened");
    let read: Vec<Request<'_>> =
        entry.map(|request| decode_request(request).expect("every request can be read")).collect();
    assert_eq!(read, requests());
}

#[test]
fn a_priority_has_one_form_only() {
    let mut bytes = Vec::new();
    encode_request(&requests()[0], &mut bytes);
    assert_eq!(bytes.pop(), Some(9));
    for (last, good) in [(0, false), (1, true), (9, true), (10, false)] {
        bytes.push(last);
        assert_eq!(decode_request(&bytes).is_ok(), good, "{last}");
        bytes.pop();
    }
}

#[test]
fn a_snapshot_with_the_rules_of_level_8_is_read_and_written_as_ever() {
    let bytes = unhex(include_str!("../golden/snapshot_priority.hex"));
    assert_eq!(hex(&play(STATE).machine.encode()), hex(&bytes));
    let machine = Machine::decode(&bytes).expect("the snapshot can be read");
    assert_eq!(hex(&machine.encode()), hex(&bytes));
    let queue: Vec<(u64, u8)> =
        machine.queue("web", None, 9).iter().map(|it| (it.place.0, it.priority)).collect();
    assert_eq!(queue, [(3, 2), (4, 2), (2, 0)]);
}

/// Waiters with and without a priority, one of them in a group.
const STATE: &str = "
         0s  level 8                                raised
         0s  A lease 60s                            granted
         0s  B lease 60s                            granted
         0s  C lease 60s                            granted
         0s  D lease 60s                            granted
         0s  A lock web                             held token=1
         1s  B lock web                             queued ahead=0
         2s  C lock web priority=2 supersede=main   queued ahead=0
         3s  D lock web priority=2 wait=50s         queued ahead=1
    ";

/// Requests with the new option.
fn requests() -> Vec<Request<'static>> {
    let plain = Acquire {
        lease: AskLease::Existing(LeaseRef::Id(LeaseId::new(1).expect("a lease's number"))),
        locks: Asks::One(Ask { lock: "web", mode: Mode::Exclusive }),
        any: false,
        wait: AskWait::Unlimited,
        metadata: b"",
        lock_delay_ms: 0,
        max_hold_ms: None,
        min_hold_ms: 0,
        supersede: None,
        resume: false,
        progress_within_ms: 0,
        priority: 9,
        purpose: Purpose::Lock,
        independent: false,
    };
    let full = Acquire {
        min_hold_ms: 54_000,
        supersede: Some("main"),
        resume: true,
        progress_within_ms: 0,
        priority: 1,
        purpose: Purpose::Election,
        independent: true,
        ..plain.clone()
    };
    let request = |command| Request { principal: "ann", id: RequestId::None, command };
    vec![request(Command::Acquire(plain)), request(Command::Acquire(full))]
}
