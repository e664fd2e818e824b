//! Validates and proposes membership changes and leadership transfers.

use tenure_store::LogId;

use super::Replica;
use crate::engine;
use crate::io::{AdminRequest, ProposalId, RejectReason, ReplicaOutput};
use crate::member::{MemberId, MembershipChange, encode_changes};

impl Replica {
    pub(super) fn admin(&mut self, proposal: ProposalId, request: AdminRequest) {
        let result = match request {
            AdminRequest::Change(changes) => match self.propose_changes(&changes) {
                Ok(at) => {
                    self.changing = Some((proposal, at));
                    return;
                }
                Err(why) => Err(why),
            },
            AdminRequest::Transfer(to) => self.transfer(to),
        };
        self.refused.push(ReplicaOutput::Changed { proposal, result });
    }

    fn transfer(&mut self, to: MemberId) -> Result<(), RejectReason> {
        if !self.leads() {
            return Err(RejectReason::NotLeader { leader: self.leader() });
        }
        if to == self.config.id || !self.members.voters.contains(&to) {
            return Err(RejectReason::Impossible);
        }
        self.node.transfer_leader(to.get());
        Ok(())
    }

    fn propose_changes(&mut self, changes: &[MembershipChange]) -> Result<LogId, RejectReason> {
        if !self.leads() {
            return Err(RejectReason::NotLeader { leader: self.leader() });
        }
        let hasty = mutant!("members_changed_before_own_term") && !self.clock.started(self.term());
        if hasty {
            // The engine enforces the same rule, so it is disabled there too.
            self.node.raft.pending_conf_index = 0;
            self.changing = None;
        }
        // A change must wait until everything older than this term is applied here.
        if !self.clock.started(self.term()) && !hasty
            || self.changing.is_some()
            || self.members.is_joint()
            || self.node.raft.has_pending_conf()
        {
            return Err(RejectReason::ChangeUnderWay);
        }
        self.check_changes(changes)?;
        self.propose_members(changes)
    }

    fn check_changes(&self, changes: &[MembershipChange]) -> Result<(), RejectReason> {
        let mut voters = self.members.voters.clone();
        for change in changes {
            match *change {
                MembershipChange::AddLearner(id)
                    if self.members.retired.contains(&id) && !mutant!("removed_id_added_again") =>
                {
                    return Err(RejectReason::Retired);
                }
                MembershipChange::AddLearner(id) if self.members.contains(id) => {
                    return Err(RejectReason::Impossible);
                }
                MembershipChange::AddLearner(_) => {}
                MembershipChange::Promote(id) if !self.members.learners.contains(&id) => {
                    return Err(RejectReason::Impossible);
                }
                MembershipChange::Promote(id) => {
                    voters.insert(id);
                }
                // A leader must transfer leadership before it is removed, so that it is never in doubt which member
                // leads.
                MembershipChange::Remove(id)
                    if id == self.config.id || !self.members.contains(id) =>
                {
                    return Err(RejectReason::Impossible);
                }
                MembershipChange::Remove(id) => {
                    voters.remove(&id);
                }
            }
        }
        let mut ids: Vec<_> = changes.iter().map(|change| change.member()).collect();
        ids.sort();
        ids.dedup();
        let sensible = ids.len() == changes.len() && !changes.is_empty() && !voters.is_empty();
        if sensible { Ok(()) } else { Err(RejectReason::Impossible) }
    }

    /// Proposes a change in our own encoding. The engine's encoding goes with it, because the engine reads that one.
    fn propose_members(&mut self, changes: &[MembershipChange]) -> Result<LogId, RejectReason> {
        let context = encode_changes(changes);
        if self.node.propose_conf_change(context, engine::changes_to(changes)).is_err() {
            return Err(RejectReason::Transferring);
        }
        let index = self.node.raft.raft_log.last_index();
        Ok(LogId { index, term: self.node.raft.term })
    }

    /// Completes a joint configuration whose leader is gone. The engine fails to do so if this member became leader at
    /// the wrong moment.
    pub(super) fn leave_joint(&mut self) {
        if self.leads()
            && self.members.is_joint()
            && self.clock.started(self.term())
            && !self.node.raft.has_pending_conf()
        {
            let _ = self.propose_members(&[]);
        }
    }
}
