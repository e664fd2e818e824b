//! Tests that no bytes on the disk make recovery panic, run without end, or give two different results.

#![allow(clippy::cast_possible_truncation, reason = "the numbers of these tests are small")]

use std::sync::Arc;

use bytes::Bytes;

use super::{
    record::{Encoder, LogRecord},
    segment::{self, DIR, FIRST_RECORD, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN},
    *,
};
use crate::{
    Damage,
    sim::{Rng, SimDisk},
};

const SALT: u64 = 7;

fn options() -> LogOptions {
    LogOptions { segment_bytes: SEGMENT_BYTES_MIN, cache_bytes: 500, ..LogOptions::default() }
}

/// Creates a disk with segments that have good headers and these bytes after them.
fn disk(images: &[Vec<u8>], first: u64) -> SimDisk {
    let disk = SimDisk::new(1);
    disk.make_dir(DIR).unwrap();
    // The numbers come second in the zip: `first` may be the largest number, which has no successor.
    for (image, number) in images.iter().zip(first..) {
        let made = segment::create(&disk, "log/a.tmp", number, SALT, SEGMENT_BYTES_MIN).unwrap();
        made.file.write_at(u64::from(FIRST_RECORD), image).unwrap();
        disk.rename("log/a.tmp", &segment::name(number)).unwrap();
    }
    disk
}

/// Opens the log and uses it if that succeeds. Returns whether it succeeded.
fn survive(disk: &SimDisk) -> bool {
    let Ok((mut log, found)) = Log::open(Arc::new(disk.clone()), options()) else { return false };
    let (base, last) = (log.base(), log.last());
    assert_eq!((base, last), (found.base, found.last));
    let entries = log.entries(base.index + 1, last.index + 1, u64::MAX).unwrap();
    assert_eq!(entries.len() as u64, last.index - base.index);
    let _ = log.term(last.index.wrapping_add(1));
    let _ = log.compact_to(log.hard_state().commit);
    let index = last.index + 1;
    let payload = Bytes::from_static(b"more");
    let more = [LogEntry { index, term: u64::MAX, kind: 0, payload }];
    let _ = log.write(&LogBatch { entries: &more, ..LogBatch::default() });
    let _ = log.mark();
    let written = (log.base(), log.last(), log.hard_state());
    let (log, again) = Log::open(Arc::new(disk.clone()), options()).unwrap();
    assert_eq!((log.base(), log.last(), log.hard_state()), written, "a second open agrees");
    assert_eq!(again.cut, None);
    true
}

fn extreme(rng: &mut Rng) -> u64 {
    match rng.below(4) {
        0 => rng.below(4),
        1 => u64::MAX - rng.below(3),
        2 => rng.next(),
        _ => rng.below(12),
    }
}

/// Encodes well-formed records with arbitrary content and a correct chain.
fn records(rng: &mut Rng, number: u64, previous: &mut u32) -> Vec<u8> {
    let mut buffer = Vec::new();
    let seed = record::seed(SALT, number);
    let start = FIRST_RECORD;
    let mut encoder =
        Encoder { buffer: &mut buffer, seed, start, previous: *previous, durable: FIRST_RECORD };
    let (mut index, term) = (1, 1);
    for at in 0..rng.below(14) {
        let point = LogId { index: extreme(rng), term: extreme(rng) };
        let hard_state = HardState {
            term: extreme(rng),
            vote: (rng.below(2) == 0).then(|| extreme(rng)),
            commit: extreme(rng),
        };
        let tame = rng.below(8) > 0;
        let payload = [9; 20];
        let record = match rng.below(12) {
            _ if at == 0 && tame => {
                let (base, last) = (LogId::default(), LogId::default());
                LogRecord::Start { base, last, hard_state: HardState::default() }
            }
            0 => LogRecord::Start { base: point, last: point, hard_state },
            1 => LogRecord::HardState(hard_state),
            2 => LogRecord::HardState(HardState { term: index, vote: None, commit: index - 1 }),
            3 => LogRecord::Snapshot(point),
            4 => LogRecord::Compact(point),
            5 => LogRecord::Durable { filler: u32::try_from(rng.below(90)).unwrap() },
            6 => LogRecord::Seal { next: if tame { number + 1 } else { point.index } },
            7 => {
                let LogId { index, term } = point;
                LogRecord::Entry { index, term, kind: 0, payload: &payload }
            }
            _ => {
                index += 1;
                LogRecord::Entry { index: index - 1, term, kind: 1, payload: &payload }
            }
        };
        encoder.durable = if tame { FIRST_RECORD } else { u32::try_from(rng.below(5000)).unwrap() };
        encoder.push(&record, rng.below(5) > 0);
    }
    *previous = encoder.previous;
    buffer.truncate((SEGMENT_BYTES_MIN - FIRST_RECORD) as usize);
    buffer
}

