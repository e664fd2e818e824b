//! Hands leadership on: to a preferred member, and before this member stops.

use tenure_raft::{MemberId, ReplicaInput as RaftInput};

use crate::directory;
use crate::io::{AdminRequest, Output};
use crate::node::{MemberStop, NO_CALLER, Node};
use crate::preference;

/// How long a leader that leaves tries to hand over.
const HAND_OVER_US: u64 = 2_000_000;

impl Node {
    /// Hands leadership to a member that is preferred, if one is and can take it.
    pub(crate) fn choose_leader(&mut self) {
        if self.leaving.is_some() || !self.chooser.is_due(self.now_us) {
            return;
        }
        let (status, directory) = (self.replica.status(), directory::read(self.replica.machine()));
        let (id, members) = (self.replica.id(), self.replica.members());
        if let Some(to) = self.chooser.choose(self.now_us, id, &status, members, &directory) {
            tracing::info!(%to, "hands leadership to a preferred member");
            self.transfer(to);
        }
    }

    fn transfer(&mut self, to: MemberId) {
        let request = AdminRequest::Transfer(to);
        self.replica.handle(RaftInput::Admin { proposal: NO_CALLER, request });
        self.again = true;
    }

    pub(crate) fn leave(&mut self) {
        if self.leaving.is_some() {
            return;
        }
        let status = self.replica.status();
        let voters = &self.replica.members().voters;
        let near = |id: MemberId| voters.contains(&id) && self.links.contains_key(&id);
        let directory = directory::read(self.replica.machine());
        let next = preference::successor(&status, &directory, near);
        let mut until_us = self.now_us;
        if let Some(to) = next.filter(|_| status.leading) {
            self.transfer(to);
            until_us = self.now_us.saturating_add(HAND_OVER_US);
        }
        self.leaving = Some(MemberStop { until_us, told: false });
    }

    pub(crate) fn may_end(&mut self, out: &mut Vec<Output>) {
        let now_us = self.now_us;
        let leads = self.replica.leads();
        let Some(leaving) = &mut self.leaving else { return };
        if !leaving.told && (now_us >= leaving.until_us || !leads) {
            leaving.told = true;
            out.push(Output::MayEnd);
        }
    }
}
