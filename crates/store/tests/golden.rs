//! Tests that this version still reads the bytes written by every released version.
//!
//! The version that a file under `golden/` is named after wrote that file, and the file never changes. A new format
//! adds files beside them; `TENURE_WRITE_GOLDEN=1` writes those that are missing.

use std::{fs, path::PathBuf, sync::Arc};

use crate::support::{State, open, options};
use tenure_store::{HardState, Log, LogBatch, LogEntry, LogId, Snapshots, sim::SimDisk};

const SEGMENT: &str = "log/0000000000000001.seg";
const SNAPSHOT: &str = "snapshots/0000000000000006-0000000000000003.snap";

fn golden(name: &str, written_now: &[u8]) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if !path.exists() && std::env::var_os("TENURE_WRITE_GOLDEN").is_some() {
        fs::write(&path, written_now).unwrap();
    }
    fs::read(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"))
}

/// Writes one record of every kind that a single segment can hold.
fn write_log(disk: &SimDisk) -> State {
    let (mut log, _) = Log::open(Arc::new(disk.clone()), options()).unwrap();
    let entry = |index, term, kind, payload: &'static str| LogEntry {
        index,
        term,
        kind,
        payload: payload.into(),
    };
    let entries = [entry(1, 1, 0, "one"), entry(2, 1, 1, ""), entry(3, 1, 0, "three is replaced")];
    let hard_state = Some(HardState { term: 1, vote: Some(2), commit: 1 });
    log.write(&LogBatch { entries: &entries, hard_state, ..LogBatch::default() }).unwrap();
    log.sync().unwrap();
    let entries = [entry(3, 2, 0, "another three"), entry(4, 2, 255, "four")];
    let hard_state = Some(HardState { term: 2, vote: None, commit: 3 });
    log.write(&LogBatch { entries: &entries, hard_state, ..LogBatch::default() }).unwrap();
    log.compact_to(2).unwrap();
    let snapshot = Some(LogId { index: 6, term: 3 });
    let entries = [entry(7, 3, 0, "seven")];
    log.write(&LogBatch { snapshot, entries: &entries, ..LogBatch::default() }).unwrap();
    log.mark().unwrap();
    State::of(&log)
}

#[test]
fn a_segment_of_format_1_is_written_and_read_as_ever() {
    let disk = SimDisk::new(1);
    let expected = write_log(&disk);
    let now = disk.contents(SEGMENT).unwrap();
    let then = golden("format-1.seg", &now);
    assert!(now == then, "the bytes of a segment have changed without a new format");
    let disk = SimDisk::new(2);
    disk.plant(SEGMENT, &then);
    let (log, recovered) = open(&disk).unwrap();
    assert_eq!(State::of(&log), expected);
    assert_eq!((recovered.records, recovered.cut), (13, None));
    assert_eq!(recovered.hard_state, HardState { term: 2, vote: None, commit: 6 });
    let payload = &log.entries(7, 8, 0).unwrap()[0].payload;
    assert_eq!(payload.as_ref(), b"seven");
}

#[test]
fn a_snapshot_of_format_1_is_written_and_read_as_ever() {
    let write = |disk: &SimDisk| {
        let snapshots = Snapshots::open(Arc::new(disk.clone())).unwrap();
        let mut writer = snapshots.write(LogId { index: 6, term: 3 }, b"who is a member").unwrap();
        writer.append(b"all that ").unwrap();
        writer.append(b"there is").unwrap();
        writer.finish().unwrap()
    };
    let disk = SimDisk::new(1);
    let id = write(&disk);
    let now = disk.contents(SNAPSHOT).unwrap();
    let then = golden("format-1.snap", &now);
    assert!(now == then, "the bytes of a snapshot have changed without a new format");
    let disk = SimDisk::new(2);
    disk.plant(SNAPSHOT, &then);
    let snapshots = Snapshots::open(Arc::new(disk)).unwrap();
    assert_eq!(snapshots.latest().unwrap(), Some(id));
    let mut reader = snapshots.read(id).unwrap();
    assert_eq!(reader.meta().as_ref(), b"who is a member");
    assert_eq!(reader.next_chunk().unwrap().unwrap().as_ref(), b"all that there is");
    assert_eq!(reader.next_chunk().unwrap(), None);
}
