//! Asks for a member under the id of a removed one, which no leader may allow.

use tenure_raft::{AdminRequest, MembershipChange};

use super::event::SimEvent;
use super::member::SimMember;
use super::world::SimCluster;

impl SimCluster {
    /// Starts a removed member again on an empty disk, and asks the leader to add it under its old id.
    pub(super) fn reuse(&mut self) {
        let Some(id) = self.members.retired.iter().next_back().copied() else { return };
        let Some(member) = self.at(id).filter(|member| !self.sim_members[*member].is_up()) else {
            return;
        };
        if !self.is_settled(member) {
            // The members that stay may need its vote until they know of the removal.
            return;
        }
        let seed = self.rng.u64(..);
        let boot = self.sim_members[member].boot + 1;
        let level = self.sim_members[member].level;
        let build = (level, self.lineage.clone());
        self.sim_members[member] = SimMember::new(id, build, seed, 0, 0);
        self.sim_members[member].boot = boot;
        // A member that has not applied the removal takes it for the one whose promises it remembers.
        self.sim_members[member].may_forget = true;
        self.queue.push(self.now_us, SimEvent::Start { member });
        if self.request_admin(AdminRequest::Change(vec![MembershipChange::AddLearner(id)])) {
            self.faults.count("reuse");
        }
    }
}
