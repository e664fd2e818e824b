//! Checks what becomes of commands that a follower forwarded when their answers do not arrive as they should.
//!
//! Three members in memory. The links between them are numbered, and can be broken and made anew; answers to forwarded
//! commands and the entries of the log can be held back apart from everything else.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use tenure_core::Machine;
use tenure_core::access::{AccessChange, MEMBER, NewPrincipal, NewRule};
use tenure_core::codec::encode_request;
use tenure_core::outcome::Answer;
use tenure_core::request::{Command, Expect, LeaseRef, NewLease, Request, RequestId};
use tenure_node::{
    AdminId, AdminRequest, CallId, CommandBatch, Input, LinkId, Node, NodeConfig, NodeFailure,
    Outcomes, Output, PeerMessage, Principal, ReplyTo, Weight,
};
use tenure_raft::{Boot, MemberId, Membership, Message, Persist, RejectReason, Replica, StepKind};
use tenure_store::{HardState, LogEntry, LogId};
use tenure_types::{Epoch, LeaseId, Quotas, Verb, VerbSet};

const STEP_US: u64 = 5_000;
const SECOND_US: u64 = 1_000_000;
/// How long a caller waits.
const DEADLINE_US: u64 = 10 * SECOND_US;
const FIRST: LogId = LogId { index: 1, term: 1 };

struct Member {
    node: Node,
    inputs: Vec<Input>,
    entries: Vec<LogEntry>,
    hard_state: HardState,
    notes: Vec<u8>,
    answers: Vec<(ReplyTo, Outcomes)>,
}

struct World {
    members: Vec<Member>,
    now_us: u64,
    link: u64,
    /// The present links between two members, the smaller id first.
    links: BTreeMap<(MemberId, MemberId), LinkId>,
    /// Entries and their acknowledgements are lost, so nothing is committed.
    holds_entries: bool,
    /// Answers to forwarded commands are lost.
    loses_answers: bool,
    /// The results of admin requests that callers were told, and those that members sent to others.
    admins_done: Vec<Result<(), NodeFailure>>,
    admins_answered: Vec<Result<(), NodeFailure>>,
    /// The answers to forwarded commands that members sent.
    answers_sent: Vec<Outcomes>,
}

fn id(number: usize) -> MemberId {
    MemberId::new(number as u64 + 1).unwrap()
}

fn boot(number: usize, entries: Vec<LogEntry>, hard_state: HardState, notes: Vec<u8>) -> Node {
    let boot = Boot {
        machine: Machine::new(Epoch::default()),
        applied: FIRST,
        members: Membership::of_voters((0..3).map(id)),
        base: FIRST,
        entries,
        hard_state,
        notes,
        cut: None,
        given: BTreeSet::new(),
    };
    let config = tenure_raft::ReplicaConfig::new(id(number));
    let replica = Replica::new(config, boot, number as u64 * 7919 + 77).unwrap();
    let (command_bytes_max, admission) = (1 << 20, Default::default());
    let chunk_bytes = tenure_node::transfer::CHUNK_BYTES;
    Node::new(replica, NodeConfig { command_bytes_max, admission, identity: None, chunk_bytes })
}

fn encode(principal: &str, command: Command<'_>) -> Bytes {
    let mut bytes = Vec::new();
    encode_request(&Request { principal, id: RequestId::None, command }, &mut bytes);
    bytes.into()
}

fn grant_lease(lease: u64) -> Bytes {
    let id = LeaseId::new(lease).unwrap();
    let lease = NewLease { id, ttl_ms: 600_000, client: "client", metadata: b"" };
    encode("", Command::GrantLease(lease))
}

impl World {
    /// Three members that have elected one of them; its number, and that of a follower.
    fn led() -> (Self, usize, usize) {
        let hard_state = HardState { term: 1, vote: None, commit: 1 };
        let member = |number| Member {
            node: boot(number, Vec::new(), hard_state, Vec::new()),
            inputs: Vec::new(),
            entries: Vec::new(),
            hard_state,
            notes: Vec::new(),
            answers: Vec::new(),
        };
        let mut world = Self {
            members: (0..3).map(member).collect(),
            now_us: SECOND_US,
            link: 0,
            links: BTreeMap::new(),
            holds_entries: false,
            loses_answers: false,
            admins_done: Vec::new(),
            admins_answered: Vec::new(),
            answers_sent: Vec::new(),
        };
        for (one, other) in [(0, 1), (0, 2), (1, 2)] {
            world.connect(one, other);
        }
        world.run_until("all follow one leader", |world| {
            let lead = world.members[0].node.lead().by;
            let agree = world.members.iter().all(|it| it.node.lead().by == lead);
            lead.is_some() && agree && world.members.iter().any(|it| it.node.replica().leads())
        });
        let leader = world.members.iter().position(|it| it.node.replica().leads()).unwrap();
        (world, leader, (leader + 1) % 3)
    }

