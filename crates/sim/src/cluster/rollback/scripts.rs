//! Plays rollbacks of disks that random faults reach too seldom, with whole members: one script for each such row of
//! `docs/internals/rollback.md`.
//!
//! A script brings a cluster with its clients to the moment before the rollback, puts an old disk back and starts the
//! member. Then the member must stop. Where the page says that no member can notice, the script shows that instead: the
//! checks of the cluster must say what was lost, or nothing was lost and the member goes on.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tenure_store::sim::Restart;

use super::super::nemesis::Nemesis;
use super::super::world::SimCluster;
use super::super::{MS, S};
use super::{GoingBack, LogContent, NOTICE_US, OldDisk, SETTLE_US};
use crate::invariant::InvariantViolation;

/// How long a cluster may take until it is as a script needs it.
const READY_US: u64 = 20 * S;
/// How long others need until their notes about a member are on their disks.
const NOTED_US: u64 = 1_500 * MS;
/// Between two looks at the cluster.
const LOOK_US: u64 = 20 * MS;
/// Between two looks that no message passes: less than any message takes.
const NEXT_US: u64 = 50;
/// How long the caller of a command waits.
const WITHIN_US: u64 = 3 * S;
/// No fault of its own happens before the end of a script.
const END_US: u64 = 1_000 * S;

/// What may say that something acknowledged was lost.
const LOSSES: [&str; 8] = ["S1", "S2", "S6", "S7", "S8", "S9", "S12", "S13"];

/// How a script must end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// The member stops, and the others serve.
    Stops,
    /// No member can notice the rollback. Nothing acknowledged is lost, and the member goes on.
    GoesOn,
    /// No member can notice the rollback, and a check of the cluster says that something is lost.
    IsLost,
}

/// One row of the page.
struct RollbackScript {
    name: &'static str,
    voters: usize,
    ending: Ending,
    /// Returns the member whose disk went back, once it has started from it.
    play: fn(&mut SimCluster) -> Result<usize, Interrupted>,
}

const SCRIPTS: &[RollbackScript] = &[
    RollbackScript {
        name: "log_of_other_terms",
        voters: 3,
        ending: Ending::Stops,
        play: log_of_other_terms,
    },
    RollbackScript {
        name: "leader_restarted",
        voters: 3,
        ending: Ending::Stops,
        play: leader_restarted,
    },
    RollbackScript {
        name: "vote_forgotten",
        voters: 3,
        ending: Ending::Stops,
        play: vote_forgotten,
    },
    RollbackScript {
        name: "cut_off_leader",
        voters: 3,
        ending: Ending::Stops,
        play: |world| cut_off_leader(world, ChangeOfLeader::No),
    },
    RollbackScript {
        name: "cut_off_leader_under_another",
        voters: 3,
        ending: Ending::Stops,
        play: |world| cut_off_leader(world, ChangeOfLeader::Yes),
    },
    RollbackScript {
        name: "remembered_a_moment_later",
        voters: 3,
        ending: Ending::Stops,
        play: |world| remembered_after(world, Some(100 * MS)),
    },
    RollbackScript {
        name: "none_remembers",
        voters: 3,
        ending: Ending::IsLost,
        play: |world| remembered_after(world, None),
    },
    RollbackScript {
        name: "unsent_entries",
        voters: 3,
        ending: Ending::GoesOn,
        play: unsent_entries,
    },
    RollbackScript {
        name: "leader_lost_at_once",
        voters: 3,
        ending: Ending::IsLost,
        play: leader_lost_at_once,
    },
    RollbackScript {
        name: "all_went_back",
        voters: 3,
        ending: Ending::IsLost,
        play: all_went_back,
    },
    RollbackScript { name: "only_voter", voters: 1, ending: Ending::IsLost, play: all_went_back },
];

/// Why a script did not come to its end.
enum Interrupted {
    /// A check found something.
    Violation(InvariantViolation),
    /// The cluster did not come into the state that the script needs, as when another member leads by chance.
    NotReady,
}

