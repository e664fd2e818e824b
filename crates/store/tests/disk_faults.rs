//! Tests the log under each kind of disk failure: it never returns wrong data, and reports what is missing.

#![allow(clippy::cast_possible_truncation, reason = "the numbers of these tests are small")]

use crate::support::{
    State,
    checks::{self, append, count},
    marked_log, open,
};
use tenure_store::{
    CutCause, Fatal, HardState, LogBatch, OpenError, ReadError, WriteError,
    sim::{DiskFault, Outage, Restart, Rng, SimDisk, UnreadableRange},
};

#[test]
fn a_damaged_newest_batch_is_cut_and_said() {
    checks::a_damaged_newest_batch_is_cut_and_said();
}

#[test]
fn a_sync_covers_only_what_was_written_before_it_began() {
    checks::a_sync_covers_only_what_was_written_before_it_began();
}

#[test]
fn a_damaged_batch_that_a_mark_proves_durable_is_refused_with_its_place() {
    let (disk, state, marked) = marked_log(5, 40);
    let name = format!("log/{:016x}.seg", marked.segment);
    disk.flip_bit(&name, u64::from(marked.offset) - 20, 3);
    match open(&disk) {
        Err(OpenError::Corrupt { segment, offset, index, .. }) => {
            assert_eq!((segment, index), (marked.segment, state.last().index));
            assert!(offset < u64::from(marked.offset));
        }
        other => panic!("{:?}", other.map(|(_, recovered)| recovered)),
    }
}

#[test]
fn a_damaged_newest_vote_is_cut_and_its_term_is_said() {
    let disk = SimDisk::new(1);
    let (mut log, _) = open(&disk).unwrap();
    append(&mut log, 2, 50);
    log.sync().unwrap();
    let before = State::of(&log);
    let hard_state = Some(HardState { term: 9, vote: Some(4), commit: 1 });
    log.write(&LogBatch { hard_state, ..LogBatch::default() }).unwrap();
    log.sync().unwrap();
    let (name, range) = disk.newest_batch("log").unwrap();
    let mut said = 0;
    for offset in range.clone() {
        let disk = disk.fork(offset);
        disk.flip_bit(&name, offset, (offset % 8) as u8);
        let (log, recovered) = open(&disk).unwrap();
        assert_eq!(State::of(&log), before);
        let cut = recovered.cut.expect("the cut is said");
        assert_eq!((cut.first_index, cut.last_index), (3, None), "no entry was in it");
        assert_eq!(cut.cause, CutCause::Damaged);
        said += u64::from(cut.term == Some(9));
    }
    // The term is in the header, which has a checksum of its own.
    assert_eq!((said, range.end - range.start), (16, 56));
}

#[test]
fn a_read_error_is_an_error_and_the_next_read_may_succeed() {
    let (disk, state, marked) = marked_log(5, 40);
    let name = format!("log/{:016x}.seg", marked.segment);
    disk.make_unreadable(&name, 600..700, UnreadableRange::Once);
    let Err(OpenError::Io { doing, name: said, .. }) = open(&disk) else { panic!("it was read") };
    assert_eq!((doing, &said), ("read", &name));
    let (log, recovered) = open(&disk).unwrap();
    assert_eq!((State::of(&log), recovered.cut), (state.clone(), None), "nothing was cut for it");

    for name in disk.files() {
        disk.make_unreadable(&name, 0..4096, UnreadableRange::Always);
    }
    let (from, to) = (state.base.index + 1, state.last().index + 1);
    for _ in 0..2 {
        assert!(matches!(log.entries(from, to, u64::MAX), Err(ReadError::Io { .. })));
    }
    disk.make_readable();
    assert_eq!(State::of(&log), state);
}

#[test]
fn a_stale_sector_is_refused_or_cut_or_was_the_end_of_the_log() {
    let (mut refused, mut cut, mut gone) = (0, 0, 0);
    for seed in 0..120 {
        let disk = SimDisk::new(seed);
        let mut rng = Rng::new(seed);
        let (mut log, _) = open(&disk).unwrap();
        let mut states = vec![State::of(&log)];
        for _ in 0..6 {
            append(&mut log, 1 + rng.below(3), 100 + rng.below(500) as usize);
            log.sync().unwrap();
            states.push(State::of(&log));
        }
        for name in disk.files() {
            for offset in disk.changed_sectors(&name) {
                let disk = disk.fork(rng.next());
                assert!(disk.make_stale(&name, offset));
                match open(&disk) {
                    Err(OpenError::Corrupt { .. }) => refused += 1,
                    Err(error) => panic!("{error:?}"),
                    Ok((log, recovered)) => {
                        let at = states.iter().position(|state| *state == State::of(&log));
                        let at = at.expect("what is found was written");
                        // Only the newest batch has no mark after it.
                        assert!(at + 2 >= states.len(), "seed {seed}, {name}, sector {offset}");
                        cut += u64::from(recovered.cut.is_some());
                        gone += u64::from(recovered.cut.is_none() && at + 1 < states.len());
                    }
                }
            }
        }
    }
    println!("stale sectors: {refused} refused, {cut} cut and said, {gone} without a trace");
    assert!(refused > 0 && cut > 0);
}

