//! Brings commands to the leader, here or over a link, and their answers back.
//!
//! A member that leads proposes a batch; any other forwards it to the leader, or keeps it within its deadline while
//! there is none. A member that gets forwarded commands and does not lead rejects them. It never forwards them again,
//! so there are no loops. When a link breaks, commands that were sent over it and not answered may have taken effect.

use bytes::Bytes;
use tenure_core::codec::decode_request;
use tenure_core::outcome::Outcome;
use tenure_raft::{MemberId, ProposalFate, ProposalId, RejectReason, ReplicaInput as RaftInput};

use crate::admission::{Permit, weight};
use crate::failure::NodeFailure;
use crate::in_flight::{AttemptStage, InFlightBatch, Origin, ProposalAttempt};
use crate::io::{CommandBatch, LinkId, NodeObserver, Outcomes, Output};
use crate::missed::missed;
use crate::node::Node;
use crate::peer::{self, PeerMessage};
use crate::principal::authorise;
use crate::share::ConnectionShare;

/// The pause before a batch that failed for want of a leader is tried again. A change of leader ends the pause.
const PAUSE_US: u64 = 10_000;
/// Added to the deadline, so that a definite "not applied" that comes a little late arrives before the outcome is
/// reported as unknown.
pub(crate) const ANSWER_GRACE_US: u64 = 100_000;
/// The deadline of commands that a member of an older version forwards: such a member does not send the time that is
/// left.
const FORWARDED_US: u64 = 10_000_000;

/// Commands that another member forwarded.
pub(crate) struct Forwarded {
    pub(crate) number: u64,
    pub(crate) linger_us: u64,
    pub(crate) within_us: Option<u64>,
    pub(crate) requests: Vec<Bytes>,
}

impl Node {
    /// Starts a client's batch.
    pub(crate) fn submit(&mut self, batch: Box<CommandBatch>, observer: &mut impl NodeObserver) {
        let expired = self.now_us >= batch.deadline_us;
        let flight = InFlightBatch::new(batch, self.config.command_bytes_max);
        if expired {
            return self.finish(flight, NodeFailure::Expired);
        }
        if self.replica.is_retired() {
            // This member was removed, so the others accept no commands from it. The client must ask another member.
            return self.finish(flight, NodeFailure::Stopping);
        }
        if flight.is_over() {
            return self.finish(flight, NodeFailure::Unknown);
        }
        if self.replica.leads() {
            observer.took(flight.commands());
        }
        self.dispatch(flight);
    }

    /// Makes the next attempt of a flight.
    fn dispatch(&mut self, flight: InFlightBatch) {
        match self.lead.by {
            Some(id) if id == self.id() => self.propose(flight),
            Some(leader) => self.forward(flight, leader),
            None if self.is_abandoned() => self.finish(flight, NodeFailure::NoLeader),
            None => {
                let due_us = self.give_up_us(flight.deadline_us());
                self.wait(flight, due_us);
            }
        }
    }

    fn propose(&mut self, flight: InFlightBatch) {
        let proposal = self.in_flight.number();
        // The replica must not hold a command back beyond its deadline.
        let left_us = flight.deadline_us().saturating_sub(self.now_us);
        let (requests, linger_us) = (flight.requests(), flight.linger_us().min(left_us));
        let deadline_us = flight.deadline_us();
        let due_us = deadline_us.saturating_add(ANSWER_GRACE_US);
        let attempt = ProposalAttempt::new(
            Origin::Client(flight),
            AttemptStage::Proposed,
            due_us,
            requests.len(),
        );
        self.add(proposal, attempt);
        self.replica.handle(RaftInput::Submit { proposal, requests, linger_us, deadline_us });
        self.again = true;
    }

