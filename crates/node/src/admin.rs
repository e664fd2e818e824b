//! Brings admin requests to the leader and their results back: changes of members, transfers of leadership.

use std::collections::BTreeMap;

use tenure_raft::{MemberId, ProposalId, RejectReason, ReplicaInput as RaftInput};

use crate::failure::NodeFailure;
use crate::io::{AdminId, AdminRequest, LinkId, Output};
use crate::node::Node;
use crate::peer::{self, PeerMessage};
use crate::principal::{Principal, PrincipalAction, authorise};

/// The pause before a request that found no leader is tried again.
const PAUSE_US: u64 = 20_000;

/// Admin requests that wait for their result.
#[derive(Default)]
pub(crate) struct Admins {
    waiting: BTreeMap<ProposalId, PendingAdmin>,
}

struct PendingAdmin {
    origin: AdminOrigin,
    at: AdminStage,
    due_us: u64,
}

/// An admin request of a client.
struct ClientAdmin {
    admin: AdminId,
    principal: Principal,
    request: AdminRequest,
    deadline_us: u64,
}

enum AdminOrigin {
    Client(ClientAdmin),
    Peer { from: MemberId, number: u64 },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum AdminStage {
    Waiting,
    Proposed,
    Forwarded { to: MemberId, link: LinkId },
}

impl Node {
    /// Takes an admin request of a client.
    pub(crate) fn admin(
        &mut self,
        admin: AdminId,
        principal: Principal,
        request: AdminRequest,
        deadline_us: u64,
    ) {
        self.bring(ClientAdmin { admin, principal, request, deadline_us });
    }

    /// Brings a request to the leader. Authorises every attempt, because the access rules may have changed while the
    /// request waited.
    fn bring(&mut self, client: ClientAdmin) {
        let ClientAdmin { admin, principal, request, deadline_us } = &client;
        let (admin, deadline_us) = (*admin, *deadline_us);
        let expired = self.now_us >= deadline_us;
        let refused = self.may_administer(principal.name()).err();
        if let Some(failure) = refused.or(expired.then_some(NodeFailure::Expired)) {
            let result = Err(failure);
            return self.staged.push(Output::AdminDone { admin, result });
        }
        let proposal = self.in_flight.number();
        let (at, due_us) = match self.lead.by {
            Some(id) if id == self.id() => {
                if let Some(failure) = self.too_early(request) {
                    let result = Err(failure);
                    return self.staged.push(Output::AdminDone { admin, result });
                }
                self.replica.handle(RaftInput::Admin { proposal, request: request.clone() });
                self.again = true;
                (AdminStage::Proposed, deadline_us)
            }
            Some(leader) => match self.links.get(&leader).copied() {
                Some(linked) => {
                    // A leader of an older version cannot read a principal. Its cluster is below the level of access
                    // rules, so the principal does not matter.
                    let named = linked.level >= peer::PRINCIPAL_LEVEL;
                    let principal = named.then(|| principal.name().to_owned());
                    let (number, request) = (proposal.0, request.clone());
                    let message = PeerMessage::Admin { number, principal, request };
                    self.staged.push(Output::Send { to: leader, message });
                    (AdminStage::Forwarded { to: leader, link: linked.link }, deadline_us)
                }
                None => {
                    (AdminStage::Waiting, self.now_us.saturating_add(PAUSE_US).min(deadline_us))
                }
            },
            None if self.is_abandoned() => {
                let result = Err(NodeFailure::NoLeader);
                return self.staged.push(Output::AdminDone { admin, result });
            }
            None => (AdminStage::Waiting, self.give_up_us(deadline_us)),
        };
        let origin = AdminOrigin::Client(client);
        self.timers.set(due_us, proposal.0);
        self.admins.waiting.insert(proposal, PendingAdmin { origin, at, due_us });
    }

    fn may_administer(&self, principal: &str) -> Result<(), NodeFailure> {
        authorise(self.replica.machine().access(), principal, PrincipalAction::ADMIN)
    }

    fn take_admin(&mut self, proposal: ProposalId) -> Option<PendingAdmin> {
        let waiting = self.admins.waiting.remove(&proposal)?;
        self.timers.cancel(waiting.due_us, proposal.0);
        Some(waiting)
    }

    /// Handles the timer of a request: tries it again or gives it up.
    pub(crate) fn admin_due(&mut self, proposal: ProposalId) {
        let Some(waiting) = self.take_admin(proposal) else { return };
        let AdminOrigin::Client(client) = waiting.origin else { return };
        let result = match waiting.at {
            AdminStage::Waiting if self.now_us < client.deadline_us => return self.bring(client),
            AdminStage::Waiting => Err(self.no_leader()),
            AdminStage::Proposed | AdminStage::Forwarded { .. } => Err(NodeFailure::Unknown),
        };
        self.staged.push(Output::AdminDone { admin: client.admin, result });
    }

    /// Sends every waiting request on, now that a leader is known.
    pub(crate) fn retry_admins(&mut self) {
        let waits = self.admins.waiting.iter().filter(|(_, it)| it.at == AdminStage::Waiting);
        let proposals: Vec<ProposalId> = waits.map(|(proposal, _)| *proposal).collect();
        for proposal in proposals {
            let taken = self.take_admin(proposal);
            if let Some(PendingAdmin { origin: AdminOrigin::Client(client), .. }) = taken {
                self.bring(client);
            }
        }
    }

