//! Tests that the bytes of entries and snapshots with requests for any of several locks, and for pools, stay as
//! released versions wrote them.

use tenure_core::Machine;
use tenure_core::codec::{decode_request, open_entry};
use tenure_core::request::{
    Acquire, Ask, AskLease, AskWait, Asks, Command, LeaseRef, Purpose, Request, RequestId,
};
use tenure_types::{LeaseId, Mode};

use crate::golden::{hex, unhex, write_entry};
use crate::script::play;

#[test]
fn an_entry_with_choices_is_read_and_written_as_ever() {
    let bytes = unhex(include_str!("../golden/entry_any.hex"));
    assert_eq!(hex(&write_entry(&requests())), hex(&bytes));
    let entry = open_entry(&bytes).expect("the entry can be opened");
    let read: Vec<Request<'_>> =
        entry.map(|request| decode_request(request).expect("every request can be read")).collect();
    assert_eq!(read, requests());
}

#[test]
fn a_snapshot_with_choices_is_read_and_written_as_ever() {
    let bytes = unhex(include_str!("../golden/snapshot_any.hex"));
    assert_eq!(hex(&play(STATE).machine.encode()), hex(&bytes));
    let machine = Machine::decode(&bytes).expect("the snapshot can be read");
    assert_eq!(hex(&machine.encode()), hex(&bytes));
    let first = &machine.queue("a", None, 1)[0];
    assert!(first.any && first.pool.is_none());
    let first = &machine.queue("gpu/a", None, 1)[0];
    assert_eq!(first.pool.as_deref(), Some("gpu/"));
}

/// A request for any of two locks, and two for a pool, of which one came before a slot was added and has a group.
const STATE: &str = "
         0s  level 13                               raised
         0s  A lease 60s                            granted
         0s  B lease 60s                            granted
         0s  C lease 60s                            granted
         0s  A lock a                               held token=1
         0s  A lock b                               held token=2
         0s  B lock a b any-of                         queued ahead=0
         1s  resize gpu/b 1                         resized
         1s  A lock gpu/b slots=1                   held token=3 slot=0
         1s  A lock gpu/a slots=1                   held token=4 slot=0
         1s  B lock pool=gpu/ supersede=jobs        queued ahead=0
         2s  C lock pool=gpu/ independent           queued ahead=1
         2s  resize gpu/a 1                         resized
    ";

/// A request for any of two locks, and one for two slots of a pool.
fn requests() -> Vec<Request<'static>> {
    let any = Acquire {
        lease: AskLease::Existing(LeaseRef::Id(LeaseId::new(1).expect("a lease's number"))),
        locks: Asks::Many(vec![
            Ask { lock: "gpu/a", mode: Mode::Exclusive },
            Ask { lock: "gpu/b", mode: Mode::Shared },
        ]),
        any: true,
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
    let ask = Ask { lock: "gpu/", mode: Mode::Slot { of: 1, take: 2 } };
    let pool = Acquire { locks: Asks::Pool(ask), any: false, priority: 3, ..any.clone() };
    let request = |command| Request { principal: "ann", id: RequestId::None, command };
    vec![request(Command::Acquire(any)), request(Command::Acquire(pool))]
}
