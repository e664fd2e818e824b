//! Runs many sequences on all cores, and stops at the first that fails.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::coverage::Coverage;
use crate::run::{self, BrokenSequence};

/// The sequences to run.
#[derive(Clone, Copy, Debug)]
pub struct ModelPlan {
    /// The first seed.
    pub from: u64,
    /// The number of seeds.
    pub sequences: u64,
    /// The approximate maximum of commands per sequence.
    pub commands: usize,
    /// The number of threads.
    pub threads: usize,
}

/// The results of a campaign.
pub struct ModelReport {
    /// The number of sequences that ran.
    pub sequences: u64,
    /// The number of commands in them.
    pub commands: u64,
    /// The answers and events that the sequences produced.
    pub coverage: Coverage,
    /// The failure with the smallest seed.
    pub failure: Option<(u64, BrokenSequence)>,
}

/// Runs the plan; calls `progress` after each sequence.
///
/// The campaign hands out seeds in order and finishes every seed handed out, so the smallest failing seed is the same
/// on any number of threads.
pub fn run(plan: ModelPlan, progress: &(dyn Fn() + Sync)) -> ModelReport {
    let next = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let report = Mutex::new(ModelReport {
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
                let mut found: Option<(u64, BrokenSequence)> = None;
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
