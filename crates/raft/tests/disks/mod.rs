//! Simulates members in memory whose disks can be copied, rolled back and stalled, over links that can be cut.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::collections::BTreeSet;

use bytes::Bytes;
use tenure_core::Machine;
use tenure_core::codec::encode_request;
use tenure_core::request::{Command, NewLease, Request, RequestId};
use tenure_raft::{
    Boot, MemberId, Membership, Message, Persist, ProposalFate, ProposalId, RejectReason, Replica,
    ReplicaConfig, ReplicaInput, ReplicaOutput, ReplicaStatus, Step, StepKind, Stop,
};
use tenure_store::{HardState, LogEntry, LogId};
use tenure_types::{Epoch, LeaseId};

const STEP_US: u64 = 5_000;
const FIRST: LogId = LogId { index: 1, term: 1 };

/// The durable content of a disk.
#[derive(Clone, Default)]
pub(crate) struct Disk {
    pub(crate) entries: Vec<LogEntry>,
    pub(crate) hard_state: HardState,
    pub(crate) notes: Vec<u8>,
}

impl Disk {
    fn write(&mut self, persist: Persist) {
        assert!(persist.snapshot.is_none(), "logs are short here");
        if let Some(first) = persist.entries.first() {
            self.entries.retain(|entry| entry.index < first.index);
        }
        self.entries.extend(persist.entries);
        self.hard_state = persist.hard_state.unwrap_or(self.hard_state);
        self.notes = persist.notes.unwrap_or(std::mem::take(&mut self.notes));
    }
}

struct Member {
    replica: Option<Replica>,
    inputs: Vec<ReplicaInput>,
    durable: Disk,
    written: Vec<Persist>,
    stuck: bool,
    stopped: Option<Stop>,
    answers: Vec<(ProposalId, ProposalFate)>,
    changed: Vec<Result<(), RejectReason>>,
    unknown_changes: usize,
    sent: Vec<Step>,
}

pub(crate) struct Cluster {
    members: Vec<Member>,
    voters: Membership,
    cuts: BTreeSet<(usize, usize)>,
    now_us: u64,
    starts: u64,
    proposals: u64,
}

pub(crate) fn id(number: usize) -> MemberId {
    MemberId::new(number as u64 + 1).unwrap()
}

fn at(id: MemberId) -> usize {
    usize::try_from(id.get() - 1).unwrap()
}

impl Cluster {
    pub(crate) fn new(size: usize) -> Self {
        Self::with_learners(size, 0)
    }

    /// Creates a cluster with the voters first and the learners after them.
    pub(crate) fn with_learners(voters: usize, learners: usize) -> Self {
        let size = voters + learners;
        let hard_state = HardState { term: 1, vote: None, commit: 1 };
        let member = || Member {
            replica: None,
            inputs: Vec::new(),
            durable: Disk { hard_state, ..Disk::default() },
            written: Vec::new(),
            stuck: false,
            stopped: None,
            answers: Vec::new(),
            changed: Vec::new(),
            unknown_changes: 0,
            sent: Vec::new(),
        };
        let mut cluster = Self {
            members: (0..size).map(|_| member()).collect(),
            voters: Membership {
                learners: (voters..size).map(id).collect(),
                ..Membership::of_voters((0..voters).map(id))
            },
            cuts: BTreeSet::new(),
            now_us: 1_000_000,
            starts: 0,
            proposals: 0,
        };
        (0..size).for_each(|number| cluster.start(number));
        cluster
    }

    pub(crate) fn start(&mut self, number: usize) {
        self.starts += 1;
        let disk = self.members[number].durable.clone();
        let boot = Boot {
            machine: Machine::new(Epoch::default()),
            applied: FIRST,
            members: self.voters.clone(),
            base: FIRST,
            entries: disk.entries,
            hard_state: disk.hard_state,
            notes: disk.notes,
            cut: None,
            given: BTreeSet::new(),
        };
        let config = ReplicaConfig { snapshot_entries: u64::MAX, ..ReplicaConfig::new(id(number)) };
        let replica = Replica::new(config, boot, self.starts * 7919 + 77).unwrap();
        let member = &mut self.members[number];
        member.replica = Some(replica);
        member.inputs.clear();
        member.sent.clear();
        member.stopped = None;
    }

    /// Kills a member and loses what was not durable.
    pub(crate) fn kill(&mut self, number: usize) {
        let member = &mut self.members[number];
        (member.replica, member.stuck) = (None, false);
        member.written.clear();
    }

    pub(crate) fn disk(&self, number: usize) -> Disk {
        self.members[number].durable.clone()
    }

    pub(crate) fn replace_disk(&mut self, number: usize, disk: Disk) {
        self.members[number].durable = disk;
    }