#[test]
fn records_that_say_anything_at_all_never_panic_and_never_tell_two_stories() {
    let mut rng = Rng::new(1);
    let (mut opened, mut refused) = (0, 0);
    for _ in 0..30_000 {
        let first = if rng.below(10) == 0 { u64::MAX - 1 } else { 1 + rng.below(3) };
        let mut previous = 0;
        let images: Vec<_> = (0..=rng.below(3).min(u64::MAX - 1 - first))
            .map(|at| records(&mut rng, first + at, &mut previous))
            .collect();
        if survive(&disk(&images, first)) { opened += 1 } else { refused += 1 }
    }
    println!("{opened} strange logs opened, {refused} refused");
    assert!(opened > 0 && refused > 0);
}

#[test]
fn random_and_mutated_bytes_never_panic() {
    let mut rng = Rng::new(2);
    let (mut opened, mut refused) = (0, 0);
    for round in 0..10_000 {
        let mut previous = 0;
        let mut image = records(&mut rng, 1, &mut previous);
        if round % 5 == 0 {
            image = (0..rng.below(2000)).map(|_| rng.next() as u8).collect();
        }
        for _ in 0..rng.below(4) {
            if !image.is_empty() {
                let at = usize::try_from(rng.below(image.len() as u64)).unwrap();
                image[at] = [0, 0xff, rng.next() as u8][usize::try_from(rng.below(3)).unwrap()];
            }
        }
        if survive(&disk(&[image], 1)) { opened += 1 } else { refused += 1 }
    }
    println!("{opened} mutated logs opened, {refused} refused");
    assert!(opened > 0 && refused > 0);
}

#[test]
fn a_file_of_any_size_is_refused_before_it_is_read_into_memory() {
    let disk = SimDisk::new(1);
    disk.make_dir(DIR).unwrap();
    let name = segment::name(1);
    disk.create(&name).unwrap().fill_with_zeros(u64::from(SEGMENT_BYTES_MAX) * 1_000_000).unwrap();
    match Log::open(Arc::new(disk), options()) {
        Err(OpenError::Corrupt { damage: Damage::Size, .. }) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_payload_that_looks_like_a_record_is_never_taken_for_one() {
    // The payload that a client could send if it knew the format but not the salt: records with a high mark.
    let mut payload = Vec::new();
    let guess = record::seed(0, 1);
    while payload.len() < 1000 {
        let start = FIRST_RECORD + START_BYTES + HEADER_BYTES;
        let (previous, durable) = (0, SEGMENT_BYTES_MIN);
        let mut encoder = Encoder { buffer: &mut payload, seed: guess, start, previous, durable };
        encoder.push(&LogRecord::Durable { filler: 0 }, true);
    }
    let disk = SimDisk::new(1);
    let options = LogOptions { salt: 0x1234_5678_9abc_def0, ..options() };
    let (mut log, _) = Log::open(Arc::new(disk.clone()), options).unwrap();
    let entries = [LogEntry { index: 1, term: 1, kind: 0, payload: payload.into() }];
    log.write(&LogBatch { entries: &entries, ..LogBatch::default() }).unwrap();
    // Damage the head of the batch and leave its body, which is full of such bytes.
    disk.flip_bit(&segment::name(1), u64::from(FIRST_RECORD), 0);
    let (log, recovered) = Log::open(Arc::new(disk), options).unwrap();
    assert_eq!(log.last().index, 0);
    assert!(recovered.cut.is_some_and(|cut| cut.bytes > 1000));
}

#[test]
fn a_record_that_does_not_follow_the_one_before_it_is_not_read() {
    let seed = record::seed(SALT, 1);
    let image = |first: &[u8]| {
        let mut buffer = Vec::new();
        let (start, previous, durable) = (FIRST_RECORD, 0, FIRST_RECORD);
        let mut encoder = Encoder { buffer: &mut buffer, seed, start, previous, durable };
        let (base, last) = (LogId::default(), LogId::default());
        let hard_state = HardState::default();
        encoder.push(&LogRecord::Start { base, last, hard_state }, true);
        encoder.push(&LogRecord::Entry { index: 1, term: 1, kind: 0, payload: first }, true);
        let second = encoder.offset() - FIRST_RECORD;
        encoder.push(&LogRecord::Entry { index: 2, term: 1, kind: 0, payload: b"two" }, true);
        (buffer, second as usize)
    };
    let (old, second) = image(b"old one");
    let (mut mixed, _) = image(b"new one");
    mixed[second..].copy_from_slice(&old[second..]);
    let (log, recovered) = Log::open(Arc::new(disk(&[mixed], 1)), options()).unwrap();
    assert_eq!(log.last_index(), 1);
    assert!(recovered.cut.is_some());
}
