//! Tests that a full or failing disk leaves a log that reports its state correctly.

use std::sync::Arc;

use crate::support::{Run, SEGMENT_BYTES, State, open, random_batch};
use bytes::Bytes;
use tenure_store::{
    Fatal, Log, LogBatch, LogEntry, ReadError, Reserve, SnapshotError, Snapshots, WriteError,
    sim::{DiskFault, FaultRates, Restart, Rng, SimDisk},
};

fn entry(index: u64, bytes: usize) -> LogEntry {
    LogEntry { index, term: 1, kind: 0, payload: Bytes::from(vec![7; bytes]) }
}

fn append(log: &mut Log, bytes: usize) -> Result<(), WriteError> {
    let entries = [entry(log.last().index + 1, bytes)];
    log.write(&LogBatch { entries: &entries, ..LogBatch::default() }).map(drop)
}

fn commit_all(log: &mut Log) {
    let commit = log.last().index;
    let hard_state = Some(tenure_store::HardState { term: 1, vote: None, commit });
    log.write(&LogBatch { hard_state, ..LogBatch::default() }).unwrap();
}

#[test]
fn a_full_disk_refuses_growth_takes_small_batches_and_recovers_when_there_is_room() {
    let disk = SimDisk::new(1);
    disk.set_capacity(Some(u64::from(SEGMENT_BYTES) * 4));
    let mut reserve = Reserve::open(Arc::new(disk.clone()), u64::from(SEGMENT_BYTES)).unwrap();
    assert!(reserve.restore().unwrap());
    let (mut log, _) = open(&disk).unwrap();
    while append(&mut log, 900).is_ok() {}
    let full = State::of(&log);
    assert!(matches!(append(&mut log, 900), Err(WriteError::NoSpace)));
    assert_eq!(State::of(&log), full, "a refused batch changes nothing");
    let room = log.room().unwrap();
    assert!(room.in_segment < 900 + 48 && room.in_next == 0 && room.on_disk < 4096, "{room:?}");
    assert_eq!(log.segments(), 3);

    while append(&mut log, 8).is_ok() {}
    assert!(log.last().index > full.last().index, "small batches still go in");
    reserve.release().unwrap();
    append(&mut log, 8).expect("the space given back takes them");
    assert!(!reserve.restore().unwrap(), "there is no room to take it again");

    commit_all(&mut log);
    log.sync().unwrap();
    let drop_to = log.last().index - 1;
    log.compact_to(drop_to).unwrap();
    assert_eq!(log.segments(), 1);
    assert!(reserve.restore().unwrap(), "dropping entries makes room");
    append(&mut log, 900).unwrap();
    log.sync().unwrap();
    let expected = State::of(&log);
    disk.restart(Restart::PowerLostAll);
    assert_eq!(State::of(&open(&disk).unwrap().0), expected);
}

#[test]
fn a_batch_refused_for_lack_of_space_never_appears_and_the_next_one_does() {
    let mut refused = 0;
    for seed in 0..200 {
        let disk = SimDisk::new(seed);
        let mut rng = Rng::new(seed);
        let (mut log, _) = open(&disk).unwrap();
        disk.set_rates(FaultRates { no_space: 0.2, ..FaultRates::default() });
        let mut run = Run { states: vec![State::default()], durable: 0, finished: true };
        for _ in 0..40 {
            let (entries, hard_state) = random_batch(&mut rng, run.states.last().unwrap());
            let batch = LogBatch { entries: &entries, hard_state, ..LogBatch::default() };
            match crate::support::write(&mut log, &mut run, &batch) {
                Ok(()) => {}
                Err(WriteError::NoSpace) => {
                    run.states.pop();
                    refused += 1;
                }
                Err(error) => panic!("{error:?}"),
            }
            assert_eq!(State::of(&log), *run.states.last().unwrap());
            if rng.below(3) == 0 {
                log.sync().unwrap();
                run.durable = run.states.len() - 1;
            }
        }
        disk.set_rates(FaultRates::default());
        for how in [Restart::ProcessKilled, Restart::PowerLostAll, Restart::PowerLostSome] {
            let disk = disk.fork(seed);
            disk.restart(how);
            let found = State::of(&open(&disk).unwrap().0);
            assert!(run.states[run.durable..].contains(&found), "seed {seed}, {how:?}");
        }
    }
    println!("{refused} batches refused for lack of space");
    assert!(refused > 100);
}

