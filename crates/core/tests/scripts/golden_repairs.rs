//! Tests that the bytes of snapshots of level 12 stay as released versions wrote them.

use tenure_core::{Filter, Machine};
use tenure_types::Revision;

use crate::golden::{hex, unhex};
use crate::script::play;

#[test]
fn a_snapshot_with_a_request_to_leave_that_came_too_late_is_read_and_written_as_ever() {
    let bytes = unhex(include_str!("../golden/snapshot_repairs.hex"));
    assert_eq!(hex(&play(STATE).machine.encode()), hex(&bytes));
    let machine = Machine::decode(&bytes).expect("the snapshot can be read");
    assert_eq!(hex(&machine.encode()), hex(&bytes));
    let events = machine.events(Revision(1), Filter::Exact("pool"), 100).expect("it is all there");
    let granted = events.batches.iter().flat_map(|batch| &batch.events);
    let values: Vec<_> = granted.map(|event| event.value.as_deref()).collect();
    assert_eq!(values, [Some(&b"m"[..]), None, None]);
}

/// Records of `AlreadyHeld`: one of a level that kept the answer, one that keeps the place. Metadata that is told once,
/// a lock that rests, and a hold that no abandon ends because its min hold was handed on.
const STATE: &str = "
         0s  level 11                       raised
         0s  A lease 60s                    granted
         0s  B lease 60s                    granted
         0s  A lock old slots=2of3          held old token=1 slot=0, old token=2 slot=1
         1s  A leave old #1/0               already held old token=1 slot=0, old token=2 slot=1
         2s  level 12                       raised
         2s  A lock pool slots=2of3 meta=m  held pool token=3 slot=0, pool token=4 slot=1
         2s  A leave pool #2/0              already held pool token=3 slot=0, pool token=4 slot=1
         3s  A unlock pool token=3          released
         4s  A lock job min=60s             held token=5
         4s  B lock job                     queued ahead=0
         5s  A hand job to B                handed on under token=6; B held token=6
         6s  A lock rest min=60s            held token=7
         7s  A unlock rest                  released
    ";
