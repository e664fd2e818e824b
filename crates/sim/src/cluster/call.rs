//! Drives the acquires of callers without a session at their member, as the server's task for each of them does.
//!
//! [`PendingAcquire`] decides when the caller gets which reply and when the acquire is taken back. This file feeds it:
//! answers and notices come from the member's router, with a schedule of their own, and the caller's end of the
//! connection is noticed late or never. What the caller does is in `caller.rs`.

use bytes::Bytes;
use tenure_core::codec::decode_request;
use tenure_core::outcome::{Answer, Outcome};
use tenure_core::request::RequestId;
use tenure_node::{
    AcquireInput, AcquireOutput, AcquireTerms, CommandBatch, Effect, Input, NodeFailure, Outcomes,
    PendingAcquire, Permit, Principal, ReplyTo, SessionId, SessionMessage, Weight, authorise,
    weight,
};

use super::event::SimEvent;
use super::oracle::ensure;
use super::session_host::{Endpoint, Routed, SubmittedBatch, WaitKey};
use super::world::SimCluster;
use super::{MS, S};
use crate::invariant::CheckResult;

/// The time that a member may take for an acquire beyond its terms: the cluster has 10 s to decide that it is taken
/// back, and a loop that pauses looks late.
const OVER_US: u64 = 40 * S;

/// One acquire at its member.
pub(super) struct HostedCall {
    caller: usize,
    pending: PendingAcquire,
    /// The batch that takes the ask back, once there is one.
    give_back: Option<u64>,
    /// Whether the machine answered it with a grant or a place.
    has_place: bool,
    /// The time by which it must be over, by the member's clock.
    pub(super) over_by_us: u64,
    /// Mail arrives in the order in which it was sent.
    newest_us: u64,
}

/// The request of a caller, as the member's API has decoded it.
#[derive(Debug)]
pub(super) struct CallRequest {
    pub(super) caller: usize,
    pub(super) key: String,
    pub(super) request: Bytes,
    pub(super) terms: AcquireTerms,
}

/// What reaches an acquire at its member.
#[derive(Debug)]
pub(super) enum CallInput {
    /// The caller's request.
    Begin(CallRequest),
    /// Mail of the session.
    Mail(SessionMessage),
    /// The caller's connection has ended.
    CallerGone,
    /// Time has passed.
    Due,
}

/// A command that takes an ask back and has no answer yet.
pub(super) struct GiveBack {
    pub(super) caller: usize,
    pub(super) member: usize,
}

impl SimCluster {
    /// Something reaches an acquire at its member.
    pub(super) fn handle_call_input(
        &mut self,
        member: usize,
        boot: u64,
        call: SessionId,
        input: CallInput,
    ) -> CheckResult {
        let target = &self.sim_members[member];
        if target.boot != boot || !target.is_up() {
            // A request that finds no member has no effect. Everything else ended with the process.
            return match input {
                CallInput::Begin(request) => self.handle_call_end(request.caller, call),
                _ => Ok(()),
            };
        }
        if target.paused_until_us > self.now_us {
            let at_us = target.paused_until_us;
            self.queue.push(at_us, SimEvent::Call { member, boot, call, input });
            return Ok(());
        }
        let local_us = target.local_us(self.now_us);
        let input = match input {
            CallInput::Begin(request) => return self.begin_call(member, boot, call, request),
            CallInput::Due => return self.step_call(member, call, None),
            CallInput::Mail(SessionMessage::Closed) => {
                let process = self.sim_members[member].process.as_ref().expect("it is up");
                if let Some(hosted) = process.host.calls.get(&call) {
                    // Answers may have been lost with the session.
                    self.callers[hosted.caller].spoil();
                }
                AcquireInput::Closed
            }
            CallInput::CallerGone => AcquireInput::CallerGone,
            CallInput::Mail(SessionMessage::Notice(notice)) => AcquireInput::Notice(notice),
            CallInput::Mail(SessionMessage::Answers { batch, outcomes }) => {
                let process = self.sim_members[member].process.as_ref().expect("it is up");
                let Some(hosted) = process.host.calls.get(&call) else { return Ok(()) };
                let answer = outcomes.into_iter().next().unwrap_or(Err(NodeFailure::Unknown));
                if hosted.give_back == Some(batch) {
                    AcquireInput::Abandoned(answer)
                } else {
                    self.handle_call_answer(hosted.caller, &answer);
                    AcquireInput::Answered(answer)
                }
            }
        };
        self.trace(|| format!("{call:?} at {member} hears {input:?}"));
        let process = self.sim_members[member].process.as_mut().expect("it is up");
        let Some(hosted) = process.host.calls.get_mut(&call) else { return Ok(()) };
        if let AcquireInput::Answered(Ok(Outcome { result: Ok(_), .. })) = &input {
            hosted.has_place = true;
        }
        let output = hosted.pending.handle(local_us, input);
        self.step_call(member, call, output)
    }

