//! Three members in memory: do they elect, commit, read and fail over?

use bytes::Bytes;
use tenure_core::Machine;
use tenure_core::codec::encode_request;
use tenure_core::outcome::Answer;
use tenure_core::request::{Command, LeaseRef, NewLease, Request, RequestId};
use tenure_raft::{
    Boot, Change, Config, Fate, Input, Kind, MemberId, Membership, Message, Output, Replica, Saved,
    Stop, Ticket, Wish,
};
use tenure_store::{Entry, HardState, Point};
use tenure_types::{Epoch, LeaseId};

const STEP_US: u64 = 10_000;

struct Member {
    replica: Replica,
    inputs: Vec<Input>,
    up: bool,
    /// What is durable.
    entries: Vec<Entry>,
    hard_state: HardState,
    image: Option<(Point, Vec<u8>, Vec<u8>)>,
    answers: Vec<(Ticket, Fate)>,
    reads: Vec<Ticket>,
    changed: Vec<Ticket>,
    stopped: Option<Stop>,
}

struct Cluster {
    members: Vec<Member>,
    now_us: u64,
}

fn id(number: usize) -> MemberId {
    MemberId::new(number as u64 + 1).unwrap()
}

fn config(number: usize) -> Config {
    Config { snapshot_entries: 50, hash_every: 10, ..Config::new(id(number)) }
}

