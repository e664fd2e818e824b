//! Serves the sessions of one member: hands answers and notices to the member's router, and checks N1, N3 and N5 on the
//! way. What a client's session does with them is in `session_task.rs`.
//!
//! The router runs on a thread of its own, so it has a schedule of its own: what the loop leaves for it waits in a
//! queue, which is taken at later moments.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use tenure_core::outcome::{Acquired, Answer, Notice, Queued};
use tenure_core::request::{Hold, LeaseRef};
use tenure_node::{
    Backlog, Effect, Input, NodeFailure, Outcomes, ReplyTo, Router, SessionId, SessionMessage,
    Taken, WindowPart,
};
use tenure_types::{Handle, Revision};

use super::MS;
use super::call::{CallInput, HostedCall};
use super::client::LOCKS;
use super::event::SimEvent;
use super::inbox::SimInbox;
use super::operator::HostedOperation;
use super::oracle::ensure;
use super::packet::ClientStream;
use super::session_task::{SessionReply, SessionTask};
use super::world::SimCluster;
use crate::invariant::{CheckResult, InvariantViolation};

/// How long after a deadline the answer may come: a definite one may be on its way.
const ANSWER_GRACE_US: u64 = 100 * MS;

/// The number under which the caller of a batch or a read waits at its member: its session, or 0, and its own number.
pub(super) type WaitKey = (u64, u64);

/// The sessions of one process.
pub(super) struct SessionHost {
    pub(super) router: Router,
    pub(super) backlog: Backlog<Routed>,
    /// What the router has taken and not routed.
    taken: VecDeque<Routed>,
    pub(super) routing: bool,
    /// The time before which the router's thread does not run.
    pub(super) stalled_until_us: u64,
    /// A second copy of what the router should know.
    pub(super) sessions: BTreeMap<SessionId, (Endpoint, BTreeSet<Handle>)>,
    /// The tasks of clients' sessions.
    pub(super) tasks: BTreeMap<SessionId, SessionTask>,
    /// Batches that were submitted and not answered.
    pub(super) batches: BTreeMap<WaitKey, SubmittedBatch>,
    pub(super) reads: BTreeMap<u64, WaitingRead>,
    pub(super) admins: BTreeMap<u64, WaitingAdmin>,
    /// Acquires of callers without a session. Each has a session of its own at the member.
    pub(super) calls: BTreeMap<SessionId, HostedCall>,
    /// What operators want of this member.
    pub(super) operations: BTreeMap<u64, HostedOperation>,
}

/// The receiver of a session's mail.
#[derive(Clone, Copy)]
pub(super) enum Endpoint {
    /// A client, over its stream.
    Client(ClientStream),
    /// The member's own task for an acquire of a caller without a session.
    Call(SessionId),
}

impl Endpoint {
    fn session(&self) -> SessionId {
        match self {
            Endpoint::Client(stream) => stream.id,
            Endpoint::Call(session) => *session,
        }
    }
}

/// A batch that was submitted.
pub(super) struct SubmittedBatch {
    /// The session that submitted it; none for a single call.
    pub(super) session: Option<SessionId>,
    pub(super) asks: Vec<u64>,
    /// The number of its commands that count against the budget.
    pub(super) admitted: usize,
    pub(super) deadline_us: u64,
}

/// A read that waits.
pub(super) struct WaitingRead {
    pub(super) reader: Reader,
    /// What must have been applied.
    pub(super) floor: u64,
    pub(super) revision: Revision,
    pub(super) deadline_us: u64,
    /// Its part of the window, once the loop has taken it.
    pub(super) under_way: Option<WindowPart>,
}

impl WaitingRead {
    pub(super) fn new(reader: Reader, floor: u64, revision: Revision, deadline_us: u64) -> Self {
        Self { reader, floor, revision, deadline_us, under_way: None }
    }
}

/// The origin of a read.
#[derive(Clone, Copy)]
pub(super) enum Reader {
    /// A client, through its session.
    Session(ClientStream),
    /// An operator's request, by number.
    Operation(u64),
    /// A backup.
    Backup,
}

/// An admin request that waits.
pub(super) struct WaitingAdmin {
    pub(super) deadline_us: u64,
    /// The operator's request that it is a step of, if it is one.
    pub(super) operation: Option<u64>,
}