    fn forward(&mut self, flight: InFlightBatch, leader: MemberId) {
        let Some(linked) = self.links.get(&leader).copied() else {
            return self.pause(flight);
        };
        let number = self.in_flight.number();
        let (requests, linger_us) = (flight.requests().to_vec(), flight.linger_us());
        let within_us = flight.deadline_us().saturating_sub(self.now_us);
        let within_us = (linked.level >= peer::WITHIN_LEVEL).then_some(within_us);
        let due_us = flight.deadline_us().saturating_add(ANSWER_GRACE_US);
        let at = AttemptStage::Forwarded { to: leader, link: linked.link };
        self.add(number, ProposalAttempt::new(Origin::Client(flight), at, due_us, requests.len()));
        let message = PeerMessage::Commands { number: number.0, linger_us, within_us, requests };
        self.staged.push(Output::Send { to: leader, message });
    }

    /// Tries a flight again after a pause, or when the leader changes.
    fn pause(&mut self, flight: InFlightBatch) {
        let due_us = self.now_us.saturating_add(PAUSE_US).min(flight.deadline_us());
        self.wait(flight, due_us);
    }

    fn wait(&mut self, flight: InFlightBatch, due_us: u64) {
        let (proposal, commands) = (self.in_flight.number(), flight.commands());
        self.add(
            proposal,
            ProposalAttempt::new(Origin::Client(flight), AttemptStage::Waiting, due_us, commands),
        );
    }

    fn add(&mut self, proposal: ProposalId, mut attempt: ProposalAttempt) {
        attempt.begun_us = self.now_us;
        self.timers.set(attempt.due_us, proposal.0);
        self.in_flight.insert(proposal, attempt);
    }

    fn remove(&mut self, proposal: ProposalId) -> Option<ProposalAttempt> {
        let attempt = self.in_flight.remove(proposal)?;
        self.timers.cancel(attempt.due_us, proposal.0);
        Some(attempt)
    }

    /// Handles the timer of an attempt: tries again or gives up.
    pub(crate) fn attempt_due(&mut self, proposal: ProposalId) {
        let Some(attempt) = self.remove(proposal) else { return };
        let at = attempt.at;
        let (origin, outcomes) = attempt.end(NodeFailure::Unknown);
        let Origin::Client(mut flight) = origin else { return };
        match at {
            AttemptStage::Waiting if self.now_us >= flight.deadline_us() => {
                let failure = self.no_leader();
                flight.note(vec![Err(failure); flight.commands()], self.now_us);
                self.finish(flight, failure);
            }
            AttemptStage::Waiting => self.dispatch(flight),
            AttemptStage::Proposed | AttemptStage::Forwarded { .. } => {
                flight.note(outcomes, self.now_us);
                self.finish(flight, NodeFailure::Unknown);
            }
        }
    }

    /// Sends every waiting attempt on, now that a leader is known.
    pub(crate) fn retry_all(&mut self) {
        for proposal in self.in_flight.those(|at| at == AttemptStage::Waiting) {
            let Some(attempt) = self.remove(proposal) else { continue };
            if let (Origin::Client(flight), _) = attempt.end(NodeFailure::Unknown) {
                self.dispatch(flight);
            }
        }
        self.retry_admins();
    }

    /// Takes the replica's result for some or all commands of an attempt.
    pub(crate) fn answered(
        &mut self,
        proposal: ProposalId,
        fate: ProposalFate,
        observer: &mut impl NodeObserver,
    ) {
        let now_us = self.now_us;
        let Some(attempt) = self.in_flight.get_mut(proposal) else { return };
        let whole = match fate {
            ProposalFate::Applied(outcomes) => {
                observer.applied(now_us, attempt.asked_at_us(), &outcomes);
                let (reply, begun_us) = (attempt.reply(), attempt.begun_us);
                observer.timed(reply, attempt.asked_at_us(), begun_us, now_us);
                attempt.collect(outcomes.into_iter().map(Ok))
            }
            ProposalFate::NotDone { commands, why: RejectReason::Expired } => {
                attempt.collect((0..commands).map(|_| Err(NodeFailure::Expired)))
            }
            ProposalFate::NotDone { commands, why } => {
                attempt.collect((0..commands).map(|_| Err(NodeFailure::Rejected(why))))
            }
            ProposalFate::Unknown { commands } => {
                attempt.collect((0..commands).map(|_| Err(NodeFailure::Unknown)))
            }
        };
        if whole && let Some(attempt) = self.remove(proposal) {
            let (origin, outcomes) = attempt.end(NodeFailure::Unknown);
            self.settle(origin, outcomes);
        }
    }

