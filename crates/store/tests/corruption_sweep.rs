//! Tests that recovery always detects damage to durable data and never mistakes it for a torn tail.
//!
//! The tests damage every byte of a log in turn, then every sector and every segment. Opening must report that the log
//! is corrupt, or find exactly what was there: then the byte lay in padding without meaning. A wrong entry or a shorter
//! log would break a promise.

#![allow(clippy::cast_possible_truncation, reason = "the numbers of these tests are small")]

use crate::support::{SEGMENT_BYTES, State, marked_log, open};
use tenure_store::{
    Damage, Disk, OpenError, Position,
    sim::{Rng, SECTOR_BYTES, SimDisk},
};

const SEEDS: u64 = 4;
const STEPS: usize = 120;

#[derive(Debug, Default)]
struct SweepCounts {
    refused: u64,
    irrelevant: u64,
}

fn segments(disk: &SimDisk) -> Vec<String> {
    disk.files().into_iter().filter(|name| name.ends_with(".seg")).collect()
}

/// The offset at which the meaningful bytes of a segment end.
fn meaning_ends(disk: &SimDisk, name: &str, marked: Position) -> u64 {
    if *name == format!("log/{:016x}.seg", marked.segment) {
        return u64::from(marked.offset);
    }
    let bytes = disk.contents(name).unwrap();
    bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last as u64 + 1)
}

fn check(damaged: &SimDisk, expected: &State, matters: bool, counts: &mut SweepCounts, what: &str) {
    match open(damaged) {
        Err(OpenError::Corrupt { .. } | OpenError::Format { .. }) => counts.refused += 1,
        Err(error) => panic!("{what}: {error:?}"),
        Ok((log, _)) => {
            assert_eq!(State::of(&log), *expected, "{what}");
            assert!(!matters, "{what} was not noticed");
            counts.irrelevant += 1;
        }
    }
}

#[test]
fn a_flipped_bit_in_any_durable_byte_is_refused() {
    let mut counts = SweepCounts::default();
    let mut rng = Rng::new(1);
    for seed in 0..SEEDS {
        let (disk, expected, marked) = marked_log(seed, STEPS);
        assert!(segments(&disk).len() > 1);
        for name in segments(&disk) {
            let end = meaning_ends(&disk, &name, marked);
            for offset in 0..u64::from(SEGMENT_BYTES) {
                let damaged = disk.fork(rng.next());
                let bit = rng.below(8) as u8;
                assert!(damaged.flip_bit(&name, offset, bit));
                let what = format!("seed {seed}, {name}, byte {offset}, bit {bit}");
                check(&damaged, &expected, offset < end, &mut counts, &what);
            }
        }
    }
    println!("flipped bits: {counts:?}");
    assert!(counts.refused > 0 && counts.irrelevant > 0);
}

#[test]
fn a_sector_that_is_lost_or_written_to_the_wrong_place_is_refused() {
    let mut counts = SweepCounts::default();
    let mut rng = Rng::new(2);
    for seed in 0..SEEDS {
        let (disk, expected, marked) = marked_log(seed, STEPS);
        let names = segments(&disk);
        for name in &names {
            let end = meaning_ends(&disk, name, marked);
            let bytes = disk.contents(name).unwrap();
            for start in (0..bytes.len()).step_by(SECTOR_BYTES) {
                let other = disk.contents(&names[rng.below(names.len() as u64) as usize]).unwrap();
                let from = rng.below(8) as usize * SECTOR_BYTES;
                let misdirected = &other[from..from + SECTOR_BYTES];
                for sector in [&[0; SECTOR_BYTES], misdirected] {
                    let old = &bytes[start..start + SECTOR_BYTES];
                    if sector == old {
                        continue;
                    }
                    let damaged = disk.fork(rng.next());
                    damaged.open(name).unwrap().write_at(start as u64, sector).unwrap();
                    // The last meaningful sector also holds the mark after it.
                    let meant = (end as usize).saturating_sub(start).min(SECTOR_BYTES);
                    let matters = sector[..meant] != old[..meant];
                    let what = format!("seed {seed}, {name}, sector at {start}");
                    check(&damaged, &expected, matters, &mut counts, &what);
                }
            }
        }
    }
    println!("lost and misdirected sectors: {counts:?}");
    assert!(counts.refused > 0);
}

