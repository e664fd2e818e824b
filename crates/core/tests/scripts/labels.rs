//! Tests what events record from level 4 on: the wall clock as a label, the life of leases, refused deadlocks.

use tenure_core::codec::{seal_entry, seal_labelled};
use tenure_core::event::{Batch, WallClock};
use tenure_core::outcome::Effects;
use tenure_core::{Filter, Machine};
use tenure_types::{Epoch, Revision, Term};

use crate::script::{ScriptRun, check, play, play_at};

/// Every kind of end, and a refused deadlock.
pub(crate) const TOLD: &str = "
         0s  level 4                        raised
         1s  A lease 10s                    granted
         1s  B lease 60s                    granted
         2s  A lock x                       held token=1
         2s  A lock y                       held token=2
         3s  B lock y                       queued ahead=0
         3s  B lock z                       held token=3
         4s  A lock z                       refused deadlock: A z, B y
         5s  A renew                        renewed
         6s  A unlock x                     released
        16s  -                              A lost y; A expired; B held token=4
        17s  force y token=4 by=ops reason=stuck  forced, free in 44001ms; B lost y, forced by ops for stuck
        18s  B stopped y                    stopped
        19s  C lease 10s                    granted
        19s  C lock z                       queued ahead=0
        20s  C revoke                       revoked
        21s  B revoke                       revoked
    ";

#[test]
fn ends_tell_the_ttl_and_the_last_renewal_and_what_a_client_gave_up_reads_as_released() {
    check(&format!(
        "{TOLD}
        21s  events y from 1           5 y granted A token=2; 6 y queued B; 10 y expired A token=2 ttl=10s renewed=5s;
             .. 10 y granted B token=4;
             .. 11 y forced B token=4 left=44001ms by=ops reason=stuck ttl=60s renewed=1s;
             .. 12 y cooled B token=4 reason=the holder has stopped
        21s  events x from 1           4 x granted A token=1; 9 x released A token=1 ttl=10s renewed=5s
        21s  events z from 1           7 z granted B token=3; 8 z deadlock A; 14 z queued C; 15 z left C;
             .. 16 z released B token=3 ttl=60s renewed=1s
    "
    ));
}

#[test]
fn below_the_level_nothing_of_it_is_recorded() {
    let stage = play(&TOLD.replace("level 4 ", "level 3 "));
    for batch in batches(&stage) {
        assert_eq!(batch.label, None);
        assert!(batch.events.iter().all(|it| it.ttl_ms.is_none() && it.renewed_ms.is_none()));
        assert!(batch.events.iter().all(|it| it.cause.word() != "deadlock"));
    }
}

#[test]
fn the_wall_clock_changes_nothing_but_the_labels() {
    // As it should be; standing still; backwards; at both ends of what a number can be.
    let clocks: [fn(u64) -> u64; 5] = [
        |count_ms| 1_772_421_240_000 + count_ms,
        |_| 1_772_421_240_000,
        |count_ms| 1_772_421_240_000 - 1_000 * count_ms,
        |_| 0,
        |count_ms| if count_ms % 2_000 == 0 { u64::MAX } else { 1 },
    ];
    // Each history is bounded by bytes, so that a label of another size would change what is kept.
    let long = "x".repeat(700);
    let long = |key| format!("         0s  put key{key} {long}  written version=1\n");
    let long: String = (1..=5).map(long).collect();
    let limits = "         0s  limits history_bytes=4096  set\n";
    let script = TOLD.replace("raised\n", &format!("raised\n{limits}{}", long));
    let stages: Vec<ScriptRun> = clocks.iter().map(|clock| play_at(&script, *clock)).collect();
    let first = &stages[0];
    for stage in &stages[1..] {
        // Playing has compared every answer with the script.
        let (machine, other) = (&stage.machine, &first.machine);
        assert_eq!(machine.clock_ms(), other.clock_ms());
        assert_eq!(machine.next_due_ms(), other.next_due_ms());
        assert_eq!((machine.floor(), machine.revision()), (other.floor(), other.revision()));
        assert_eq!(machine.stats(), other.stats());
        assert_eq!(machine.encode().len(), other.encode().len());
        let bare = |stage: &ScriptRun| {
            batches(stage)
                .into_iter()
                .map(|it| (it.revision, it.label.map(|it| it.clock_ms), it.events))
        };
        assert!(other.floor() > Revision(3), "the bound was reached");
        assert!(bare(stage).eq(bare(first)), "only labels differ");
        assert!(batches(stage) != batches(first), "and labels do differ");
    }
}

#[test]
fn an_entry_with_a_label_below_its_level_is_unreadable_as_it_is_to_older_builds() {
    let wall = Some(WallClock { unix_ms: 7 });
    let mut machine = Machine::new(Epoch::default());
    let mut effects = Effects::default();
    machine.apply(Term(1), Some(&seal_labelled(Term(1), 500, wall, [])), &mut effects);
    assert_eq!(machine.clock_ms(), 0);
    machine.apply(Term(1), Some(&seal_entry(Term(1), 500, [])), &mut effects);
    assert_eq!(machine.clock_ms(), 500);
}

fn batches(stage: &ScriptRun) -> Vec<Batch> {
    let floor = stage.machine.floor().max(Revision(1));
    stage.machine.events(floor, Filter::All, 1_000).expect("from the floor on").batches
}