    /// Takes another member's answer to forwarded commands.
    pub(crate) fn peer_answered(&mut self, from: MemberId, number: u64, outcomes: Outcomes) {
        if mutant!("forwarded_answer_dropped") {
            return;
        }
        let proposal = ProposalId(number);
        let Some(attempt) = self.in_flight.get(proposal) else { return };
        let AttemptStage::Forwarded { to, .. } = attempt.at else { return };
        let Origin::Client(flight) = &attempt.origin else { return };
        if to != from || flight.commands() != outcomes.len() {
            return;
        }
        let requests = flight.requests();
        let Some(attempt) = self.remove(proposal) else { return };
        let (origin, _) = attempt.end(NodeFailure::Unknown);
        let missed = missed(self.replica.machine(), &requests, &outcomes);
        self.settle(origin, outcomes);
        if !missed.is_empty() {
            self.staged.push(Output::Notices(missed));
        }
    }

    /// Handles the loss of a connection over which commands were forwarded: they may have taken effect.
    pub(crate) fn attempts_lost(&mut self, member: MemberId, link: LinkId) {
        if mutant!("lost_link_ignored") {
            return;
        }
        let lost = AttemptStage::Forwarded { to: member, link };
        for proposal in self.in_flight.those(|at| at == lost) {
            if let Some(attempt) = self.remove(proposal) {
                let (origin, outcomes) = attempt.end(NodeFailure::Unknown);
                self.settle(origin, outcomes);
            }
        }
    }

    /// Drops the commands that another member forwarded over an earlier connection. Their answers must not be sent: the
    /// member may have restarted since, and then uses the same numbers for other commands.
    pub(crate) fn forget_forwarded(&mut self, by: MemberId) {
        if mutant!("answer_to_an_earlier_start") {
            return;
        }
        for proposal in self.in_flight.forwarded_by(by) {
            // Dropping the attempt returns its permit to the budget.
            drop(self.remove(proposal));
        }
    }

    /// Ends an attempt: answers the caller, or repeats the commands that may be repeated.
    fn settle(&mut self, origin: Origin, outcomes: Outcomes) {
        match origin {
            Origin::Client(flight) => {
                let (mut flight, outcomes) = match flight.finish_first(outcomes) {
                    Ok((to, outcomes)) => {
                        return self.staged.push(Output::Answer { to, outcomes });
                    }
                    Err(goes_on) => goes_on,
                };
                if flight.note(outcomes, self.now_us) {
                    self.pause(flight);
                } else {
                    self.finish(flight, NodeFailure::Unknown);
                }
            }
            Origin::Peer { from, number, permit, .. } => {
                drop(permit);
                self.answer_peer(from, number, outcomes);
            }
        }
    }

    /// Tells the caller what became of a batch. Commands that have no outcome get this failure.
    fn finish(&mut self, flight: InFlightBatch, rest: NodeFailure) {
        let (to, outcomes) = flight.finish(rest);
        self.staged.push(Output::Answer { to, outcomes });
    }

