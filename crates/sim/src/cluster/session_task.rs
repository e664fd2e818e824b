//! Runs the session of each client at its member, as the server's task for it does, and checks N1, N2, N3 and S13 on
//! the way.
//!
//! [`Session`] decides what becomes of a client's requests, and which answers and notices the client gets. This file
//! feeds it: messages of the client and mail of the member's router wait until the task runs, which it does at moments
//! of its own. It does not run while its client does not read.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use tenure_core::codec::decode_request;
use tenure_core::outcome::{Notice, Outcome};
use tenure_core::request::{Command, LeaseRef};
use tenure_node::{
    CommandBatch, Effect, GIVE_UP_GRACE_US, Input, NodeFailure, Principal, ReadConsistency, ReadId,
    ReplyTo, Session, SessionBounds, SessionCluster, SessionCommand, SessionMessage, SessionOutput,
    authorise, weight,
};
use tenure_types::{Handle, Revision};

use super::MS;
use super::client::Op;
use super::event::SimEvent;
use super::inbox::source_of;
use super::oracle::ensure;
use super::packet::{ClientMessage, ClientStream};
use super::session_host::{Endpoint, Reader, Routed, SubmittedBatch, WaitingRead};
use super::world::SimCluster;
use crate::invariant::{CheckResult, InvariantViolation};

/// The task of one session.
pub(super) struct SessionTask {
    pub(super) stream: ClientStream,
    session: Session<KeptOp, SimQuestion>,
    /// Messages of the client that it has not read.
    said: VecDeque<ClientMessage>,
    /// The requests of the last message that it has not taken.
    rest: VecDeque<ClientRequest>,
    /// Messages of the router that it has not read.
    mail: Vec<SessionMessage>,
    /// Reads that have ended and were not told to the session.
    read: Vec<u64>,
    /// Whether another member leads since it last ran.
    led: bool,
    /// The moment of its next run.
    due_us: Option<u64>,
    /// A second copy of the requests without an answer, with the deadlines of commands.
    open: BTreeMap<u64, Option<u64>>,
    /// The leases of its hello that it has not been attached to.
    unheard: BTreeSet<Handle>,
}

/// One command of a client's message.
#[derive(Debug)]
pub(super) struct ClientRequest {
    /// The client's number for it.
    pub(super) id: u64,
    pub(super) op: Op,
    pub(super) within_us: u64,
}

/// What is kept with a command until it is answered.
#[derive(Clone, Copy)]
struct KeptOp {
    ask: u64,
}

struct SimQuestion {
    read: u64,
    fresh: ReadConsistency,
}

/// A part of a message to a client.
#[derive(Debug)]
pub(super) enum SessionReply {
    Answer { id: u64, outcome: Result<Outcome, NodeFailure> },
    Notice { notice: Notice, id: u64 },
    ReadOver { read: u64 },
    Leader,
}

/// Why a command is not taken.
enum Untaken {
    Refused(NodeFailure),
    Violation(InvariantViolation),
}

type Outputs = Vec<SessionOutput<KeptOp, SimQuestion>>;

impl SessionTask {
    fn new(stream: ClientStream, bounds: SessionBounds) -> Self {
        Self {
            stream,
            session: Session::new(bounds),
            said: VecDeque::new(),
            rest: VecDeque::new(),
            mail: Vec::new(),
            read: Vec::new(),
            led: false,
            due_us: None,
            open: BTreeMap::new(),
            unheard: BTreeSet::new(),
        }
    }

    /// Whether the client gets everything that its router has delivered.
    pub(super) fn has_told(&self) -> bool {
        self.mail.is_empty() && !self.session.is_over()
    }

    /// The messages in its mailbox.
    pub(super) fn unread(&self) -> usize {
        self.mail.len()
    }

    /// Puts a message into its mailbox; returns how many wait there.
    pub(super) fn put(&mut self, mail: SessionMessage) -> usize {
        self.mail.push(mail);
        self.mail.len()
    }
}

