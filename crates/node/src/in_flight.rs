//! Keeps batches of commands that are in flight, and decides which commands are tried again.
//!
//! The member tries a command again until its deadline if it certainly had no effect for want of a leader. It tries a
//! command that may have had an effect again only if applying it twice does no harm. Once a command may have happened,
//! a second attempt without effect proves nothing: its outcome stays unknown until an answer comes.

use std::sync::Arc;

use bytes::Bytes;
use tenure_core::codec::decode_request;
use tenure_core::outcome::Outcome;
use tenure_core::request::{Command, RequestId};
use tenure_raft::{BATCH_US, MemberId, ProposalId};

use crate::admission::Permit;
use crate::failure::{Effect, NodeFailure};
use crate::io::{CommandBatch, LinkId, Outcomes, ReplyTo};
use crate::numbered::Numbered;

/// How long a renewal may wait to be proposed together with others: at most [`BATCH_US`], and a sixtieth of the ttl.
pub fn renewal_linger_us(ttl_ms: u64) -> u64 {
    BATCH_US.min(ttl_ms.saturating_mul(1_000) / 60)
}

/// A client's batch and its results so far. Small, because it is moved many times between its attempts.
pub(crate) struct InFlightBatch {
    batch: Box<CommandBatch>,
    /// Its results so far; none while the first attempt covers all commands. Most batches end with that attempt.
    results: Option<Box<PartialResults>>,
}

/// The results of a batch of which some commands have one.
struct PartialResults {
    /// What became of each command, as far as it is known.
    outcomes: Vec<Option<Result<Outcome, NodeFailure>>>,
    /// The commands of the present attempt, by position.
    part: Vec<usize>,
}

/// The stage of an attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AttemptStage {
    /// It waits for a leader, or for the next try.
    Waiting,
    /// This member's replica has it.
    Proposed,
    /// The commands were sent to another member.
    Forwarded { to: MemberId, link: LinkId },
}

/// The source of an attempt's commands.
pub(crate) enum Origin {
    /// A client of this member.
    Client(InFlightBatch),
    /// Another member, which forwarded them under its own number.
    Peer { from: MemberId, number: u64, asked_at_us: u64, permit: Permit },
}

/// One attempt to have commands applied.
pub(crate) struct ProposalAttempt {
    pub(crate) origin: Origin,
    pub(crate) at: AttemptStage,
    /// The time at which the attempt is handled again, by the member's clock.
    pub(crate) due_us: u64,
    /// When the attempt began, by the member's clock.
    pub(crate) begun_us: u64,
    /// The number of commands not answered yet.
    left: usize,
    collected: Outcomes,
}

/// All attempts of a member, by the number under which the replica and other members know them. Each attempt has its
/// own number, so a late answer to an earlier one is never taken for the answer to a later one.
#[derive(Default)]
pub(crate) struct InFlight {
    newest: u64,
    attempts: Numbered<ProposalAttempt>,
}

impl InFlight {
    /// Draws a number that was never used.
    pub(crate) fn number(&mut self) -> ProposalId {
        self.newest += 1;
        ProposalId(self.newest)
    }

    pub(crate) fn insert(&mut self, proposal: ProposalId, attempt: ProposalAttempt) {
        self.attempts.insert(proposal.0, attempt);
    }

    pub(crate) fn get(&self, proposal: ProposalId) -> Option<&ProposalAttempt> {
        self.attempts.get(proposal.0)
    }

    pub(crate) fn get_mut(&mut self, proposal: ProposalId) -> Option<&mut ProposalAttempt> {
        self.attempts.get_mut(proposal.0)
    }

    pub(crate) fn remove(&mut self, proposal: ProposalId) -> Option<ProposalAttempt> {
        self.attempts.remove(proposal.0)
    }

    /// The attempts whose stage passes the test, in the order in which they were made.
    pub(crate) fn those(&self, is_there: impl Fn(AttemptStage) -> bool) -> Vec<ProposalId> {
        let there = self.attempts.iter().filter(|(_, attempt)| is_there(attempt.at));
        there.map(|(proposal, _)| ProposalId(proposal)).collect()
    }

