//! Runs every planted bug, and reports whether one of the expected invariants caught it.

use tenure_core::mutants;

use crate::campaign::{self, ModelPlan};
use crate::cluster;
use crate::invariant::InvariantViolation;

/// The number of sequences that the machine without a planted bug must survive first.
const CLEAN: u64 = 200;

/// Runs all planted bugs, and returns whether each was caught as expected.
pub fn run(plan: ModelPlan) -> bool {
    mutants::select(0);
    let clean = campaign::run(ModelPlan { sequences: CLEAN, ..plan }, &|| {});
    if let Some((seed, failure)) = clean.failure {
        let violation = failure.violation;
        println!(
            "violation {} seed={seed} step={}: {} (no bug was planted)",
            violation.invariant, failure.step, violation.detail
        );
        return false;
    }
    let (mut caught, mut searched, mut seeds) = (0, 0, String::new());
    for (index, (name, expected)) in mutants::ALL.iter().enumerate() {
        mutants::select(index + 1);
        match caught_in_sequences(plan, name, expected) {
            None => println!("missed {name}"),
            Some((seed, violation)) => {
                let by = violation.invariant;
                if expected.contains(&by.as_str()) {
                    caught += 1;
                    searched += u64::from(SEQUENCES.seed_of(name) != Some(seed));
                    println!("caught {name} by {by} seed={seed}");
                    seeds.push_str(&format!("{name} {seed}\n"));
                } else {
                    let detail = violation.detail;
                    println!("caught {name} by {by}, expected {expected:?}, seed {seed}: {detail}");
                }
            }
        }
    }
    mutants::select(0);
    println!("mutants caught={caught}/{} searched={searched}", mutants::ALL.len());
    SEQUENCES.write(&seeds);
    caught == mutants::ALL.len()
}

/// Runs the selected bug with the sequence that showed it last time, then, if that one no longer shows it, with all
/// sequences of the plan.
fn caught_in_sequences(
    plan: ModelPlan,
    name: &str,
    expected: &[&str],
) -> Option<(u64, InvariantViolation)> {
    let violation = |plan| {
        let (seed, failure) = campaign::run(plan, &|| {}).failure?;
        Some((seed, failure.violation))
    };
    let remembered = SEQUENCES.seed_of(name);
    let remembered =
        remembered.and_then(|from| violation(ModelPlan { from, sequences: 1, ..plan }));
    remembered
        .filter(|(_, by)| expected.contains(&by.invariant.as_str()))
        .or_else(|| violation(plan))
}

/// The seeds that showed the planted bugs last time: `name seed`, one on each line. After a change of the machine or of
/// the simulator seeds run differently, and the search takes longer: `TENURE_FIX=1 cargo xtask test mutants
/// cluster-mutants` writes down the new ones.
struct SeedFile {
    path: &'static str,
    text: &'static str,
}

/// Of the planted bugs of the machine, in sequences of commands.
const SEQUENCES: SeedFile = SeedFile {
    path: concat!(env!("CARGO_MANIFEST_DIR"), "/src/planted-sequences.txt"),
    text: include_str!("planted-sequences.txt"),
};

/// Of the bugs that clusters must show.
const CLUSTERS: SeedFile = SeedFile {
    path: concat!(env!("CARGO_MANIFEST_DIR"), "/src/planted-seeds.txt"),
    text: include_str!("planted-seeds.txt"),
};

impl SeedFile {
    fn seed_of(&self, name: &str) -> Option<u64> {
        let mut lines = self.text.lines();
        lines.find_map(|line| line.split_once(' ').filter(|(bug, _)| *bug == name)?.1.parse().ok())
    }

    /// Writes the seeds of this run, if `TENURE_FIX` is set.
    fn write(&self, seeds: &str) {
        if std::env::var_os("TENURE_FIX").is_some() {
            std::fs::write(self.path, seeds).expect("the file of the seeds can be written");
        }
    }
}

/// The number of seeds that clusters without a planted bug must survive first.
const CLEAN_SEEDS: u64 = 20;