impl SimCluster {
    /// Takes a message of a client at its member.
    pub(super) fn handle_client_message(&mut self, stream: ClientStream, said: ClientMessage) {
        let target = &self.sim_members[stream.member];
        if target.boot != stream.boot || !target.is_up() {
            return;
        }
        if target.paused_until_us > self.now_us {
            // The whole process is paused.
            self.queue.push(target.paused_until_us, SimEvent::Said { stream, said });
            return;
        }
        let bounds = self.sizes.session;
        let process = self.sim_members[stream.member].process.as_mut().expect("it is up");
        match said {
            ClientMessage::Open => {
                process.host.tasks.insert(stream.id, SessionTask::new(stream, bounds));
                self.leave(stream.member, Routed::Open(Endpoint::Client(stream)));
            }
            ClientMessage::Close => {
                process.host.tasks.remove(&stream.id);
                self.leave(stream.member, Routed::Close(stream.id));
            }
            said => {
                if let Some(task) = process.host.tasks.get_mut(&stream.id) {
                    task.said.push_back(said);
                    self.run_soon(stream);
                }
            }
        }
    }

    /// Schedules the task of a session: something has arrived for it.
    pub(super) fn run_soon(&mut self, stream: ClientStream) {
        let late_us = if self.rng.u8(0..8) == 0 { 20 * MS } else { 500 };
        let at_us = self.now_us + self.rng.u64(1..late_us);
        self.run_at(stream, at_us);
    }

    fn run_at(&mut self, stream: ClientStream, at_us: u64) {
        let Some(process) = &mut self.sim_members[stream.member].process else { return };
        let Some(task) = process.host.tasks.get_mut(&stream.id) else { return };
        if task.due_us.is_none_or(|due_us| at_us < due_us) {
            task.due_us = Some(at_us);
            self.queue.push(at_us, SimEvent::Session { stream });
        }
    }

    /// Another member leads: every session of this one may tell its client.
    pub(super) fn tell_sessions_of_leader(&mut self, member: usize) {
        let Some(process) = &mut self.sim_members[member].process else { return };
        let tasks = process.host.tasks.values_mut();
        let streams: Vec<ClientStream> = tasks
            .map(|task| {
                task.led = true;
                task.stream
            })
            .collect();
        streams.into_iter().for_each(|stream| self.run_soon(stream));
    }

    /// A read of a session has ended.
    pub(super) fn handle_session_read_end(&mut self, stream: ClientStream, read: u64) {
        let Some(process) = &mut self.sim_members[stream.member].process else { return };
        let Some(task) = process.host.tasks.get_mut(&stream.id) else { return };
        task.read.push(read);
        self.run_soon(stream);
    }

    /// Runs the task of a session.
    pub(super) fn run_session(&mut self, stream: ClientStream) -> CheckResult {
        let target = &mut self.sim_members[stream.member];
        let (paused_us, local_us) = (target.paused_until_us, target.local_us(self.now_us));
        let Some(process) = target.process.as_mut().filter(|_| target.boot == stream.boot) else {
            return Ok(());
        };
        let Some(task) = process.host.tasks.get_mut(&stream.id) else { return Ok(()) };
        if task.due_us != Some(self.now_us) {
            return Ok(());
        }
        task.due_us = None;
        // The task does not run before its client has read what it was sent.
        let until_us = paused_us.max(self.clients[stream.client].asleep_until_us);
        if until_us > self.now_us {
            self.run_at(stream, until_us);
            return Ok(());
        }
        let mut task = process.host.tasks.remove(&stream.id).expect("it was there above");
        let mut replies = Vec::new();
        let mut outputs = Vec::new();
        task.mail.drain(..).for_each(|mail| task.session.mail(mail, &mut outputs));
        for read in task.read.drain(..) {
            task.session.question_answered(&mut outputs);
            task.open.remove(&read);
            replies.push(SessionReply::ReadOver { read });
        }
        self.take_requests(&mut task, local_us, &mut outputs, &mut replies)?;
        task.session.turn(local_us, &mut outputs);
        if std::mem::take(&mut task.led) {
            task.session.lead_changed(&mut outputs);
        }
        let mut ended = false;
        for output in outputs {
            ended |= self.perform_for_session(&mut task, local_us, output, &mut replies)?;
        }
        self.check_session(&task, local_us)?;
        if !replies.is_empty() {
            self.deliver(stream, replies);
        }
        if ended {
            self.faults.count("session_ended");
            self.leave(stream.member, Routed::Close(stream.id));
            self.send_away(stream);
            return Ok(());
        }
        let wake_us = task.session.wake_us();
        let reads_on = task.session.has_room(0) && !(task.said.is_empty() && task.rest.is_empty());
        let process = self.sim_members[stream.member].process.as_mut().expect("no output ends it");
        process.host.tasks.insert(stream.id, task);
        if reads_on {
            self.run_soon(stream);
        }
        if wake_us < u64::MAX {
            let at_us = self.sim_members[stream.member].real_us(wake_us).max(self.now_us + 1);
            self.run_at(stream, at_us);
        }
        Ok(())
    }