    /// The attempts whose commands another member forwarded.
    pub(crate) fn forwarded_by(&self, member: MemberId) -> Vec<ProposalId> {
        let theirs = |attempt: &ProposalAttempt| matches!(attempt.origin, Origin::Peer { from, .. } if from == member);
        let there = self.attempts.iter().filter(|(_, attempt)| theirs(attempt));
        there.map(|(proposal, _)| ProposalId(proposal)).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.attempts.len()
    }

    /// The number of commands covered by the permits of all attempts.
    pub(crate) fn held_commands(&self) -> u64 {
        let held = |attempt: &ProposalAttempt| match &attempt.origin {
            Origin::Client(flight) => flight.batch.permit.commands(),
            Origin::Peer { permit, .. } => permit.commands(),
        };
        self.attempts.iter().map(|(_, attempt)| held(attempt)).sum()
    }
}

impl ProposalAttempt {
    pub(crate) fn new(origin: Origin, at: AttemptStage, due_us: u64, commands: usize) -> Self {
        Self { origin, at, due_us, begun_us: 0, left: commands, collected: Vec::new() }
    }

    /// Where the answers of a client's commands go.
    pub(crate) fn reply(&self) -> Option<ReplyTo> {
        match &self.origin {
            Origin::Client(flight) => Some(flight.batch.reply),
            Origin::Peer { .. } => None,
        }
    }

    /// When its commands reached this member.
    pub(crate) fn asked_at_us(&self) -> u64 {
        match &self.origin {
            Origin::Client(flight) => flight.batch.asked_at_us,
            Origin::Peer { asked_at_us, .. } => *asked_at_us,
        }
    }

    /// Takes a part of the answer; tells whether it is complete.
    pub(crate) fn collect(
        &mut self,
        outcomes: impl Iterator<Item = Result<Outcome, NodeFailure>>,
    ) -> bool {
        let before = self.collected.len();
        if before == 0 {
            // Reuses the memory of the outcomes where the iterator owns it.
            self.collected = outcomes.collect();
        } else {
            self.collected.extend(outcomes);
        }
        self.left = self.left.saturating_sub(self.collected.len() - before);
        self.left == 0
    }

    /// Ends the attempt: returns its origin and the result of its commands. Those without an answer get this failure.
    pub(crate) fn end(mut self, rest: NodeFailure) -> (Origin, Outcomes) {
        self.collected.extend((0..self.left).map(|_| Err(rest)));
        (self.origin, self.collected)
    }
}

impl InFlightBatch {
    /// A batch before its first attempt. Leaves out commands of more than `bound` bytes: every log would refuse them,
    /// and the member would stop.
    pub(crate) fn new(batch: Box<CommandBatch>, bound: usize) -> Self {
        let fits = |request: &Bytes| request.len() <= bound;
        if batch.requests.iter().all(fits) {
            return Self { batch, results: None };
        }
        let too_large = NodeFailure::TooLarge { bound: bound as u64 };
        let outcome = |request| if fits(request) { None } else { Some(Err(too_large)) };
        let outcomes = batch.requests.iter().map(outcome).collect();
        let left = batch.requests.iter().enumerate().filter(|(_, request)| fits(request));
        let part = left.map(|(at, _)| at).collect();
        Self { batch, results: Some(Box::new(PartialResults { outcomes, part })) }
    }

    /// Ends a batch whose first attempt answered all of its commands, as for nearly every batch. Returns the batch and
    /// the outcomes if some commands are still without an outcome.
    pub(crate) fn finish_first(
        self,
        outcomes: Outcomes,
    ) -> Result<(ReplyTo, Outcomes), (Self, Outcomes)> {
        if self.results.is_some() || outcomes.iter().any(Result::is_err) {
            return Err((self, outcomes));
        }
        Ok((self.batch.reply, outcomes))
    }

    pub(crate) fn deadline_us(&self) -> u64 {
        self.batch.deadline_us
    }

