//! Tests that the bytes of snapshots of level 14 stay as released versions wrote them.

use tenure_core::Machine;

use crate::golden::{hex, unhex};
use crate::script::play;

#[test]
fn a_snapshot_with_queues_to_serve_is_read_and_written_as_ever() {
    let bytes = unhex(include_str!("../golden/snapshot_reopening.hex"));
    assert_eq!(hex(&play(STATE).machine.encode()), hex(&bytes));
    let machine = Machine::decode(&bytes).expect("the snapshot can be read");
    assert_eq!(hex(&machine.encode()), hex(&bytes));
    assert_eq!(machine.next_due_ms(), Some(machine.clock_ms()), "the rest is due at once");
}

#[test]
fn a_snapshot_with_the_owners_of_records_is_read_and_written_as_ever() {
    let bytes = unhex(include_str!("../golden/snapshot_records_of_leases.hex"));
    assert_eq!(hex(&play(OWNERS).machine.encode()), hex(&bytes));
    let machine = Machine::decode(&bytes).expect("the snapshot can be read");
    assert_eq!(hex(&machine.encode()), hex(&bytes));
}

/// Records of a lease, of a principal and of neither.
const OWNERS: &str = "
         0s  level 14                 raised
         0s  A lease 60s              granted
         0s  A lock x once=a          held token=1
         0s  A lock y once=b as=ana   held token=2
         0s  put k v once=c           written version=1
    ";

/// A prefix was opened, and the queues of one of two leases were served.
const STATE: &str = "
         0s  level 14                 raised
         0s  limits ends_per_entry=1  set
         0s  A lease 60s              granted
         0s  B lease 60s              granted
         0s  drain db/                drained
         1s  A lock db/1              queued ahead=0
         1s  B lock db/2              queued ahead=0
         2s  undrain db/              opened; A held token=1
    ";
