//! Matches the node's answers, reads, admin results and join answers to the callers that wait for them.

use std::collections::BTreeMap;

use tenure_core::outcome::{Answer, Outcome};
use tenure_node::{
    AdminId, Input, JoinId, Node, NodeFailure, NodeObserver, Numbered, Output, ReadId, ReplyTo,
};

use crate::dispatch::Delivery;
use crate::inbox::ReadTurn;
use crate::member::{
    AdminDone, JoinDone, LoopEvent, MemberHandle, OutcomesCallback, Question, ReadCall,
};
use crate::metrics::FreedAt;
use crate::node_metrics::NodeMeters;

/// The callers that wait for one member's commands, reads, admin requests and joins. Sessions are kept elsewhere.
#[derive(Default)]
pub(crate) struct Callers {
    newest: u64,
    calls: Numbered<OutcomesCallback>,
    /// Each with its turn, which is over when it is answered.
    reads: BTreeMap<ReadId, (Question, ReadTurn)>,
    admins: BTreeMap<AdminId, AdminDone>,
    joins: BTreeMap<JoinId, JoinDone>,
}

impl Callers {
    /// Turns an event into an input of the node. Returns an event that is not one.
    pub(crate) fn take(&mut self, event: LoopEvent) -> Result<Input, LoopEvent> {
        self.newest += 1;
        Ok(match event {
            LoopEvent::Input(input) => input,
            LoopEvent::Call { call, batch, done } => {
                self.calls.insert(call.0, done);
                Input::Submit(batch)
            }
            LoopEvent::Read(read) => {
                let ReadCall { question, principal, fresh, deadline_us, turn } = *read;
                let read = ReadId(self.newest);
                self.reads.insert(read, (question, turn));
                Input::Read { read, principal, fresh, deadline_us }
            }
            LoopEvent::Admin { request, principal, deadline_us, done } => {
                let admin = AdminId(self.newest);
                self.admins.insert(admin, done);
                Input::Admin { admin, principal, request, deadline_us }
            }
            LoopEvent::Join { request, peer_name, done } => {
                let join = JoinId(self.newest);
                self.joins.insert(join, done);
                Input::Join { join, request, peer_name }
            }
            other => return Err(other),
        })
    }

    /// Performs an output that is for a caller. Returns an output that is not.
    pub(crate) fn perform(
        &mut self,
        output: Output,
        node: &Node,
        member: &MemberHandle,
    ) -> Option<Output> {
        match output {
            Output::Answer { to: ReplyTo::Session { session, batch }, outcomes } => {
                member.outbox().put(Delivery::Answers { session, batch, outcomes });
            }
            Output::Answer { to: ReplyTo::Call(call), outcomes } => {
                if let Some(done) = self.calls.remove(call.0) {
                    done(outcomes);
                }
            }
            Output::ReadReady { read } => self.read(read, |question| question(Ok(node.machine()))),
            Output::ReadFailed { read, failure } => {
                self.read(read, |question| question(Err(failure)));
            }
            Output::AdminDone { admin, result } => {
                if let Some(done) = self.admins.remove(&admin) {
                    done(result);
                }
            }
            Output::JoinAnswer { join, answer } => {
                if let Some(done) = self.joins.remove(&join) {
                    done(*answer);
                }
            }
            other => return Some(other),
        }
        None
    }

    fn read(&mut self, read: ReadId, ask: impl FnOnce(Question)) {
        if let Some((question, _turn)) = self.reads.remove(&read) {
            ask(question);
        }
    }
}

/// Answers an event that the event loop did not take before the member ended.
pub(crate) fn refuse(event: LoopEvent, member: &MemberHandle) {
    match event {
        LoopEvent::Read(read) => (read.question)(Err(NodeFailure::Stopping)),
        LoopEvent::Admin { done, .. } => done(Err(NodeFailure::Stopping)),
        LoopEvent::Call { batch, done, .. } => done(batch.failed(NodeFailure::Stopping)),
        LoopEvent::Input(Input::Submit(batch)) => {
            if let ReplyTo::Session { session, batch: number } = batch.reply {
                let (outcomes, batch) = (batch.failed(NodeFailure::Stopping), number);
                member.outbox().put(Delivery::Answers { session, batch, outcomes });
            }
        }
        _ => {}
    }
}

/// Records metrics of what the node does.
pub(crate) struct CountingObserver<'a> {
    pub(crate) meters: &'a NodeMeters,
    /// The commands that may have freed locks.
    pub(crate) freed: &'a mut Vec<FreedAt>,
}

impl NodeObserver for CountingObserver<'_> {
    fn took(&mut self, commands: usize) {
        self.meters.took(commands);
    }

    fn timed(
        &mut self,
        reply: Option<ReplyTo>,
        asked_at_us: u64,
        proposed_at_us: u64,
        applied_at_us: u64,
    ) {
        self.meters.timed(asked_at_us, proposed_at_us, applied_at_us);
        if let Some(reply) = reply {
            self.meters.traces.timed(reply, proposed_at_us, applied_at_us);
        }
    }

    fn applied(&mut self, now_us: u64, asked_at_us: u64, outcomes: &[Outcome]) {
        self.meters.committed(now_us.saturating_sub(asked_at_us));
        for outcome in outcomes {
            match &outcome.result {
                Ok(Answer::Renewed(leases)) => {
                    self.meters.renewed(leases.iter().flatten().count() as u64);
                }
                Ok(
                    Answer::Released
                    | Answer::Revoked
                    | Answer::Left
                    | Answer::Stopped
                    | Answer::Forced { .. }
                    | Answer::Abandoned { .. }
                    | Answer::Downgraded { .. },
                ) => self.freed.push(FreedAt { revision: outcome.revision, asked_at_us }),
                _ => {}
            }
        }
    }
}
