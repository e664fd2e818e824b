//! Tests that the bytes of entries and snapshots with the rules of level 7 stay as released versions wrote them.

use tenure_core::Machine;
use tenure_core::codec::{decode_request, encode_request, open_entry};
use tenure_core::request::{
    Acquire, Ask, AskLease, AskWait, Asks, Command, LeaseRef, Purpose, Request, RequestId,
};
use tenure_types::{LeaseId, Mode};

use crate::golden::{hex, unhex, write_entry};
use crate::script::play;

#[test]
fn an_entry_with_the_rules_of_level_7_is_read_and_written_as_ever() {
    let bytes = unhex(include_str!("../golden/entry_policy.hex"));
    assert_eq!(hex(&write_entry(&requests())), hex(&bytes));
    let entry = open_entry(&bytes).expect("the entry can be opened");
    let read: Vec<Request<'_>> =
        entry.map(|request| decode_request(request).expect("every request can be read")).collect();
    assert_eq!(read, requests());
}

#[test]
fn an_operator_without_a_name_has_one_form_only() {
    let command = Command::Undrain { prefix: "db/", by: "" };
    let mut bytes = Vec::new();
    encode_request(&Request { principal: "ann", id: RequestId::None, command }, &mut bytes);
    assert!(decode_request(&bytes).is_ok());
    bytes.push(0);
    assert!(decode_request(&bytes).is_err());
}

#[test]
fn a_snapshot_with_the_rules_of_level_7_is_read_and_written_as_ever() {
    let bytes = unhex(include_str!("../golden/snapshot_policy.hex"));
    assert_eq!(hex(&play(STATE).machine.encode()), hex(&bytes));
    let machine = Machine::decode(&bytes).expect("the snapshot can be read");
    assert_eq!(hex(&machine.encode()), hex(&bytes));
    let drains = machine.drains();
    let prefixes: Vec<&str> = drains.iter().map(|drain| &*drain.prefix).collect();
    assert_eq!(prefixes, ["", "db/"]);
    assert_eq!((drains[1].drained_ms, &*drains[1].reason), (3_000, "disks"));
    let waiting = &machine.queue("web", None, 9)[0];
    assert_eq!(waiting.group.as_deref(), Some("main"));
}

/// Two drained prefixes, one of which is empty and so covers every lock, a waiter with a group, events of both rules,
/// and a recorded refusal `Draining`.
const STATE: &str = "
         0s  level 7                                raised
         0s  A lease 60s                            granted
         0s  B lease 60s                            granted
         0s  C lease 60s                            granted
         0s  A lock web                             held token=1
         1s  drain db/ by=ops reason=disks as=olga  drained
         2s  B lock web supersede=main              queued ahead=0
         3s  C lock web supersede=main              queued ahead=0; B superseded by C
         4s  drain \"\"                               drained
         4s  B lock db/1 try once=k                 refused draining (db/1 below db/ by ops: disks)
    ";

/// Every new command, and requests with the new options.
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
        supersede: Some("main"),
        resume: false,
        progress_within_ms: 0,
        priority: 0,
        purpose: Purpose::Lock,
        independent: false,
    };
    let full = Acquire {
        min_hold_ms: 54_000,
        resume: true,
        progress_within_ms: 0,
        priority: 0,
        purpose: Purpose::Election,
        independent: true,
        ..plain.clone()
    };
    let request = |command| Request { principal: "ann", id: RequestId::None, command };
    vec![
        request(Command::Drain { prefix: "db/", by: "ops", reason: "disks" }),
        request(Command::Drain { prefix: "", by: "", reason: "" }),
        request(Command::Undrain { prefix: "db/", by: "ops" }),
        request(Command::Undrain { prefix: "", by: "" }),
        request(Command::Acquire(plain)),
        request(Command::Acquire(full)),
    ]
}