    /// Stalls a member's disk: it makes nothing durable from now on.
    pub(crate) fn stick(&mut self, number: usize) {
        self.members[number].stuck = true;
    }

    pub(crate) fn cut(&mut self, one: usize, other: usize) {
        self.cuts.extend([(one, other), (other, one)]);
    }

    /// Drops everything that `from` sends to `to`.
    pub(crate) fn cut_one_way(&mut self, from: usize, to: usize) {
        self.cuts.insert((from, to));
    }

    pub(crate) fn isolate(&mut self, one: usize) {
        (0..self.members.len())
            .filter(|other| *other != one)
            .for_each(|other| self.cut(one, other));
    }

    pub(crate) fn heal(&mut self) {
        self.cuts.clear();
    }

    pub(crate) fn run_ms(&mut self, ms: u64) {
        (0..ms * 1_000 / STEP_US).for_each(|_| self.step());
    }

    pub(crate) fn step(&mut self) {
        self.now_us += STEP_US;
        let mut sent = Vec::new();
        for number in 0..self.members.len() {
            self.turn(number, &mut sent);
        }
        for (from, to, message) in sent {
            let known = to < self.members.len() && !self.cuts.contains(&(from, to));
            if known && self.members[to].replica.is_some() {
                self.hand(to, from, message);
            }
        }
    }

    fn turn(&mut self, number: usize, sent: &mut Vec<(usize, usize, Message)>) {
        let member = &mut self.members[number];
        let Some(replica) = &mut member.replica else { return };
        member.inputs.drain(..).for_each(|input| replica.handle(input));
        if !member.stuck {
            for persist in std::mem::take(&mut member.written) {
                let number = persist.number;
                member.durable.write(persist);
                replica.handle(ReplicaInput::Persisted { number });
            }
        }
        let mut outputs = Vec::new();
        replica.turn(self.now_us, &mut outputs);
        for output in outputs {
            match output {
                ReplicaOutput::Send { to, message } => {
                    let bytes = Bytes::from(message.encode());
                    let message = Message::decode(&bytes).unwrap();
                    if let Message::Step(step) = &message {
                        member.sent.push(*step.clone());
                    }
                    sent.push((number, at(to), message));
                }
                ReplicaOutput::Persist(persist) => member.written.push(*persist),
                ReplicaOutput::Answer { proposal, fate } => member.answers.push((proposal, fate)),
                ReplicaOutput::Changed { result, .. } => member.changed.push(result),
                ReplicaOutput::ChangeUnknown { .. } => member.unknown_changes += 1,
                ReplicaOutput::Stop(stop) => member.stopped = Some(stop),
                ReplicaOutput::SendSnapshot { .. } | ReplicaOutput::SaveSnapshot { .. } => {
                    panic!("logs are short here")
                }
                _ => {}
            }
        }
        if member.stopped.is_some() {
            member.replica = None;
        }
    }

    /// Delivers a message to `to`, as if from `from`.
    pub(crate) fn hand(&mut self, to: usize, from: usize, message: Message) {
        self.hand_from(to, id(from), message);
    }

    pub(crate) fn hand_from(&mut self, to: usize, from: MemberId, message: Message) {
        self.members[to].inputs.push(ReplicaInput::Message { from, message });
    }

    pub(crate) fn input(&mut self, to: usize, input: ReplicaInput) {
        self.members[to].inputs.push(input);
    }

    pub(crate) fn leader(&self) -> Option<usize> {
        let serves = |at: &usize| {
            let replica = self.members[*at].replica.as_ref();
            replica.is_some_and(|replica| replica.status().serving)
        };
        let leads = (0..self.members.len()).filter(serves);
        leads.max_by_key(|at| self.term(*at))
    }

    /// Makes this member the leader and returns its number.
    pub(crate) fn elect(&mut self, number: usize) -> usize {
        for _ in 0..20 {
            self.run_ms(1_000);
            match self.leader() {
                Some(leader) if leader == number => return leader,
                Some(leader) => {
                    let request = tenure_raft::AdminRequest::Transfer(id(number));
                    self.input(leader, ReplicaInput::Admin { proposal: ProposalId(0), request });
                }
                None => {}
            }
        }
        panic!("{number} does not lead");
    }

    pub(crate) fn elect_among(&mut self, some: &[usize]) -> usize {
        for _ in 0..20 {
            self.run_ms(500);
            if let Some(leader) = self.leader().filter(|leader| some.contains(leader)) {
                return leader;
            }
        }
        panic!("none of {some:?} leads");
    }

    pub(crate) fn transfer(&mut self, leader: usize, to: usize) {
        let request = tenure_raft::AdminRequest::Transfer(id(to));
        self.input(leader, ReplicaInput::Admin { proposal: ProposalId(0), request });
    }

