//! Restores disks to an earlier state, and checks that their members notice.
//!
//! The simulation copies a disk, the cluster goes on, and later the member is started from the copy. The member has
//! then forgotten promises, and must stop. The check can require that only if a member that remembers is up and
//! reachable when it starts. So the fault comes in two steps: first the network calms down, and the others have time to
//! learn of the newest promises; then the disk goes back. `docs/internals/rollback.md` lists what cannot be noticed.

use tenure_raft::MemberId;
use tenure_store::sim::{Restart, SimDisk};
use tenure_store::{Log, LogOptions, Presence};

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
    term: u64,
    last: u64,
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
        self.term < promised.term || self.term == promised.term && self.last < promised.durable
    }
}

impl SimCluster {
    /// What a member that runs has promised.
    pub(super) fn going_back(&self, node: usize) -> Option<GoingBack> {
        let process = self.nodes[node].process.as_ref()?;
        let (term, durable) = (process.replica().status().term.0, process.log_writer.durable);
        Some(GoingBack { boot: self.nodes[node].boot, term, durable })
    }

    /// Copies a member's disk, or begins to put the copy back that was taken before.
    pub(super) fn roll_back(&mut self, node: usize) {
        if !self.can_notice(node) {
            return;
        }
        if self.nodes[node].old_disk.is_none() {
            self.nodes[node].old_disk = self.copy_disk(node);
            return;
        }
        self.network.calm();
        self.nodes[node].going_back = self.going_back(node);
        self.nemesis.quiet_until(self.now_us + SETTLE_US + 2 * S);
        self.queue.push(self.now_us + SETTLE_US, SimEvent::RollBack { node });
    }

    /// Puts a disk back, if the others must know by now that it has forgotten something.
    pub(super) fn go_back(&mut self, node: usize) {
        let Some(going) = self.nodes[node].going_back.take() else { return };
        if self.nemesis.healed || going.boot != self.nodes[node].boot || !self.can_notice(node) {
            return;
        }
        let Some(leader) = self.leader() else { return };
        if !self.have_heard(node, leader, going) {
            return;
        }
        let Some(old) = self.nodes[node].old_disk.take() else { return };
        if !old.lacks(going) {
            self.nodes[node].old_disk = Some(old);
            return;
        }
        let another = self.rng.bool();
        self.faults.count(match (leader == node, another) {
            (true, true) => "rolled_back_leader_under_another",
            (true, false) => "rolled_back_leader",
            (false, true) => "rolled_back_under_another",
            (false, false) => "rolled_back",
        });
        self.trace(|| format!("{node} goes back to term {} and index {}", old.term, old.last));
        self.end(node, Restart::ProcessKilled);
        let target = &mut self.nodes[node];
        target.disk = old.disk;
        target.damaged = true;
        let mut starts_us = self.now_us + MS;
        if another {
            // The cluster has another leader before the member is back, at times without its memory.
            starts_us += 3 * S;
            if leader != node {
                self.end(leader, Restart::ProcessKilled);
                self.queue.push(self.now_us + 2 * S, SimEvent::Start { node: leader });
            }
        }
        self.nodes[node].must_stop = Some(starts_us + NOTICE_US);
        self.queue.push(starts_us, SimEvent::Start { node });
        self.nemesis.quiet_until(starts_us + NOTICE_US + S);
    }

    /// Damages the newest batch of a member's log, which is then cut as if it had been torn. The
    /// member may have lost what it had acknowledged, or nothing at all.
    pub(super) fn lose_newest(&mut self, node: usize) {
        let Some(leader) = self.leader() else { return };
        if !self.can_notice(node) || leader == node && !self.others_have_all(node) {
            return;
        }
        self.network.calm();
        self.end(node, Restart::ProcessKilled);
        let disk = &self.nodes[node].disk;
        let log = disk.files().into_iter().filter(|file| file.starts_with("log")).max();
        let flipped = log.and_then(|file| disk.flip_random_bit(&file));
        if flipped.is_some() {
            self.faults.count(if leader == node { "newest_lost_leader" } else { "newest_lost" });
            self.nodes[node].damaged = true;
            self.nodes[node].may_forget = true;
        }
        self.queue.push(self.now_us + MS, SimEvent::Start { node });
        self.nemesis.quiet_until(self.now_us + 2 * S);
    }

    /// Whether a majority has the whole log of a leader without the leader itself. No other member may have heard that
    /// the newest entries are on the leader's disk, so only then their loss there is harmless.
    fn others_have_all(&self, leader: usize) -> bool {
        let Some(process) = &self.nodes[leader].process else { return false };
        let status = process.replica().status();
        let has_all = |id: &&MemberId| {
            **id != self.nodes[leader].id
                && status.matched.get(*id).is_some_and(|matched| *matched >= status.last.index)
        };
        let voters = &self.members.voters;
        voters.iter().filter(has_all).count() > voters.len() / 2
    }

    /// S8: a member that has forgotten what it promised does not serve.
    pub(super) fn check_rolled_back(&self) -> CheckResult {
        for node in &self.nodes {
            let overdue = node.must_stop.is_some_and(|by_us| by_us < self.now_us) && node.is_up();
            ensure(!overdue, "S8", || {
                format!("{} has forgotten what it promised, and serves", node.id)
            })?;
        }
        Ok(())
    }

    /// Whether every member is there that could remember, and none is lost already.
    pub(super) fn can_notice(&self, node: usize) -> bool {
        let id = self.nodes[node].id;
        let is_well = |id: &MemberId| {
            self.at(*id).is_some_and(|at| {
                let node = &self.nodes[at];
                node.is_up() && !node.damaged && node.paused_until_us <= self.now_us
            })
        };
        let members = self.members.all();
        self.members.voters.contains(&id)
            && self.members.voters.len() >= 3
            && self.is_settled(node)
            && members.iter().all(is_well)
    }

    /// Whether others have heard of what the member had promised: they follow it, or the leader has its
    /// acknowledgement.
    pub(super) fn have_heard(&self, node: usize, leader: usize, going: GoingBack) -> bool {
        let id = self.nodes[node].id;
        let status = |at: usize| self.nodes[at].process.as_ref().map(|it| it.replica().status());
        let Some(leading) = status(leader).filter(|status| status.serving) else { return false };
        if leading.term.0 != going.term {
            return false;
        }
        if leader == node {
            let follows = |other: &usize| {
                status(*other).is_some_and(|it| it.leader == Some(id) && it.term == leading.term)
            };
            return (0..self.nodes.len()).filter(|at| *at != node).filter(follows).count() >= 2;
        }
        leading.silent_us.get(&id).is_some_and(|silent_us| *silent_us < SETTLE_US)
            && leading.matched.get(&id).is_some_and(|matched| *matched >= going.durable)
    }

    pub(super) fn copy_disk(&mut self, node: usize) -> Option<OldDisk> {
        let disk = self.nodes[node].disk.fork(self.rng.u64(..));
        disk.restart(Restart::PowerLostAll);
        let looked_at = disk.fork(self.rng.u64(..));
        let segment_bytes = super::node::SEGMENT_BYTES;
        let presence = Presence::MustExist;
        let options = LogOptions { segment_bytes, presence, ..LogOptions::default() };
        let (log, _) = Log::open(std::sync::Arc::new(looked_at), options).ok()?;
        Some(OldDisk { disk, term: log.hard_state().term, last: log.last_index() })
    }
}