    /// Takes what the client has said, as far as the session has room.
    fn take_requests(
        &mut self,
        task: &mut SessionTask,
        local_us: u64,
        outputs: &mut Outputs,
        replies: &mut Vec<SessionReply>,
    ) -> CheckResult {
        let mut refused = 0;
        while task.session.has_room(refused) {
            if let Some(request) = task.rest.pop_front() {
                if let Some(failure) = self.take_command(task, local_us, &request)? {
                    refused += 1;
                    let (id, outcome) = (request.id, Err(failure));
                    replies.push(SessionReply::Answer { id, outcome });
                }
                continue;
            }
            match task.said.pop_front() {
                None => break,
                Some(ClientMessage::Requests(requests)) => {
                    if task.session.check_message(requests.len()).is_ok() {
                        task.rest = requests.into();
                    }
                }
                Some(ClientMessage::Read { read, fresh, within_us }) => {
                    task.open.insert(read, None);
                    let question = SimQuestion { read, fresh };
                    task.session.question(local_us, within_us, question, outputs);
                }
                Some(ClientMessage::Hello { leases }) => {
                    let any = SessionCluster::default();
                    if task.session.greet(any, any, leases.len()).is_ok() {
                        let process = self.sim_members[task.stream.member].process.as_ref();
                        let machine = process.expect("it is up").node.machine();
                        let seen = leases.into_iter().filter_map(|handle| {
                            let lease = machine.lease_seen_by("", LeaseRef::Handle(handle))?;
                            Some((handle, lease.ttl_ms))
                        });
                        let seen: Vec<_> = seen.collect();
                        task.unheard.extend(seen.iter().map(|(handle, _)| *handle));
                        task.session.welcome(seen, outputs);
                    }
                }
                Some(ClientMessage::Open | ClientMessage::Close) => {}
            }
        }
        self.faults.count_by("session_full", u64::from(!task.session.has_room(refused)));
        task.session.submit(local_us, outputs);
        Ok(())
    }