impl Cluster {
    fn new(size: usize) -> Self {
        let members = Membership::of_voters((0..size).map(id));
        let base = Point { index: 1, term: 1 };
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

    fn step(&mut self) {
        self.step_losing(|_, _| false);
    }

    /// A step in which some messages are lost, by whom they are for and what they say.
    fn step_losing(&mut self, lost: impl Fn(MemberId, &Input) -> bool) {
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

    fn grant(&mut self, at: usize, ticket: u64, ttl_ms: u64) {
        let id = LeaseId::new(ticket).unwrap();
        let lease = NewLease { id, ttl_ms, client: "client", metadata: b"" };
        let command = Command::GrantLease(lease);
        let mut bytes = Vec::new();
        encode_request(&Request { principal: "", id: RequestId::None, command }, &mut bytes);
        let requests = vec![Bytes::from(bytes)];
        let input = Input::Submit { ticket: Ticket(ticket), requests, patience_us: 0 };
        self.members[at].inputs.push(input);
    }

    fn granted(&self, at: usize, ticket: u64) -> bool {
        self.members[at].answers.iter().any(|(found, fate)| {
            let Fate::Applied(outcomes) = fate else { return false };
            found.0 == ticket && matches!(outcomes[0].result, Ok(Answer::LeaseGranted(_)))
        })
    }
}

impl Member {
    fn start(
        number: usize,
        entries: Vec<Entry>,
        hard_state: HardState,
        image: Option<(Point, Vec<u8>, Vec<u8>)>,
    ) -> Self {
        let (applied, members, machine) = match &image {
            Some((point, meta, state)) => (*point, Membership::decode(meta).unwrap(), read(state)),
            None => (Point::default(), Membership::default(), Machine::new(Epoch::default())),
        };
        let after: Vec<_> =
            entries.iter().filter(|entry| entry.index > applied.index).cloned().collect();
        let boot = Boot { machine, applied, members, base: applied, entries: after, hard_state };
        let replica = Replica::new(config(number), boot, number as u64 + 77).unwrap();
        Self {
            replica,
            inputs: Vec::new(),
            up: true,
            entries,
            hard_state,
            image,
            answers: Vec::new(),
            reads: Vec::new(),
            changed: Vec::new(),
            stopped: None,
        }
    }

    fn turn(&mut self, now_us: u64, mut send: impl FnMut(MemberId, Input)) {
        let from = self.me();
        for input in std::mem::take(&mut self.inputs) {
            self.replica.handle(input);
        }
        let mut outputs = Vec::new();
        self.replica.turn(now_us, &mut outputs);
        for output in outputs {
            match output {
                Output::Send { to, message } => {
                    let bytes = Bytes::from(message.encode());
                    let message = Message::decode(&bytes).unwrap();
                    send(to, Input::Message { from, message });
                }
                Output::SendSnapshot { to, step } => {
                    let (point, meta, state) = self.image.clone().unwrap();
                    assert_eq!(step.snapshot.as_ref().unwrap().point, point);
                    let members = Membership::decode(&meta).unwrap();
                    let machine = Box::new(read(&state));
                    send(to, Input::SnapshotReceived { from, step, machine, members });
                    self.inputs.push(Input::SnapshotSent { to, saved: Saved::Yes });
                }
                Output::Persist(persist) => {
                    if persist.snapshot.is_some() {
                        self.entries.clear();
                    }
                    if let Some(first) = persist.entries.first() {
                        self.entries.retain(|entry| entry.index < first.index);
                    }
                    self.entries.extend(persist.entries);
                    self.hard_state = persist.hard_state.unwrap_or(self.hard_state);
                    self.inputs.push(Input::Persisted { number: persist.number });
                }
                Output::SaveSnapshot { point, meta, frozen } => {
                    let mut state = Vec::new();
                    frozen.write(&mut |part| state.extend_from_slice(part));
                    self.image = Some((point, meta, state));
                    self.inputs.push(Input::SnapshotSaved { point, saved: Saved::Yes });
                }
                Output::Answer { ticket, fate } => self.answers.push((ticket, fate)),
                Output::ReadReady { ticket } => self.reads.push(ticket),
                Output::Changed { ticket, result } => {
                    result.unwrap();
                    self.changed.push(ticket);
                }
                Output::Stop(Stop::Removed) => self.up = false,
                Output::Stop(reason) => {
                    self.up = false;
                    self.stopped = Some(reason);
                }
                Output::CompactLog { .. }
                | Output::ReadFailed { .. }
                | Output::Notices(_)
                | Output::Applied { .. }
                | Output::Led { .. } => {}
            }
        }
    }

    fn me(&self) -> MemberId {
        self.replica.id()
    }
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
    cluster.members[follower].inputs.push(Input::Read { ticket: Ticket(7) });
    cluster.run(1);
    assert_eq!(cluster.members[follower].reads, [Ticket(7)]);
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
    let why = tenure_raft::Why::NotLeader { leader: Some(id(leader)) };
    let fate = Fate::NotDone { commands: 1, why };
    assert_eq!(cluster.members[follower].answers, [(Ticket(1), fate)]);
}

#[test]
fn a_new_member_learns_from_a_snapshot_votes_and_another_leaves() {
    let mut cluster = Cluster::new(3);
    cluster.run(2);
    let leader = cluster.leader();
    for ticket in 1..=120 {
        cluster.grant(leader, ticket, 600_000);
        cluster.step();
    }
    cluster.run(1);
    assert!(cluster.members[leader].replica.status().base.index > 1, "the log is compacted");
    cluster.members.push(Member::start(3, vec![], HardState::default(), None));
    let ask = |cluster: &mut Cluster, ticket, change| {
        let wish = Wish::Change(vec![change]);
        cluster.members[leader].inputs.push(Input::Admin { ticket: Ticket(ticket), wish });
        cluster.run(2);
        assert_eq!(cluster.members[leader].changed.last(), Some(&Ticket(ticket)));
    };
    ask(&mut cluster, 1001, Change::AddLearner(id(3)));
    ask(&mut cluster, 1002, Change::Promote(id(3)));
    let hash = |cluster: &Cluster, at: usize| cluster.members[at].replica.machine().rolling_hash();
    assert_eq!(hash(&cluster, 3), hash(&cluster, leader));
    let other = (leader + 1) % 3;
    ask(&mut cluster, 1003, Change::Remove(id(other)));
    assert_eq!(cluster.members[3].replica.members().voters.len(), 3);
    assert!(cluster.members[3].replica.members().retired.contains(&id(other)));
}

#[test]
fn one_member_alone_leads_itself() {
    let mut cluster = Cluster::new(1);
    cluster.run(2);
    cluster.grant(0, 1, 2_000);
    cluster.members[0].inputs.push(Input::Read { ticket: Ticket(7) });
    cluster.run(1);
    assert!(cluster.granted(0, 1));
    assert_eq!(cluster.members[0].reads, [Ticket(7)]);
}

#[test]
fn a_patient_command_waits_for_company_and_no_longer() {
    let mut cluster = Cluster::new(3);
    cluster.run(2);
    let leader = cluster.leader();
    let patient = |cluster: &mut Cluster, ticket| {
        cluster.grant(leader, ticket, 60_000);
        let last = cluster.members[leader].inputs.last_mut();
        let Some(Input::Submit { patience_us, .. }) = last else { panic!("a submission") };
        *patience_us = 50_000;
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
    assert!((1..=4).all(|ticket| cluster.granted(leader, ticket)));
}

#[test]
fn a_member_that_forgot_stops_before_the_leader_repeats_what_it_forgot() {
    let mut cluster = Cluster::new(3);
    cluster.run(2);
    let leader = cluster.leader();
    let victim = (leader + 1) % 3;
    let (entries, hard_state) = {
        let member = &cluster.members[victim];
        (member.entries.clone(), member.hard_state)
    };
    let image = cluster.members[victim].image.clone();
    for ticket in 1..5 {
        cluster.grant(leader, ticket, 60_000);
        cluster.run(1);
    }
    // Killed, and started from a disk that went back. What it says and is told first is lost, up to
    // the first entries that it is sent: they do not follow what it has.
    cluster.members[victim] = Member::start(victim, entries, hard_state, image);
    cluster.members[leader].inputs.push(Input::Unreachable { member: id(victim) });
    cluster.grant(leader, 5, 60_000);
    for _ in 0..200 {
        cluster.step_losing(|to, input| {
            let Input::Message { from, message } = input else { return false };
            let heartbeat = matches!(message, Message::Step(step) if step.kind == Kind::Heartbeat);
            let greeting = *message == Message::Hello;
            to == id(victim) && heartbeat || *from == id(victim) && greeting
        });
    }
    let stopped = &cluster.members[victim].stopped;
    assert!(matches!(stopped, Some(Stop::Forgot { .. })), "{stopped:?}");
    cluster.leader();
}

#[test]
fn a_member_greets_whoever_it_is_linked_to() {
    let mut cluster = Cluster::new(3);
    cluster.run(1);
    cluster.members[0].inputs.push(Input::Linked { member: id(1) });
    let mut sent = Vec::new();
    let now_us = cluster.now_us;
    cluster.members[0].turn(now_us, |to, input| sent.push((to, input)));
    let greets = |(to, input): &(MemberId, Input)| {
        *to == id(1) && matches!(input, Input::Message { message: Message::Hello, .. })
    };
    assert!(sent.first().is_some_and(greets), "before anything else");
}