#[test]
fn a_misdirected_write_never_becomes_data() {
    let (mut refused, mut cut, mut gone, mut harmless) = (0, 0, 0, 0);
    for seed in 0..400 {
        let disk = SimDisk::new(seed);
        let mut rng = Rng::new(seed);
        let (mut log, _) = open(&disk).unwrap();
        let mut states = vec![State::of(&log)];
        let bad = rng.below(6);
        for batch in 0..6 {
            if batch == bad {
                disk.plan(DiskFault::MisdirectedWrite);
            }
            append(&mut log, 1 + rng.below(3), 100 + rng.below(500) as usize);
            log.sync().unwrap();
            match log.entries(1, log.last().index + 1, u64::MAX) {
                Ok(_) => states.push(State::of(&log)),
                Err(ReadError::Corrupt { .. }) => break,
                Err(error) => panic!("{error:?}"),
            }
        }
        if count(&disk, DiskFault::MisdirectedWrite) == 0 {
            continue;
        }
        disk.restart(Restart::PowerLostAll);
        match open(&disk) {
            Err(OpenError::Corrupt { .. }) => refused += 1,
            Err(error) => panic!("{error:?}"),
            Ok((log, recovered)) => {
                let at = states.iter().position(|state| *state == State::of(&log));
                let at = at.expect("what is found was written");
                let lost = at + 1 < states.len();
                cut += u64::from(recovered.cut.is_some());
                gone += u64::from(recovered.cut.is_none() && lost);
                harmless += u64::from(recovered.cut.is_none() && !lost);
            }
        }
    }
    println!(
        "misdirected writes: {refused} refused, {cut} cut and said, {gone} lost the newest batch \
         without a trace, {harmless} harmless"
    );
    assert!(refused > 100 && cut > 0);
}

#[test]
fn damage_while_running_is_noticed_when_it_is_read() {
    let mut noticed = 0;
    for seed in 0..200 {
        let (disk, state, marked) = marked_log(seed % 8, 40);
        let (log, _) = open(&disk).unwrap();
        let name = format!("log/{:016x}.seg", 1 + seed % marked.segment);
        if disk.damage_while_running(&name).is_none() {
            continue;
        }
        match log.entries(state.base.index + 1, state.last().index + 1, u64::MAX) {
            Err(ReadError::Corrupt { segment, .. }) => {
                assert_eq!(segment, 1 + seed % marked.segment);
                noticed += 1;
            }
            Err(error) => panic!("{error:?}"),
            Ok(_) => assert_eq!(State::of(&log), state),
        }
    }
    println!("{noticed} of 200 flipped bits were in entries that were read");
    assert!(noticed > 10);
}

#[test]
fn a_sync_that_lies_loses_its_batches_and_nothing_earlier() {
    let mut lost = 0;
    for seed in 0..100 {
        let disk = SimDisk::new(seed);
        let (mut log, _) = open(&disk).unwrap();
        append(&mut log, 3, 200);
        log.sync().unwrap();
        let honest = State::of(&log);
        disk.set_lying_syncs(true);
        append(&mut log, 2, 100 + seed as usize);
        log.sync().unwrap();
        assert_eq!(count(&disk, DiskFault::LyingSync), 1);
        let claimed = State::of(&log);
        let all = disk.fork(seed);
        all.restart(Restart::PowerLostAll);
        let (log, recovered) = open(&all).unwrap();
        // The control: no store can notice this. Only other members remember what this one acknowledged.
        assert_eq!((State::of(&log), recovered.cut), (honest.clone(), None));
        disk.restart(Restart::PowerLostSome);
        let (log, recovered) = open(&disk).unwrap();
        let found = State::of(&log);
        assert!(found == honest || found == claimed, "seed {seed}: {found:?}");
        if let Some(cut) = recovered.cut {
            assert_eq!(cut.cause, CutCause::Torn);
            lost += 1;
        }
    }
    assert!(lost > 0, "some left a torn tail");
}

#[test]
fn an_outage_stops_the_log_and_nothing_durable_is_lost() {
    for outage in [Outage::ReadOnly, Outage::Device] {
        let disk = SimDisk::new(1);
        let (mut log, _) = open(&disk).unwrap();
        append(&mut log, 3, 200);
        log.sync().unwrap();
        let durable = State::of(&log);
        append(&mut log, 1, 200);
        disk.set_outage(Some(outage));
        assert!(matches!(log.sync(), Err(Fatal::Disk { .. })), "{outage:?}");
        assert!(matches!(log.mark(), Err(WriteError::Fatal(Fatal::Stopped))), "{outage:?}");
        disk.restart(Restart::PowerLostAll);
        assert!(matches!(open(&disk), Err(OpenError::Io { .. })), "{outage:?} lasts");
        disk.set_outage(None);
        let (log, recovered) = open(&disk).unwrap();
        assert_eq!((State::of(&log), recovered.cut), (durable, None), "{outage:?}");
    }
}

#[test]
fn a_sync_that_overlaps_with_a_roll_over_and_a_compaction_does_not_undo_them() {
    let disk = SimDisk::new(1);
    let (mut log, _) = open(&disk).unwrap();
    let first = append(&mut log, 1, 200);
    let started = disk.start_sync(log.begin_sync().unwrap().expect("there is something to sync"));
    while log.segments() < 3 {
        append(&mut log, 1, 900);
    }
    log.sync().unwrap();
    let commit = log.last().index;
    let hard_state = Some(HardState { term: 1, vote: None, commit });
    log.write(&LogBatch { hard_state, ..LogBatch::default() }).unwrap();
    log.compact_to(commit - 1).unwrap();
    assert_eq!(log.segments(), 1, "the file of the sync that is under way is removed");
    let durable = log.durable();
    let synced = log.finish_sync(started.end()).unwrap();
    assert_eq!((synced.through, log.durable()), (durable, durable));
    assert!(durable > first.end);
    let expected = State::of(&log);
    disk.restart(Restart::PowerLostAll);
    assert_eq!(State::of(&open(&disk).unwrap().0), expected);
}
