//! Restores disks to an earlier state, and checks that their members notice.
//!
//! The simulation copies a disk, the cluster goes on, and later the member is started from the copy. The member has
//! then forgotten promises, and must stop. The check can require that only if a member that remembers is up and
//! reachable when it starts. So the fault comes in two steps: first the network calms down, and the others have time to
//! learn of the newest promises; then the disk goes back. `docs/internals/rollback.md` lists what cannot be noticed.

pub mod scripts;

use tenure_raft::MemberId;
use tenure_store::sim::{Restart, SimDisk};
use tenure_store::{HardState, Log, LogOptions, Presence};

use super::event::SimEvent;
use super::oracle::ensure;
use super::world::SimCluster;
use super::{MS, S};
use crate::invariant::CheckResult;

/// How long the others have to hear of the newest promises: some heartbeats.
pub(super) const SETTLE_US: u64 = 300 * MS;
/// How long a member may serve from a disk that went back.
pub(super) const NOTICE_US: u64 = 5 * S;

/// A disk as it was some time ago.
pub(super) struct OldDisk {
    disk: SimDisk,
    log: LogContent,
}

/// A disk that went back, and whose member has not started from it yet.
#[derive(Clone, Copy)]
pub(super) struct WentBack {
    /// The member that led when the disk went back.
    leader: usize,
}

/// What a log has, as a start would find it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct LogContent {
    hard_state: HardState,
    last: u64,
}

impl LogContent {
    /// Whether entries, a term or a vote of an earlier content are gone. The commit index is not a promise.
    fn differs(self, before: Self) -> bool {
        let promises = |it: Self| (it.hard_state.term, it.hard_state.vote, it.last);
        promises(self) != promises(before)
    }

    /// Whether it lacks what a member had promised.
    fn lacks(self, promised: GoingBack) -> bool {
        let term = self.hard_state.term;
        term < promised.term || term == promised.term && self.last < promised.durable
    }
}

/// A disk that is about to go back.
#[derive(Clone, Copy)]
pub(super) struct GoingBack {
    pub(super) boot: u64,
    /// What the member had promised when the network calmed down.
    term: u64,
    durable: u64,
}

impl OldDisk {
    /// Whether it lacks what a member had promised.
    pub(super) fn lacks(&self, promised: GoingBack) -> bool {
        self.log.lacks(promised)
    }
}

impl SimCluster {
    /// What a member that runs has promised.
    pub(super) fn going_back(&self, member: usize) -> Option<GoingBack> {
        let process = self.sim_members[member].process.as_ref()?;
        let (term, durable) = (process.replica().status().term.0, process.log_writer.durable);
        Some(GoingBack { boot: self.sim_members[member].boot, term, durable })
    }

    /// Copies a member's disk, or begins to put the copy back that was taken before.
    pub(super) fn roll_back(&mut self, member: usize) {
        if !self.can_notice(member) {
            return;
        }
        if self.sim_members[member].old_disk.is_none() {
            self.sim_members[member].old_disk = self.copy_disk(member);
            return;
        }
        self.network.calm();
        self.sim_members[member].going_back = self.going_back(member);
        self.nemesis.quiet_until(self.now_us + SETTLE_US + 2 * S);
        self.queue.push(self.now_us + SETTLE_US, SimEvent::RollBack { member });
    }

    /// Puts a disk back, if the others must know by now that it has forgotten something.
    pub(super) fn go_back(&mut self, member: usize) {
        let Some(going) = self.sim_members[member].going_back.take() else { return };
        if self.nemesis.healed
            || going.boot != self.sim_members[member].boot
            || !self.can_notice(member)
        {
            return;
        }
        let Some(leader) = self.leader() else { return };
        if !self.have_heard(member, leader, going) {
            return;
        }
        let Some(old) = self.sim_members[member].old_disk.take() else { return };
        if !old.lacks(going) {
            self.sim_members[member].old_disk = Some(old);
            return;
        }
        let another = self.rng.bool();
        let LogContent { hard_state, last } = old.log;
        self.trace(|| format!("{member} goes back to term {} and index {last}", hard_state.term));
        self.end(member, Restart::ProcessKilled);
        let target = &mut self.sim_members[member];
        target.disk = old.disk;
        target.damaged = true;
        target.went_back = Some(WentBack { leader });
        let mut starts_us = self.now_us + MS;
        if another {
            // The cluster has another leader before the member is back, at times without its memory.
            starts_us += 3 * S;
            if leader != member {
                self.end(leader, Restart::ProcessKilled);
                self.queue.push(self.now_us + 2 * S, SimEvent::Start { member: leader });
            }
        }
        self.sim_members[member].must_stop = Some(starts_us + NOTICE_US);
        self.queue.push(starts_us, SimEvent::Start { member });
        self.nemesis.quiet_until(starts_us + NOTICE_US + S);
    }

    /// Counts a disk that went back, when its member starts from it: only then it is known who leads.
    pub(super) fn count_rollback(&mut self, member: usize) {
        let Some(WentBack { leader }) = self.sim_members[member].went_back.take() else { return };
        let another = self.leader().is_some_and(|now| now != leader);
        self.faults.count(match (leader == member, another) {
            (true, true) => "rolled_back_leader_under_another",
            (true, false) => "rolled_back_leader",
            (false, true) => "rolled_back_under_another",
            (false, false) => "rolled_back",
        });
    }

