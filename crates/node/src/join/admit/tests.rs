//! Tests joins, announcements, removals, and the snapshot that a joiner gets, with whole members in memory.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use tenure_core::{Machine, SnapshotReader};
use tenure_raft::{Boot, Membership, Replica, SnapshotDelivery};
use tenure_store::{HardState, LogId, SnapshotId};
use tenure_types::Epoch;

use super::*;
use crate::admission::Admission;
use crate::control::MemberInfo;
use crate::invitation::{self, InvitationToken, NewInvitation, TOKEN_BYTES};
use crate::io::{Input, LinkId};
use crate::join::MemberIdentity;
use crate::lineage::{Incarnation, Lineage};
use crate::node::NodeConfig;
use crate::peer::PeerMessage;
use crate::principal::Principal;
use crate::transfer::SnapshotUnreadable;

mod call_back;
mod invitations;
mod standing;

const TICK_US: u64 = 10_000;
/// Members with ids up to this one have an invitation each, from the beginning.
const INVITED: u64 = 300;

struct JoinCluster {
    now_us: u64,
    nodes: BTreeMap<MemberId, Node>,
    answers: BTreeMap<u64, Control>,
    asked: u64,
    stops: BTreeMap<MemberId, Stop>,
    questions: Vec<(MemberId, MemberId, String, Control)>,
    /// Each member's snapshots: their bytes and members.
    disks: BTreeMap<MemberId, Vec<(SnapshotId, Bytes, Membership)>>,
    parts: BTreeMap<MemberId, Vec<u8>>,
    cut: Vec<MemberId>,
    damaged: u32,
    endings: Vec<crate::transfer::TransferEnd>,
    level: u16,
    /// Members that were called back. `call_back` gives the answer of each; none if it does not answer.
    called: Vec<MemberId>,
    call_back: fn(MemberRecord) -> Option<Result<Control, String>>,
}

/// The answer of the member that the record names.
fn is_there(record: MemberRecord) -> Option<Result<Control, String>> {
    Some(Ok(Control::MemberInfo(MemberInfo::new(record.id, record.names, tenure_core::LEVEL_MAX))))
}

fn id(number: u64) -> MemberId {
    MemberId::new(number).unwrap()
}

fn record(number: u64) -> MemberRecord {
    let text = format!("m{number} h:{number} c:{number}");
    MemberRecord { id: id(number), names: MemberNames::parse(&text).unwrap() }
}

fn lineage() -> Lineage {
    let (epoch, incarnation) = (Epoch::default(), Incarnation(0));
    Lineage { cluster: "c".into(), epoch, incarnation }
}

fn request(record: MemberRecord) -> Join {
    let invitation = Some(token(record.id.get()));
    Join { record, level: tenure_core::LEVEL_MAX, lineage: None, invitation }
}

fn token(number: u64) -> InvitationToken {
    let mut random = [7; TOKEN_BYTES];
    random[..8].copy_from_slice(&number.to_be_bytes());
    random[8..16].copy_from_slice(&number.to_be_bytes());
    InvitationToken::new(random)
}

fn invitation(number: u64) -> NewInvitation {
    NewInvitation {
        token: token(number),
        expires_ms: invitation::EXPIRES_DEFAULT_MS,
        member: None,
        incarnation: lineage().incarnation,
    }
}

fn certified(name: &str) -> PeerName {
    PeerName::Certified(vec!["other".into(), name.into()])
}

impl JoinCluster {
    fn of(voters: u64) -> Self {
        let initial_members: Vec<MemberRecord> = (1..=voters).map(record).collect();
        let members = Membership::of_voters(initial_members.iter().map(|record| record.id));
        let first = directory::first_state(&initial_members, 1, Epoch::default()).encode();
        let mut cluster = Self {
            now_us: 0,
            nodes: BTreeMap::new(),
            answers: BTreeMap::new(),
            asked: 0,
            stops: BTreeMap::new(),
            questions: Vec::new(),
            disks: BTreeMap::new(),
            parts: BTreeMap::new(),
            cut: Vec::new(),
            damaged: 0,
            endings: Vec::new(),
            level: tenure_core::LEVEL_MAX,
            called: Vec::new(),
            call_back: is_there,
        };
        for initial_member in initial_members {
            let mut reader = SnapshotReader::knowing(tenure_core::LEVEL_MAX);
            reader.push(&first).unwrap();
            let point = tenure_raft::FIRST;
            let hard_state = HardState { term: point.term, vote: None, commit: point.index };
            let boot = Boot {
                machine: reader.finish().unwrap(),
                applied: point,
                members: members.clone(),
                base: point,
                entries: vec![],
                hard_state,
                notes: vec![],
                cut: None,
                given: BTreeSet::new(),
            };
            cluster.start(initial_member, boot);
        }
        cluster.run(2_000);
        cluster.invite((1..=INVITED).map(invitation));
        cluster
    }

