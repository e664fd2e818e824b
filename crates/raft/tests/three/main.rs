//! Tests that three members in memory elect, commit, read and fail over.

mod later;

use bytes::Bytes;
use tenure_core::Machine;
use tenure_core::codec::encode_request;
use tenure_core::outcome::Answer;
use tenure_core::request::{Command, LeaseRef, NewLease, Request, RequestId};
use tenure_raft::{
    AdminRequest, Boot, MemberId, Membership, MembershipChange, Message, ProposalFate, ProposalId,
    RejectReason, Replica, ReplicaConfig, ReplicaInput, ReplicaOutput, SnapshotDelivery, Space,
    StepKind, Stop,
};
use tenure_store::{HardState, LogEntry, LogId};
use tenure_types::{Epoch, LeaseId};

const STEP_US: u64 = 10_000;

struct Member {
    replica: Replica,
    inputs: Vec<ReplicaInput>,
    up: bool,
    /// Whether its disk writes everything but makes nothing durable.
    stuck: bool,
    /// Whether saving snapshots fails.
    saves_fail: bool,
    /// The durable entries.
    entries: Vec<LogEntry>,
    newest: u64,
    hard_state: HardState,
    image: Option<(LogId, Vec<u8>, Vec<u8>)>,
    answers: Vec<(ProposalId, ProposalFate)>,
    reads: Vec<ProposalId>,
    changed: Vec<ProposalId>,
    stopped: Option<Stop>,
}

struct Cluster {
    members: Vec<Member>,
    now_us: u64,
}

fn id(number: usize) -> MemberId {
    MemberId::new(number as u64 + 1).unwrap()
}

fn config(number: usize) -> ReplicaConfig {
    ReplicaConfig { snapshot_entries: 50, hash_every: 10, ..ReplicaConfig::new(id(number)) }
}

impl Cluster {
    fn new(size: usize) -> Self {
        let members = Membership::of_voters((0..size).map(id));
        let base = LogId { index: 1, term: 1 };
        let members = (0..size).map(|number| {
            let hard_state = HardState { term: 1, vote: None, commit: 1 };
            let machine = Machine::new(Epoch::default());
            let mut meta = Vec::new();
            members.encode(&mut meta);
            let image = Some((base, meta, machine.encode()));
            Member::start(number, vec![], hard_state, image)
        });
        Self { members: members.collect(), now_us: 1_000_000 }
    }

    /// Creates a cluster in which all members but one are reluctant to lead.
    fn with_one_eager(size: usize, eager: usize) -> Self {
        let mut cluster = Self::new(size);
        for number in (0..size).filter(|number| *number != eager) {
            cluster.configure(number, ReplicaConfig { reluctant: true, ..config(number) });
        }
        cluster
    }

    /// Starts a member that has no entries yet with another configuration.
    fn configure(&mut self, number: usize, config: ReplicaConfig) {
        let member = &mut self.members[number];
        let (applied, meta, state) = member.image.as_ref().unwrap();
        let boot = Boot {
            machine: read(state),
            applied: *applied,
            members: Membership::decode(meta).unwrap(),
            base: *applied,
            entries: Vec::new(),
            hard_state: member.hard_state,
            notes: Vec::new(),
            cut: None,
            given: Default::default(),
        };
        member.replica = Replica::new(config, boot, number as u64 + 77).unwrap();
    }

    fn step(&mut self) {
        self.step_losing(|_, _| false);
    }

    /// Runs a step in which the messages selected by receiver and content are lost.
    fn step_losing(&mut self, lost: impl Fn(MemberId, &ReplicaInput) -> bool) {
        self.now_us += STEP_US;
        let mut sent = Vec::new();
        for member in &mut self.members {
            if member.up {
                member.turn(self.now_us, |to, input| sent.push((to, input)));
            }
        }
        for (to, input) in sent.into_iter().filter(|(to, input)| !lost(*to, input)) {
            let at = usize::try_from(to.get() - 1).unwrap();
            let Some(target) = self.members.get_mut(at).filter(|member| member.up) else {
                continue;
            };
            target.inputs.push(input);
        }
    }

    fn run(&mut self, seconds: u64) {
        (0..seconds * 1_000_000 / STEP_US).for_each(|_| self.step());
    }

