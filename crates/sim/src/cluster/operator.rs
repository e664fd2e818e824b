//! Performs an operator's changes of members and leaders at any member, as the server does for its API.
//!
//! [`Reconfigure`] decides each step. This file performs it through the member's node and reports the result, and
//! checks N12: what is reported as done is so, and what is reported as without effect has none.

use tenure_node::{
    AdminId, CallId, ClusterView, CommandBatch, Effect, Input, InputContext, NodeFailure,
    NotReconfigured, Outcomes, Permit, Principal, ReadConsistency, ReadId, Reconfiguration,
    Reconfigure, ReconfigureInput, ReconfigureOutput, Reconfigured, ReplyTo,
};
use tenure_raft::{AdminRequest, Membership};
use tenure_types::Revision;

use super::event::SimEvent;
use super::oracle::ensure;
use super::session_host::{Reader, SubmittedBatch, WaitingAdmin, WaitingRead};
use super::world::SimCluster;
use super::{MS, S};
use crate::invariant::{CheckResult, InvariantViolation};

/// The time that an operation may take beyond its deadline: its last steps, each by a loop that may pause.
const OVER_US: u64 = 30 * S;

/// One request of an operator at its member.
pub(super) struct HostedOperation {
    machine: Reconfigure,
    request: Reconfiguration,
    deadline_us: u64,
    /// The time by which it must be over, by the member's clock.
    pub(super) over_by_us: u64,
    /// The batch that writes its record.
    writes: Option<u64>,
}

impl SimCluster {
    /// Brings a request to any member, which need not lead. Returns whether there was one to take it.
    pub(super) fn operate(&mut self, request: Reconfiguration) -> Result<bool, InvariantViolation> {
        let Some(member) = self.operated() else { return Ok(false) };
        self.numbers += 1;
        let operation = self.numbers;
        let within_us = [50 * MS, S, 5 * S, 30 * S][self.rng.usize(0..4)];
        let deadline_us = self.sim_members[member].local_us(self.now_us) + within_us;
        let machine = Reconfigure::new(request.clone(), self.sim_members[member].id, deadline_us);
        self.trace(|| format!("operation {operation} at {member}: {request:?}"));
        let over_by_us = deadline_us + OVER_US;
        let hosted = HostedOperation { machine, request, deadline_us, over_by_us, writes: None };
        if let Reconfiguration::Remove(id) = hosted.request {
            *self.removals.entry(id).or_default() += 1;
        }
        let Some(process) = &mut self.sim_members[member].process else { return Ok(false) };
        process.host.operations.insert(operation, hosted);
        self.step_operation(member, operation, OperationStep::Begin)?;
        Ok(true)
    }

    /// The member that an operator talks to: the leader, or any that is up.
    pub(super) fn operated(&mut self) -> Option<usize> {
        let serves = |at: &usize| self.sim_members[*at].is_up() && !self.is_survivor(*at);
        let up: Vec<usize> = (0..self.sim_members.len()).filter(serves).collect();
        if up.is_empty() {
            return None;
        }
        let member = self.leader().filter(|_| self.rng.bool());
        Some(member.unwrap_or_else(|| up[self.rng.usize(0..up.len())]))
    }

    /// Lets time pass for an operation.
    pub(super) fn handle_operation_timer(
        &mut self,
        member: usize,
        boot: u64,
        operation: u64,
    ) -> CheckResult {
        let target = &self.sim_members[member];
        if target.boot != boot || !target.is_up() {
            return Ok(());
        }
        if target.paused_until_us > self.now_us {
            let at_us = target.paused_until_us;
            self.queue.push(at_us, SimEvent::Operation { member, boot, operation });
            return Ok(());
        }
        self.step_operation(member, operation, OperationStep::Due)
    }

    /// A step of an operation has its result.
    pub(super) fn handle_operation_result(
        &mut self,
        member: usize,
        operation: u64,
        input: ReconfigureInput,
    ) -> CheckResult {
        self.step_operation(member, operation, OperationStep::Input(input))
    }