impl From<InvariantViolation> for Interrupted {
    fn from(violation: InvariantViolation) -> Self {
        Self::Violation(violation)
    }
}

type Played<T = ()> = Result<T, Interrupted>;

/// How the scripts went.
#[derive(Default)]
pub struct ScriptResults {
    /// Runs that ended as they must.
    pub as_expected: u64,
    /// Runs that came to the rollback.
    pub played: u64,
    /// The runs that ended otherwise, and the scripts that no seed played.
    pub failures: Vec<String>,
}

/// Plays every script with each of the first seeds.
pub fn run(seeds: u64) -> ScriptResults {
    let mut results = ScriptResults::default();
    for script in SCRIPTS {
        let before = results.played;
        for seed in 0..seeds {
            let ran = catch_unwind(AssertUnwindSafe(|| run_one(script, seed, false)));
            let ended = ran.unwrap_or_else(|_| Some(Err("it panicked".to_owned())));
            results.played += u64::from(ended.is_some());
            match ended {
                None => {}
                Some(Ok(())) => results.as_expected += 1,
                Some(Err(why)) => {
                    results.failures.push(format!("{} seed={seed}: {why}", script.name));
                }
            }
        }
        if results.played == before {
            results.failures.push(format!("{}: no seed played it", script.name));
        }
    }
    results
}

/// Plays one script with one seed and prints what happens. Returns whether it ended as it must.
pub fn run_verbose(name: &str, seed: u64) -> bool {
    let Some(script) = SCRIPTS.iter().find(|script| script.name == name) else {
        let names: Vec<_> = SCRIPTS.iter().map(|script| script.name).collect();
        println!("there is no script `{name}`; there are {}", names.join(", "));
        return false;
    };
    match run_one(script, seed, true) {
        None => println!("the cluster of seed {seed} did not become as the script needs it"),
        Some(Ok(())) => println!("{name} seed={seed} ended as it must"),
        Some(Err(why)) => {
            println!("{name} seed={seed}: {why}");
            return false;
        }
    }
    true
}

/// How a run differs from what must be; `None` if it did not come to the rollback.
fn run_one(script: &RollbackScript, seed: u64, verbose: bool) -> Option<Result<(), String>> {
    let mut world = SimCluster::sized(seed, script.voters);
    world.verbose = verbose;
    world.nemesis = Nemesis::idle();
    world.nemesis.quiet_until(END_US);
    world.network.calm();
    world.slow_sync = 0;
    let played = (script.play)(&mut world);
    let ended = played.and_then(|member| Ok(world.see_the_end(script.ending, member)?));
    match (ended, script.ending) {
        (Err(Interrupted::NotReady), _) => None,
        (Ok(why), Ending::Stops | Ending::GoesOn) => Some(why),
        (Ok(_), Ending::IsLost) => Some(Err("no check noticed that something is lost".to_owned())),
        (Err(Interrupted::Violation(InvariantViolation { invariant, .. })), Ending::IsLost)
            if LOSSES.contains(&invariant.as_str()) =>
        {
            Some(Ok(()))
        }
        (Err(Interrupted::Violation(violation)), _) => {
            Some(Err(format!("{}: {}", violation.invariant, violation.detail)))
        }
    }
}

impl SimCluster {
    /// Runs on until the consequence of a rollback must show; says how it differs from what must be.
    fn see_the_end(
        &mut self,
        ending: Ending,
        member: usize,
    ) -> Result<Result<(), String>, InvariantViolation> {
        self.run_until(self.now_us + NOTICE_US + S)?;
        let stopped = self.sim_members[member].dead;
        match (ending, stopped) {
            (Ending::Stops, false) => return Ok(Err(format!("{member} has not stopped"))),
            (Ending::GoesOn, true) => return Ok(Err(format!("{member} has stopped"))),
            _ => {}
        }
        for other in 0..self.sim_members.len() {
            self.start(other)?;
        }
        let last = self.oracle.last();
        self.run_until(self.now_us + READY_US)?;
        let serves = self.oracle.last() > last;
        Ok(if serves { Ok(()) } else { Err("the others do not serve".to_owned()) })
    }