    /// Damages the newest batch of a member's log, which is then cut as if it had been torn. The member may have lost
    /// what it had acknowledged, or only what it had written and not acknowledged. The fault counts if the log starts
    /// without entries, a term or a vote that it had: the newest write may also have been a mark or a spare segment. A
    /// follower must stop if its leader has the acknowledgement of what is lost.
    pub(super) fn lose_newest(&mut self, member: usize) {
        let Some(leader) = self.leader() else { return };
        if !self.can_notice(member) || leader == member && !self.others_have_all(member) {
            return;
        }
        self.network.calm();
        let going = self.going_back(member).filter(|going| self.have_heard(member, leader, *going));
        self.end(member, Restart::ProcessKilled);
        let starts_us = self.now_us + MS;
        let seed = self.rng.u64(..);
        let before = look_at(&self.sim_members[member].disk, seed);
        if let Some((file, offset)) = self.sim_members[member].disk.damage_newest_batch("log") {
            self.trace(|| format!("the newest batch of {member} is damaged: {file} at {offset}"));
            self.sim_members[member].damaged = true;
            self.sim_members[member].may_forget = true;
            let after = look_at(&self.sim_members[member].disk, seed);
            if before.zip(after).is_some_and(|(before, after)| after.differs(before)) {
                let kind = if leader == member { "newest_lost_leader" } else { "newest_lost" };
                self.faults.count(kind);
            }
            let is_lost = after.zip(going).is_some_and(|(after, going)| after.lacks(going));
            if leader != member && is_lost {
                self.sim_members[member].must_stop = Some(starts_us + NOTICE_US);
            }
        }
        self.queue.push(starts_us, SimEvent::Start { member });
        self.nemesis.quiet_until(starts_us + NOTICE_US + S);
    }

    /// Whether a majority has the whole log of a leader without the leader itself. No other member may have heard that
    /// the newest entries are on the leader's disk, so only then their loss there is harmless.
    fn others_have_all(&self, leader: usize) -> bool {
        let Some(process) = &self.sim_members[leader].process else { return false };
        let status = process.replica().status();
        let has_all = |id: &&MemberId| {
            **id != self.sim_members[leader].id
                && status.matched.get(*id).is_some_and(|matched| *matched >= status.last.index)
        };
        let voters = &self.members.voters;
        voters.iter().filter(has_all).count() > voters.len() / 2
    }

    /// S8: a member that has forgotten what it promised does not serve.
    pub(super) fn check_rolled_back(&self) -> CheckResult {
        for member in &self.sim_members {
            let overdue =
                member.must_stop.is_some_and(|by_us| by_us < self.now_us) && member.is_up();
            ensure(!overdue, "S8", || {
                format!("{} has forgotten what it promised, and serves", member.id)
            })?;
        }
        Ok(())
    }

    /// Whether every member is there that could remember, and none is lost already.
    pub(super) fn can_notice(&self, member: usize) -> bool {
        let id = self.sim_members[member].id;
        let is_well = |id: &MemberId| {
            self.at(*id).is_some_and(|at| {
                let member = &self.sim_members[at];
                member.is_up() && !member.damaged && member.paused_until_us <= self.now_us
            })
        };
        let members = self.members.all();
        self.members.voters.contains(&id)
            && self.members.voters.len() >= 3
            && self.is_settled(member)
            && members.iter().all(is_well)
    }

    /// Whether others have heard of what the member had promised: they follow it, or the leader has its
    /// acknowledgement.
    pub(super) fn have_heard(&self, member: usize, leader: usize, going: GoingBack) -> bool {
        let id = self.sim_members[member].id;
        let status =
            |at: usize| self.sim_members[at].process.as_ref().map(|it| it.replica().status());
        let Some(leading) = status(leader).filter(|status| status.serving) else { return false };
        if leading.term.0 != going.term {
            return false;
        }
        if leader == member {
            let follows = |other: &usize| {
                status(*other).is_some_and(|it| it.leader == Some(id) && it.term == leading.term)
            };
            return (0..self.sim_members.len()).filter(|at| *at != member).filter(follows).count()
                >= 2;
        }
        leading.silent_us.get(&id).is_some_and(|silent_us| *silent_us < SETTLE_US)
            && leading.matched.get(&id).is_some_and(|matched| *matched >= going.durable)
    }

    pub(super) fn copy_disk(&mut self, member: usize) -> Option<OldDisk> {
        let disk = self.sim_members[member].disk.fork(self.rng.u64(..));
        disk.restart(Restart::PowerLostAll);
        let log = look_at(&disk, self.rng.u64(..))?;
        Some(OldDisk { disk, log })
    }
}

/// What a start from a disk would find in the log; nothing if it would be refused. Opens a copy, because opening a log
/// changes its disk.
fn look_at(disk: &SimDisk, seed: u64) -> Option<LogContent> {
    let copy = disk.fork(seed);
    let segment_bytes = super::member::SEGMENT_BYTES;
    let presence = Presence::MustExist;
    let options = LogOptions { segment_bytes, presence, ..LogOptions::default() };
    let (log, _) = Log::open(std::sync::Arc::new(copy), options).ok()?;
    Some(LogContent { hard_state: log.hard_state(), last: log.last_index() })
}