/// What the loop, or a connection, leaves for the router.
pub(super) enum Routed {
    Open(Endpoint),
    Close(SessionId),
    Attach(ClientStream, Handle),
    Answer {
        session: SessionId,
        batch: u64,
        outcomes: Outcomes,
    },
    Notices(Vec<Notice>),
    /// These leases are gone, as the member's machine says.
    Ended(Vec<Handle>),
    Skipped,
}

impl Routed {
    /// Outcomes and notices in it.
    fn mail(&self) -> usize {
        match self {
            Routed::Answer { outcomes, .. } => outcomes.len(),
            Routed::Notices(notices) => notices.len(),
            _ => 0,
        }
    }
}

impl SessionHost {
    /// Forgets the caller of an input that the member refuses because it has ended.
    pub(super) fn refuse(&mut self, input: &Input) {
        match input {
            Input::Read { read, .. } => drop(self.reads.remove(&read.0)),
            Input::Admin { admin, .. } => drop(self.admins.remove(&admin.0)),
            Input::Submit(batch) => drop(self.batches.remove(&wait_key(batch.reply))),
            _ => {}
        }
    }

    /// A host whose router may be at most `backlog_max` outcomes and notices behind, and keeps at most `mail_max`
    /// messages for a session that does not read.
    pub(super) fn new(backlog_max: usize, mail_max: usize, sweep_min: usize) -> Self {
        Self {
            router: Router::new(mail_max).sweeping_after(sweep_min),
            backlog: Backlog::new(backlog_max),
            taken: VecDeque::new(),
            routing: false,
            stalled_until_us: 0,
            sessions: BTreeMap::new(),
            tasks: BTreeMap::new(),
            batches: BTreeMap::new(),
            reads: BTreeMap::new(),
            admins: BTreeMap::new(),
            calls: BTreeMap::new(),
            operations: BTreeMap::new(),
        }
    }

    /// Notes a batch that is submitted.
    pub(super) fn submitted(&mut self, reply: ReplyTo, pending: SubmittedBatch) {
        self.batches.insert(wait_key(reply), pending);
    }

    /// The batches and reads whose deadlines have passed at this moment of the member's clock.
    pub(super) fn past_deadline(&self, local_us: u64) -> impl Iterator<Item = WaitKey> {
        let is_past = move |deadline_us: u64| deadline_us < local_us;
        let batches =
            self.batches.iter().filter(move |it| is_past(it.1.deadline_us + ANSWER_GRACE_US));
        let reads = self.reads.iter().filter(move |it| is_past(it.1.deadline_us));
        batches.map(|it| *it.0).chain(reads.map(|it| (0, *it.0)))
    }

    /// N3: whatever is overdue at this moment of the member's clock.
    pub(super) fn overdue(&self, inbox: &SimInbox, local_us: u64) -> Option<String> {
        let mut past = self.past_deadline(local_us);
        if let Some(number) = past.find(|number| !inbox.may_be_late(*number, local_us)) {
            return Some(format!("batch or read {number:?}"));
        }
        if let Some((admin, _)) = self.admins.iter().find(|(_, it)| it.deadline_us < local_us) {
            return Some(format!("admin request {admin}"));
        }
        let call = self.calls.iter().find(|(_, it)| it.over_by_us < local_us);
        if let Some((call, _)) = call {
            return Some(format!("acquire {call:?} without a session"));
        }
        let operation = self.operations.iter().find(|(_, it)| it.over_by_us < local_us);
        operation.map(|(operation, _)| format!("operation {operation}"))
    }
}