    /// Admits and submits the ask of a caller.
    fn begin_call(
        &mut self,
        member: usize,
        boot: u64,
        call: SessionId,
        CallRequest { caller, key, request, terms }: CallRequest,
    ) -> CheckResult {
        self.trace(|| format!("{call:?} of caller {caller} at {member} begins: {key} {terms:?}"));
        let local_us = self.sim_members[member].local_us(self.now_us);
        let process = self.sim_members[member].process.as_mut().expect("it is up");
        let decoded = decode_request(&request).expect("a caller's request reads back");
        let access = process.node.machine().access();
        let admitted = authorise(access, decoded.principal, &decoded.command)
            .ok()
            .and_then(|()| process.admission.admit(weight(&decoded.command), request.len() as u64));
        let Some(permit) = admitted else {
            self.faults.count("overloaded");
            self.reply_to_caller(caller, call, Err(NodeFailure::Overloaded));
            return self.handle_call_end(caller, call);
        };
        let id = RequestId::Key(&key);
        let pending = PendingAcquire::new(Principal::anyone(), id, terms, local_us);
        let deadline_us = pending.deadline_us();
        let over_by_us = local_us + terms.within_us + terms.wait_us + OVER_US;
        let (give_back, has_place) = (None, false);
        let hosted = HostedCall { caller, pending, give_back, has_place, over_by_us, newest_us: 0 };
        process.host.calls.insert(call, hosted);
        self.leave(member, Routed::Open(Endpoint::Call(call)));
        self.submit_of_call(member, call, request, deadline_us, permit);
        debug_assert_eq!(self.sim_members[member].boot, boot, "a submission ends no process");
        self.step_call(member, call, None)
    }

    fn submit_of_call(
        &mut self,
        member: usize,
        call: SessionId,
        request: Bytes,
        deadline_us: u64,
        permit: Permit,
    ) -> u64 {
        self.numbers += 1;
        let batch = self.numbers;
        let (boot, asked_at_us) =
            (self.sim_members[member].boot, self.sim_members[member].local_us(self.now_us));
        let process = self.sim_members[member].process.as_mut().expect("it is up");
        let admitted = usize::try_from(permit.commands()).unwrap_or(usize::MAX);
        // Ask 0: the requests of a caller have keys, and N11 is their check.
        let pending = SubmittedBatch { session: Some(call), asks: vec![0], admitted, deadline_us };
        let reply = ReplyTo::Session { session: call, batch };
        process.host.submitted(reply, pending);
        let requests = [request].into();
        let batch_of_one =
            CommandBatch { requests, linger_us: 0, asked_at_us, deadline_us, reply, permit };
        self.give(member, boot, Input::Submit(Box::new(batch_of_one)));
        batch
    }