    /// Proposes commands that another member has forwarded, if this one leads. Like the commands of a client they are
    /// authorised, and count against this member's budget and the share of their source, which is the member that
    /// forwards them.
    pub(crate) fn take_forwarded(
        &mut self,
        from: MemberId,
        forwarded: Forwarded,
        observer: &mut impl NodeObserver,
    ) {
        let Forwarded { number, linger_us, within_us, requests } = forwarded;
        if !self.replica.leads() {
            let why =
                RejectReason::NotLeader { leader: self.lead.by.filter(|by| *by != self.id()) };
            let failed = vec![Err(NodeFailure::Rejected(why)); requests.len()];
            return self.answer_peer(from, number, failed);
        }
        if within_us == Some(0) && !mutant!("forwarded_deadline_ignored") {
            return self.answer_peer(from, number, vec![Err(NodeFailure::Expired); requests.len()]);
        }
        if let Some(refused) = self.refused_in_part(&requests) {
            return self.answer_peer(from, number, refused);
        }
        let mut permit = Permit::default();
        let share = self.shares.entry(from);
        let share = share.or_insert_with(|| ConnectionShare::of_member(from.get())).clone();
        for request in &requests {
            let Some(one) = self.admit_forwarded(request, &share) else {
                let overloaded = vec![Err(NodeFailure::Overloaded); requests.len()];
                return self.answer_peer(from, number, overloaded);
            };
            permit.join(one);
        }
        observer.took(requests.len());
        self.replica.serve_other_members();
        let (proposal, commands) = (self.in_flight.number(), requests.len());
        let origin = Origin::Peer { from, number, asked_at_us: self.now_us, permit };
        let within_us = within_us.unwrap_or(FORWARDED_US).min(FORWARDED_US * 60);
        let due_us = self.now_us.saturating_add(within_us).saturating_add(ANSWER_GRACE_US);
        self.add(proposal, ProposalAttempt::new(origin, AttemptStage::Proposed, due_us, commands));
        let linger_us = linger_us.min(within_us);
        let mut deadline_us = self.now_us.saturating_add(within_us);
        if mutant!("forwarded_deadline_ignored") {
            deadline_us = u64::MAX;
        }
        let requests = requests.into();
        self.replica.handle(RaftInput::Submit { proposal, requests, linger_us, deadline_us });
    }

    /// The answers to a batch of which some commands are refused; none if all may be proposed. The member that forwards
    /// the batch sends the other commands again without those.
    fn refused_in_part(&self, requests: &[Bytes]) -> Option<Outcomes> {
        let refused: Vec<_> = requests.iter().map(|it| self.refused_of_another(it)).collect();
        let again = NodeFailure::Rejected(RejectReason::NotLeader { leader: Some(self.id()) });
        let any = refused.iter().any(Option::is_some);
        any.then(|| refused.into_iter().map(|failure| Err(failure.unwrap_or(again))).collect())
    }

    /// Why a command of another member may not be proposed. One that cannot be decoded is proposed: it has no effect
    /// when it is applied, and is refused then.
    fn refused_of_another(&self, request: &[u8]) -> Option<NodeFailure> {
        let bound = self.config.command_bytes_max;
        if request.len() > bound {
            return Some(NodeFailure::TooLarge { bound: bound as u64 });
        }
        let request = decode_request(request).ok()?;
        authorise(self.replica.machine().access(), request.principal, &request.command).err()
    }

    fn admit_forwarded(&self, request: &[u8], share: &ConnectionShare) -> Option<Permit> {
        let decoded = decode_request(request).ok();
        let asks = crate::admission::Weight::Asks;
        let kind = decoded.map_or(asks, |request| weight(&request.command));
        self.config.admission.admit_from(kind, request.len() as u64, Some(share))
    }

    fn answer_peer(&mut self, to: MemberId, number: u64, outcomes: Outcomes) {
        let level = self.links.get(&to).map_or(1, |linked| linked.level);
        let told = |outcome: Result<Outcome, NodeFailure>| {
            outcome.map_err(|failure| peer::failure_for(level, failure))
        };
        let outcomes = outcomes.into_iter().map(told).collect();
        let message = PeerMessage::Answers { number, outcomes };
        self.staged.push(Output::Send { to, message });
    }

    /// Answers every batch when the member ends: a batch that waits had no effect, one that was proposed or forwarded
    /// may have had one.
    pub(crate) fn end_attempts(&mut self) {
        for proposal in self.in_flight.those(|_| true) {
            let Some(attempt) = self.remove(proposal) else { continue };
            let at = attempt.at;
            let (Origin::Client(mut flight), outcomes) = attempt.end(NodeFailure::Unknown) else {
                continue;
            };
            if at == AttemptStage::Waiting {
                flight.note(vec![Err(NodeFailure::Stopping); flight.commands()], u64::MAX);
            } else {
                flight.note(outcomes, u64::MAX);
            }
            self.finish(flight, NodeFailure::Stopping);
        }
    }
}