    /// A write has its result, which may be that of an operation.
    pub(super) fn handle_operation_write(
        &mut self,
        member: usize,
        batch: u64,
        outcomes: Outcomes,
    ) -> CheckResult {
        let Some(process) = &self.sim_members[member].process else { return Ok(()) };
        let operations = &process.host.operations;
        let found = operations.iter().find(|(_, it)| it.writes == Some(batch));
        let Some(operation) = found.map(|(operation, _)| *operation) else { return Ok(()) };
        let outcome = outcomes.into_iter().next().unwrap_or(Err(NodeFailure::Unknown));
        self.handle_operation_result(member, operation, ReconfigureInput::Written(outcome))
    }

    /// Every operation at a member learns that another member leads, or that this one was removed.
    pub(super) fn tell_operations(
        &mut self,
        member: usize,
        input: &ReconfigureInput,
    ) -> CheckResult {
        let Some(process) = &self.sim_members[member].process else { return Ok(()) };
        let operations: Vec<u64> = process.host.operations.keys().copied().collect();
        for operation in operations {
            self.handle_operation_result(member, operation, input.clone())?;
        }
        Ok(())
    }

    fn step_operation(
        &mut self,
        member: usize,
        operation: u64,
        mut step: OperationStep,
    ) -> CheckResult {
        loop {
            let now_us = self.sim_members[member].local_us(self.now_us);
            let Some(process) = &mut self.sim_members[member].process else { return Ok(()) };
            let moment = InputContext { now_us, lead: process.lead };
            let Some(hosted) = process.host.operations.get_mut(&operation) else {
                return Ok(());
            };
            let output = match step {
                OperationStep::Begin => hosted.machine.begin(moment),
                OperationStep::Due => hosted.machine.turn(moment),
                OperationStep::Input(input) => hosted.machine.handle(moment, input),
            };
            let deadline_us = hosted.deadline_us;
            match output {
                None => return self.schedule_operation(member, operation),
                Some(ReconfigureOutput::Done(result)) => {
                    let hosted = process.host.operations.remove(&operation);
                    let request = hosted.expect("it has just stepped").request;
                    return self.check_operation_result(operation, &request, result);
                }
                Some(ReconfigureOutput::View(ReadConsistency::Stale)) => {
                    let view = Box::new(ClusterView::of(&process.node));
                    step = OperationStep::Input(ReconfigureInput::Viewed(Ok(view)));
                }
                Some(ReconfigureOutput::View(fresh)) => {
                    self.start_operation_read(member, operation, fresh, deadline_us);
                    return Ok(());
                }
                Some(ReconfigureOutput::Write(request)) => {
                    self.start_operation_write(member, operation, request, deadline_us);
                    return Ok(());
                }
                Some(ReconfigureOutput::Admin(request)) => {
                    self.send_admin(member, request, deadline_us, Some(operation));
                    return Ok(());
                }
            }
        }
    }

    /// Schedules the next step of an operation that waits for a leader or for a pause to end.
    fn schedule_operation(&mut self, member: usize, operation: u64) -> CheckResult {
        let Some(process) = &self.sim_members[member].process else { return Ok(()) };
        let Some(hosted) = process.host.operations.get(&operation) else { return Ok(()) };
        let (boot, wake_us) = (self.sim_members[member].boot, hosted.machine.wake_us());
        if wake_us != u64::MAX {
            let at_us = self.sim_members[member].real_us(wake_us).max(self.now_us + 1);
            self.queue.push(at_us, SimEvent::Operation { member, boot, operation });
        }
        Ok(())
    }

    fn start_operation_read(
        &mut self,
        member: usize,
        operation: u64,
        fresh: ReadConsistency,
        deadline_us: u64,
    ) {
        self.numbers += 1;
        let (read, boot) = (self.numbers, self.sim_members[member].boot);
        let floor =
            if fresh == ReadConsistency::Linearizable { self.oracle.acknowledged } else { 0 };
        let reader = Reader::Operation(operation);
        // A last step may be made after the deadline. The next turn answers it.
        let due_us = deadline_us.max(self.sim_members[member].local_us(self.now_us) + MS);
        let revision = Revision(0);
        let reading = WaitingRead::new(reader, floor, revision, due_us);
        let Some(process) = &mut self.sim_members[member].process else { return };
        process.host.reads.insert(read, reading);
        let (read, principal) = (ReadId(read), Principal::anyone());
        self.give(member, boot, Input::Read { read, principal, fresh, deadline_us });
    }

