//! Tests that everything promised survives a crash at every point, and that nothing else appears.
//!
//! The test repeats a random run once for each of its disk operations and cuts the power during that operation. Each
//! time the process restarts in several ways, recovers, and is compared with the model. The test also cuts each
//! recovery at every one of its operations.

#![allow(clippy::cast_possible_truncation, reason = "the numbers of these tests are small")]

use std::{collections::BTreeMap, sync::Arc};

use crate::support::{Run, State, check_snapshots, open, random_batch, run, run_from, write};
use tenure_store::{
    CutCause, Disk, LogBatch, Snapshots,
    sim::{DiskFault, FaultRates, Restart, Rng, SimDisk},
};

const SEEDS: u64 = 60;
const STEPS: usize = 60;

const RESTARTS: [Restart; 4] =
    [Restart::ProcessKilled, Restart::PowerLostAll, Restart::PowerLostSome, Restart::PowerLostSome];

#[derive(Default)]
struct SweepTotals {
    crash_points: u64,
    recoveries: u64,
    recoveries_cut_short: u64,
    tails_cut: u64,
    unsynced_kept: u64,
    faults: BTreeMap<DiskFault, u64>,
}

impl SweepTotals {
    fn add_faults(&mut self, disk: &SimDisk) {
        for (fault, count) in disk.counts() {
            *self.faults.entry(fault).or_default() += count;
        }
    }
}

/// Recovers and returns the state of the run that was found: one no older than what was promised.
fn recover(disk: &SimDisk, run: &Run, totals: &mut SweepTotals) -> State {
    let (log, recovered) = open(disk).unwrap_or_else(|error| panic!("cannot open: {error:?}"));
    let found = State::of(&log);
    totals.recoveries += 1;
    if let Some(cut) = recovered.cut {
        totals.tails_cut += 1;
        assert_eq!(cut.cause, CutCause::Torn, "a crash tears and does not damage: {cut:?}");
        assert!(cut.first_index <= recovered.last.index + 1);
    }
    let at = run.states[run.durable..].iter().position(|state| *state == found);
    let Some(at) = at else {
        panic!("found {found:?}\nwhich is none of {:#?}", &run.states[run.durable..]);
    };
    totals.unsynced_kept += u64::from(at > 0);
    assert_eq!((recovered.base, recovered.hard_state), (found.base, found.hard_state));
    assert_eq!(recovered.last, found.last());
    check_snapshots(disk, found.base);
    found
}

/// Checks that the recovered state lasts, is found again unchanged, and can be continued.
fn check_after(disk: &SimDisk, found: State, rng: &mut Rng) {
    disk.restart(Restart::PowerLostAll);
    let (mut log, recovered) = open(disk).expect("a recovered log opens");
    assert_eq!(State::of(&log), found, "what was recovered is durable");
    assert_eq!(recovered.cut, None, "a recovered log has nothing left to cut");
    let mut run = Run { states: vec![found], durable: 0, finished: true };
    for _ in 0..3 {
        let now = run.states.last().unwrap().clone();
        let (entries, hard_state) = random_batch(rng, &now);
        write(
            &mut log,
            &mut run,
            &LogBatch { entries: &entries, hard_state, ..LogBatch::default() },
        )
        .unwrap();
    }
    log.sync().unwrap();
    disk.restart(Restart::PowerLostAll);
    let (log, _) = open(disk).expect("a continued log opens");
    assert_eq!(State::of(&log), *run.states.last().unwrap(), "the log can be written afterwards");
}

fn check_crash(crashed: &SimDisk, run: &Run, seed: u64, totals: &mut SweepTotals) {
    let mut rng = Rng::new(seed);
    for how in RESTARTS {
        let disk = crashed.fork(rng.next());
        disk.restart(how);
        let restarted = disk.fork(rng.next());
        let before = disk.operations();
        let found = recover(&disk, run, totals);
        let recovery = disk.operations() - before;
        check_after(&disk, found, &mut rng);
        totals.add_faults(&disk);
        // Also cut the power during the recovery itself.
        for point in 0..recovery {
            let disk = restarted.fork(rng.next());
            disk.power_off_after(Some(point));
            if open(&disk).is_ok() {
                let _ = Snapshots::open(Arc::new(disk.clone()));
            }
            assert!(disk.is_off(), "the power failed during the recovery");
            let again = RESTARTS[rng.below(4) as usize];
            disk.restart(again);
            recover(&disk, run, totals);
            totals.recoveries_cut_short += 1;
            totals.add_faults(&disk);
        }
    }
}

