//! Provides checks that the tests run, and that must fail when the bug that they are meant for is planted.

use std::sync::Arc;

use bytes::Bytes;
use tenure_store::{
    CutCause, Disk, Log, LogBatch, LogEntry, LogId, ReceivedBytes, SnapshotError, SnapshotId,
    Snapshots, WrittenBatch,
    sim::{DiskFault, Restart, Rng, SimDisk},
};

use super::{State, open, run, write_snapshot};

pub(crate) fn snapshots(disk: &SimDisk) -> Snapshots {
    Snapshots::open(Arc::new(disk.clone())).unwrap()
}

pub(crate) fn count(disk: &SimDisk, fault: DiskFault) -> u64 {
    disk.counts().get(&fault).copied().unwrap_or(0)
}

/// Appends entries without a zero byte in their payloads.
pub(crate) fn append(log: &mut Log, entries: u64, bytes: usize) -> WrittenBatch {
    let last = log.last();
    let entries: Vec<LogEntry> = (last.index + 1..=last.index + entries)
        .map(|index| LogEntry {
            index,
            term: last.term.max(1),
            kind: 0,
            payload: vec![7; bytes].into(),
        })
        .collect();
    log.write(&LogBatch { entries: &entries, ..LogBatch::default() }).unwrap()
}

/// Checks that recovery cuts a damaged newest batch, which was synced and acknowledged, and reports which entries it
/// held and that they were probably durable.
pub(crate) fn a_damaged_newest_batch_is_cut_and_said() {
    let mut named = 0;
    let seeds = 400;
    for seed in 0..seeds {
        let mut rng = Rng::new(seed);
        let disk = SimDisk::new(seed);
        assert!(run(&disk, seed, 25).finished);
        let (mut log, _) = open(&disk).unwrap();
        let before = State::of(&log);
        let entries = 1 + rng.below(3);
        append(&mut log, entries, 1 + rng.below(900) as usize);
        log.sync().unwrap();
        let last = log.last().index;
        let (name, offset) = disk.damage_newest_batch("log").expect("there is a newest batch");
        assert_eq!(count(&disk, DiskFault::DamagedNewestBatch), 1);
        disk.restart([Restart::ProcessKilled, Restart::PowerLostAll][rng.below(2) as usize]);

        let (log, recovered) = open(&disk).unwrap();
        assert_eq!(State::of(&log), before, "seed {seed}: exactly the newest batch is gone");
        let cut = recovered.cut.unwrap_or_else(|| panic!("seed {seed}: the cut is not said"));
        assert!(name.ends_with(&format!("{:016x}.seg", cut.segment)), "seed {seed}: {cut:?}");
        assert!((cut.offset..cut.offset + cut.bytes).contains(&offset), "seed {seed}: {cut:?}");
        assert_eq!(cut.cause, CutCause::Damaged, "seed {seed}: {cut:?}");
        assert_eq!(cut.first_index, before.last().index + 1, "seed {seed}: {cut:?}");
        assert!(cut.last_index.is_none_or(|found| found <= last), "seed {seed}: {cut:?}");
        if cut.last_index == Some(last) {
            named += 1;
            assert_eq!(cut.term, Some(before.last().term.max(1)));
            let expected = format!(": entries {} to {last}", cut.first_index);
            assert!(cut.to_string().ends_with(&expected), "{cut}");
        }
        // Recovery reports a cut once: the log that it made has nothing left to cut.
        assert_eq!(open(&disk).unwrap().1.cut, None);
    }
    println!("{seeds} damaged newest batches cut, {named} of them named to their last entry");
    assert!(named > seeds / 2);
}

/// Checks that a sync that began before a batch was written does not cover that batch, however late it ends.
pub(crate) fn a_sync_covers_only_what_was_written_before_it_began() {
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let disk = SimDisk::new(seed);
        let (mut log, _) = open(&disk).unwrap();
        append(&mut log, rng.below(4), 40);
        let covered = append(&mut log, 1, 60);
        let job = log.begin_sync().unwrap().expect("there is something to sync");
        let expected = State::of(&log);
        let started = disk.start_sync(job);
        append(&mut log, 1 + rng.below(2), 50);
        let synced = log.finish_sync(started.end()).unwrap();
        assert_eq!((synced.through, log.durable()), (covered.end, covered.end), "seed {seed}");
        assert_eq!(count(&disk, DiskFault::OverlappingSync), 1);
        disk.restart(Restart::PowerLostAll);
        let (log, recovered) = open(&disk).unwrap();
        assert_eq!(State::of(&log), expected, "seed {seed}");
        assert_eq!(recovered.cut, None);
    }
}