    fn connect(&mut self, one: usize, other: usize) {
        self.link += 1;
        let link = LinkId(self.link);
        self.links.insert((id(one.min(other)), id(one.max(other))), link);
        for (at, member) in [(one, id(other)), (other, id(one))] {
            let level = tenure_core::LEVEL_MAX;
            self.members[at].inputs.push(Input::Linked { member, link, level });
        }
    }

    /// The connection between two members breaks, and they connect again.
    fn reconnect(&mut self, one: usize, other: usize) {
        let link = self.links[&(id(one.min(other)), id(one.max(other)))];
        for (at, member) in [(one, id(other)), (other, id(one))] {
            self.members[at].inputs.push(Input::Unlinked { member, link });
        }
        self.connect(one, other);
    }

    fn restart(&mut self, number: usize) {
        let member = &mut self.members[number];
        let (entries, notes) = (member.entries.clone(), member.notes.clone());
        member.node = boot(number, entries, member.hard_state, notes);
        member.inputs.clear();
        for other in (0..3).filter(|other| *other != number) {
            self.reconnect(number, other);
        }
    }

    fn submit(&mut self, number: usize, call: u64, lease: u64) {
        self.submit_request(number, call, grant_lease(lease));
    }

    fn submit_request(&mut self, number: usize, call: u64, request: Bytes) {
        let member = &mut self.members[number];
        let permit = member.node.admission().admit(Weight::Asks, request.len() as u64).unwrap();
        let batch = CommandBatch {
            requests: [request].into(),
            linger_us: 0,
            asked_at_us: self.now_us,
            deadline_us: self.now_us + DEADLINE_US,
            reply: ReplyTo::Call(CallId(call)),
            permit,
        };
        member.inputs.push(Input::Submit(Box::new(batch)));
    }

    /// From now on callers need an identity, and olga may do this everywhere.
    fn let_olga(&mut self, leader: usize, verb: Verb) {
        let rules = vec![NewRule { verbs: VerbSet::from_verbs(&[verb]), prefix: "", priority: 0 }];
        let (roles, quotas) = (vec!["some"], Quotas::default());
        let olga = NewPrincipal { name: "olga", enabled: true, roles, quotas };
        let commands = [
            Command::RaiseLevel { level: tenure_core::LEVEL_MAX },
            Command::SetAccess(AccessChange::PutRole { name: "some", rules }),
            Command::SetAccess(AccessChange::PutPrincipal(olga)),
            Command::SetAccess(AccessChange::SetIdentity { enabled: true }),
        ];
        for (call, command) in (1..).zip(commands) {
            self.submit_request(leader, call, encode(MEMBER, command));
            self.run_until("it is answered", |world| world.answer(leader, call).is_some());
            let outcomes = self.answer(leader, call).unwrap();
            assert!(outcomes[0].as_ref().is_ok_and(|it| it.result.is_ok()), "{outcomes:?}");
        }
        self.run_until("all know", |world| {
            world.members.iter().all(|it| it.node.machine().access().is_enabled())
        });
    }

    fn answer(&self, number: usize, call: u64) -> Option<&Outcomes> {
        let mut answers = self.members[number].answers.iter();
        answers.find(|(to, _)| *to == ReplyTo::Call(CallId(call))).map(|(_, outcomes)| outcomes)
    }

    fn run_until(&mut self, what: &str, is_done: impl Fn(&Self) -> bool) {
        let end_us = self.now_us + 60 * SECOND_US;
        while !is_done(self) {
            assert!(self.now_us < end_us, "not within a minute: {what}");
            self.step();
        }
    }

