//! Runs clusters whose promises cannot hold, to show that the checks would notice: a control of the simulator itself.
//!
//! The disks of a majority lie about their syncs. All members lose power, and those with lying disks come back first.
//! They are a majority and have forgotten what was agreed on, and the only members that remember are down. So they
//! agree on something else, and some check must say so.

use tenure_store::sim::Restart;

use super::event::SimEvent;
use super::nemesis::Nemesis;
use super::world::{SeedResult, SimCluster};
use super::{MS, S};
use crate::invariant::{CheckResult, InvariantViolation};

/// When the disks begin to lie, when the power fails, when the honest members come back, and when the run ends.
const LIES_US: u64 = 5 * S;
const POWER_LOST_US: u64 = 12 * S;
const HONEST_US: u64 = 25 * S;
const END_US: u64 = 60 * S;

/// What may catch it: two entries at one index, two leaders of a term, a state that others did not have, an answer or a
/// token that was given before.
const EXPECTED: [&str; 8] = ["S1", "S2", "S6", "S7", "S8", "S9", "S12", "S13"];

/// How the control went.
pub struct ControlResult {
    /// Seeds that ran.
    pub seeds: u64,
    /// Seeds in which a named invariant was broken.
    pub caught: u64,
    /// The invariants that were.
    pub by: Vec<String>,
}

/// Runs the control over the first seeds.
pub fn run(seeds: u64) -> ControlResult {
    let mut control = ControlResult { seeds, caught: 0, by: Vec::new() };
    for seed in 0..seeds {
        let Some(InvariantViolation { invariant, .. }) =
            run_one(SimCluster::sized(seed, 3)).failure
        else {
            continue;
        };
        if EXPECTED.contains(&invariant.as_str()) {
            control.caught += 1;
            control.by.push(invariant);
        }
    }
    control.by.sort();
    control.by.dedup();
    control
}

/// Runs one seed of the control and prints what happens.
pub fn run_verbose(seed: u64) -> SeedResult {
    run_one(SimCluster::sized(seed, 3).verbose())
}

fn run_one(mut world: SimCluster) -> SeedResult {
    world.nemesis = Nemesis::idle();
    let failure = lie(&mut world).err();
    SeedResult { failure, ..world.over() }
}

fn lie(world: &mut SimCluster) -> CheckResult {
    world.run_until(LIES_US)?;
    let honest = world.rng.usize(0..world.sim_members.len());
    let lying = |member: &usize| *member != honest;
    for member in (0..world.sim_members.len()).filter(lying) {
        world.sim_members[member].disk.set_lying_syncs(true);
    }
    world.run_until(POWER_LOST_US)?;
    for member in 0..world.sim_members.len() {
        world.end(member, Restart::PowerLostAll);
        world.sim_members[member].disk.tell_the_truth();
        let starts_us = if member == honest { HONEST_US } else { world.now_us + MS };
        world.queue.push(starts_us, SimEvent::Start { member });
    }
    world.run_until(END_US)
}