    /// Runs until something is so.
    fn until(&mut self, is_so: impl Fn(&Self) -> bool) -> Played {
        let limit_us = self.now_us + READY_US;
        while !is_so(self) {
            if self.now_us >= limit_us {
                return Err(Interrupted::NotReady);
            }
            self.run_until(self.now_us + LOOK_US)?;
        }
        Ok(())
    }

    /// Runs for some time.
    fn pass(&mut self, for_us: u64) -> Played {
        Ok(self.run_until(self.now_us + for_us)?)
    }

    /// Waits until one of these members leads and serves.
    fn led_by(&mut self, members: &[usize]) -> Played<usize> {
        let found = |world: &Self| {
            let leader = world.leader().filter(|leader| members.contains(leader))?;
            let serves = world.sim_members[leader].process.as_ref()?.replica().status().serving;
            serves.then_some(leader)
        };
        self.until(|world| found(world).is_some())?;
        found(self).ok_or(Interrupted::NotReady)
    }

    /// Waits for a leader whose log the others have. Returns it, and the others.
    fn three(&mut self) -> Played<(usize, usize, usize)> {
        self.pass(5 * S)?;
        let leader = self.led_by(&[0, 1, 2])?;
        let (one, other) = ((leader + 1) % 3, (leader + 2) % 3);
        self.until(|world| world.has_all(leader, one) && world.has_all(leader, other))?;
        Ok((leader, one, other))
    }

    /// Whether a leader knows that a member has its whole log.
    fn has_all(&self, leader: usize, member: usize) -> bool {
        let Some(process) = &self.sim_members[leader].process else { return false };
        let status = process.replica().status();
        status.matched.get(&self.sim_members[member].id).is_some_and(|at| *at >= status.last.index)
    }

    /// Submits so many commands at a member. Each becomes an entry if that member leads.
    fn submit(&mut self, member: usize, commands: u64) -> Played {
        for _ in 0..commands {
            self.submit_one(member, WITHIN_US);
            self.pass(2 * MS)?;
        }
        Ok(())
    }

    /// Cuts both directions between two members.
    fn cut_pair(&mut self, one: usize, other: usize) {
        self.network.cut(one, other);
        self.network.cut(other, one);
        self.watch_links();
    }

    fn isolate(&mut self, member: usize) {
        for other in (0..self.sim_members.len()).filter(|other| *other != member) {
            self.cut_pair(member, other);
        }
    }

    fn last_durable(&self, member: usize) -> u64 {
        self.sim_members[member].process.as_ref().map_or(0, |process| process.log_writer.durable)
    }

    fn old_disk(&mut self, member: usize) -> Played<OldDisk> {
        self.copy_disk(member).ok_or(Interrupted::NotReady)
    }

    /// What a member has promised; `NotReady` unless its leader has heard so, and the old disk lacks it.
    fn promised(&self, member: usize, leader: usize, old: &OldDisk) -> Played<GoingBack> {
        let going = self.going_back(member).ok_or(Interrupted::NotReady)?;
        let heard = self.have_heard(member, leader, going) && old.lacks(going);
        if heard { Ok(going) } else { Err(Interrupted::NotReady) }
    }

    /// Ends a member, whose machine loses power.
    fn lose_power(&mut self, member: usize) {
        self.end(member, Restart::PowerLostAll);
    }

    /// Starts a member that is down from an old disk.
    fn start_from(&mut self, member: usize, old: OldDisk, ending: Ending) -> Played<usize> {
        let target = &mut self.sim_members[member];
        target.disk = old.disk;
        (target.damaged, target.may_forget) = (true, true);
        if ending == Ending::Stops {
            target.must_stop = Some(self.now_us + NOTICE_US);
        }
        self.start(member)?;
        Ok(member)
    }
}