    fn step(&mut self) {
        self.now_us += STEP_US;
        let mut sent = Vec::new();
        // What is sent now goes over the links that there are now.
        let links = self.links.clone();
        for (number, member) in self.members.iter_mut().enumerate() {
            member.inputs.drain(..).for_each(|input| member.node.handle(input));
            let mut outputs = Vec::new();
            member.node.turn(self.now_us, &mut outputs, &mut ());
            for output in outputs {
                match output {
                    Output::Send { to, message } => sent.push((id(number), to, message)),
                    Output::Persist(persist) => member.write(*persist),
                    Output::Answer { to, outcomes } => member.answers.push((to, outcomes)),
                    Output::AdminDone { result, .. } => self.admins_done.push(result),
                    Output::Stop(stop) => panic!("member {number} stops: {stop}"),
                    _ => {}
                }
            }
        }
        for (from, to, message) in sent {
            if let PeerMessage::AdminAnswer { result, .. } = &message {
                self.admins_answered.push(*result);
            }
            if let PeerMessage::Answers { outcomes, .. } = &message {
                self.answers_sent.push(outcomes.clone());
            }
            if !self.is_lost(&message) {
                let at = usize::try_from(to.get() - 1).unwrap();
                let link = links[&(from.min(to), from.max(to))];
                self.members[at].inputs.push(Input::Peer { from, link, message });
            }
        }
    }

    fn is_lost(&self, message: &PeerMessage) -> bool {
        match message {
            PeerMessage::Answers { .. } => self.loses_answers,
            PeerMessage::Raft(Message::Step(step)) => {
                self.holds_entries && matches!(step.kind, StepKind::Append | StepKind::AppendAnswer)
            }
            _ => false,
        }
    }
}

impl Member {
    fn write(&mut self, persist: Persist) {
        if let Some(first) = persist.entries.first() {
            self.entries.retain(|entry| entry.index < first.index);
        }
        self.entries.extend(persist.entries);
        self.hard_state = persist.hard_state.unwrap_or(self.hard_state);
        self.notes = persist.notes.unwrap_or(std::mem::take(&mut self.notes));
        self.inputs.push(Input::Persisted { number: persist.number });
    }
}

/// A link that has no room for an answer breaks. The follower learns from that that the answer is lost, long before the
/// deadline of its caller, and its budget is free again.
#[cfg_attr(not(mutants), test)]
pub(crate) fn an_answer_that_did_not_fit_the_link_gives_the_budget_back() {
    let (mut world, leader, follower) = World::led();
    world.loses_answers = true;
    world.submit(follower, 1, 7);
    world.run_until("the follower has applied it", |world| {
        world.members[follower]
            .node
            .machine()
            .lease(LeaseRef::Id(LeaseId::new(7).unwrap()))
            .is_some()
    });
    assert_eq!(world.answer(follower, 1), None);
    assert_eq!(world.members[follower].node.admission().commands(), 1);
    world.loses_answers = false;
    world.reconnect(leader, follower);
    let began_us = world.now_us;
    world.run_until("the caller has an answer", |world| world.answer(follower, 1).is_some());
    assert!(world.now_us - began_us < SECOND_US, "S6: it waits for its deadline instead");
    assert_eq!(world.members[follower].node.admission().commands(), 0, "S6: the budget leaks");
}

/// An answer that is lost although the link stays costs the budget no longer than its caller waits.
#[cfg_attr(not(mutants), test)]
pub(crate) fn an_answer_that_is_lost_unnoticed_costs_the_budget_until_the_deadline() {
    let (mut world, _, follower) = World::led();
    world.loses_answers = true;
    world.submit(follower, 1, 7);
    let due_us = world.now_us + DEADLINE_US;
    world.run_until("the caller has an answer", |world| world.answer(follower, 1).is_some());
    assert_eq!(world.answer(follower, 1), Some(&vec![Err(NodeFailure::Unknown)]));
    assert!((due_us..due_us + SECOND_US / 2).contains(&world.now_us));
    assert_eq!(world.members[follower].node.admission().commands(), 0);
    assert_eq!(world.members[follower].node.in_flight(), 0);
}

/// Restarts a follower that has forwarded a command, and checks that its next command gets its own answer.
fn check_answer_after_restart(world: &mut World, leader: usize, follower: usize) {
    world.restart(follower);
    world.run_until("the follower knows the leader again", |world| {
        world.members[follower].node.lead().by == Some(id(leader))
    });
    world.submit(follower, 2, 8);
    (0..10).for_each(|_| world.step());
    world.holds_entries = false;
    world.run_until("the caller has an answer", |world| world.answer(follower, 2).is_some());
    let outcomes = world.answer(follower, 2).unwrap();
    let Some(Ok(outcome)) = outcomes.first() else { panic!("{outcomes:?}") };
    let Ok(Answer::LeaseGranted(granted)) = &outcome.result else { panic!("{outcome:?}") };
    assert_eq!(granted.id.get(), 8, "S13: the answer is that of another command");
}