impl SimCluster {
    /// N1, N3, S13: checks the results that the node returns for a batch.
    pub(super) fn answer(&mut self, member: usize, to: ReplyTo, outcomes: Outcomes) -> CheckResult {
        self.mix_value(&(member, to, &outcomes));
        let process = self.sim_members[member].process.as_mut().expect("it has just turned");
        let (number, session) = match to {
            ReplyTo::Session { session, batch } => (batch, Some(session)),
            ReplyTo::Call(call) => (call.0, None),
        };
        let pending = process.host.batches.remove(&wait_key(to));
        let Some(pending) = pending.filter(|it| it.session == session) else {
            return Err(InvariantViolation::new(
                "N1",
                format!("{member} answered {to:?}, which did not wait"),
            ));
        };
        ensure(pending.asks.len() == outcomes.len(), "N1", || {
            format!("{member} answered {} commands of batch {number}", outcomes.len())
        })?;
        let short = process.log_writer.space() == tenure_raft::Space::Short;
        for (ask, outcome) in pending.asks.iter().zip(&outcomes) {
            match outcome {
                _ if *ask == 0 => {}
                Ok(outcome) => {
                    self.oracle.answers(*ask, outcome)?;
                    self.faults.count_by("done_while_full", u64::from(short));
                }
                Err(failure) => self.failed(*ask, number, session, *failure)?,
            }
        }
        match session {
            Some(session) => {
                self.taken_back((session.0, number), &outcomes)?;
                let batch = number;
                self.leave(member, Routed::Answer { session, batch, outcomes });
            }
            None => {
                self.probed(number, &outcomes);
                self.handle_raise_answer(number, &outcomes)?;
                self.called(number, &outcomes)?;
                self.handle_operation_write(member, number, outcomes)?;
            }
        }
        Ok(())
    }

    fn failed(
        &mut self,
        ask: u64,
        call: u64,
        session: Option<SessionId>,
        failure: NodeFailure,
    ) -> CheckResult {
        let full = failure == NodeFailure::Rejected(tenure_raft::RejectReason::DiskFull);
        self.faults.count_by("refused_full", u64::from(full));
        self.faults.count_by("expired", u64::from(failure == NodeFailure::Expired));
        match failure.effect() {
            Effect::None => {
                self.faults.count("not_done");
                // A session says so of each request by itself.
                if session.is_some() { Ok(()) } else { self.oracle.asked.not_applied(ask, call) }
            }
            Effect::Unknown => {
                self.faults.count("unknown");
                Ok(())
            }
        }
    }

    pub(super) fn leave_notices(&mut self, member: usize, notices: Vec<Notice>) {
        self.leave(member, Routed::Notices(notices));
    }

    pub(super) fn leave_skipped(&mut self, member: usize) {
        self.leave(member, Routed::Skipped);
    }

    pub(super) fn leave(&mut self, member: usize, routed: Routed) {
        let boot = self.sim_members[member].boot;
        let Some(process) = &mut self.sim_members[member].process else { return };
        let mail = routed.mail();
        process.host.backlog.put(routed, mail);
        if !std::mem::replace(&mut process.host.routing, true) {
            let at_us = self.now_us + self.rng.u64(10..300);
            self.queue.push(at_us, SimEvent::Route { member, boot });
        }
    }

    /// Runs the router's thread.
    pub(super) fn route(&mut self, member: usize, boot: u64) -> CheckResult {
        if self.sim_members[member].boot != boot || !self.sim_members[member].is_up() {
            return Ok(());
        }
        let paused_us = self.sim_members[member].paused_until_us;
        let process = self.sim_members[member].process.as_mut().expect("it is up");
        let until_us = process.host.stalled_until_us.max(paused_us);
        if until_us > self.now_us {
            self.queue.push(until_us, SimEvent::Route { member, boot });
            return Ok(());
        }
        process.host.routing = false;
        if process.host.taken.is_empty() {
            let Taken { items, lost } = process.host.backlog.take();
            process.host.taken.extend(items);
            process.host.taken.extend(lost.then_some(Routed::Skipped));
            self.faults.count_by("backlog_lost", u64::from(lost));
        }
        let most = if self.rng.u8(0..8) == 0 { 1 } else { usize::MAX };
        for _ in 0..most {
            let process =
                self.sim_members[member].process.as_mut().expect("routing ends no process");
            let Some(routed) = process.host.taken.pop_front() else { break };
            self.route_one(member, routed)?;
        }
        let process = self.sim_members[member].process.as_mut().expect("routing ends no process");
        if !process.host.taken.is_empty() || !process.host.backlog.is_empty() {
            process.host.routing = true;
            self.queue
                .push(self.now_us + self.rng.u64(10..5 * MS), SimEvent::Route { member, boot });
            return Ok(());
        }
        self.begin_sweep(member);
        self.check_notices(member)
    }