    fn leader(&self) -> usize {
        let leads = |member: &Member| member.up && member.replica.status().serving;
        let leaders: Vec<_> =
            (0..self.members.len()).filter(|at| leads(&self.members[*at])).collect();
        let stopped: Vec<_> =
            self.members.iter().filter_map(|member| member.stopped.as_ref()).collect();
        assert_eq!(leaders.len(), 1, "one leads; stopped: {stopped:?}");
        leaders[0]
    }

    fn grant(&mut self, at: usize, proposal: u64, ttl_ms: u64) {
        self.submit(at, proposal, vec![grant(proposal, ttl_ms)]);
    }

    fn submit(&mut self, at: usize, proposal: u64, commands: Vec<Command<'_>>) {
        let requests = commands.into_iter().map(|command| {
            let mut bytes = Vec::new();
            encode_request(&Request { principal: "", id: RequestId::None, command }, &mut bytes);
            Bytes::from(bytes)
        });
        let requests = requests.collect();
        let input = ReplicaInput::Submit {
            proposal: ProposalId(proposal),
            requests,
            linger_us: 0,
            deadline_us: u64::MAX,
        };
        self.members[at].inputs.push(input);
    }

    /// The fate of a submission, in order: whether each outcome is a success, or why there is none.
    fn fates(&self, at: usize, proposal: u64) -> Vec<Result<bool, RejectReason>> {
        let of_it = self.members[at].answers.iter().filter(|(found, _)| found.0 == proposal);
        let fates = of_it.flat_map(|(_, fate)| match fate {
            ProposalFate::Applied(all) => all.iter().map(|one| Ok(one.result.is_ok())).collect(),
            ProposalFate::NotDone { commands, why } => vec![Err(*why); *commands],
            ProposalFate::Unknown { .. } => panic!("no member missed anything"),
        });
        fates.collect()
    }

    fn set_space(&mut self, at: usize, space: Space) {
        self.members[at].inputs.push(ReplicaInput::Space(space));
    }

    fn granted(&self, at: usize, proposal: u64) -> bool {
        self.members[at].answers.iter().any(|(found, fate)| {
            let ProposalFate::Applied(outcomes) = fate else { return false };
            found.0 == proposal && matches!(outcomes[0].result, Ok(Answer::LeaseGranted(_)))
        })
    }
}

impl Member {
    fn start(
        number: usize,
        entries: Vec<LogEntry>,
        hard_state: HardState,
        image: Option<(LogId, Vec<u8>, Vec<u8>)>,
    ) -> Self {
        let (applied, members, machine) = match &image {
            Some((point, meta, state)) => (*point, Membership::decode(meta).unwrap(), read(state)),
            None => (LogId::default(), Membership::default(), Machine::new(Epoch::default())),
        };
        let after: Vec<_> =
            entries.iter().filter(|entry| entry.index > applied.index).cloned().collect();
        let boot = Boot {
            machine,
            applied,
            members,
            base: applied,
            entries: after,
            hard_state,
            notes: Vec::new(),
            cut: None,
            given: (0..3).map(id).collect(),
        };
        let replica = Replica::new(config(number), boot, number as u64 + 77).unwrap();
        Self {
            replica,
            inputs: Vec::new(),
            up: true,
            stuck: false,
            saves_fail: false,
            entries,
            newest: 0,
            hard_state,
            image,
            answers: Vec::new(),
            reads: Vec::new(),
            changed: Vec::new(),
            stopped: None,
        }
    }