    /// Takes the result of a request from the replica.
    pub(crate) fn admin_answered(&mut self, proposal: ProposalId, result: Result<(), NodeFailure>) {
        if let Some(waiting) = self.take_admin(proposal) {
            self.settle_admin(waiting.origin, result);
        }
    }

    /// Takes another member's answer to a forwarded request.
    pub(crate) fn peer_admin_answered(
        &mut self,
        from: MemberId,
        number: u64,
        result: Result<(), NodeFailure>,
    ) {
        let proposal = ProposalId(number);
        let is_asked =
            |it: &PendingAdmin| matches!(it.at, AdminStage::Forwarded { to, .. } if to == from);
        if self.admins.waiting.get(&proposal).is_some_and(is_asked) {
            self.admin_answered(proposal, result);
        }
    }

    fn settle_admin(&mut self, origin: AdminOrigin, result: Result<(), NodeFailure>) {
        match origin {
            AdminOrigin::Client(client) => match result {
                Err(failure)
                    if failure.is_for_want_of_a_leader()
                        && failure != NodeFailure::Rejected(RejectReason::Replaced)
                        && self.now_us < client.deadline_us =>
                {
                    let proposal = self.in_flight.number();
                    let due_us = self.now_us.saturating_add(PAUSE_US).min(client.deadline_us);
                    let origin = AdminOrigin::Client(client);
                    self.timers.set(due_us, proposal.0);
                    self.admins
                        .waiting
                        .insert(proposal, PendingAdmin { origin, at: AdminStage::Waiting, due_us });
                }
                result => {
                    self.staged.push(Output::AdminDone { admin: client.admin, result });
                }
            },
            AdminOrigin::Peer { from, number } => self.answer_peer_admin(from, number, result),
        }
    }

    /// Handles an admin request that another member has forwarded. Authorises it again: that member has authorised its
    /// caller by a state that may be older than the leader's.
    pub(crate) fn peer_wants(
        &mut self,
        from: MemberId,
        number: u64,
        principal: Option<&str>,
        request: AdminRequest,
    ) {
        // A member of an older version names no principal. Its caller counts as one without credentials.
        if let Err(failure) = self.may_administer(principal.unwrap_or_default()) {
            return self.answer_peer_admin(from, number, Err(failure));
        }
        if !self.replica.leads() {
            let why =
                RejectReason::NotLeader { leader: self.lead.by.filter(|by| *by != self.id()) };
            return self.answer_peer_admin(from, number, Err(NodeFailure::Rejected(why)));
        }
        if let Some(failure) = self.too_early(&request) {
            return self.answer_peer_admin(from, number, Err(failure));
        }
        let proposal = self.in_flight.number();
        let origin = AdminOrigin::Peer { from, number };
        // The replica answers every admin request, so a forwarded one needs no timer.
        self.admins
            .waiting
            .insert(proposal, PendingAdmin { origin, at: AdminStage::Proposed, due_us: u64::MAX });
        self.replica.handle(RaftInput::Admin { proposal, request });
    }

    fn answer_peer_admin(&mut self, to: MemberId, number: u64, result: Result<(), NodeFailure>) {
        let level = self.links.get(&to).map_or(1, |linked| linked.level);
        let result = result.map_err(|failure| peer::failure_for(level, failure));
        let message = PeerMessage::AdminAnswer { number, result };
        self.staged.push(Output::Send { to, message });
    }

    /// Drops the requests that another member forwarded over an earlier connection: their answers can no longer reach
    /// it.
    pub(crate) fn forget_forwarded_admins(&mut self, by: MemberId) {
        let theirs =
            |it: &PendingAdmin| matches!(it.origin, AdminOrigin::Peer { from, .. } if from == by);
        self.admins.waiting.retain(|_, waiting| !theirs(waiting));
    }

    /// Answers the requests forwarded over a lost connection as unknown: they may have happened.
    pub(crate) fn admins_lost(&mut self, member: MemberId, link: LinkId) {
        let lost = AdminStage::Forwarded { to: member, link };
        let there = self.admins.waiting.iter().filter(|(_, it)| it.at == lost);
        let proposals: Vec<ProposalId> = there.map(|(proposal, _)| *proposal).collect();
        for proposal in proposals {
            self.admin_answered(proposal, Err(NodeFailure::Unknown));
        }
    }

    /// Answers every request when the member ends: one that waits had no effect, a proposed or forwarded one may have.
    pub(crate) fn end_admins(&mut self) {
        for (proposal, waiting) in std::mem::take(&mut self.admins.waiting) {
            self.timers.cancel(waiting.due_us, proposal.0);
            if let AdminOrigin::Client(ClientAdmin { admin, .. }) = waiting.origin {
                let waits = waiting.at == AdminStage::Waiting;
                let result = Err(if waits { NodeFailure::Stopping } else { NodeFailure::Unknown });
                self.staged.push(Output::AdminDone { admin, result });
            }
        }
    }
}