    /// Writes invitations, as an operator's command does.
    fn invite(&mut self, invitations: impl IntoIterator<Item = NewInvitation>) {
        let leader = self.leader();
        let node = self.nodes.get_mut(&leader).unwrap();
        let clock_ms = node.machine().clock_ms();
        let requests = invitations.into_iter().map(|it| it.put(clock_ms).into()).collect();
        let (proposal, linger_us, deadline_us) = (NO_CALLER, 0, u64::MAX);
        node.replica.handle(RaftInput::Submit { proposal, requests, linger_us, deadline_us });
        self.run(200);
    }

    fn start(&mut self, record: MemberRecord, boot: Boot) {
        let replica =
            Replica::new(tenure_raft::ReplicaConfig::new(record.id), boot, record.id.get())
                .unwrap();
        let level_known = tenure_core::LEVEL_MAX;
        let member = record.id;
        let identity = MemberIdentity { record, lineage: lineage(), level_known, given: vec![] };
        let config = NodeConfig {
            command_bytes_max: 1 << 20,
            admission: Admission::default(),
            identity: Some(identity),
            chunk_bytes: crate::transfer::CHUNK_BYTES,
        };
        self.nodes.insert(member, Node::new(replica, config));
        let others: Vec<MemberId> = self.nodes.keys().copied().collect();
        for other in others.into_iter().filter(|other| *other != member) {
            self.link(member, other);
        }
    }

    /// A member that has joined and has no state.
    fn start_empty(&mut self, record: MemberRecord) {
        let boot = Boot {
            machine: Machine::new(Epoch::default()),
            applied: LogId::default(),
            members: Membership::default(),
            base: LogId::default(),
            entries: vec![],
            hard_state: HardState { term: 0, vote: None, commit: 0 },
            notes: vec![],
            cut: None,
            given: self.nodes.keys().copied().collect(),
        };
        self.start(record, boot);
    }

    fn link(&mut self, a: MemberId, b: MemberId) {
        self.asked += 1;
        let (link, level) = (LinkId(self.asked), self.level);
        for (at, member) in [(a, b), (b, a)] {
            let node = self.nodes.get_mut(&at).unwrap();
            node.handle(Input::Linked { member, link, level });
        }
    }

    fn leader(&self) -> MemberId {
        let serves =
            |(id, node): (&MemberId, &Node)| node.replica().status().serving.then_some(*id);
        self.nodes.iter().find_map(serves).expect("one leads")
    }

    fn other(&self) -> MemberId {
        *self.nodes.keys().find(|id| **id != self.leader()).unwrap()
    }

    fn run(&mut self, ms: u64) {
        for _ in 0..ms * 1_000 / TICK_US {
            self.now_us += TICK_US;
            let mut inputs = VecDeque::new();
            for (at, node) in &mut self.nodes {
                let mut outputs = Vec::new();
                node.turn(self.now_us, &mut outputs, &mut ());
                inputs.extend(outputs.into_iter().map(|output| (*at, output)));
            }
            for (at, output) in inputs {
                self.perform(at, output);
            }
        }
    }

    fn hand(&mut self, at: MemberId, input: Input) {
        if let Some(node) = self.nodes.get_mut(&at) {
            node.handle(input);
        }
    }

