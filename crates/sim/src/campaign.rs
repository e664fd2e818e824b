//! How do many sequences run on all cores, and stop at the first that fails?

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::coverage::Coverage;
use crate::run::{self, Failure};

/// Which sequences to run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The first seed.
    pub from: u64,
    /// How many seeds.
    pub sequences: u64,
    /// About how many commands each has at most.
    pub commands: usize,
    /// On how many threads.
    pub threads: usize,
}

/// What a campaign found.
pub struct Report {
    /// How many sequences ran.
    pub sequences: u64,
    /// How many commands they had.
    pub commands: u64,
    /// What was seen.
    pub coverage: Coverage,
    /// The failure with the smallest seed.
    pub failure: Option<(u64, Failure)>,
}

/// Runs the plan; `progress` hears of each sequence that is over.
///
/// Seeds are handed out in order and every one handed out is finished, so the smallest failing seed is
/// the same on any number of threads.
pub fn run(plan: Plan, progress: &(dyn Fn() + Sync)) -> Report {
    let next = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let report = Mutex::new(Report {
        sequences: 0,
        commands: 0,
        coverage: Coverage::default(),
        failure: None,
    });
    std::thread::scope(|scope| {
        for _ in 0..plan.threads.max(1) {
            scope.spawn(|| {
                let mut mine = Coverage::default();
                let (mut sequences, mut commands) = (0, 0);
                let mut found: Option<(u64, Failure)> = None;
                while !stop.load(Ordering::Relaxed) {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= plan.sequences {
                        break;
                    }
                    let seed = plan.from.wrapping_add(number);
                    let ran = run::sequence(seed, plan.commands, &mut mine, false);
                    sequences += 1;
                    commands += ran.commands;
                    if let Some(failure) = ran.failure {
                        stop.store(true, Ordering::Relaxed);
                        found = Some((seed, failure));
                    }
                    progress();
                }
                let mut report = report.lock().expect("no thread panics while it reports");
                report.sequences += sequences;
                report.commands += commands;
                report.coverage.add(&mine);
                let smaller = match (&found, &report.failure) {
                    (Some((mine, _)), Some((other, _))) => mine < other,
                    (found, _) => found.is_some(),
                };
                if smaller {
                    report.failure = found;
                }
            });
        }
    });
    report.into_inner().expect("no thread panics while it reports")
}
