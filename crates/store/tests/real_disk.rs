//! Tests the log on the disk of this machine, with its slow work on other threads.

use std::{sync::Arc, thread};

use crate::support::{State, options, run_on};
use tenure_store::{
    DataDir, DirectoryIdentity, Disk, Log, LogBatch, LogEntry, OpenError, Presence, Reserve,
    Snapshots,
};

#[test]
fn a_random_run_on_a_real_disk_reads_back_as_the_model_says() {
    for seed in 0..4 {
        let dir = tempfile::tempdir().unwrap();
        let (data, _) = DataDir::open_or_create(dir.path().join("data")).unwrap();
        let disk = data.disk();
        let run = run_on(&disk, seed, 80);
        assert!(run.finished);
        let (log, recovered) = Log::open(disk.clone(), options()).unwrap();
        assert_eq!(recovered.cut, None);
        assert_eq!(State::of(&log), *run.states.last().unwrap());
        Snapshots::open(disk).unwrap().covering(log.base()).unwrap();
    }
}

#[test]
fn syncs_and_preparations_run_on_other_threads_while_the_log_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(tenure_store::RealDisk::new(dir.path()));
    let (mut log, _) = Log::open(disk.clone(), options()).unwrap();
    let mut late = log.preparation();
    for index in 1..=200 {
        let entries = [LogEntry { index, term: 1, kind: 0, payload: vec![1; 90].into() }];
        let written = log.write(&LogBatch { entries: &entries, ..LogBatch::default() }).unwrap();
        if let Some(job) = log.begin_sync().unwrap() {
            let report = thread::spawn(move || job.run()).join().unwrap();
            let synced = log.finish_sync(report).unwrap();
            assert!(synced.through >= written.end && log.durable() >= written.end);
        }
        if log.room().unwrap().in_segment < 500
            && let Some(preparation) = log.preparation()
        {
            let prepared = thread::spawn(move || preparation.run()).join().unwrap().unwrap();
            log.adopt(prepared).unwrap();
        }
        if index == 100 {
            // The log removes a prepared segment that arrives after it has created that segment itself.
            let stale = late.take().unwrap();
            log.adopt(stale.run().unwrap()).unwrap();
        }
    }
    assert!(log.segments() > 5);
    let expected = State::of(&log);
    drop(log);
    let (log, _) = Log::open(disk.clone(), options()).unwrap();
    assert_eq!(State::of(&log), expected);
    assert!(disk.list("log").unwrap().iter().all(|name| name.ends_with(".seg")));
}

#[test]
fn a_whole_data_directory_is_used_closed_and_used_again() {
    let above = tempfile::tempdir().unwrap();
    let path = above.path().join("data");
    for start in 1..=3 {
        let (data, warnings) = DataDir::open_or_create(&path).unwrap();
        assert_eq!(warnings, []);
        let disk = data.disk();
        let known = DirectoryIdentity::read(&*disk).unwrap();
        assert_eq!(known.is_some(), start > 1);
        // The identity is written once the log exists. From then on the log must exist.
        let presence = if known.is_some() { Presence::MustExist } else { Presence::MayBeNew };
        let opened = Log::open(disk.clone(), tenure_store::LogOptions { presence, ..options() });
        let (mut log, recovered) = opened.unwrap();
        let identity = DirectoryIdentity {
            cluster: Some("c".into()),
            member: 5,
            starts: start,
            epoch: 0,
            incarnation: 0,
        };
        identity.write(&*disk).unwrap();
        assert!(Reserve::open(disk.clone(), 8192).unwrap().restore().unwrap());
        assert_eq!(recovered.last.index, start - 1);
        let payload = "once for each start".into();
        let entries = [LogEntry { index: start, term: 1, kind: 0, payload }];
        log.write(&LogBatch { entries: &entries, ..LogBatch::default() }).unwrap();
        log.mark().unwrap();
    }
    std::fs::remove_dir_all(path.join("log")).unwrap();
    let (data, _) = DataDir::open_or_create(&path).unwrap();
    let must_exist = tenure_store::LogOptions { presence: Presence::MustExist, ..options() };
    assert!(matches!(Log::open(data.disk(), must_exist), Err(OpenError::Absent)));
}