    pub(crate) fn linger_us(&self) -> u64 {
        self.batch.linger_us
    }

    /// Whether nothing is left to try.
    pub(crate) fn is_over(&self) -> bool {
        self.results.as_ref().is_some_and(|results| results.part.is_empty())
    }

    /// The commands of the next attempt.
    pub(crate) fn requests(&self) -> Arc<[Bytes]> {
        let requests = &self.batch.requests;
        match &self.results {
            None => requests.clone(),
            Some(results) => results.part.iter().map(|at| requests[*at].clone()).collect(),
        }
    }

    /// The number of commands in the next attempt.
    pub(crate) fn commands(&self) -> usize {
        self.results.as_ref().map_or(self.batch.requests.len(), |results| results.part.len())
    }

    /// Records the results of an attempt, and returns whether anything is left to try.
    pub(crate) fn note(&mut self, outcomes: Outcomes, now_us: u64) -> bool {
        let late = now_us >= self.batch.deadline_us;
        let requests = &self.batch.requests;
        let again = |at: usize, outcome: &Result<_, NodeFailure>| {
            !late && matches!(outcome, Err(failure) if may_repeat(*failure, &requests[at]))
        };
        let Some(results) = &mut self.results else {
            let numbered = outcomes.iter().enumerate();
            let part: Vec<usize> =
                numbered.filter_map(|(at, outcome)| again(at, outcome).then_some(at)).collect();
            let outcomes = outcomes.into_iter().map(Some).collect();
            self.results = Some(Box::new(PartialResults { outcomes, part }));
            return !self.is_over();
        };
        let mut left = Vec::new();
        for (at, outcome) in std::mem::take(&mut results.part).into_iter().zip(outcomes) {
            if again(at, &outcome) {
                left.push(at);
            }
            let known = &mut results.outcomes[at];
            let doubt = *known == Some(Err(NodeFailure::Unknown)) && !mutant!("doubt_forgotten");
            *known =
                Some(if doubt && outcome.is_err() { Err(NodeFailure::Unknown) } else { outcome });
        }
        results.part = left;
        !self.is_over()
    }

    /// Ends the batch: returns its reply address and its outcomes. A command without an answer gets this failure.
    /// Returns the permit to the budget.
    pub(crate) fn finish(self, rest: NodeFailure) -> (ReplyTo, Outcomes) {
        let CommandBatch { requests, reply, permit, .. } = *self.batch;
        if mutant!("admission_leaked") && rest != NodeFailure::Unknown {
            std::mem::forget(permit);
        }
        let mut outcomes = self.results.map(|results| results.outcomes).unwrap_or_default();
        outcomes.resize_with(requests.len(), || None);
        (reply, outcomes.into_iter().map(|outcome| outcome.unwrap_or(Err(rest))).collect())
    }
}

/// Whether a command without an outcome may be sent again.
fn may_repeat(failure: NodeFailure, request: &[u8]) -> bool {
    match failure.effect() {
        Effect::None => failure.is_for_want_of_a_leader(),
        Effect::Unknown => {
            mutant!("retried_without_an_id")
                || decode_request(request).is_ok_and(|request| {
                    request.id != RequestId::None || is_harmless_twice(&request.command)
                })
        }
    }
}