/// Writes a snapshot of a few chunks, so that there is a body to damage and to send in parts.
pub(crate) fn large_snapshot(disk: &SimDisk, index: u64) -> (Bytes, SnapshotId) {
    let snapshots = snapshots(disk);
    let mut rng = Rng::new(index);
    let data: Vec<u8> = (0..2_700_000 / 8).flat_map(|_| rng.next().to_le_bytes()).collect();
    let mut writer = snapshots.write(LogId { index, term: 2 }, b"members").unwrap();
    writer.append(&data).unwrap();
    let id = writer.finish().unwrap();
    let file = disk.contents(&format!("snapshots/{index:016x}-{:016x}.snap", 2)).unwrap();
    (file.into(), id)
}

/// Checks that a damaged body is never sent: the read reports where the damage is, and the snapshot is set aside.
pub(crate) fn a_damaged_snapshot_is_noticed_when_it_is_sent_and_set_aside() {
    let good = SimDisk::new(1);
    write_snapshot(&snapshots(&good), LogId { index: 5, term: 2 }).unwrap();
    let (file, id) = large_snapshot(&good, 70);
    let name = good.files().pop().unwrap();
    let mut rng = Rng::new(7);
    for case in 0..30 {
        let disk = good.fork(case);
        let snapshots = snapshots(&disk);
        let raw = snapshots.raw(id).unwrap();
        // Anywhere in the body: `raw` has verified the header and the footer.
        let offset = 200 + rng.below(id.bytes - 400);
        assert!(disk.flip_bit(&name, offset, rng.below(8) as u8));
        let step = 1 + rng.below(900_000) as usize;
        let mut at = 0;
        let error = loop {
            match raw.read_at(at, step) {
                Ok(bytes) => {
                    let from = at as usize;
                    assert_eq!(bytes, file[from..from + bytes.len()], "case {case}: wrong bytes");
                    assert!(
                        !bytes.is_empty(),
                        "case {case}: the damage at {offset} went unnoticed"
                    );
                    at += bytes.len() as u64;
                }
                Err(error) => break error,
            }
        };
        let SnapshotError::Corrupt { name: said, offset: found } = error else {
            panic!("case {case}: {error:?}")
        };
        assert!(said == name && found <= offset, "case {case}: {said} at {found}, not {offset}");
        let left: Vec<u64> =
            snapshots.complete().unwrap().iter().map(|id| id.point.index).collect();
        assert_eq!(left, [5], "case {case}: the damaged one no longer counts");
        assert_eq!(snapshots.damaged().unwrap(), [id.point]);
        disk.restart(Restart::PowerLostAll);
        let reopened = self::snapshots(&disk);
        assert_eq!(reopened.damaged().unwrap(), [id.point], "it stays aside");
        write_snapshot(&reopened, LogId { index: 80, term: 2 }).unwrap();
        assert_eq!(reopened.damaged().unwrap(), [], "its successor replaces it");
    }
}