    /// Proposes a membership change and returns the answer that arrives within a second.
    pub(crate) fn change(
        &mut self,
        leader: usize,
        change: tenure_raft::MembershipChange,
    ) -> Result<(), RejectReason> {
        let request = tenure_raft::AdminRequest::Change(vec![change]);
        self.input(leader, ReplicaInput::Admin { proposal: ProposalId(0), request });
        let before = self.members[leader].changed.len();
        self.run_ms(1_000);
        self.members[leader].changed.get(before).cloned().expect("an admin request is answered")
    }

    /// Proposes a membership change and returns without waiting for it, except for an immediate rejection.
    pub(crate) fn start_change(
        &mut self,
        leader: usize,
        change: tenure_raft::MembershipChange,
    ) -> Result<(), RejectReason> {
        let request = tenure_raft::AdminRequest::Change(vec![change]);
        self.input(leader, ReplicaInput::Admin { proposal: ProposalId(0), request });
        let before = self.members[leader].changed.len();
        self.step();
        self.members[leader].changed.get(before).cloned().unwrap_or(Ok(()))
    }

    /// How many membership changes this member answered, and how many of them as unknown.
    pub(crate) fn changes(&self, number: usize) -> (usize, usize) {
        let member = &self.members[number];
        (member.changed.len() + member.unknown_changes, member.unknown_changes)
    }

    /// The newest step of this kind that a member has sent and that is not a rejection.
    pub(crate) fn newest_sent(&self, number: usize, kind: StepKind) -> Step {
        let mut sent = self.members[number].sent.iter();
        sent.rfind(|step| step.kind == kind && !step.reject).cloned().expect("it sent one")
    }

    pub(crate) fn remove(&mut self, leader: usize, number: usize) {
        let request =
            tenure_raft::AdminRequest::Change(vec![tenure_raft::MembershipChange::Remove(id(
                number,
            ))]);
        self.input(leader, ReplicaInput::Admin { proposal: ProposalId(0), request });
    }

    /// Submits commands, one entry each.
    pub(crate) fn submit(&mut self, number: usize, commands: u64) {
        for _ in 0..commands {
            self.proposals += 1;
            let id = LeaseId::new(self.proposals).unwrap();
            let lease = NewLease { id, ttl_ms: 600_000, client: "client", metadata: b"" };
            let mut bytes = Vec::new();
            let command = Command::GrantLease(lease);
            encode_request(&Request { principal: "", id: RequestId::None, command }, &mut bytes);
            let (proposal, requests) = (ProposalId(self.proposals), [Bytes::from(bytes)].into());
            self.input(
                number,
                ReplicaInput::Submit { proposal, requests, linger_us: 0, deadline_us: u64::MAX },
            );
            self.step();
        }
    }

    /// Submits commands and waits until all are applied.
    pub(crate) fn write(&mut self, number: usize, commands: u64) {
        self.submit(number, commands);
        let last = ProposalId(self.proposals);
        for _ in 0..200 {
            self.step();
            let mut answers = self.members[number].answers.iter();
            if answers.any(|(proposal, fate)| {
                *proposal == last && matches!(fate, ProposalFate::Applied(_))
            }) {
                return;
            }
        }
        panic!("{number} did not commit; stopped: {:?}", self.members[number].stopped);
    }

    pub(crate) fn replica(&self, number: usize) -> &Replica {
        self.members[number].replica.as_ref().expect("it is up")
    }

    pub(crate) fn replica_mut(&mut self, number: usize) -> &mut Replica {
        self.members[number].replica.as_mut().expect("it is up")
    }

    pub(crate) fn status(&self, number: usize) -> ReplicaStatus {
        self.replica(number).status()
    }

    pub(crate) fn term(&self, number: usize) -> u64 {
        self.status(number).term.0
    }

    pub(crate) fn stopped(&self, number: usize) -> Option<&Stop> {
        self.members[number].stopped.as_ref()
    }

    /// The kinds of the steps that a member has sent since its start.
    pub(crate) fn answers_of(&self, number: usize) -> Vec<StepKind> {
        self.members[number].sent.iter().map(|step| step.kind).collect()
    }

    /// The steps (messages of the Raft protocol) that a member has sent since its start.
    pub(crate) fn steps_of(&self, number: usize) -> &[Step] {
        &self.members[number].sent
    }

    /// The last heartbeat that the leader has sent to a follower that has acknowledged something.
    pub(crate) fn heartbeat(&mut self) -> Step {
        self.run_ms(100);
        let leader = self.leader().expect("a member leads");
        let beats = |step: &&Step| step.kind == StepKind::Heartbeat && step.commit > 0;
        self.members[leader].sent.iter().rfind(beats).cloned().expect("it beats")
    }
}