/// A member counts the commands that it forwards anew at each start, so the leader must not answer those of an earlier
/// start.
#[cfg_attr(not(mutants), test)]
pub(crate) fn an_answer_to_an_earlier_start_is_not_taken_for_a_later_one() {
    let (mut world, leader, follower) = World::led();
    world.holds_entries = true;
    world.submit(follower, 1, 7);
    world.run_until("the leader has it", |world| world.members[leader].node.in_flight() == 1);
    check_answer_after_restart(&mut world, leader, follower);
}

/// The same if the leader has not even taken the command when the member connects again.
#[cfg_attr(not(mutants), test)]
pub(crate) fn a_command_of_an_earlier_start_is_not_answered_to_a_later_one() {
    let (mut world, leader, follower) = World::led();
    world.holds_entries = true;
    world.submit(follower, 1, 7);
    // It is sent, and lies in the leader's inputs.
    world.step();
    check_answer_after_restart(&mut world, leader, follower);
}

/// An admin request is no command, so `apply` does not decide about it. Both the member that is asked and the leader
/// do, with the principal that the request carries.
#[test]
fn the_leader_authorises_a_forwarded_admin_request_by_its_principal() {
    let (mut world, leader, follower) = World::led();
    world.let_olga(leader, Verb::Operate);
    let forbidden = Err(NodeFailure::Forbidden { verb: Some(Verb::Operate) });
    let request = AdminRequest::Transfer(id(follower));
    let ask = |world: &mut World, principal: Principal| {
        let deadline_us = world.now_us + DEADLINE_US;
        let (admin, request) = (AdminId(1), request.clone());
        let input = Input::Admin { admin, principal, request, deadline_us };
        world.members[follower].inputs.push(input);
        world.run_until("it is answered", |world| !world.admins_done.is_empty());
        world.admins_done.remove(0)
    };
    // The follower refuses it by itself.
    assert_eq!(ask(&mut world, Principal::named("ana").unwrap()), forbidden);
    assert_eq!(ask(&mut world, Principal::anyone()), forbidden);
    assert!(world.admins_answered.is_empty(), "nothing was forwarded");
    // A follower that did not refuse it, because it is behind, does not decide for the leader.
    for principal in [Some("ana".to_owned()), Some(String::new()), None] {
        let (number, request) = (77, request.clone());
        let message = PeerMessage::Admin { number, principal, request };
        let from = id(follower);
        let link = world.links[&(id(leader.min(follower)), id(leader.max(follower)))];
        world.members[leader].inputs.push(Input::Peer { from, link, message });
        world.run_until("it is answered", |world| !world.admins_answered.is_empty());
        assert_eq!(world.admins_answered.remove(0), forbidden);
    }
    assert!(world.members[leader].node.replica().leads());
    assert_eq!(ask(&mut world, Principal::named("olga").unwrap()), Ok(()));
    assert_eq!(world.admins_answered, [Ok(())]);
}

/// The member that forwards authorises by a state that may be older than the leader's, so one command of a batch may be
/// refused here. The others are for the follower to send again.
#[test]
fn a_refused_command_does_not_refuse_the_others_of_its_batch() {
    let (mut world, leader, follower) = World::led();
    world.let_olga(leader, Verb::Keys);
    let delete = |principal| {
        encode(principal, Command::Delete { key: "k", expect: Expect::Any, guard: None })
    };
    let requests = vec![delete("olga"), delete("ana")];
    let message = PeerMessage::Commands { number: 99, linger_us: 0, within_us: None, requests };
    let link = world.links[&(id(leader.min(follower)), id(leader.max(follower)))];
    world.members[leader].inputs.push(Input::Peer { from: id(follower), link, message });
    world.answers_sent.clear();
    world.run_until("it is answered", |world| !world.answers_sent.is_empty());
    let [olga, ana] = &world.answers_sent[0][..] else { panic!("{:?}", world.answers_sent) };
    let not_done = RejectReason::NotLeader { leader: Some(id(leader)) };
    assert_eq!(*olga, Err(NodeFailure::Rejected(not_done)), "it is not refused");
    assert_eq!(*ana, Err(NodeFailure::Forbidden { verb: Some(Verb::Keys) }));
}