    /// Authorises and admits one command. Returns why it is refused, if it is.
    fn take_command(
        &mut self,
        task: &mut SessionTask,
        local_us: u64,
        ClientRequest { id, op, within_us }: &ClientRequest,
    ) -> Result<Option<NodeFailure>, InvariantViolation> {
        let (stream, rate) = (task.stream, self.sizes.rate);
        let source = source_of(stream.client, stream.id.0);
        self.oracle.asked.submit(op.ask, *id, op.repeats);
        let process = self.sim_members[stream.member].process.as_mut().expect("it is up");
        let share = process.inbox.share(source);
        let (inbox, admission) = (&mut process.inbox, &process.admission);
        let access = process.node.machine().access();
        let mut limited = false;
        let admit = |command: &Command<'_>, bytes: usize| {
            limited = !inbox.may_send(source, local_us, rate).map_err(Untaken::Violation)?;
            if limited {
                return Err(Untaken::Refused(NodeFailure::Overloaded));
            }
            authorise(access, &op.ask.to_string(), command).map_err(Untaken::Refused)?;
            let permit = admission.admit_from(weight(command), bytes as u64, Some(&share));
            permit.ok_or(Untaken::Refused(NodeFailure::Overloaded))
        };
        let request = decode_request(&op.request).expect("a client's request reads back");
        let command = SessionCommand { id: *id, within_us: *within_us, request };
        let taken: Result<(), Untaken> =
            task.session.command(local_us, &command, admit, || KeptOp { ask: op.ask });
        self.faults.count_by("rate_limited", u64::from(limited));
        match taken {
            Ok(()) => {
                task.open.insert(*id, Some(local_us.saturating_add(*within_us)));
                self.faults.count_by("expired_on_arrival", u64::from(*within_us <= 100));
                Ok(None)
            }
            Err(Untaken::Refused(failure)) => {
                self.faults.count_by("overloaded", u64::from(failure == NodeFailure::Overloaded));
                self.oracle.asked.not_applied(op.ask, *id)?;
                Ok(Some(failure))
            }
            Err(Untaken::Violation(violation)) => Err(violation),
        }
    }

    /// Performs an output of a session. Returns whether the session has ended.
    fn perform_for_session(
        &mut self,
        task: &mut SessionTask,
        local_us: u64,
        output: SessionOutput<KeptOp, SimQuestion>,
        replies: &mut Vec<SessionReply>,
    ) -> Result<bool, InvariantViolation> {
        let stream = task.stream;
        match output {
            SessionOutput::Submit { batch, commands } => {
                self.submit_of_session(task, batch, commands);
            }
            SessionOutput::Ask { question, deadline_us, .. } => {
                self.ask_of_session(stream, &question, deadline_us, local_us);
            }
            SessionOutput::Answer { id, kept: KeptOp { ask }, outcome, .. } => {
                ensure(task.open.remove(&id).is_some(), "N1", || {
                    format!("the session of client {} answers {id} again", stream.client)
                })?;
                match &outcome {
                    Ok(outcome) => drop(self.oracle.asked.answered(ask, outcome)?),
                    Err(failure) if failure.effect() == Effect::None => {
                        self.oracle.asked.not_applied(ask, id)?;
                    }
                    Err(_) => self.faults.count("told_unknown"),
                }
                replies.push(SessionReply::Answer { id, outcome });
            }
            SessionOutput::Notice { notice, id } => {
                replies.push(SessionReply::Notice { notice, id });
            }
            SessionOutput::Attach(leases) => {
                for lease in leases {
                    task.unheard.remove(&lease);
                    self.leave(stream.member, Routed::Attach(stream, lease));
                }
            }
            SessionOutput::Learned(_) => self.faults.count("learned_late"),
            SessionOutput::TellLeader => replies.push(SessionReply::Leader),
            SessionOutput::Leave(_) => {}
            SessionOutput::End(why) => {
                self.trace(|| format!("the session {:?} ends: {why:?}", stream.id));
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn submit_of_session(&mut self, task: &SessionTask, batch: u64, commands: CommandBatch<()>) {
        let stream = task.stream;
        let asks = commands.requests.iter().filter_map(|request| {
            let request = decode_request(request).ok()?;
            request.principal.parse().ok()
        });
        let asks: Vec<u64> = asks.collect();
        let process = self.sim_members[stream.member].process.as_mut().expect("it is up");
        let reply = ReplyTo::Session { session: stream.id, batch };
        let (session, admitted) = (Some(stream.id), asks.len());
        let deadline_us = commands.deadline_us;
        let pending = SubmittedBatch { session, asks, admitted, deadline_us };
        process.host.submitted(reply, pending);
        self.give(stream.member, stream.boot, Input::Submit(Box::new(commands.reply_to(reply))));
    }

    fn ask_of_session(
        &mut self,
        stream: ClientStream,
        question: &SimQuestion,
        deadline_us: u64,
        local_us: u64,
    ) {
        let SimQuestion { read, fresh } = *question;
        let (mut floor, mut revision) = (0, Revision(0));
        match fresh {
            ReadConsistency::Linearizable => floor = self.oracle.acknowledged,
            ReadConsistency::AtLeast(least) => revision = least,
            ReadConsistency::Stale => {}
        }
        // One that waited for its turn may be late. The next turn of the loop answers it.
        let due_us = deadline_us.max(local_us + MS);
        let reading = WaitingRead::new(Reader::Session(stream), floor, revision, due_us);
        let process = self.sim_members[stream.member].process.as_mut().expect("it is up");
        process.host.reads.insert(read, reading);
        let (read, principal) = (ReadId(read), Principal::anyone());
        self.give(stream.member, stream.boot, Input::Read { read, principal, fresh, deadline_us });
    }

    /// N2: a session counts the requests that have no answer. N3: it has none whose time is over. N5: it hears of the
    /// leases that its hello named.
    fn check_session(&self, task: &SessionTask, local_us: u64) -> CheckResult {
        if task.session.is_over() {
            return Ok(());
        }
        ensure(task.unheard.is_empty(), "N5", || {
            format!("the session {:?} does not hear of {:?}", task.stream, task.unheard)
        })?;
        let (counted, open) = (task.session.in_flight(), task.open.len());
        ensure(counted == open, "N2", || {
            format!("the session {:?} counts {counted} requests, {open} wait", task.stream)
        })?;
        let is_late = |deadline_us: &u64| *deadline_us + GIVE_UP_GRACE_US <= local_us;
        let late = task.open.iter().find(|(_, it)| it.as_ref().is_some_and(is_late));
        ensure(late.is_none(), "N3", || {
            format!("the session {:?} has not answered {late:?}", task.stream)
        })
    }
}