#[test]
fn a_crash_at_any_point_loses_nothing_promised_and_invents_nothing() {
    let mut totals = SweepTotals::default();
    for seed in 0..SEEDS {
        let whole = SimDisk::new(seed);
        assert!(run(&whole, seed, STEPS).finished);
        for point in 0..whole.operations() {
            let disk = SimDisk::new(seed);
            disk.power_off_after(Some(point));
            let cut = run(&disk, seed, STEPS);
            assert!(!cut.finished && disk.is_off(), "the power failed during the run");
            totals.crash_points += 1;
            totals.add_faults(&disk);
            check_crash(&disk, &cut, seed ^ point << 32, &mut totals);
        }
    }
    let SweepTotals { crash_points, recoveries, recoveries_cut_short, tails_cut, .. } = totals;
    println!(
        "{SEEDS} seeds, {crash_points} crash points, {recoveries} recoveries compared, \
         {recoveries_cut_short} recoveries cut short, {tails_cut} tails cut, \
         {} with unsynced batches kept; faults {:?}",
        totals.unsynced_kept, totals.faults
    );
    assert!(crash_points > 0 && recoveries_cut_short > 0 && tails_cut > 0);
    assert!(totals.unsynced_kept > 0, "some crash kept what was not synced");
    for fault in [
        DiskFault::PowerLoss,
        DiskFault::LostWrite,
        DiskFault::TornWrite,
        DiskFault::LostDirectoryChange,
    ] {
        assert!(totals.faults.get(&fault).is_some_and(|count| *count > 0), "{fault:?} happened");
    }
}

#[test]
fn crash_after_crash_never_brings_back_what_an_earlier_recovery_cut() {
    /// Enough for the tail of one generation to lie under that of several later ones.
    const GENERATIONS: u64 = 12;
    let mut totals = SweepTotals::default();
    for seed in 0..600 {
        let mut rng = Rng::new(seed);
        let disk = SimDisk::new(seed);
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let mut state = State::default();
        for _ in 0..GENERATIONS {
            disk.power_off_after(Some(rng.below(40)));
            let run = run_from(state, &shared, rng.next(), STEPS);
            totals.crash_points += u64::from(!run.finished);
            disk.restart(RESTARTS[rng.below(4) as usize]);
            state = recover(&disk, &run, &mut totals);
        }
        totals.add_faults(&disk);
    }
    println!(
        "{} crashes in lives of {GENERATIONS} generations, {} tails cut; faults {:?}",
        totals.crash_points, totals.tails_cut, totals.faults
    );
    assert!(totals.crash_points > 0 && totals.tails_cut > 0);
}

#[test]
fn after_a_failed_sync_the_next_run_trusts_only_what_it_has_made_durable_itself() {
    let mut totals = SweepTotals::default();
    let mut stopped = 0;
    for seed in 0..400 {
        let disk = SimDisk::new(seed);
        disk.set_rates(FaultRates { sync_error: 0.04, ..FaultRates::default() });
        let run = run(&disk, seed, STEPS);
        stopped += u64::from(!run.finished);
        disk.set_rates(FaultRates::default());
        for how in RESTARTS {
            let disk = disk.fork(seed);
            disk.restart(how);
            let found = recover(&disk, &run, &mut totals);
            check_after(&disk, found, &mut Rng::new(seed));
        }
        totals.add_faults(&disk);
    }
    println!("{stopped} runs stopped by a failed sync; faults {:?}", totals.faults);
    assert!(stopped > 100 && totals.faults[&DiskFault::SyncError] >= stopped);
}
