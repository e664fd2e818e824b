//! Lets members of a lost cluster come back after its restore, and checks N10: the restored cluster neither connects to
//! them nor adds them.
//!
//! A survivor has the disk of the cluster from before, so it has that cluster's lineage. It knows the restored
//! cluster's members by their addresses, which may be those of former members. Clients do not talk to it, and the
//! oracle of the restored cluster knows nothing of its history.

use tenure_node::{Control, Input, Join, JoinId, PeerHello, PeerName};
use tenure_store::sim::Restart;

use super::S;
use super::event::SimEvent;
use super::member::SimMember;
use super::oracle::ensure;
use super::world::SimCluster;
use crate::invariant::{CheckResult, InvariantViolation};

impl SimCluster {
    /// Whether a member belongs to the cluster from before the last restore.
    pub(super) fn is_survivor(&self, member: usize) -> bool {
        self.sim_members[member].lineage != self.lineage
    }

    /// Any member of the present cluster, whether it is up or not.
    pub(super) fn draw_member(&mut self) -> usize {
        let present = (0..self.sim_members.len()).filter(|at| !self.is_survivor(*at));
        let present: Vec<usize> = present.collect();
        present[self.rng.usize(0..present.len())]
    }

    /// The members that a loss of the cluster spares: at most a minority.
    pub(super) fn draw_survivors(&mut self) -> Vec<usize> {
        let most = self.members.voters.len().saturating_sub(1) / 2;
        if most == 0 || self.rng.bool() {
            return Vec::new();
        }
        let is_sound = |member: &SimMember| {
            !member.dead
                && !member.damaged
                && member.entering.is_none()
                && member.must_stop.is_none()
        };
        let is_sound = |at: &usize| {
            let member = &self.sim_members[*at];
            self.members.voters.contains(&member.id) && is_sound(member) && !self.is_survivor(*at)
        };
        let mut sound: Vec<usize> = (0..self.sim_members.len()).filter(is_sound).collect();
        self.rng.shuffle(&mut sound);
        sound.truncate(self.rng.usize(1..=most));
        sound
    }

    /// What was spared starts again, next to the cluster that is restored now.
    pub(super) fn survive(&mut self) {
        let spared = |at: &usize| !self.sim_members[*at].dead && !self.is_survivor(*at);
        let restored = self.sim_members.len() - 1;
        let spared: Vec<usize> = (0..restored).filter(spared).collect();
        for member in spared {
            self.faults.count("survivor");
            self.trace(|| format!("{member} has survived the former cluster"));
            let target = &mut self.sim_members[member];
            (target.going_back, target.old_disk) = (None, None);
            self.crash(member, Restart::ProcessKilled);
            let at_us = self.now_us + self.rng.u64(2 * S..20 * S);
            self.queue.push(at_us, SimEvent::SurvivorJoins { member });
        }
    }

    /// N10: whether a member refuses the connection that another one dials. Members of two lineages never connect.
    pub(super) fn refuses_link(
        &mut self,
        from: usize,
        to: usize,
    ) -> Result<bool, InvariantViolation> {
        let (dials, dialled) = (&self.sim_members[from], &self.sim_members[to]);
        let lineage = dials.lineage.clone();
        let hello = PeerHello { lineage, from: dials.id, to: dialled.id, level: dials.level };
        let refused = hello.objection(&dialled.lineage, dialled.id).is_some();
        let same = dials.lineage == dialled.lineage;
        let said = Control::Hello(hello);
        let read = Control::decode(&said.encode());
        ensure(read.as_ref() == Some(&said), "codec", || format!("{said:?} does not read back"))?;
        ensure(refused != same, "N10", || {
            let (ours, theirs) = (&self.sim_members[to].lineage, &self.sim_members[from].lineage);
            format!("{to} of {ours:?} decides wrongly on a link to {from} of {theirs:?}")
        })?;
        self.faults.count_by("survivor_refused", u64::from(refused));
        Ok(refused)
    }

    /// A survivor asks a member of the restored cluster to add it, at times with an invitation.
    pub(super) fn join_survivor(&mut self, member: usize) {
        if self.nemesis.healed || !self.is_survivor(member) || self.sim_members[member].dead {
            return;
        }
        let again_us = self.now_us + self.rng.u64(2 * S..20 * S);
        self.queue.push(again_us, SimEvent::SurvivorJoins { member });
        let to = self.draw_member();
        if !self.sim_members[member].is_up() || !self.reaches(member, to) {
            return;
        }
        self.numbers += 1;
        let join = JoinId(self.numbers);
        self.survivor_joins.insert(join.0, member);
        let survivor = &self.sim_members[member];
        let lineage = Some(survivor.lineage.clone());
        let (record, level) = (survivor.record(), survivor.level_known());
        let invitation = self.any_invitation();
        let (boot, peer_name) = (self.sim_members[to].boot, PeerName::Plain);
        let request = Join { record, level, lineage, invitation };
        self.give(to, boot, Input::Join { join, request: Box::new(request), peer_name });
    }

    /// N10: the restored cluster refuses what a survivor asks for, and does not tell it that it was removed.
    pub(super) fn check_survivor_answer(&mut self, member: usize, answer: &Control) -> CheckResult {
        self.faults.count("survivor_refused");
        ensure(matches!(answer, Control::Refused(_)), "N10", || {
            format!("{member} of the former cluster asks the restored one, and hears {answer:?}")
        })
    }
}
