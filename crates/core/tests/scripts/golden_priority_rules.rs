//! Tests that the bytes of rules that permit priorities stay as released versions wrote them.

use tenure_core::Machine;
use tenure_core::access::{AccessChange, NewRule, Replacement};
use tenure_core::codec::{decode_request, encode_request, open_entry};
use tenure_core::request::{Command, PRIORITY_MAX, Request, RequestId};
use tenure_types::{Verb, VerbSet};

use crate::golden::{hex, unhex, write_entry};
use crate::script::play;

#[test]
fn an_entry_with_rules_that_permit_priorities_is_read_and_written_as_ever() {
    let bytes = unhex(include_str!("../golden/entry_priority_rules.hex"));
    assert_eq!(hex(&write_entry(&commands())), hex(&bytes));
    let entry = open_entry(&bytes).expect("the entry can be opened");
    let read: Vec<Request<'_>> =
        entry.map(|request| decode_request(request).expect("every request can be read")).collect();
    assert_eq!(read, commands());
}

#[test]
fn a_snapshot_with_rules_that_permit_priorities_is_read_and_written_as_ever() {
    let bytes = unhex(include_str!("../golden/snapshot_priority_rules.hex"));
    assert_eq!(hex(&play(STATE).machine.encode()), hex(&bytes));
    let machine = Machine::decode(&bytes).expect("the snapshot can be read");
    assert_eq!(hex(&machine.encode()), hex(&bytes));
    let role = |priority| {
        let found =
            machine.access().priority_permission("ana", Verb::Acquire, "deploy/web", priority);
        found.map(|(role, _)| role.as_str())
    };
    assert_eq!([3, 4].map(role), [Some("deployer"), None]);
}

#[test]
fn a_rule_without_priorities_has_the_bytes_that_it_had_before_there_were_any() {
    let bytes = |change| {
        let mut bytes = Vec::new();
        let command = Command::SetAccess(change);
        encode_request(&Request { principal: "", id: RequestId::None, command }, &mut bytes);
        bytes
    };
    let plain = bytes(role(&[0]));
    let urgent = bytes(role(&[3]));
    assert_eq!(urgent.len(), plain.len() + 1);
    // The priority comes last. A rule that permits none has one form only, and none permits more than there is.
    for wrong in [0, PRIORITY_MAX + 1, 255] {
        let mut bytes = urgent.clone();
        *bytes.last_mut().unwrap() = wrong;
        assert!(decode_request(&bytes).is_err(), "{wrong}");
    }
}

fn role(priorities: &[u8]) -> AccessChange<'static> {
    let (verbs, prefix) = (VerbSet::default().with(Verb::Acquire), "deploy/");
    let rule = |priority: &u8| NewRule { verbs, prefix, priority: *priority };
    AccessChange::PutRole { name: "deployer", rules: priorities.iter().map(rule).collect() }
}

fn commands() -> Vec<Request<'static>> {
    let seen = role(&[3]);
    let change = role(&[]);
    let changes = [
        role(&[3]),
        role(&[0, PRIORITY_MAX, 1]),
        AccessChange::Replace(Box::new(Replacement { seen, change })),
    ];
    let request = |change| Request {
        principal: "ruth",
        id: RequestId::None,
        command: Command::SetAccess(change),
    };
    changes.into_iter().map(request).collect()
}

/// A role with priorities and one without.
const STATE: &str = "
         0s  level 15                               raised
         0s  role deployer acquire@deploy/@3 acquire,read@test/  done
         0s  role reader read@                      done
         0s  principal ana deployer reader          done
    ";
