//! Runs many seeds on all cores.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::{FaultCounts, S};
use crate::invariant::InvariantViolation;

/// Which seeds to run.
#[derive(Clone, Copy, Debug)]
pub struct ClusterPlan {
    /// The first seed.
    pub from: u64,
    /// The number of seeds.
    pub seeds: u64,
    /// The number of threads.
    pub threads: usize,
}

/// The results of a campaign.
#[derive(Default)]
pub struct ClusterReport {
    /// The number of seeds that ran.
    pub seeds: u64,
    /// The simulated time of all clusters together.
    pub sim_us: u64,
    /// The faults and events that occurred.
    pub faults: FaultCounts,
    /// The failure with the smallest seed.
    pub failure: Option<(u64, InvariantViolation)>,
}

impl ClusterReport {
    /// The simulated time of all clusters together, in hours.
    pub fn sim_hours(&self) -> f64 {
        self.sim_us as f64 / S as f64 / 3600.0
    }
}

/// Runs the plan; `progress` hears of each seed that is over. Stops at the first failure.
pub fn run(plan: ClusterPlan, progress: &(dyn Fn() + Sync)) -> ClusterReport {
    let next = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let report = Mutex::new(ClusterReport::default());
    std::thread::scope(|scope| {
        for _ in 0..plan.threads.max(1) {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= plan.seeds {
                        return;
                    }
                    let seed = plan.from.wrapping_add(number);
                    let ran = super::run(seed);
                    let mut report = report.lock().expect("no thread panics while it reports");
                    report.seeds += 1;
                    report.sim_us += ran.sim_us;
                    report.faults.add(&ran.faults);
                    if let Some(violation) = ran.failure {
                        stop.store(true, Ordering::Relaxed);
                        if report.failure.as_ref().is_none_or(|(other, _)| seed < *other) {
                            report.failure = Some((seed, violation));
                        }
                    }
                    drop(report);
                    progress();
                }
            });
        }
    });
    report.into_inner().expect("no thread panics while it reports")
}

/// Runs seeds twice; the first whose two runs differ.
pub fn check_determinism(plan: ClusterPlan) -> Option<u64> {
    (0..plan.seeds)
        .map(|number| plan.from.wrapping_add(number))
        .find(|&seed| !super::run(seed).is_same(&super::run(seed)))
}