    fn perform(&mut self, at: MemberId, output: Output) {
        match output {
            Output::Send { to, message } if !self.cut.contains(&to) && !self.cut.contains(&at) => {
                let message = PeerMessage::decode(&Bytes::from(message.encode())).unwrap();
                let link = LinkId::default();
                self.hand(to, Input::Peer { from: at, link, message });
            }
            Output::Persist(persist) => {
                self.hand(at, Input::Persisted { number: persist.number });
            }
            Output::CallBack { join, record } => {
                self.called.push(record.id);
                if let Some(answer) = (self.call_back)(*record) {
                    self.hand(at, Input::CalledBack { join, answer: answer.map(Box::new) });
                }
            }
            Output::JoinAnswer { join, answer } => {
                assert!(self.answers.insert(join.0, *answer).is_none(), "one answer");
            }
            Output::Stop(stop) => drop(self.stops.insert(at, stop)),
            Output::AskStanding { of, address, name, question } => {
                assert!(name.starts_with('m'));
                self.questions.push((at, of, address, *question));
            }
            Output::SaveSnapshot { point, meta, frozen } => {
                let mut bytes = Vec::new();
                frozen.write(&mut |part| bytes.extend_from_slice(part));
                let members = Membership::decode(&meta).unwrap();
                let snapshot = SnapshotId { point, bytes: bytes.len() as u64, checksum: 0 };
                self.disks.entry(at).or_default().push((snapshot, bytes.into(), members));
                self.hand(at, Input::SnapshotSaved { point, saved: SnapshotDelivery::Delivered });
            }
            Output::FindSnapshot { to, point } => {
                let found = self.disks.get(&at).and_then(|disk| {
                    disk.iter().rev().find(|(snapshot, ..)| snapshot.point == point)
                });
                let id = found.map(|(snapshot, ..)| *snapshot);
                self.hand(at, Input::SnapshotFound { to, point, id });
            }
            Output::ReadChunk { to, id, offset, len } => {
                let disk = &self.disks[&at];
                let (_, bytes, _) = disk.iter().rev().find(|(other, ..)| *other == id).unwrap();
                let at_byte = |offset: u64| usize::try_from(offset).unwrap();
                let bytes = match self.damaged {
                    0 => Ok(bytes.slice(at_byte(offset)..at_byte(offset + len))),
                    _ => Err(SnapshotUnreadable::Damaged),
                };
                self.damaged = self.damaged.saturating_sub(1);
                self.hand(at, Input::ChunkRead { to, id, offset, bytes });
            }
            Output::OpenTransfer { number, .. } => {
                self.parts.insert(at, Vec::new());
                self.hand(at, Input::ChunkWritten { number, have: 0 });
            }
            Output::WriteChunk { number, offset, bytes, .. } => {
                let part = self.parts.get_mut(&at).unwrap();
                assert_eq!(part.len() as u64, offset);
                part.extend_from_slice(&bytes);
                let have = part.len() as u64;
                self.hand(at, Input::ChunkWritten { number, have });
            }
            Output::FinishTransfer { from, id, step, .. } => {
                let bytes = self.parts.remove(&at).unwrap();
                let sent = self.disks[&from].iter().rev().find(|(other, ..)| *other == id).unwrap();
                assert_eq!(&bytes[..], &sent.1[..]);
                let (step, members) = (Box::new(step), Box::new(sent.2.clone()));
                let mut reader = SnapshotReader::knowing(tenure_core::LEVEL_MAX);
                reader.push(&bytes).unwrap();
                let machine = Box::new(reader.finish().unwrap());
                self.hand(at, Input::SnapshotReceived { from, step: *step, machine, members });
            }
            Output::TransferEnded { ending, .. } => self.endings.push(ending),
            _ => {}
        }
    }

    /// Asks a member to add another, and waits for the answer.
    fn join(&mut self, at: MemberId, request: Join, peer_name: PeerName) -> Control {
        self.asked += 1;
        let join = JoinId(self.asked);
        self.hand(at, Input::Join { join, request: Box::new(request), peer_name });
        for _ in 0..1_000 {
            self.run(10);
            if let Some(answer) = self.answers.remove(&join.0) {
                return answer;
            }
        }
        panic!("no answer");
    }

    fn join_plain(&mut self, record: MemberRecord) -> Control {
        let leader = self.leader();
        self.join(leader, request(record), PeerName::Plain)
    }

    fn names(&self, number: u64) -> Option<MemberNames> {
        directory::read(self.nodes[&self.leader()].machine()).remove(&id(number))
    }

    fn change(&mut self, change: MembershipChange) {
        self.asked += 1;
        let leader = self.leader();
        let admin = crate::io::AdminId(self.asked);
        let request = AdminRequest::Change(vec![change]);
        let principal = Principal::anyone();
        let deadline_us = u64::MAX;
        self.hand(leader, Input::Admin { admin, principal, request, deadline_us });
        self.run(500);
    }
}

fn is_refused(answer: &Control, words: &str) -> bool {
    matches!(answer, Control::Refused(why) | Control::Rejected(why) if why.contains(words))
}

