//! Tests that notes outlive restarts and the segments that they were written to.

use std::sync::Arc;

use crate::support::{open, options};
use tenure_store::sim::{Restart, SimDisk};
use tenure_store::{Log, LogBatch, LogEntry, LogOptions, NOTES_BYTES_MAX, Rejection, WriteError};

fn write(log: &mut Log, index: u64, notes: Option<&[u8]>) {
    let entries = [LogEntry { index, term: 1, kind: 0, payload: vec![7; 300].into() }];
    let hard_state = Some(tenure_store::HardState { term: 1, vote: None, commit: index });
    log.write(&LogBatch { entries: &entries, hard_state, notes, ..LogBatch::default() }).unwrap();
    log.sync().unwrap();
}

#[test]
fn the_newest_notes_are_there_after_a_restart_and_after_their_segment_is_gone() {
    let disk = SimDisk::new(1);
    let (mut log, _) = Log::open(Arc::new(disk.clone()), options()).unwrap();
    assert_eq!(log.notes(), b"");
    write(&mut log, 1, Some(b"old"));
    write(&mut log, 2, Some(b"new"));
    let first = log.written().segment;
    for index in 3..200 {
        write(&mut log, index, None);
    }
    assert!(log.written().segment > first + 1, "the log has rolled");
    log.compact_to(198).unwrap();
    drop(log);
    disk.restart(Restart::PowerLostAll);
    let (log, _) = open(&disk).unwrap();
    assert_eq!(log.notes(), b"new");
}

#[test]
fn notes_that_were_not_synced_may_be_lost_and_the_ones_before_are_kept() {
    let disk = SimDisk::new(1);
    let (mut log, _) = Log::open(Arc::new(disk.clone()), options()).unwrap();
    write(&mut log, 1, Some(b"old"));
    log.write(&LogBatch { notes: Some(b"new"), ..LogBatch::default() }).unwrap();
    drop(log);
    disk.restart(Restart::PowerLostAll);
    let (log, _) = open(&disk).unwrap();
    assert!([&b"old"[..], b"new"].contains(&log.notes()));
}

#[test]
fn notes_beyond_the_bound_are_refused_and_large_ones_leave_room_for_batches() {
    let disk = SimDisk::new(1);
    let options = LogOptions { segment_bytes: 16 * 1024, ..options() };
    let (mut log, _) = Log::open(Arc::new(disk.clone()), options).unwrap();
    let large = vec![7; NOTES_BYTES_MAX + 1];
    let refused = log.write(&LogBatch { notes: Some(&large), ..LogBatch::default() });
    assert!(matches!(refused, Err(WriteError::Rejected(Rejection::TooLarge { .. }))));
    for index in 1..50 {
        write(&mut log, index, Some(&large[1..]));
    }
    assert_eq!(log.notes(), &large[1..]);
}
