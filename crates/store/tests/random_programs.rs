//! Tests that no random program of writes, syncs, roll-overs, compactions, crashes and disk faults ever reads what was
//! not written, or loses durable data silently.

#![allow(clippy::cast_possible_truncation, reason = "the numbers of these tests are small")]

use std::collections::BTreeMap;

use crate::support::program::{CLASSES, Class, ProgramTotals, run_program};
use tenure_store::sim::DiskFault;

/// The number of programs of each class.
const PROGRAMS: u64 = 1500;

#[test]
fn no_program_reads_what_was_not_written_or_loses_without_a_word() {
    let mut all: BTreeMap<Class, ProgramTotals> = BTreeMap::new();
    for class in CLASSES {
        for seed in 0..PROGRAMS {
            run_program(class, seed, all.entry(class).or_default());
        }
        println!("{class:?}: {:?}", all[&class]);
    }
    for (class, faults) in [
        (
            Class::None,
            &[DiskFault::PowerLoss, DiskFault::TornWrite, DiskFault::OverlappingSync][..],
        ),
        (
            Class::Failing,
            &[
                DiskFault::WriteError,
                DiskFault::SyncError,
                DiskFault::NoSpace,
                DiskFault::ReadError,
                DiskFault::ReadOnly,
                DiskFault::DeviceError,
            ],
        ),
        (Class::Rot, &[DiskFault::DamageWhileRunning]),
        (Class::NewestBatch, &[DiskFault::DamagedNewestBatch]),
        (Class::Stale, &[DiskFault::StaleSector]),
        (Class::Misdirected, &[DiskFault::MisdirectedWrite]),
        (Class::Lying, &[DiskFault::LyingSync]),
    ] {
        let totals = &all[&class];
        assert!(totals.recoveries > PROGRAMS, "{class:?} recovered");
        for fault in faults {
            assert!(
                totals.faults.get(fault).is_some_and(|times| *times > 100),
                "{fault:?} happened"
            );
        }
        let is_damage = !matches!(class, Class::None | Class::Failing);
        assert_eq!(is_damage, totals.refused > 0, "{class:?}: damage, and only damage, is refused");
    }
    for class in [Class::Rot, Class::NewestBatch] {
        assert!(all[&class].lost_and_said > 0, "{class:?}: a cut batch was said");
        assert_eq!(all[&class].went_back, 0);
    }
}