fn moved(number: u64, address: &str) -> MemberRecord {
    let mut record = record(number);
    record.names.members = address.into();
    record
}

#[test]
fn a_member_joins_and_gets_the_state_in_chunks() {
    let mut cluster = JoinCluster::of(3);
    let answer = cluster.join_plain(record(4));
    let Control::Joined { lineage: told, directory, .. } = answer else { panic!("{answer:?}") };
    assert_eq!((told, directory.len()), (lineage(), 4));
    cluster.start_empty(record(4));
    cluster.run(2_000);
    let node = &cluster.nodes[&id(4)];
    assert!(node.replica().members().learners.contains(&id(4)));
    let leader = &cluster.nodes[&cluster.leader()];
    assert_eq!(node.replica().status().applied, leader.replica().status().applied);
    assert_eq!(cluster.endings, [crate::transfer::TransferEnd::Arrived]);
}

#[test]
fn a_damaged_snapshot_is_replaced_and_then_arrives() {
    let mut cluster = JoinCluster::of(1);
    cluster.damaged = 1;
    assert!(matches!(cluster.join_plain(record(2)), Control::Joined { .. }));
    cluster.start_empty(record(2));
    cluster.run(5_000);
    assert_eq!(cluster.endings.first(), Some(&crate::transfer::TransferEnd::Damaged));
    assert_eq!(cluster.endings.last(), Some(&crate::transfer::TransferEnd::Arrived));
    assert!(cluster.disks[&id(1)].len() >= 2, "a second snapshot was written");
    assert!(cluster.nodes[&id(2)].replica().members().contains(id(2)));
}

#[test]
fn a_stranger_cannot_take_over_a_voters_address() {
    let mut cluster = JoinCluster::of(3);
    let before = cluster.names(2);
    let answer = cluster.join_plain(moved(2, "evil:1"));
    assert!(is_refused(&answer, "is in the cluster"), "{answer:?}");
    // A certificate of the members' authority for another name does not suffice either.
    let mut thief = moved(2, "evil:1");
    thief.names.name = "other".into();
    let leader = cluster.leader();
    let answer = cluster.join(leader, request(thief), certified("other"));
    assert!(is_refused(&answer, "is in the cluster"), "{answer:?}");
    assert_eq!(cluster.names(2), before);
}

#[test]
fn a_member_changes_its_address_with_its_certificate() {
    let mut cluster = JoinCluster::of(3);
    let leader = cluster.leader();
    let answer = cluster.join(leader, request(moved(2, "new:1")), certified("m2"));
    assert!(matches!(answer, Control::Joined { .. }), "{answer:?}");
    let answer = cluster.join(leader, request(moved(4, "new:4")), certified("m5"));
    assert!(is_refused(&answer, "the certificate is not for `m4`"), "{answer:?}");
}

#[test]
fn a_restarted_member_announces_its_new_address_over_its_link() {
    let mut cluster = JoinCluster::of(3);
    let mover = cluster.other();
    let record = moved(mover.get(), "new:9");
    let node = cluster.nodes.get_mut(&mover).unwrap();
    node.config.identity.as_mut().unwrap().record = record.clone();
    cluster.run(1_500);
    assert_eq!(cluster.names(mover.get()), Some(record.names));
    // The leader announces its own, too.
    let leader = cluster.leader();
    let record = moved(leader.get(), "new:8");
    let node = cluster.nodes.get_mut(&leader).unwrap();
    node.config.identity.as_mut().unwrap().record = record.clone();
    cluster.run(1_500);
    assert_eq!(cluster.names(leader.get()), Some(record.names));
}

#[test]
fn an_announcement_counts_only_for_its_sender_and_never_takes_a_name() {
    let mut cluster = JoinCluster::of(3);
    let (leader, other) = (cluster.leader(), cluster.other());
    let before = cluster.names(other.get());
    let names = record(leader.get()).names;
    let message = PeerMessage::Announce { names: Box::new(names.clone()) };
    let link = LinkId::default();
    cluster.hand(leader, Input::Peer { from: other, link, message });
    let message =
        PeerMessage::Announce { names: Box::new(MemberNames { name: "z".into(), ..names }) };
    cluster.hand(leader, Input::Peer { from: id(99), link, message });
    cluster.run(1_000);
    assert_eq!(cluster.names(other.get()), before);
    assert_eq!(cluster.names(99), None);
}