    fn route_one(&mut self, member: usize, routed: Routed) -> CheckResult {
        if let Routed::Ended(leases) = routed {
            self.forget_routes(member, &leases);
            return Ok(());
        }
        let mail_max = self.sizes.mail;
        let process = self.sim_members[member].process.as_mut().expect("it routes");
        let machine = process.node.machine();
        let host = &mut process.host;
        let mut told: Vec<(SessionId, SessionMessage)> = Vec::new();
        let tasks = &host.tasks;
        let mut deliver = |session: SessionId, mail: SessionMessage| {
            told.push((session, mail));
            let new = told.iter().filter(|it| it.0 == session).count();
            tasks.get(&session).map_or(0, |task| task.unread() + new)
        };
        let mut expected: Vec<SessionId> = Vec::new();
        let mut invariant = "N5";
        match routed {
            Routed::Open(endpoint) => {
                host.router.open(endpoint.session());
                host.sessions.insert(endpoint.session(), (endpoint, BTreeSet::new()));
            }
            Routed::Close(session) => {
                host.router.close(session);
                host.sessions.remove(&session);
            }
            Routed::Ended(_) => unreachable!("they are forgotten above"),
            Routed::Skipped => {
                host.router.close_all(&mut deliver);
                ensure(told.iter().map(|it| &it.0).eq(host.sessions.keys()), "N1", || {
                    format!("{member} ended {told:?} of {:?}", host.sessions.keys())
                })?;
                self.faults.count_by("sessions_skipped", told.len() as u64);
            }
            Routed::Attach(stream, lease) => {
                host.router.attach(stream.id, lease);
                if let Some((_, leases)) = host.sessions.get_mut(&stream.id) {
                    // A session gets no more notices of a lease that has ended.
                    leases.insert(lease);
                }
                // From here on it hears of what it holds, if it still does.
                let one = &mut self.clients[stream.client];
                if let (Some(held), Some(known)) = (&mut one.hold, &one.lease)
                    && known.handle == lease
                    && machine.revision() >= held.revision
                    && machine.holding(&held.hold(known.id)).is_ok()
                {
                    held.hears = Some(stream.id);
                }
            }
            Routed::Answer { session, batch, outcomes } => {
                invariant = "N1";
                if let Some((_, leases)) = host.sessions.get_mut(&session) {
                    leases.extend(outcomes.iter().filter_map(lease_of));
                    expected.push(session);
                }
                host.router.answer(session, batch, outcomes, &mut deliver);
            }
            Routed::Notices(notices) => {
                for notice in notices {
                    let lease = lease_named(&notice);
                    let closed = |session: &SessionId| {
                        told.iter().any(|it| it.0 == *session && it.1 == SessionMessage::Closed)
                    };
                    let attached = host.sessions.iter().filter(|(_, (_, it))| it.contains(&lease));
                    let attached = attached.map(|(session, _)| *session);
                    expected.extend(attached.filter(|session| !closed(session)));
                    if matches!(notice, Notice::LeaseEnded { .. }) {
                        host.sessions.values_mut().for_each(|(_, leases)| {
                            leases.remove(&lease);
                        });
                    }
                    let mut deliver = |session: SessionId, mail: SessionMessage| {
                        told.push((session, mail));
                        let new = told.iter().filter(|it| it.0 == session).count();
                        tasks.get(&session).map_or(0, |task| task.unread() + new)
                    };
                    host.router.notify(notice, &mut deliver);
                }
            }
        }
        let read = told.iter().filter(|it| it.1 != SessionMessage::Closed);
        let mut reached: Vec<SessionId> = read.map(|(session, _)| *session).collect();
        reached.sort_unstable();
        expected.sort_unstable();
        ensure(reached == expected, invariant, || {
            format!("the router of {member} reached {reached:?}, expected were {expected:?}")
        })?;
        for (session, mail) in told {
            let Some(process) = &mut self.sim_members[member].process else { return Ok(()) };
            let host = &mut process.host;
            let Some(endpoint) = host.sessions.get(&session).map(|it| it.0) else { continue };
            let closes = mail == SessionMessage::Closed;
            if closes {
                host.sessions.remove(&session);
            }
            match endpoint {
                Endpoint::Client(stream) => {
                    let Some(task) = host.tasks.get_mut(&session) else { continue };
                    let unread = task.put(mail);
                    self.faults.count_by("mail_overflow", u64::from(closes && unread > mail_max));
                    ensure(unread <= mail_max + 2, "N2", || {
                        format!(
                            "{member} keeps {unread} messages for {stream:?}, which does not read"
                        )
                    })?;
                    self.run_soon(stream);
                }
                Endpoint::Call(call) => self.mail_call(member, call, CallInput::Mail(mail)),
            }
        }
        Ok(())
    }