    fn turn(&mut self, now_us: u64, mut send: impl FnMut(MemberId, ReplicaInput)) {
        let from = self.me();
        for input in std::mem::take(&mut self.inputs) {
            self.replica.handle(input);
        }
        if !self.stuck && self.newest > 0 {
            self.replica.handle(ReplicaInput::Persisted { number: self.newest });
        }
        let mut outputs = Vec::new();
        self.replica.turn(now_us, &mut outputs);
        for output in outputs {
            match output {
                ReplicaOutput::Send { to, message } => {
                    let bytes = Bytes::from(message.encode());
                    let message = Message::decode(&bytes).unwrap();
                    send(to, ReplicaInput::Message { from, message });
                }
                ReplicaOutput::SendSnapshot { to, step } => {
                    let (point, meta, state) = self.image.clone().unwrap();
                    assert_eq!(step.snapshot.as_ref().unwrap().point, point);
                    let members = Membership::decode(&meta).unwrap();
                    let machine = Box::new(read(&state));
                    let members = Box::new(members);
                    send(to, ReplicaInput::SnapshotReceived { from, step, machine, members });
                    self.inputs.push(ReplicaInput::SnapshotSent {
                        to,
                        saved: SnapshotDelivery::Delivered,
                    });
                }
                ReplicaOutput::Persist(persist) => {
                    if persist.snapshot.is_some() {
                        self.entries.clear();
                    }
                    if let Some(first) = persist.entries.first() {
                        self.entries.retain(|entry| entry.index < first.index);
                    }
                    self.entries.extend(persist.entries);
                    self.hard_state = persist.hard_state.unwrap_or(self.hard_state);
                    self.newest = persist.number;
                }
                ReplicaOutput::SaveSnapshot { point, .. } if self.saves_fail => {
                    self.inputs.push(ReplicaInput::SnapshotSaved {
                        point,
                        saved: SnapshotDelivery::Failed,
                    });
                }
                ReplicaOutput::SaveSnapshot { point, meta, frozen } => {
                    let mut state = Vec::new();
                    frozen.write(&mut |part| state.extend_from_slice(part));
                    self.image = Some((point, meta, state));
                    self.inputs.push(ReplicaInput::SnapshotSaved {
                        point,
                        saved: SnapshotDelivery::Delivered,
                    });
                }
                ReplicaOutput::Answer { proposal, fate } => self.answers.push((proposal, fate)),
                ReplicaOutput::ReadReady { proposal } => self.reads.push(proposal),
                ReplicaOutput::Changed { proposal, result } => {
                    result.unwrap();
                    self.changed.push(proposal);
                }
                ReplicaOutput::Stop(reason) => {
                    self.up = false;
                    self.stopped = Some(reason);
                }
                ReplicaOutput::ChangeUnknown { .. }
                | ReplicaOutput::CompactLog { .. }
                | ReplicaOutput::ReadFailed { .. }
                | ReplicaOutput::Notices(_)
                | ReplicaOutput::Applied { .. }
                | ReplicaOutput::Led { .. } => {}
            }
        }
    }

    fn me(&self) -> MemberId {
        self.replica.id()
    }
}

fn grant(number: u64, ttl_ms: u64) -> Command<'static> {
    let id = LeaseId::new(number).unwrap();
    Command::GrantLease(NewLease { id, ttl_ms, client: "client", metadata: b"" })
}

fn renew(number: u64) -> Command<'static> {
    Command::Renew(vec![LeaseRef::Id(LeaseId::new(number).unwrap())])
}

fn read(state: &[u8]) -> Machine {
    Machine::decode(state).unwrap()
}

#[test]
fn three_members_elect_commit_read_and_fail_over() {
    let mut cluster = Cluster::new(3);
    cluster.run(2);
    let first = cluster.leader();
    cluster.grant(first, 1, 60_000);
    cluster.run(1);
    assert!(cluster.granted(first, 1));

    let follower = (first + 1) % 3;
    cluster.members[follower].inputs.push(ReplicaInput::Read { proposal: ProposalId(7) });
    cluster.run(1);
    assert_eq!(cluster.members[follower].reads, [ProposalId(7)]);
    let lease = LeaseRef::Id(LeaseId::new(1).unwrap());
    assert!(cluster.members[follower].replica.machine().lease(lease).is_some());

    cluster.members[first].up = false;
    cluster.run(3);
    let second = cluster.leader();
    assert_ne!(first, second);
    cluster.grant(second, 2, 60_000);
    cluster.run(1);
    assert!(cluster.granted(second, 2));

    cluster.members[first].up = true;
    cluster.run(2);
    let hash = |at: usize| cluster.members[at].replica.machine().rolling_hash();
    assert_eq!([hash(0), hash(1)], [hash(1), hash(2)]);
}

#[test]
fn a_lease_ends_by_the_clock_in_the_log() {
    let mut cluster = Cluster::new(3);
    cluster.run(2);
    let leader = cluster.leader();
    cluster.grant(leader, 1, 2_000);
    cluster.run(1);
    let lease = LeaseRef::Id(LeaseId::new(1).unwrap());
    let lives =
        |cluster: &Cluster, at: usize| cluster.members[at].replica.machine().lease(lease).is_some();
    assert!(lives(&cluster, leader));
    cluster.run(2);
    assert!((0..3).all(|at| !lives(&cluster, at)));
}