#[test]
fn a_segment_that_is_missing_cut_copied_or_misnamed_is_refused() {
    let (disk, _, _) = marked_log(5, STEPS);
    let names = segments(&disk);
    assert!(names.len() > 2, "there is a segment between others");
    let damage = |spoil: &dyn Fn(&SimDisk)| {
        let damaged = disk.fork(1);
        spoil(&damaged);
        match open(&damaged) {
            Err(OpenError::Corrupt { damage, .. }) => damage,
            other => panic!("{:?}", other.map(|(_, recovered)| recovered)),
        }
    };
    for (at, name) in names.iter().enumerate() {
        let found = damage(&|disk| disk.erase(name));
        // Without its first segment the log lacks entries; without a later one it lacks the segment that a seal names.
        let expected = if at == 0 { Damage::Gap } else { Damage::Missing };
        assert_eq!(found, expected, "without segment {at}");

        let bytes = disk.contents(name).unwrap();
        let cut = damage(&|disk| {
            disk.erase(name);
            disk.plant(name, &bytes[..bytes.len() - SECTOR_BYTES]);
        });
        assert_eq!(cut, Damage::Size);
        let other = &names[(at + 1) % names.len()];
        let copied = damage(&|disk| {
            disk.erase(other);
            disk.plant(other, &bytes);
        });
        assert!(matches!(copied, Damage::Copy(_)));
    }
    let last = disk.contents(&names[names.len() - 1]).unwrap();
    let misnamed = damage(&|disk| disk.plant("log/0000000000000AAA.seg", &last));
    assert_eq!(misnamed, Damage::Name);
}

#[test]
fn an_error_says_where_the_damage_is_and_which_index_it_reaches() {
    let (disk, _, _) = marked_log(5, STEPS);
    let name = segments(&disk).pop().unwrap();
    disk.flip_bit(&name, 600, 3);
    let error = open(&disk).unwrap_err().to_string();
    assert!(error.starts_with("log is corrupt at segment "), "{error}");
    assert!(error.ends_with(": bad record before the durable mark"), "{error}");
}

#[test]
fn damage_to_an_entry_is_noticed_when_it_is_read() {
    let (disk, state, _) = marked_log(3, STEPS);
    let (log, _) = open(&disk).unwrap();
    let first = state.base.index + 1;
    let to = state.last().index + 1;
    let mut noticed = 0;
    for name in segments(&disk) {
        for offset in (512..u64::from(SEGMENT_BYTES)).step_by(16) {
            disk.flip_bit(&name, offset, 0);
            match log.entries(first, to, u64::MAX) {
                Err(tenure_store::ReadError::Corrupt { .. }) => noticed += 1,
                Err(error) => panic!("{error:?}"),
                Ok(_) => assert_eq!(State::of(&log), state),
            }
            disk.flip_bit(&name, offset, 0);
        }
    }
    assert!(noticed > 0);
}

#[test]
fn damage_to_a_segment_that_waits_to_be_used_is_mended() {
    let (disk, state, _) = marked_log(3, STEPS);
    let (mut log, _) = open(&disk).unwrap();
    log.prepare_next().unwrap();
    let next = segments(&disk).pop().unwrap();
    disk.flip_bit(&next, 2000, 3);
    let (log, _) = open(&disk).unwrap();
    assert_eq!(State::of(&log), state);
    assert!(disk.contents(&next).unwrap()[512..].iter().all(|byte| *byte == 0));
}
