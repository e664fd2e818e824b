//! Tests that the bytes of entries and snapshots with several slots for one request, and with sizes set by an operator,
//! stay as released versions wrote them.

use tenure_core::Machine;
use tenure_core::codec::{decode_request, encode_request, open_entry};
use tenure_core::request::{
    Acquire, Ask, AskLease, AskWait, Asks, Command, LeaseRef, Purpose, Request, RequestId,
};
use tenure_types::{LeaseId, Mode};

use crate::golden::{hex, unhex, write_entry};
use crate::script::play;

#[test]
fn an_entry_with_shares_and_sizes_is_read_and_written_as_ever() {
    let bytes = unhex(include_str!("../golden/entry_shares.hex"));
    assert_eq!(hex(&write_entry(&requests())), hex(&bytes));
    let entry = open_entry(&bytes).expect("the entry can be opened");
    let read: Vec<Request<'_>> =
        entry.map(|request| decode_request(request).expect("every request can be read")).collect();
    assert_eq!(read, requests());
}

#[test]
fn a_request_for_one_slot_has_one_form_only() {
    let mut bytes = Vec::new();
    encode_request(&requests()[0], &mut bytes);
    let take = bytes.iter().rposition(|byte| *byte == 7).expect("seven slots");
    for (number, good) in [(0, false), (1, false), (2, true)] {
        bytes[take] = number;
        assert_eq!(decode_request(&bytes).is_ok(), good, "{number}");
    }
}

#[test]
fn a_snapshot_with_shares_and_sizes_is_read_and_written_as_ever() {
    let bytes = unhex(include_str!("../golden/snapshot_shares.hex"));
    assert_eq!(hex(&play(STATE).machine.encode()), hex(&bytes));
    let machine = Machine::decode(&bytes).expect("the snapshot can be read");
    assert_eq!(hex(&machine.encode()), hex(&bytes));
    let pool = machine.lock("pool").expect("a lock");
    assert_eq!((pool.slots, pool.sized, pool.holders.len()), (Some(3), true, 4));
    let first = &machine.queue("pool", None, 1)[0];
    assert_eq!(first.mode, Mode::Slot { of: 3, take: 2 });
    let idle = machine.lock("idle").expect("a lock");
    assert_eq!((idle.slots, idle.sized, idle.holders.len()), (Some(65), true, 0));
}

/// A semaphore that was made smaller than what is held of it, with a waiter; one that is not used; and one whose size
/// was not set.
const STATE: &str = "
         0s  level 11                    raised
         0s  A lease 60s                 granted
         0s  B lease 60s                 granted
         0s  A lock pool slots=4of5      held pool token=1 slot=0, pool token=2 slot=1, \
             pool token=3 slot=2, pool token=4 slot=3
         1s  B lock pool slots=2of5      queued ahead=0
         1s  resize pool 3 by=ops        resized
         2s  resize idle 65              resized
         3s  B lock plain slots=2of2     held plain token=5 slot=0, plain token=6 slot=1
    ";

/// Requests for several slots, and the new command.
fn requests() -> Vec<Request<'static>> {
    let one = Acquire {
        lease: AskLease::Existing(LeaseRef::Id(LeaseId::new(1).expect("a lease's number"))),
        locks: Asks::One(Ask { lock: "pool", mode: Mode::Slot { of: 300, take: 7 } }),
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
    };
    let two = Acquire {
        locks: Asks::Many(vec![
            Ask { lock: "gpu", mode: Mode::Slot { of: 8, take: 8 } },
            Ask { lock: "pool", mode: Mode::slot(300) },
        ]),
        ..one.clone()
    };
    let request = |command| Request { principal: "ann", id: RequestId::None, command };
    vec![
        request(Command::Acquire(one)),
        request(Command::Acquire(two)),
        request(Command::Resize { lock: "pool", slots: Some(300), by: "ops" }),
        request(Command::Resize { lock: "pool", slots: None, by: "" }),
    ]
}