#[test]
fn a_follower_refuses_commands_and_names_the_leader() {
    let mut cluster = Cluster::new(3);
    cluster.run(2);
    let leader = cluster.leader();
    let follower = (leader + 1) % 3;
    cluster.grant(follower, 1, 2_000);
    cluster.run(1);
    let why = tenure_raft::RejectReason::NotLeader { leader: Some(id(leader)) };
    let fate = ProposalFate::NotDone { commands: 1, why };
    assert_eq!(cluster.members[follower].answers, [(ProposalId(1), fate)]);
}

#[test]
fn a_new_member_learns_from_a_snapshot_votes_and_another_leaves() {
    let mut cluster = Cluster::new(3);
    cluster.run(2);
    let leader = cluster.leader();
    for proposal in 1..=120 {
        cluster.grant(leader, proposal, 600_000);
        cluster.step();
    }
    cluster.run(1);
    assert!(cluster.members[leader].replica.status().base.index > 1, "the log is compacted");
    cluster.members.push(Member::start(3, vec![], HardState::default(), None));
    let ask = |cluster: &mut Cluster, proposal, change| {
        let request = AdminRequest::Change(vec![change]);
        cluster.members[leader]
            .inputs
            .push(ReplicaInput::Admin { proposal: ProposalId(proposal), request });
        cluster.run(2);
        assert_eq!(cluster.members[leader].changed.last(), Some(&ProposalId(proposal)));
    };
    ask(&mut cluster, 1001, MembershipChange::AddLearner(id(3)));
    ask(&mut cluster, 1002, MembershipChange::Promote(id(3)));
    let hash = |cluster: &Cluster, at: usize| cluster.members[at].replica.machine().rolling_hash();
    assert_eq!(hash(&cluster, 3), hash(&cluster, leader));
    let other = (leader + 1) % 3;
    ask(&mut cluster, 1003, MembershipChange::Remove(id(other)));
    assert_eq!(cluster.members[3].replica.members().voters.len(), 3);
    assert!(cluster.members[3].replica.members().retired.contains(&id(other)));
}

#[test]
fn reluctant_members_lead_only_while_no_other_can() {
    for eager in 0..3 {
        let mut cluster = Cluster::with_one_eager(3, eager);
        cluster.run(2);
        assert_eq!(cluster.leader(), eager, "the others wait for it");
        cluster.members[eager].up = false;
        cluster.run(4);
        assert_ne!(cluster.leader(), eager, "and do not wait for ever");
    }
}

#[test]
fn one_member_alone_leads_itself() {
    let mut cluster = Cluster::new(1);
    cluster.run(2);
    cluster.grant(0, 1, 2_000);
    cluster.members[0].inputs.push(ReplicaInput::Read { proposal: ProposalId(7) });
    cluster.run(1);
    assert!(cluster.granted(0, 1));
    assert_eq!(cluster.members[0].reads, [ProposalId(7)]);
}

#[test]
fn a_patient_command_waits_for_company_and_no_longer() {
    let mut cluster = Cluster::new(3);
    cluster.run(2);
    let leader = cluster.leader();
    let patient = |cluster: &mut Cluster, proposal| {
        cluster.grant(leader, proposal, 60_000);
        let last = cluster.members[leader].inputs.last_mut();
        let Some(ReplicaInput::Submit { linger_us, .. }) = last else { panic!("a submission") };
        *linger_us = 50_000;
    };
    let last = |cluster: &Cluster| cluster.members[leader].replica.status().last.index;
    let before = last(&cluster);
    patient(&mut cluster, 1);
    (0..4).for_each(|_| cluster.step());
    assert_eq!(last(&cluster), before, "it waits");
    patient(&mut cluster, 2);
    (0..3).for_each(|_| cluster.step());
    assert_eq!(last(&cluster), before + 1, "both are in one entry");
    patient(&mut cluster, 3);
    cluster.grant(leader, 4, 60_000);
    cluster.step();
    assert_eq!(last(&cluster), before + 2, "company has come");
    cluster.run(1);
    assert!((1..=4).all(|proposal| cluster.granted(leader, proposal)));
}