/// A follower has entries of a leader that lost them, replaces them by those of the next leader, and goes back to the
/// first ones: its log is as long as what it acknowledged, or longer.
fn log_of_other_terms(world: &mut SimCluster) -> Played<usize> {
    // The loop of a leader with a slow disk goes on.
    world.syncs_beside = true;
    let (b, c, a) = world.three()?;
    world.cut_pair(b, a);
    world.sim_members[b].sync_stalled_until_us = END_US;
    world.submit(b, 80)?;
    world.pass(50 * MS)?;
    let old = world.old_disk(c)?;
    if old.log.last <= world.oracle.last() {
        return Err(Interrupted::NotReady);
    }
    world.lose_power(b);
    world.lose_power(c);
    world.sim_members[b].sync_stalled_until_us = 0;
    world.network.heal();
    world.start(b)?;
    let leader = world.led_by(&[a, b])?;
    world.start(c)?;
    world.until(|world| world.has_all(leader, c))?;
    world.pass(SETTLE_US)?;
    let going = world.promised(c, leader, &old)?;
    if old.log.last < going.durable {
        return Err(Interrupted::NotReady);
    }
    world.lose_power(c);
    world.start_from(c, old, Ending::Stops)
}

/// Only the notes on the disk of the leader, which has restarted, tell what the follower has acknowledged.
fn leader_restarted(world: &mut SimCluster) -> Played<usize> {
    let (a, b, c) = world.three()?;
    let old = world.old_disk(c)?;
    world.cut_pair(a, b);
    world.submit(a, 20)?;
    world.pass(NOTED_US)?;
    world.promised(c, a, &old)?;
    world.lose_power(a);
    world.lose_power(c);
    world.network.heal();
    world.start(a)?;
    world.start_from(c, old, Ending::Stops)
}