#[test]
fn a_name_that_another_member_has_is_refused() {
    let mut cluster = JoinCluster::of(3);
    let mut twin = record(4);
    twin.names.name = "m2".into();
    let answer = cluster.join_plain(twin);
    assert!(is_refused(&answer, "is called `m2` already"), "{answer:?}");
}

#[test]
fn addresses_that_cannot_be_dialled_are_refused() {
    let mut cluster = JoinCluster::of(1);
    for bad in ["-", "h:0", "0.0.0.0:7", "h"] {
        let answer = cluster.join_plain(moved(4, bad));
        assert!(is_refused(&answer, "cannot dial"), "{bad}: {answer:?}");
    }
    assert_eq!(cluster.names(4), None);
}

#[test]
fn a_follower_names_the_leader_and_an_older_member_is_refused() {
    let mut cluster = JoinCluster::of(3);
    let (leader, other) = (cluster.leader(), cluster.other());
    let answer = cluster.join(other, request(record(4)), PeerName::Plain);
    assert_eq!(answer, Control::Elsewhere(record(leader.get()).names.members));
    let old = Join { level: 0, ..request(record(4)) };
    let answer = cluster.join(leader, old, PeerName::Plain);
    assert!(is_refused(&answer, "knows up to 0"), "{answer:?}");
    let foreign = Lineage { cluster: "d".into(), ..lineage() };
    let foreign = Join { lineage: Some(foreign), ..request(record(4)) };
    let answer = cluster.join(leader, foreign, PeerName::Plain);
    assert!(is_refused(&answer, "of another cluster than d"), "{answer:?}");
}

#[test]
fn strangers_cannot_fill_the_cluster_at_once() {
    let mut cluster = JoinCluster::of(1);
    let leader = cluster.leader();
    for number in 100..200 {
        cluster.asked += 1;
        let join = JoinId(cluster.asked);
        let (request, peer_name) = (request(record(number)), PeerName::Plain);
        cluster.hand(leader, Input::Join { join, request: Box::new(request), peer_name });
    }
    cluster.run(1_000);
    let added = cluster.answers.values().filter(|it| matches!(it, Control::Joined { .. })).count();
    assert_eq!((added, cluster.answers.len()), (1, 100));
    assert_eq!(
        directory::read(cluster.nodes[&leader].machine()).len(),
        2,
        "no records are left over"
    );
    assert!(is_refused(&cluster.join_plain(record(300)), "added just now"));
    cluster.run(GAP_US / 1_000);
    assert!(matches!(cluster.join_plain(record(300)), Control::Joined { .. }));
}

#[test]
fn a_learner_that_was_never_there_may_come_back_elsewhere() {
    let mut cluster = JoinCluster::of(3);
    assert!(matches!(cluster.join_plain(record(4)), Control::Joined { .. }));
    assert!(
        matches!(cluster.join_plain(record(4)), Control::Joined { .. }),
        "asking again is harmless"
    );
    // In plaintext only the invitation proves that it is the same member.
    let leader = cluster.leader();
    let stranger = Join { invitation: None, ..request(moved(4, "evil:4")) };
    let answer = cluster.join(leader, stranger, PeerName::Plain);
    assert!(is_refused(&answer, "is in the cluster"), "{answer:?}");
    assert!(matches!(cluster.join_plain(moved(4, "new:4")), Control::Joined { .. }));
    cluster.start_empty(moved(4, "new:4"));
    cluster.run(2_000);
    let answer = cluster.join_plain(moved(4, "evil:4"));
    assert!(is_refused(&answer, "is in the cluster"), "{answer:?}");
}

#[test]
fn without_a_quorum_a_join_is_answered_in_time() {
    let mut cluster = JoinCluster::of(3);
    let leader = cluster.leader();
    let others: Vec<_> = cluster.nodes.keys().copied().filter(|it| *it != leader).collect();
    cluster.cut.extend(others);
    let answer = cluster.join(leader, request(record(4)), PeerName::Plain);
    assert!(matches!(answer, Control::Refused(_)), "{answer:?}");
}

#[test]
fn an_older_receiver_is_sent_its_snapshot_in_the_older_way() {
    let mut cluster = JoinCluster::of(1);
    cluster.level = 1;
    assert!(matches!(cluster.join_plain(record(2)), Control::Joined { .. }));
    cluster.start_empty(record(2));
    cluster.run(2_000);
    assert!(cluster.endings.is_empty());
    assert!(!cluster.nodes[&id(2)].replica().members().contains(id(2)));
}