#[test]
fn a_leader_short_of_space_refuses_what_grows_and_answers_in_order() {
    let mut cluster = Cluster::new(3);
    cluster.run(2);
    let leader = cluster.leader();
    cluster.grant(leader, 1, 60_000);
    cluster.run(1);
    cluster.set_space(leader, Space::Short);
    let full = Err(RejectReason::DiskFull);
    cluster.submit(leader, 2, vec![grant(2, 60_000), renew(1), grant(3, 60_000), renew(1)]);
    cluster.submit(leader, 3, vec![grant(4, 60_000)]);
    cluster.run(1);
    assert_eq!(cluster.fates(leader, 2), [full, Ok(true), full, Ok(true)]);
    assert_eq!(cluster.fates(leader, 3), [full]);
    assert_eq!(cluster.leader(), leader, "it leads on");
    cluster.set_space(leader, Space::Enough);
    cluster.grant(leader, 5, 60_000);
    cluster.run(1);
    assert!(cluster.granted(leader, 5));
}

#[test]
fn one_full_follower_is_no_reason_and_a_quorum_of_them_is() {
    let mut cluster = Cluster::new(3);
    cluster.run(2);
    let leader = cluster.leader();
    cluster.set_space((leader + 1) % 3, Space::Short);
    cluster.run(1);
    cluster.grant(leader, 1, 60_000);
    cluster.run(1);
    assert!(cluster.granted(leader, 1), "two of three have room");
    cluster.set_space((leader + 2) % 3, Space::Short);
    cluster.run(1);
    cluster.submit(leader, 2, vec![grant(2, 60_000), renew(1)]);
    cluster.run(1);
    assert_eq!(cluster.fates(leader, 2), [Err(RejectReason::DiskFull), Ok(true)]);
    cluster.set_space((leader + 1) % 3, Space::Enough);
    cluster.run(4);
    cluster.grant(leader, 3, 60_000);
    cluster.run(1);
    assert!(cluster.granted(leader, 3), "what is not said again is forgotten");
}

#[test]
fn a_leader_whose_disk_is_stuck_leads_on_and_stops_proposing() {
    let mut cluster = Cluster::new(3);
    cluster.run(2);
    let leader = cluster.leader();
    cluster.grant(leader, 1, 600_000);
    cluster.run(1);
    let term = cluster.members[leader].replica.status().term;
    let before = cluster.members[leader].replica.status().last.index;
    cluster.members[leader].stuck = true;
    let metadata = vec![7; 256 * 1024];
    for number in 0..100 {
        let id = LeaseId::new(1_000 + number).unwrap();
        // Larger than the limit: the machine refuses the command, but the log must still take it.
        let lease = NewLease { id, ttl_ms: 60_000, client: "client", metadata: &metadata };
        cluster.submit(leader, 1_000 + number, vec![Command::GrantLease(lease)]);
        cluster.step();
    }
    cluster.run(3);
    let status = cluster.members[leader].replica.status();
    assert!(status.leading && status.term == term, "heartbeats do not wait for a disk");
    let proposed = status.last.index - before;
    // 16 MiB of them, and a clock entry every second.
    assert!((60..80).contains(&proposed), "{proposed} entries wait for the disk");
    assert!(cluster.fates(leader, 1_000).is_empty(), "no caller is answered before it is durable");
    cluster.members[leader].stuck = false;
    cluster.run(3);
    for number in 0..100 {
        assert_eq!(cluster.fates(leader, 1_000 + number), [Ok(false)], "{number}");
    }
}

#[test]
fn a_disk_that_went_back_is_noticed_without_the_leader_that_was_acknowledged() {
    let mut cluster = Cluster::new(3);
    cluster.run(2);
    let leader = cluster.leader();
    let (victim, witness) = ((leader + 1) % 3, (leader + 2) % 3);
    let old: Vec<LogEntry> = cluster.members[victim].entries.clone();
    let (hard_state, image) =
        (cluster.members[victim].hard_state, cluster.members[victim].image.clone());
    // Members report their hashes at every tenth entry.
    for number in 1..=20 {
        cluster.grant(leader, number, 60_000);
        cluster.run(1);
        assert!(cluster.granted(leader, number));
    }
    cluster.members[leader].up = false;
    cluster.members[victim] = Member::start(victim, old, hard_state, image);
    cluster.run(2);
    let forgot = &cluster.members[victim].stopped;
    assert!(matches!(forgot, Some(Stop::Forgot { .. })), "{forgot:?}");
    assert!(cluster.members[witness].up);
}