/// A voter goes back to before its vote, and has lost nothing else: the leader that it elected is cut off before it
/// sends an entry. Only that member has notes of the vote, and has restarted.
fn vote_forgotten(world: &mut SimCluster) -> Played<usize> {
    // A message that is on its way when its link is cut is lost.
    world.in_flight_lost = true;
    let (gone, one, other) = world.three()?;
    let (old_one, old_other) = (world.old_disk(one)?, world.old_disk(other)?);
    world.lose_power(gone);
    let limit_us = world.now_us + READY_US;
    let candidate = loop {
        match world.leader() {
            Some(leader) => break leader,
            None if world.now_us >= limit_us => return Err(Interrupted::NotReady),
            None => world.pass(NEXT_US)?,
        }
    };
    let (voter, old) = if candidate == one { (other, old_other) } else { (one, old_one) };
    world.network.cut(candidate, voter);
    world.pass(NOTED_US)?;
    let going = world.going_back(voter).ok_or(Interrupted::NotReady)?;
    let LogContent { hard_state, last } = old.log;
    if hard_state.term >= going.term || last != going.durable {
        return Err(Interrupted::NotReady);
    }
    world.lose_power(voter);
    world.lose_power(candidate);
    world.network.heal();
    world.start(candidate)?;
    world.start_from(voter, old, Ending::Stops)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ChangeOfLeader {
    No,
    Yes,
}

/// A leader that was cut off writes entries that are never committed. It rejoins, acknowledges those of the others, and
/// goes back to its own.
fn cut_off_leader(world: &mut SimCluster, change: ChangeOfLeader) -> Played<usize> {
    let (c, a, b) = world.three()?;
    world.isolate(c);
    world.submit(c, 40)?;
    world.until(|world| world.leader() != Some(c))?;
    world.lose_power(c);
    let old = world.old_disk(c)?;
    let leader = world.led_by(&[a, b])?;
    world.submit(leader, 5)?;
    world.network.heal();
    world.start(c)?;
    world.until(|world| world.has_all(leader, c))?;
    world.pass(SETTLE_US)?;
    world.promised(c, leader, &old)?;
    world.lose_power(c);
    if change == ChangeOfLeader::Yes {
        world.lose_power(leader);
        world.pass(200 * MS)?;
        world.start(leader)?;
        world.led_by(&[a, b])?;
    }
    world.start_from(c, old, Ending::Stops)
}

/// The leader A and the follower B commit entries without C. A goes back, and starts with C while B is down. B comes
/// back after this time, or not in time at all.
fn remembered_after(world: &mut SimCluster, after_us: Option<u64>) -> Played<usize> {
    let (a, b, c) = world.three()?;
    let old = world.old_disk(a)?;
    world.lose_power(c);
    world.submit(a, 10)?;
    world.pass(NOTED_US)?;
    let applied = |at: usize| {
        let process = world.sim_members[at].process.as_ref();
        process.map_or(0, |process| process.replica().status().applied.index)
    };
    if world.leader() != Some(a) || applied(b) <= old.log.last {
        return Err(Interrupted::NotReady);
    }
    world.lose_power(a);
    world.lose_power(b);
    let ending = if after_us.is_some() { Ending::Stops } else { Ending::IsLost };
    world.start_from(a, old, ending)?;
    world.start(c)?;
    if let Some(after_us) = after_us {
        world.pass(after_us)?;
        world.start(b)?;
    }
    Ok(a)
}

/// A leader loses entries that are on its disk alone: no message has left since.
fn unsent_entries(world: &mut SimCluster) -> Played<usize> {
    let (a, ..) = world.three()?;
    // Nothing is on its way to another member, and nothing waits for the disk.
    world.isolate(a);
    world.pass(50 * MS)?;
    let old = world.old_disk(a)?;
    world.submit(a, 5)?;
    world.pass(20 * MS)?;
    if world.leader() != Some(a) || world.last_durable(a) <= old.log.last {
        return Err(Interrupted::NotReady);
    }
    world.lose_power(a);
    world.network.heal();
    world.start_from(a, old, Ending::GoesOn)
}

/// A leader and a follower commit entries. The leader loses power before it has told the third member what the follower
/// acknowledged, and stays down, and the follower goes back.
fn leader_lost_at_once(world: &mut SimCluster) -> Played<usize> {
    let (a, b, c) = world.three()?;
    let old = world.old_disk(c)?;
    world.cut_pair(a, b);
    let last = world.oracle.last();
    world.submit(a, 5)?;
    world.until(|world| world.oracle.last() >= last + 5)?;
    if world.leader() != Some(a) {
        return Err(Interrupted::NotReady);
    }
    world.lose_power(a);
    world.lose_power(c);
    world.network.heal();
    world.start_from(c, old, Ending::IsLost)
}

/// All members go back to the same moment. Together they are an older cluster.
fn all_went_back(world: &mut SimCluster) -> Played<usize> {
    let all: Vec<usize> = (0..world.sim_members.len()).collect();
    world.pass(5 * S)?;
    let leader = world.led_by(&all)?;
    let mut old = Vec::new();
    for member in &all {
        old.push(world.old_disk(*member)?);
    }
    let last = world.oracle.last();
    world.submit(leader, 10)?;
    world.until(|world| world.oracle.last() >= last + 10)?;
    all.iter().for_each(|member| world.lose_power(*member));
    for (member, old) in all.iter().zip(old) {
        world.start_from(*member, old, Ending::IsLost)?;
    }
    Ok(leader)
}

#[cfg(test)]
mod tests {
    #[test]
    fn rollbacks_end_as_the_page_says() {
        let results = super::run(3);
        assert!(results.failures.is_empty(), "{:#?}", results.failures);
        assert_eq!(results.as_expected, results.played);
    }
}