/// Whether a command may be applied twice although nothing recognises the second as a repetition.
fn is_harmless_twice(command: &Command<'_>) -> bool {
    match command {
        // The second finds the lease that the first granted or renewed.
        Command::Renew(_) | Command::GrantLease(_) => true,
        // The second number is not larger than the first, so it changes nothing.
        Command::Progress { .. } => true,
        // Between the two, another client may have acted. The second would undo that act, or would be refused because
        // of the effect of the first.
        Command::Revoke { .. }
        | Command::Acquire(_)
        | Command::Release(_)
        | Command::Leave { .. }
        | Command::Downgrade(_)
        | Command::Upgrade(_)
        | Command::HandOn { .. }
        | Command::Update { .. }
        | Command::Force { .. }
        | Command::Stopped { .. }
        | Command::Put(_)
        | Command::Delete { .. }
        | Command::SetLimits(_)
        | Command::Compact { .. }
        | Command::RaiseLevel { .. }
        | Command::Abandon(_)
        | Command::SetAccess(_)
        | Command::Drain { .. }
        | Command::Undrain { .. }
        | Command::Resize { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::CallId;
    use tenure_core::codec::encode_request;
    use tenure_core::outcome::Answer;
    use tenure_core::request::{Expect, LeaseRef, Put, Request};
    use tenure_raft::RejectReason;
    use tenure_types::{LeaseId, Revision};

    const NOT_APPLIED: NodeFailure = NodeFailure::Rejected(RejectReason::Replaced);

    fn flight(commands: Vec<Command<'_>>, bound: usize) -> InFlightBatch {
        let encode = |command| {
            let mut bytes = Vec::new();
            encode_request(&Request { principal: "", id: RequestId::None, command }, &mut bytes);
            bytes.into()
        };
        let batch = CommandBatch {
            requests: commands.into_iter().map(encode).collect(),
            linger_us: 0,
            asked_at_us: 0,
            deadline_us: 1_000,
            reply: ReplyTo::Call(CallId(1)),
            permit: Permit::default(),
        };
        InFlightBatch::new(Box::new(batch), bound)
    }

    fn renew() -> Command<'static> {
        Command::Renew(vec![LeaseRef::Id(LeaseId::new(1).unwrap())])
    }

    fn delete() -> Command<'static> {
        Command::Delete { key: "k", expect: Expect::Any, guard: None }
    }

    fn renewed() -> Result<Outcome, NodeFailure> {
        Ok(Outcome { revision: Revision(7), result: Ok(Answer::Renewed(vec![None])) })
    }

    #[test]
    fn only_what_had_no_effect_or_may_happen_twice_is_tried_again() {
        let mut flight = flight(vec![renew(), delete(), delete()], 1_000);
        let unknown = Err(NodeFailure::Unknown);
        assert!(flight.note(vec![unknown.clone(), unknown, Err(NOT_APPLIED)], 0));
        assert_eq!(
            flight.results.unwrap().part,
            [0, 2],
            "a delete that may have happened is not repeated"
        );
    }

    #[test]
    fn doubt_stays_when_the_repetition_is_not_applied() {
        let mut flight = flight(vec![renew()], 1_000);
        assert!(flight.note(vec![Err(NodeFailure::Unknown)], 0));
        assert!(!flight.note(vec![Err(NodeFailure::Rejected(RejectReason::Busy))], 0));
        assert_eq!(flight.finish(NodeFailure::NoLeader).1, vec![Err(NodeFailure::Unknown)]);
    }

    #[test]
    fn an_answer_ends_doubt() {
        let mut flight = flight(vec![renew()], 1_000);
        assert!(flight.note(vec![Err(NodeFailure::Unknown)], 0));
        assert!(!flight.note(vec![renewed()], 0));
        assert_eq!(flight.finish(NodeFailure::Unknown).1, vec![renewed()]);
    }

    #[test]
    fn what_is_too_large_is_left_out_and_the_others_go_on() {
        let value = [0; 100];
        let put = Put { key: "k", value: &value, lease: None, expect: Expect::Any, guard: None };
        let mut both = flight(vec![Command::Put(put), renew()], 100);
        assert!(!both.is_over());
        assert_eq!(both.requests().len(), 1);
        assert!(!both.note(vec![renewed()], 0));
        let too_large = Err(NodeFailure::TooLarge { bound: 100 });
        assert_eq!(both.finish(NodeFailure::Unknown).1, vec![too_large, renewed()]);
        assert!(flight(vec![renew()], 1).is_over());
    }

    #[test]
    fn nothing_is_tried_after_the_deadline() {
        let mut flight = flight(vec![delete()], 1_000);
        assert!(!flight.note(vec![Err(NOT_APPLIED)], 1_000));
    }
}