/// Checks that chunks that arrive twice, too early or altered never become part of a snapshot.
pub(crate) fn repeated_and_misplaced_chunks_change_nothing() {
    let sender = SimDisk::new(1);
    let (file, id) = large_snapshot(&sender, 70);
    for seed in 0..8 {
        let disk = SimDisk::new(seed);
        let mut rng = Rng::new(seed);
        let mut receiver = snapshots(&disk).receive(id).unwrap();
        while receiver.have() < id.bytes {
            let have = receiver.have();
            let (from, length) = (rng.below(id.bytes), 1 + rng.below(300_000));
            let at = if rng.below(3) == 0 { from } else { have };
            let end = (at + length).min(id.bytes);
            let chunk = &file[at as usize..end as usize];
            let appended = receiver.append(at, chunk);
            match appended {
                Ok(ReceivedBytes::Added) => assert_eq!((at, receiver.have()), (have, end)),
                Ok(ReceivedBytes::Duplicate) => assert!(end <= have && receiver.have() == have),
                Err(SnapshotError::Offset { expected, found }) => {
                    assert!(expected == have && found == at && at != have && end > have);
                    assert_eq!(receiver.have(), have);
                }
                Err(error) => panic!("{error:?}"),
            }
            if have > 0 {
                let mut altered = file[..1].to_vec();
                altered[0] ^= 1;
                let refused = receiver.append(0, &altered);
                assert!(matches!(refused, Err(SnapshotError::Conflict { offset: 0 })));
            }
        }
        assert_eq!(receiver.finish().unwrap(), id, "seed {seed}");
        // The process died before it could answer: the sender begins again, and nothing is sent twice.
        disk.restart(Restart::ProcessKilled);
        let mut again = snapshots(&disk).receive(id).unwrap();
        assert_eq!(again.have(), id.bytes);
        assert_eq!(again.append(0, &file[..100]).unwrap(), ReceivedBytes::Duplicate);
        assert_eq!(again.finish().unwrap(), id);
    }
}

/// Checks that after a crash of any kind a receiver continues from what it can verify, and ends with the whole
/// snapshot.
pub(crate) fn a_transfer_that_crashes_goes_on_from_what_verifies() {
    let sender = SimDisk::new(1);
    let (file, id) = large_snapshot(&sender, 70);
    let mut resumed = 0;
    for seed in 0..30 {
        let disk = SimDisk::new(seed);
        let mut rng = Rng::new(seed);
        for attempt in 0.. {
            let opened = Snapshots::open(Arc::new(disk.clone()));
            let receiver = opened.and_then(|snapshots| snapshots.receive(id));
            let receiver = receiver.map(|mut receiver| {
                resumed += u64::from(receiver.have() > 0);
                if attempt < 4 {
                    disk.power_off_after(Some(rng.below(12)));
                }
                while receiver.have() < id.bytes {
                    let have = receiver.have();
                    let end = (have + 1 + rng.below(400_000)).min(id.bytes);
                    if receiver.append(have, &file[have as usize..end as usize]).is_err() {
                        break;
                    }
                }
                receiver
            });
            let finished = receiver.and_then(|receiver| {
                if rng.below(3) == 0 {
                    disk.plan(DiskFault::SyncError);
                }
                receiver.finish()
            });
            match finished {
                Ok(found) => {
                    assert_eq!(found, id);
                    break;
                }
                Err(SnapshotError::Corrupt { name, offset }) => {
                    panic!("seed {seed}: {name} was trusted and is wrong at {offset}")
                }
                Err(_) => {}
            }
            disk.restart([Restart::ProcessKilled, Restart::PowerLostSome][rng.below(2) as usize]);
        }
        disk.restart(Restart::PowerLostAll);
        snapshots(&disk).verify(id).expect("what was reported complete is durable and whole");
    }
    println!("{resumed} attempts resumed");
    assert!(resumed > 20);
}

/// Checks that a process that continues with a part writes its pages again, so that the sync at the end covers them:
/// the kernel failed to write the pages and calls them clean.
pub(crate) fn a_part_that_never_reached_the_disk_is_written_again() {
    let sender = SimDisk::new(1);
    let (file, id) = large_snapshot(&sender, 70);
    let disk = SimDisk::new(2);
    let mut receiver = snapshots(&disk).receive(id).unwrap();
    receiver.append(0, &file[..2_000_000]).unwrap();
    let part = disk.files().pop().unwrap();
    disk.plan(DiskFault::SyncError);
    assert!(disk.open(&part).unwrap().sync().is_err());
    disk.restart(Restart::ProcessKilled);

    let mut receiver = snapshots(&disk).receive(id).unwrap();
    let have = receiver.have();
    assert!(have > 1_000_000, "what verifies is kept");
    receiver.append(have, &file[have as usize..]).unwrap();
    assert_eq!(receiver.finish().unwrap(), id);
    disk.restart(Restart::PowerLostAll);
    snapshots(&disk).verify(id).expect("what was reported complete is durable and whole");
}
