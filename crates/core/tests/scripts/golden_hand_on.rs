//! Tests that the bytes of entries and snapshots with the rules of level 10 stay as released versions wrote them.

use tenure_core::Machine;
use tenure_core::codec::{decode_request, open_entry};
use tenure_core::request::{AskWait, Command, Hold, LeaseRef, Request, RequestId, Upgrade};
use tenure_types::{Epoch, Handle, LeaseId, Token};

use crate::golden::{hex, unhex, write_entry};
use crate::script::play;

#[test]
fn an_entry_with_the_rules_of_level_10_is_read_and_written_as_ever() {
    let bytes = unhex(include_str!("../golden/entry_hand_on.hex"));
    assert_eq!(hex(&write_entry(&requests())), hex(&bytes));
    let entry = open_entry(&bytes).expect("the entry can be opened");
    let read: Vec<Request<'_>> =
        entry.map(|request| decode_request(request).expect("every request can be read")).collect();
    assert_eq!(read, requests());
}

#[test]
fn a_snapshot_with_the_rules_of_level_10_is_read_and_written_as_ever() {
    let bytes = unhex(include_str!("../golden/snapshot_hand_on.hex"));
    assert_eq!(hex(&play(STATE).machine.encode()), hex(&bytes));
    let machine = Machine::decode(&bytes).expect("the snapshot can be read");
    assert_eq!(hex(&machine.encode()), hex(&bytes));
    let queue = machine.queue("data", None, 10);
    assert_eq!(queue.iter().map(|waiter| waiter.client.as_str()).collect::<Vec<_>>(), ["A", "C"]);
    assert_eq!(queue[0].passable_ms, 0);
}

/// A hold that waits for its upgrade, and one that was handed on.
const STATE: &str = "
         0s  level 10                      raised
         0s  A lease 60s                   granted
         0s  B lease 60s                   granted
         0s  C lease 60s                   granted
         0s  D lease 60s                   granted
         0s  A lock data shared            held token=1
         0s  B lock data shared            held token=2
         1s  C lock data priority=9        queued ahead=0
         2s  A upgrade data wait=30s       queued ahead=0
         3s  A lock web min=50s            held token=3
         4s  D lock web                    queued ahead=0
         5s  A hand web to D               handed on under token=4; D held token=4
    ";

fn requests() -> Vec<Request<'static>> {
    let lease = LeaseRef::Id(LeaseId::new(1).expect("a lease's number"));
    let request = |command| Request { principal: "ann", id: RequestId::None, command };
    let plain =
        Upgrade { lease, lock: "data", wait: AskWait::No, resume: false, independent: false };
    let full = Upgrade {
        lease: LeaseRef::Handle(Handle { slot: 2, generation: 3 }),
        wait: AskWait::Limit { ms: 30_000 },
        resume: true,
        independent: true,
        ..plain
    };
    let token = Token::new(Epoch::default(), 2).expect("a token");
    let to = LeaseId::new(300).expect("a lease's number");
    vec![
        request(Command::Upgrade(plain)),
        request(Command::Upgrade(full)),
        request(Command::HandOn { hold: Hold { lease, lock: "web", token }, to }),
    ]
}