    /// Performs an output of an acquire and lets time pass for it, until it waits or is over.
    fn step_call(
        &mut self,
        member: usize,
        call: SessionId,
        mut output: Option<AcquireOutput>,
    ) -> CheckResult {
        loop {
            let local_us = self.sim_members[member].local_us(self.now_us);
            let Some(process) = &mut self.sim_members[member].process else { return Ok(()) };
            let Some(hosted) = process.host.calls.get_mut(&call) else { return Ok(()) };
            let caller = hosted.caller;
            output = match output {
                None => hosted.pending.turn(local_us),
                Some(AcquireOutput::Reply(reply)) => {
                    let is_without_effect =
                        reply.as_ref().is_err_and(|failure| failure.effect() == Effect::None);
                    ensure(!(hosted.has_place && is_without_effect), "N11", || {
                        format!("caller {caller} has a place and is told that nothing happened")
                    })?;
                    // The connection may end just before the reply is taken.
                    let told = self.rng.u8(0..8) > 0;
                    let input = if told { AcquireInput::Told } else { AcquireInput::NotTold };
                    let next = hosted.pending.handle(local_us, input);
                    if told {
                        self.reply_to_caller(caller, call, reply);
                    } else {
                        self.faults.count("call_not_told");
                        self.handle_connection_loss(caller, call);
                    }
                    next
                }
                Some(AcquireOutput::Abandon { request, deadline_us }) => {
                    self.trace(|| format!("{call:?} of caller {caller} at {member} is taken back"));
                    let process = self.sim_members[member].process.as_ref().expect("it is up");
                    let permit = process.admission.admit(Weight::Keeps, request.len() as u64);
                    let permit = permit.unwrap_or_default();
                    let batch = self.submit_of_call(member, call, request, deadline_us, permit);
                    self.give_backs.insert((call.0, batch), GiveBack { caller, member });
                    let process = self.sim_members[member].process.as_mut().expect("it is up");
                    if let Some(hosted) = process.host.calls.get_mut(&call) {
                        hosted.give_back = Some(batch);
                    }
                    None
                }
            };
            if output.is_none() {
                return self.rest_call(member, call);
            }
        }
    }

    /// An acquire waits for its next input, or is over.
    fn rest_call(&mut self, member: usize, call: SessionId) -> CheckResult {
        let (boot, now_us) = (self.sim_members[member].boot, self.now_us);
        let Some(process) = &mut self.sim_members[member].process else { return Ok(()) };
        let Some(hosted) = process.host.calls.get(&call) else { return Ok(()) };
        if hosted.pending.is_over() {
            let caller = hosted.caller;
            process.host.calls.remove(&call);
            self.leave(member, Routed::Close(call));
            return self.handle_call_end(caller, call);
        }
        let wake_us = hosted.pending.wake_us();
        if wake_us != u64::MAX {
            let at_us = self.sim_members[member].real_us(wake_us).max(now_us + 1);
            let input = CallInput::Due;
            self.queue.push(at_us, SimEvent::Call { member, boot, call, input });
        }
        Ok(())
    }

    /// Puts mail into the mailbox of an acquire, whose task runs a little later.
    pub(super) fn mail_call(&mut self, member: usize, call: SessionId, input: CallInput) {
        let late_us = if self.rng.u8(0..8) == 0 { 20 * MS } else { 500 };
        let at_us = self.now_us + self.rng.u64(1..late_us);
        let boot = self.sim_members[member].boot;
        let Some(process) = &mut self.sim_members[member].process else { return };
        let Some(hosted) = process.host.calls.get_mut(&call) else { return };
        hosted.newest_us = hosted.newest_us.max(at_us);
        let at_us = hosted.newest_us;
        self.queue.push(at_us, SimEvent::Call { member, boot, call, input });
    }

    /// The command that takes an ask back has its answer.
    pub(super) fn taken_back(&mut self, batch: WaitKey, outcomes: &Outcomes) -> CheckResult {
        let Some(GiveBack { caller, .. }) = self.give_backs.remove(&batch) else { return Ok(()) };
        match outcomes.first() {
            Some(Ok(Outcome { result: Ok(Answer::Abandoned { released }), .. })) => {
                let kind = if *released { "call_taken_back" } else { "call_left_to_a_retry" };
                self.faults.count(kind);
                self.note_given_back(caller);
            }
            // Older rules do not know the command, or the cluster had no leader in time: the lease frees the lock.
            _ => self.callers[caller].spoil(),
        }
        self.check_nothing_left(caller)
    }

    /// The acquires at a member end with its process: no caller learns of it, and nothing is taken back.
    pub(super) fn end_calls_at(&mut self, member: usize) {
        let Some(process) = &self.sim_members[member].process else { return };
        let calls: Vec<_> =
            process.host.calls.iter().map(|(call, hosted)| (*call, hosted.caller)).collect();
        for (call, caller) in calls {
            self.faults.count("call_lost");
            self.callers[caller].lose(call);
        }
        let callers = &mut self.callers;
        self.give_backs.retain(|_, it| {
            if it.member == member {
                callers[it.caller].spoil();
            }
            it.member != member
        });
    }
}
