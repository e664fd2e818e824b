//! Tests that the bytes of entries and snapshots with the rules of level 6 stay as released versions wrote them.

use tenure_core::Machine;
use tenure_core::codec::{decode_request, open_entry};
use tenure_core::request::{
    Acquire, Ask, AskLease, AskWait, Asks, Command, LeaseRef, Purpose, Request, RequestId,
};
use tenure_types::{HolderState, LeaseId, Mode};

use crate::golden::{hex, unhex, write_entry};
use crate::script::play;

#[test]
fn an_entry_with_a_min_hold_is_read_and_written_as_ever() {
    let bytes = unhex(include_str!("../golden/entry_min_hold.hex"));
    assert_eq!(hex(&write_entry(&asks_with_min_hold())), hex(&bytes));
    let entry = open_entry(&bytes).expect("the entry can be opened");
    let read: Vec<Request<'_>> =
        entry.map(|request| decode_request(request).expect("every request can be read")).collect();
    assert_eq!(read, asks_with_min_hold());
}

#[test]
fn a_min_hold_of_zero_has_one_form_only() {
    let [one, _] = &asks_with_min_hold()[..] else { unreachable!("two requests") };
    let mut bytes = Vec::new();
    tenure_core::codec::encode_request(one, &mut bytes);
    // The min hold comes last: a variable-length number, here of three bytes.
    bytes.truncate(bytes.len() - 3);
    bytes.push(0);
    assert!(decode_request(&bytes).is_err());
}

#[test]
fn a_snapshot_with_min_holds_is_read_and_written_as_ever() {
    let bytes = unhex(include_str!("../golden/snapshot_min_hold.hex"));
    assert_eq!(hex(&play(RESTING).machine.encode()), hex(&bytes));
    let machine = Machine::decode(&bytes).expect("the snapshot can be read");
    assert_eq!(hex(&machine.encode()), hex(&bytes));
    let state = |lock: &str| machine.lock(lock).expect("a lock").holders[0].state;
    assert_eq!(state("rests"), HolderState::Resting { left_ms: 28_001 });
    assert_eq!(state("held"), HolderState::Held);
    assert_eq!(machine.lock("held").expect("a lock").holders[0].min_hold_ms, 60_000);
}

/// A grant that rests, a held one with a min hold, a waiting request with one, and an answer that shows a rest.
const RESTING: &str = "
         0s  level 6                            raised
         0s  A lease 60s                        granted
         0s  B lease 60s                        granted
         0s  A lock rests min=30s               held token=1
         0s  A campaign held min=1m value=v     held token=2
         1s  B lock held min=10s delay=2s       queued ahead=0
         1s  A unlock rests                     released
         2s  B lock rests try once=k            refused held (rests by A token=1 for 2s resting 28001ms, 0 ahead)
    ";

/// A plain request with a min hold, and one with every other option.
fn asks_with_min_hold() -> Vec<Request<'static>> {
    let plain = Acquire {
        lease: AskLease::Existing(LeaseRef::Id(LeaseId::new(1).expect("a lease's number"))),
        locks: Asks::One(Ask { lock: "hourly", mode: Mode::Exclusive }),
        any: false,
        wait: AskWait::No,
        metadata: b"",
        lock_delay_ms: 0,
        max_hold_ms: None,
        min_hold_ms: 54_000,
        supersede: None,
        resume: false,
        progress_within_ms: 0,
        priority: 0,
        purpose: Purpose::Lock,
        independent: false,
    };
    let full = Acquire {
        locks: Asks::Many(vec![
            Ask { lock: "data", mode: Mode::Shared },
            Ask { lock: "pool", mode: Mode::slot(300) },
        ]),
        wait: AskWait::Limit { ms: 5_000 },
        metadata: b"value",
        lock_delay_ms: 1_000,
        max_hold_ms: Some(60_000),
        min_hold_ms: 1,
        purpose: Purpose::Election,
        independent: true,
        ..plain.clone()
    };
    let request = |acquire| Request {
        principal: "ann",
        id: RequestId::None,
        command: Command::Acquire(acquire),
    };
    [plain, full].into_iter().map(request).collect()
}