    /// Sends a message to a client.
    pub(super) fn deliver(&mut self, stream: ClientStream, replies: Vec<SessionReply>) {
        let delay_us = self.network.delay_us(&mut self.rng);
        let Some(session) = self.clients[stream.client].session_mut(stream.id) else { return };
        if session.deaf {
            return;
        }
        session.newest_us = session.newest_us.max(self.now_us + delay_us);
        session.mail += 1;
        self.queue.push(session.newest_us, SimEvent::Mail { stream, replies });
    }

    /// Ends a client's session from the member's side.
    pub(super) fn send_away(&mut self, stream: ClientStream) {
        let delay_us = self.network.delay_us(&mut self.rng);
        let Some(session) = self.clients[stream.client].session_mut(stream.id) else { return };
        session.newest_us = session.newest_us.max(self.now_us + delay_us);
        session.mail += 1;
        self.queue.push(session.newest_us, SimEvent::Cut { stream });
    }

    /// N5: once every notice is delivered, no client waits for what was granted, or believes in what it lost.
    fn check_notices(&mut self, member: usize) -> CheckResult {
        let boot = self.sim_members[member].boot;
        let Some(process) = &self.sim_members[member].process else { return Ok(()) };
        let machine = process.node.machine();
        for (number, client) in self.clients.iter().enumerate() {
            let Some(session) = &client.session else { continue };
            let task = process.host.tasks.get(&session.stream.id);
            let told =
                session.mail == 0 && !session.deaf && task.is_some_and(SessionTask::has_told);
            if session.stream.member != member || session.stream.boot != boot || !told {
                continue;
            }
            let Some(lease) = client.lease else { continue };
            if let Some(waiting) = &client.waiting
                && waiting.hears == Some(session.stream.id)
                && machine.revision() >= waiting.revision
            {
                let standing = machine.what_became_of(lease.id, lease.created, waiting.place);
                ensure(matches!(standing, Answer::Queued(_)), "N5", || {
                    format!("client {number} at {member} waits and was not told: {standing:?}")
                })?;
            }
            if let Some(held) = &client.hold
                && held.hears == Some(session.stream.id)
                && machine.revision() >= held.revision
            {
                let found = machine.holding(&held.hold(lease.id));
                ensure(found.is_ok(), "N5", || {
                    let lock = LOCKS[held.lock];
                    format!(
                        "client {number} at {member} was not told that it lost {lock}: {found:?}"
                    )
                })?;
            }
        }
        Ok(())
    }
}

fn lease_of(outcome: &Result<tenure_core::outcome::Outcome, NodeFailure>) -> Option<Handle> {
    match outcome.as_ref().ok()?.result.as_ref().ok()? {
        Answer::LeaseGranted(lease)
        | Answer::Acquired(Acquired { lease, .. })
        | Answer::Queued(Queued { lease, .. }) => Some(lease.handle),
        _ => None,
    }
}

/// The key by which the receiver of results waits.
pub(super) fn wait_key(reply: ReplyTo) -> WaitKey {
    match reply {
        ReplyTo::Session { session, batch } => (session.0, batch),
        ReplyTo::Call(call) => (0, call.0),
    }
}

fn lease_named(notice: &Notice) -> Handle {
    match notice {
        Notice::Granted { lease, .. }
        | Notice::Lost { lease, .. }
        | Notice::WaitEnded { lease, .. }
        | Notice::LeaseEnded { lease, .. } => *lease,
    }
}

impl super::client::BelievedHold {
    /// The hold in the machine's types.
    pub(super) fn hold(&self, lease: tenure_types::LeaseId) -> Hold<'static> {
        Hold { lease: LeaseRef::Id(lease), lock: LOCKS[self.lock], token: self.token }
    }
}