    fn start_operation_write(
        &mut self,
        member: usize,
        operation: u64,
        request: bytes::Bytes,
        deadline_us: u64,
    ) {
        self.numbers += 1;
        let (number, boot) = (self.numbers, self.sim_members[member].boot);
        let asked_at_us = self.sim_members[member].local_us(self.now_us);
        let Some(process) = &mut self.sim_members[member].process else { return };
        if let Some(hosted) = process.host.operations.get_mut(&operation) {
            hosted.writes = Some(number);
        }
        let asks = vec![0];
        let pending = SubmittedBatch { session: None, asks, admitted: 0, deadline_us };
        let reply = ReplyTo::Call(CallId(number));
        process.host.submitted(reply, pending);
        let batch = CommandBatch {
            requests: [request].into(),
            linger_us: 0,
            asked_at_us,
            deadline_us,
            reply,
            permit: Permit::default(),
        };
        self.give(member, boot, Input::Submit(Box::new(batch)));
    }

    /// Makes an admin request of a member's node, for an operation or by itself.
    pub(super) fn send_admin(
        &mut self,
        member: usize,
        request: AdminRequest,
        deadline_us: u64,
        operation: Option<u64>,
    ) {
        self.numbers += 1;
        let (admin, boot) = (self.numbers, self.sim_members[member].boot);
        let local_us = self.sim_members[member].local_us(self.now_us);
        let Some(process) = &mut self.sim_members[member].process else { return };
        let due_us = deadline_us.max(local_us + MS);
        process.host.admins.insert(admin, WaitingAdmin { deadline_us: due_us, operation });
        let (admin, principal) = (AdminId(admin), Principal::anyone());
        self.give(member, boot, Input::Admin { admin, principal, request, deadline_us });
    }

    /// N12: what an operator is told is so.
    fn check_operation_result(
        &mut self,
        operation: u64,
        request: &Reconfiguration,
        result: Result<Reconfigured, NotReconfigured>,
    ) -> CheckResult {
        let reached = match result {
            Err(why) => {
                self.trace(|| format!("operation {operation} failed: {why:?}"));
                self.faults.count("operation_failed");
                let failure = match why {
                    NotReconfigured::Failed(failure) => failure.effect(),
                    _ => Effect::None,
                };
                if let (Reconfiguration::Remove(id), Effect::None) = (request, failure) {
                    *self.removals.entry(*id).or_default() -= 1;
                }
                return Ok(());
            }
            Ok(reached) => reached,
        };
        self.trace(|| format!("operation {operation} is done"));
        self.faults.count("operation_done");
        if let (Reconfiguration::Invite(new), Reconfigured::Invited(since)) = (request, &reached) {
            self.invited(new, *since);
            return Ok(());
        }
        let members = &self.members;
        let gone = |id| members.retired.contains(&id);
        let holds = match (request, &reached) {
            (Reconfiguration::Add(record), Reconfigured::Changed) => {
                members.contains(record.id) || gone(record.id)
            }
            (Reconfiguration::Promote(id), Reconfigured::Changed | Reconfigured::HadVote) => {
                members.voters.contains(id) || gone(*id)
            }
            (Reconfiguration::Remove(id), Reconfigured::Removed(cluster)) => {
                gone(*id) && !members.contains(*id) && !cluster.members.contains(*id)
            }
            (Reconfiguration::Transfer(to), Reconfigured::Leads { by, .. }) => {
                to.is_none_or(|to| to == *by) && self.at(*by).is_some_and(|at| self.oracle.led(at))
            }
            _ => false,
        };
        ensure(holds, "N12", || {
            format!("operation {operation} reports that {request:?} is done: {members:?}")
        })
    }

    /// N12: a member is removed only if a request for that has not ended with "nothing happened". N18: no id of a
    /// removed member comes back.
    pub(super) fn check_removed(&self, now: &Membership) -> CheckResult {
        let again = self.members.retired.iter().find(|id| now.contains(**id));
        ensure(again.is_none(), "N18", || format!("{again:?} was removed, and is a member again"))?;
        for id in now.retired.difference(&self.members.retired) {
            ensure(self.removals.get(id).is_some_and(|requests| *requests > 0), "N12", || {
                format!("member {id} is removed, and every request for that reports no effect")
            })?;
        }
        Ok(())
    }
}

enum OperationStep {
    Begin,
    Due,
    Input(ReconfigureInput),
}