/// Bugs planted in the machine that a cluster must show too, and the invariants that may catch them there.
const OF_THE_MACHINE: &[(&str, &[&str])] = &[
    ("clock_base_not_in_snapshot", &["S9", "S10"]),
    ("clock_not_in_snapshot", &["S9", "S10"]),
    ("queue_not_in_snapshot", &["S9", "S10"]),
    ("token_counter_not_in_snapshot", &["S2", "S9", "S10"]),
    ("requests_not_in_snapshot", &["S7", "S9", "S10"]),
    ("full_ttl_on_new_term", &["T1"]),
    ("restore_keeps_epoch", &["S2", "S9", "S10"]),
    ("quiet_from_backup_leases_only", &["T2", "S1"]),
    ("grant_given_back_although_a_retry_was_told", &["N11", "S1"]),
];

/// One planted bug: its name, what may catch it, and how it is chosen.
type Planted = (&'static str, &'static [&'static str], fn(usize), usize);

/// Every bug that clusters must show: of the replicated log, of the node, of the log on disk, of the machine. Those
/// that only tests show are lists of their own in these crates.
fn planted_in_clusters() -> Vec<Planted> {
    let numbered = |all: &'static [(&'static str, &'static [&'static str])], select: fn(usize)| {
        let number = move |(at, one): (usize, &'static (&'static str, &'static [&'static str]))| {
            (one.0, one.1, select, at + 1)
        };
        all.iter().enumerate().map(number)
    };
    let of_the_machine = OF_THE_MACHINE.iter().map(|(name, expected)| {
        let at = mutants::ALL.iter().position(|(planted, _)| planted == name);
        let at = at.expect("the machine has a planted bug of this name");
        (*name, *expected, mutants::select as fn(usize), at + 1)
    });
    numbered(tenure_raft::mutants::ALL, tenure_raft::mutants::select)
        .chain(numbered(tenure_node::mutants::ALL, tenure_node::mutants::select))
        .chain(numbered(tenure_store::mutants::ALL, tenure_store::mutants::select))
        .chain(of_the_machine)
        .collect()
}

/// Runs all bugs that clusters must show and whose name contains `only`. Returns whether each was caught as expected.
pub fn run_clusters(plan: cluster::campaign::ClusterPlan, only: &str) -> bool {
    let clean = cluster::campaign::ClusterPlan { seeds: CLEAN_SEEDS, ..plan };
    if let Some((seed, violation)) = cluster::campaign::run(clean, &|| {}).failure {
        println!(
            "violation {} seed={seed}: {} (no bug was planted)",
            violation.invariant, violation.detail
        );
        return false;
    }
    let mut planted = planted_in_clusters();
    planted.retain(|(name, ..)| name.contains(only));
    let (mut caught, mut searched, mut seeds) = (0, 0, String::new());
    for (name, expected, select, number) in &planted {
        select(*number);
        match caught_in_clusters(plan, name, expected) {
            None => println!("missed {name}"),
            Some((seed, violation)) => {
                let by = violation.invariant;
                if expected.contains(&by.as_str()) {
                    caught += 1;
                    searched += u64::from(CLUSTERS.seed_of(name) != Some(seed));
                    println!("caught {name} by {by} seed={seed}");
                    seeds.push_str(&format!("{name} {seed}\n"));
                } else {
                    let detail = violation.detail;
                    println!("caught {name} by {by}, expected {expected:?}, seed {seed}: {detail}");
                }
            }
        }
        select(0);
    }
    println!("cluster-mutants caught={caught}/{} searched={searched}", planted.len());
    if only.is_empty() {
        CLUSTERS.write(&seeds);
    }
    caught == planted.len()
}

/// Runs the selected bug with the seed that showed it last time, then, if that seed no longer shows it, with all seeds
/// of the plan.
fn caught_in_clusters(
    plan: cluster::campaign::ClusterPlan,
    name: &str,
    expected: &[&str],
) -> Option<(u64, InvariantViolation)> {
    let is_expected =
        |(_, by): &(u64, InvariantViolation)| expected.contains(&by.invariant.as_str());
    let remembered = CLUSTERS.seed_of(name).and_then(|seed| {
        let only = cluster::campaign::ClusterPlan { from: seed, seeds: 1, ..plan };
        cluster::campaign::run(only, &|| {}).failure
    });
    remembered.filter(is_expected).or_else(|| cluster::campaign::run(plan, &|| {}).failure)
}