/// Asserts that a log that has met a failure refuses every call.
fn assert_stopped(log: &mut Log) {
    assert!(matches!(append(log, 1), Err(WriteError::Fatal(Fatal::Stopped))));
    assert!(matches!(log.sync(), Err(Fatal::Stopped)));
    assert!(matches!(log.begin_sync(), Err(Fatal::Stopped)));
    assert!(matches!(log.mark(), Err(WriteError::Fatal(Fatal::Stopped))));
    assert!(matches!(log.compact_to(1), Err(WriteError::Fatal(Fatal::Stopped))));
    assert!(matches!(log.prepare_next(), Err(WriteError::Fatal(Fatal::Stopped))));
    assert!(matches!(log.entries(1, 2, 0), Err(ReadError::Fatal(Fatal::Stopped))));
    assert!(matches!(log.term(1), Err(ReadError::Fatal(Fatal::Stopped))));
}

#[test]
fn after_a_failed_sync_or_write_the_log_refuses_every_call() {
    let disk = SimDisk::new(1);
    let (mut log, _) = open(&disk).unwrap();
    append(&mut log, 100).unwrap();
    disk.plan(DiskFault::SyncError);
    let error = log.sync().unwrap_err();
    assert_eq!(error.to_string(), "disk failed to sync the log; the process must stop");
    assert_stopped(&mut log);

    let (mut log, _) = open(&disk).unwrap();
    disk.plan(DiskFault::WriteError);
    assert!(matches!(append(&mut log, 100), Err(WriteError::Fatal(Fatal::Disk { .. }))));
    assert_stopped(&mut log);
}

#[test]
fn a_sync_that_fails_elsewhere_stops_the_log_before_it_is_told() {
    let disk = SimDisk::new(1);
    let (mut log, _) = open(&disk).unwrap();
    append(&mut log, 100).unwrap();
    let job = log.begin_sync().unwrap().expect("there is something to sync");
    disk.plan(DiskFault::SyncError);
    let report = job.run();
    assert_stopped(&mut log);
    assert!(matches!(log.finish_sync(report), Err(Fatal::Disk { .. })));
    assert_stopped(&mut log);
}

#[test]
fn a_slow_sync_is_reported_with_how_long_it_took() {
    let disk = SimDisk::new(1);
    let (mut log, _) = open(&disk).unwrap();
    append(&mut log, 1).unwrap();
    let usual = log.sync().unwrap().took;
    append(&mut log, 1).unwrap();
    disk.plan(DiskFault::SlowSync);
    assert!(log.sync().unwrap().took > usual * 100);
    assert_eq!(disk.counts()[&DiskFault::SlowSync], 1);
}

#[test]
fn a_snapshot_that_does_not_fit_leaves_the_older_one_and_no_trace() {
    let disk = SimDisk::new(1);
    let snapshots = Snapshots::open(Arc::new(disk.clone())).unwrap();
    let point = |index| tenure_store::LogId { index, term: 1 };
    crate::support::write_snapshot(&snapshots, point(5)).unwrap();
    let before = disk.files();
    disk.set_capacity(Some(1000));
    let error = crate::support::write_snapshot(&snapshots, point(6)).unwrap_err();
    assert!(matches!(error, SnapshotError::NoSpace), "{error:?}");
    assert_eq!(disk.files(), before);
    crate::support::check_snapshots(&disk, point(5));
}
