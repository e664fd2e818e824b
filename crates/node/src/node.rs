//! Drives one member: takes inputs, ends turns, and returns what has to happen outside.

use std::collections::{BTreeMap, BTreeSet};

use tenure_core::Machine;
use tenure_raft::{
    MemberId, Membership, MembershipChange, Message, ProposalId, RejectReason, Replica,
    ReplicaInput as RaftInput, ReplicaOutput as RaftOutput, Stop,
};
use tenure_types::Revision;

use crate::admin::Admins;
use crate::admission::Admission;
use crate::directory;
use crate::failure::NodeFailure;
use crate::in_flight::InFlight;
use crate::io::{AdminRequest, Input, KnownLeader, LinkId, NodeObserver, Output};
use crate::join::MemberIdentity;
use crate::join::admit::Joins;
use crate::join::standing::StandingCheck;
use crate::peer::PeerMessage;
use crate::preference::Chooser;
use crate::reads::WaitingReads;
use crate::share::ConnectionShare;
use crate::timers::Timers;
use crate::transfer::drive::Transfers;

/// How long requests wait for a leader when none is known: longer than an election with a split vote. A
/// member that has known of no leader for this time answers at once that there is none.
pub const LEADER_WAIT_US: u64 = 3_000_000;
/// How old the last message of a member may be that counts as up: 60 heartbeats, and several rounds of an election.
pub(crate) const CONTACT_US: u64 = 3_000_000;
/// The most entries that a learner may lack when it gets a vote: until it has caught up, the majority would have one
/// member less than it seems.
const BEHIND_MAX: u64 = 1_000;
/// How often the directory is read again while the state changes.
const DIRECTORY_US: u64 = 500_000;
/// The proposal id of requests whose result no caller waits for; others count from 1.
pub(crate) const NO_CALLER: ProposalId = ProposalId(0);

/// The settings of a node.
pub struct NodeConfig {
    /// The largest command that the log takes, in bytes.
    pub command_bytes_max: usize,
    /// The budget for requests in flight.
    pub admission: Admission,
    /// The identity that the member presents to others; none for a member that stays alone and adds no members.
    pub identity: Option<MemberIdentity>,
    /// The part of a snapshot in one message: [`CHUNK_BYTES`](crate::transfer::CHUNK_BYTES), or less where snapshots
    /// are small.
    pub chunk_bytes: u64,
}

/// One member above the log.
pub struct Node {
    pub(crate) config: NodeConfig,
    pub(crate) replica: Replica,
    pub(crate) now_us: u64,
    pub(crate) lead: KnownLeader,
    /// The time since which no leader is known.
    pub(crate) leaderless_us: Option<u64>,
    /// When the known leader last changed: since then this member hears from other members than before.
    lead_changed_us: u64,
    pub(crate) links: BTreeMap<MemberId, PeerLink>,
    /// What each member that forwards commands has in flight here.
    pub(crate) shares: BTreeMap<MemberId, ConnectionShare>,
    /// Inputs that need the time of their turn.
    waiting: Vec<Input>,
    pub(crate) in_flight: InFlight,
    pub(crate) reads: WaitingReads,
    pub(crate) admins: Admins,
    pub(crate) joins: Joins,
    pub(crate) standing: StandingCheck,
    pub(crate) transfers: Transfers,
    pub(crate) timers: Timers,
    pub(crate) staged: Vec<Output>,
    raft_outputs: Vec<RaftOutput>,
    /// Something was handed to the replica after its turn.
    pub(crate) again: bool,
    directory: ToldMembers,
    pub(crate) chooser: Chooser,
    /// When this member last proposed to raise the level.
    pub(crate) raised_at_us: Option<u64>,
    pub(crate) leaving: Option<MemberStop>,
    /// The index of a snapshot that the replica was handed and may install.
    arriving: Option<u64>,
    ignored: u64,
}

/// A connection to another member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PeerLink {
    pub(crate) link: LinkId,
    /// The newest level of the machine's rules that the other member knows.
    pub(crate) level: u16,
    /// Whether a message has arrived since the last turn.
    heard: bool,
    /// When the last message arrived, by the turn that took it.
    heard_us: u64,
}

/// The members and addresses that were last told.
#[derive(Default)]
struct ToldMembers {
    told: bool,
    members: Membership,
    vouched: BTreeSet<MemberId>,
    revision: Revision,
    at_us: u64,
}

/// A member that is about to end.
pub(crate) struct MemberStop {
    pub(crate) until_us: u64,
    pub(crate) told: bool,
}

impl Node {
    /// A node around a replica that has not turned yet.
    pub fn new(replica: Replica, config: NodeConfig) -> Self {
        let transfers = Transfers::new(config.chunk_bytes);
        Self {
            config,
            replica,
            now_us: 0,
            lead: KnownLeader::default(),
            leaderless_us: None,
            lead_changed_us: 0,
            links: BTreeMap::new(),
            shares: BTreeMap::new(),
            waiting: Vec::new(),
            in_flight: InFlight::default(),
            reads: WaitingReads::default(),
            admins: Admins::default(),
            joins: Joins::default(),
            standing: StandingCheck::default(),
            transfers,
            timers: Timers::default(),
            staged: Vec::new(),
            raft_outputs: Vec::new(),
            again: false,
            directory: ToldMembers::default(),
            chooser: Chooser::default(),
            raised_at_us: None,
            leaving: None,
            arriving: None,
            ignored: 0,
        }
    }

    /// The replica, for inspection.
    pub fn replica(&self) -> &Replica {
        &self.replica
    }

    /// The machine, for queries.
    pub fn machine(&self) -> &Machine {
        self.replica.machine()
    }

    /// A frozen copy of the state, to be written while the machine goes on.
    pub fn freeze(&mut self) -> (tenure_store::LogId, u16, Revision, tenure_core::Frozen) {
        self.replica.freeze()
    }

    /// The leader as this member knows it.
    pub fn lead(&self) -> KnownLeader {
        self.lead
    }

    /// Messages that were ignored because their sender is no member of the cluster.
    pub fn ignored(&self) -> u64 {
        self.ignored
    }

    /// The members with which this one is in contact: there is a connection, and if the other end has cause to speak,
    /// its last message is at most three seconds old. A connection alone proves little: the operating system keeps
    /// that of a process that hangs.
    pub fn in_contact(&self) -> impl Iterator<Item = MemberId> {
        let is_recent = |id: MemberId, link: &PeerLink| {
            let since_us = link.heard_us.max(self.lead_changed_us);
            !self.expects_messages(id) || self.now_us.saturating_sub(since_us) <= CONTACT_US
        };
        let near = self.links.iter().filter(move |(id, link)| is_recent(**id, link));
        near.map(|(id, _)| *id)
    }

    /// Whether a member that works sends messages to this one all the time: everyone answers the leader's heartbeats,
    /// the leader sends them, and voters without a leader ask each other for votes.
    fn expects_messages(&self, id: MemberId) -> bool {
        let voters = &self.replica.members().voters;
        match self.lead.by {
            Some(leader) => leader == self.id() || leader == id,
            None => voters.contains(&self.id()) && voters.contains(&id),
        }
    }

    /// Attempts to have commands applied that are not answered yet.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// The number of commands covered by the permits of unanswered attempts.
    pub fn held_commands(&self) -> u64 {
        self.in_flight.held_commands()
    }

    /// The budget for requests in flight.
    pub fn admission(&self) -> &Admission {
        &self.config.admission
    }

    pub(crate) fn id(&self) -> MemberId {
        self.replica.id()
    }

    /// Takes an input. Its consequences come out of the next [`Node::turn`].
    pub fn handle(&mut self, input: Input) {
        if let Input::Peer { from, .. } = &input
            && let Some(link) = self.links.get_mut(from)
        {
            link.heard = true;
        }
        let input = match input {
            Input::Peer { from, message: PeerMessage::Raft(message), .. } => {
                if self.lead.by == Some(from) && matches!(message, Message::Step(_)) {
                    self.standing.heard_leader();
                }
                RaftInput::Message { from, message }
            }
            input @ (Input::Peer { .. }
            | Input::Submit(_)
            | Input::Read { .. }
            | Input::Admin { .. }
            | Input::Unlinked { .. }
            | Input::Join { .. }
            | Input::CalledBack { .. }
            | Input::StandingAnswer { .. }
            | Input::SnapshotFound { .. }
            | Input::ChunkRead { .. }
            | Input::ChunkWritten { .. }
            | Input::TransferFailed { .. }
            | Input::Leave) => return self.waiting.push(input),
            Input::Linked { member, link, level } => {
                self.links.insert(member, PeerLink { link, level, heard: true, heard_us: 0 });
                self.forget_forwarded(member);
                self.forget_forwarded_admins(member);
                self.replica.handle(RaftInput::Knows { member, level });
                self.transfers_linked(member, level);
                RaftInput::Linked { member }
            }
            Input::Unreachable { member } => RaftInput::Unreachable { member },
            Input::Persisted { number } => RaftInput::Persisted { number },
            Input::SnapshotSaved { point, saved } => RaftInput::SnapshotSaved { point, saved },
            Input::SnapshotReceived { from, step, machine, members } => {
                self.arriving = step.snapshot.as_ref().map(|head| head.point.index);
                if let Some(head) = &step.snapshot {
                    self.transfer_received(head.point);
                }
                RaftInput::SnapshotReceived { from, step, machine, members }
            }
            Input::SnapshotSent { to, saved } => RaftInput::SnapshotSent { to, saved },
            Input::Space(space) => RaftInput::Space(space),
            Input::WallClock(wall) => RaftInput::WallClock(wall),
        };
        self.replica.handle(input);
    }

    /// Ends a turn: does everything that the inputs taken so far call for. `now_us` is the member's monotonic
    /// clock, read after the last of them was taken.
    ///
    /// Returns the latest time at which the next turn is due, by the same clock.
    pub fn turn(
        &mut self,
        now_us: u64,
        out: &mut Vec<Output>,
        observer: &mut impl NodeObserver,
    ) -> u64 {
        self.now_us = self.now_us.max(now_us);
        for link in self.links.values_mut().filter(|link| link.heard) {
            (link.heard, link.heard_us) = (false, self.now_us);
        }
        self.leaderless_us = match self.lead.by {
            None => self.leaderless_us.or(Some(self.now_us)),
            Some(_) => None,
        };
        let mut waiting = std::mem::take(&mut self.waiting);
        for input in waiting.drain(..) {
            self.take(input, observer);
        }
        // Keeps the memory for the next turn.
        self.waiting = waiting;
        self.expire();
        self.turn_transfers();
        let mut raft_outputs = std::mem::take(&mut self.raft_outputs);
        // The replica's turn covers everything that it was handed before.
        self.again = false;
        let wake_us = self.replica.turn(now_us, &mut raft_outputs);
        out.append(&mut self.staged);
        for output in raft_outputs.drain(..) {
            self.pass_on(output, out, observer);
        }
        self.raft_outputs = raft_outputs;
        self.tell_skipped(out);
        self.tell_directory(out);
        self.choose_leader();
        self.raise_level();
        self.keep_standing();
        self.serve_reads(out);
        self.may_end(out);
        out.append(&mut self.staged);
        if self.standing.take_removed() {
            out.push(Output::Stop(Stop::Removed));
        }
        if self.again {
            return self.now_us;
        }
        let wake_us = wake_us.min(self.transfers.outgoing.wake_us());
        self.timers.next_us().map_or(wake_us, |next_us| wake_us.min(next_us)).max(self.now_us)
    }

    /// Ends the member: answers every caller that still waits.
    pub fn end(&mut self, out: &mut Vec<Output>) {
        self.end_attempts();
        self.end_reads();
        self.end_admins();
        self.end_joins();
        out.append(&mut self.staged);
    }

    fn take(&mut self, input: Input, observer: &mut impl NodeObserver) {
        match input {
            Input::Submit(batch) => self.submit(batch, observer),
            Input::Peer { from, link, message } => {
                if !self.is_over_an_earlier_link(from, link, &message) {
                    self.receive(from, message, observer);
                }
            }
            Input::Read { read, principal, fresh, deadline_us } => {
                self.read(read, &principal, fresh, deadline_us);
            }
            Input::Admin { admin, principal, request, deadline_us } => {
                self.admin(admin, principal, request, deadline_us);
            }
            Input::Unlinked { member, link } => self.unlinked(member, link),
            Input::Join { join, request, peer_name } => self.join(join, *request, peer_name),
            Input::CalledBack { join, answer } => self.called_back(join, answer),
            Input::StandingAnswer { from, answer } => self.standing_answered(from, &answer),
            Input::SnapshotFound { to, point, id } => self.snapshot_found(to, point, id),
            Input::ChunkRead { to, id, offset, bytes } => self.chunk_read(to, id, offset, bytes),
            Input::ChunkWritten { number, have } => self.chunk_written(number, have),
            Input::TransferFailed { number, reason } => self.transfer_failed(number, reason),
            Input::Leave => self.leave(),
            Input::Linked { .. }
            | Input::Unreachable { .. }
            | Input::Persisted { .. }
            | Input::SnapshotSaved { .. }
            | Input::SnapshotReceived { .. }
            | Input::SnapshotSent { .. }
            | Input::Space(_)
            | Input::WallClock(_) => unreachable!("these do not wait for the turn"),
        }
    }

    /// Whether a message asks for an answer that could not reach its sender, because it came over a connection that was
    /// replaced since. The sender may have restarted, and then uses the same numbers for other requests.
    fn is_over_an_earlier_link(&self, from: MemberId, link: LinkId, message: &PeerMessage) -> bool {
        let wants_an_answer =
            matches!(message, PeerMessage::Commands { .. } | PeerMessage::Admin { .. });
        let is_replaced = || self.links.get(&from).is_some_and(|present| present.link != link);
        wants_an_answer && is_replaced() && !mutant!("commands_of_an_earlier_start")
    }

    /// Takes what another member says beside the replicated log. Only members may command.
    fn receive(&mut self, from: MemberId, message: PeerMessage, observer: &mut impl NodeObserver) {
        let members = self.replica.members();
        let mut known = members.contains(from) || mutant!("stranger_may_command");
        if mutant!("removed_member_may_command") {
            known |= members.retired.contains(&from);
        }
        let answers = matches!(
            message,
            PeerMessage::Transfer(_)
                | PeerMessage::Answers { .. }
                | PeerMessage::AdminAnswer { .. }
        );
        if answers {
            // A member that joins, or was away for long, takes its state and its answers from one that it does not
            // know as a member yet. An answer counts only from the member that was asked.
            known |= self.replica.is_known(from);
        }
        if !known {
            self.ignored += 1;
            return;
        }
        match message {
            PeerMessage::Commands { number, linger_us, within_us, requests } => {
                let forwarded =
                    crate::forward::Forwarded { number, linger_us, within_us, requests };
                self.take_forwarded(from, forwarded, observer);
            }
            PeerMessage::Answers { number, outcomes } => self.peer_answered(from, number, outcomes),
            PeerMessage::Admin { number, principal, request } => {
                self.peer_wants(from, number, principal.as_deref(), request);
            }
            PeerMessage::AdminAnswer { number, result } => {
                self.peer_admin_answered(from, number, result);
            }
            PeerMessage::Transfer(message) => self.on_transfer(from, *message),
            PeerMessage::Announce { names } => self.take_announcement(from, &names),
            PeerMessage::Raft(_) => unreachable!("the replica took it"),
        }
    }

    /// Handles an output of the replica as far as it concerns this member, and passes on the rest.
    fn pass_on(
        &mut self,
        output: RaftOutput,
        out: &mut Vec<Output>,
        observer: &mut impl NodeObserver,
    ) {
        let output = match output {
            RaftOutput::Send { to, message } => {
                Output::Send { to, message: PeerMessage::Raft(message) }
            }
            RaftOutput::SendSnapshot { to, step } => {
                self.send_snapshot(to, step);
                return out.append(&mut self.staged);
            }
            RaftOutput::Persist(persist) => Output::Persist(persist),
            RaftOutput::Answer { proposal, fate } if self.joins.is_known(proposal) => {
                self.join_written(proposal, fate);
                return out.append(&mut self.staged);
            }
            RaftOutput::Answer { proposal, fate } => {
                self.answered(proposal, fate, observer);
                return out.append(&mut self.staged);
            }
            RaftOutput::ReadReady { proposal } => {
                self.read_confirmed(proposal);
                return out.append(&mut self.staged);
            }
            RaftOutput::ReadFailed { proposal } => {
                self.read_failed(proposal);
                return out.append(&mut self.staged);
            }
            RaftOutput::Changed { proposal, result } if self.joins.is_known(proposal) => {
                self.join_changed(proposal, result);
                return out.append(&mut self.staged);
            }
            RaftOutput::Changed { proposal, result } => {
                self.admin_answered(proposal, result.map_err(NodeFailure::Rejected));
                return out.append(&mut self.staged);
            }
            RaftOutput::ChangeUnknown { proposal } if self.joins.is_known(proposal) => {
                self.join_unknown(proposal);
                return out.append(&mut self.staged);
            }
            RaftOutput::ChangeUnknown { proposal } => {
                self.admin_answered(proposal, Err(NodeFailure::Unknown));
                return out.append(&mut self.staged);
            }
            RaftOutput::Notices(notices) => Output::Notices(notices),
            RaftOutput::Applied { point, revision } => Output::Applied { point, revision },
            RaftOutput::SaveSnapshot { point, meta, frozen } => {
                Output::SaveSnapshot { point, meta, frozen }
            }
            RaftOutput::CompactLog { to } => Output::CompactLog { to },
            RaftOutput::Led { term, by } => {
                self.led(KnownLeader { term, by });
                Output::Led(self.lead)
            }
            RaftOutput::Stop(stop) => Output::Stop(stop),
        };
        out.push(output);
    }

    fn led(&mut self, lead: KnownLeader) {
        let changed = lead.by != self.lead.by;
        self.lead = lead;
        if changed {
            self.lead_changed_us = self.now_us;
        }
        if lead.by.is_none() {
            self.leaderless_us = self.leaderless_us.or(Some(self.now_us));
        } else {
            self.leaderless_us = None;
            if changed {
                self.retry_all();
            }
        }
    }

    /// When a request that finds no leader is given up, at the latest: at its deadline, or when there was no
    /// leader for too long.
    pub(crate) fn give_up_us(&self, deadline_us: u64) -> u64 {
        let since_us = self.leaderless_us.unwrap_or(self.now_us);
        deadline_us.min(since_us.saturating_add(LEADER_WAIT_US))
    }

    /// Whether no member has led for so long that requests do not wait.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.leaderless_us
            .is_some_and(|since_us| self.now_us.saturating_sub(since_us) >= LEADER_WAIT_US)
    }

    /// Why a request that waited found no leader, as this member sees it now.
    pub(crate) fn no_leader(&self) -> NodeFailure {
        match self.lead.by {
            Some(leader) if leader != self.id() => NodeFailure::NotLeader { leader },
            _ => NodeFailure::NoLeader,
        }
    }

    /// Looks at timers that are due: deadlines, and moments to try again.
    fn expire(&mut self) {
        while let Some(number) = self.timers.pop(self.now_us) {
            let proposal = ProposalId(number);
            if self.in_flight.get(proposal).is_some() {
                self.attempt_due(proposal);
            } else if self.reads.is_known(proposal) {
                self.read_due(proposal);
            } else if self.joins.is_known(proposal) {
                self.join_due(proposal);
            } else {
                self.admin_due(proposal);
            }
        }
    }

    /// A connection is gone. Whatever was sent over it and not answered may have happened.
    fn unlinked(&mut self, member: MemberId, link: LinkId) {
        if self.links.get(&member).is_some_and(|linked| linked.link == link) {
            self.links.remove(&member);
            self.replica.handle(RaftInput::Unlinked { member });
            self.shares.remove(&member);
            self.transfers.outgoing.unlinked(member);
        }
        self.attempts_lost(member, link);
        self.admins_lost(member, link);
    }

    /// Tells that notices were lost, once a snapshot has taken the place of entries.
    fn tell_skipped(&mut self, out: &mut Vec<Output>) {
        let Some(index) = self.arriving else { return };
        if self.replica.status().applied.index >= index {
            self.arriving = None;
            if !mutant!("skipped_entries_not_told") {
                out.push(Output::Skipped);
            }
        }
    }

    /// Sends out the members and their addresses, for the links.
    fn tell_directory(&mut self, out: &mut Vec<Output>) {
        let (members, machine) = (self.replica.members(), self.replica.machine());
        let known = &self.directory;
        let due = known.revision != machine.revision()
            && self.now_us.saturating_sub(known.at_us) >= DIRECTORY_US;
        let same = *members == known.members && self.replica.vouches_for_exactly(&known.vouched);
        if known.told && !due && same {
            return;
        }
        let members = members.clone();
        let vouched = self.replica.vouched();
        let directory = directory::read(machine);
        self.directory = ToldMembers {
            told: true,
            members: members.clone(),
            vouched: vouched.clone(),
            revision: machine.revision(),
            at_us: self.now_us,
        };
        out.push(Output::Directory { directory, members: Box::new(members), vouched });
    }

    /// Why a change of members is refused before it is proposed.
    pub(crate) fn too_early(&self, request: &AdminRequest) -> Option<NodeFailure> {
        let AdminRequest::Change(changes) = request else { return None };
        let status = self.replica.status();
        let behind = |change: &MembershipChange| match change {
            MembershipChange::Promote(id) => {
                let matched = *status.matched.get(id)?;
                let behind = status.committed.saturating_sub(matched);
                // A learner that has nothing yet may not be there at all, however short the log is.
                (matched == 0 || behind > BEHIND_MAX).then_some(behind)
            }
            MembershipChange::AddLearner(_) | MembershipChange::Remove(_) => None,
        };
        let behind = changes.iter().filter_map(behind).max()?;
        Some(NodeFailure::Rejected(RejectReason::NotCaughtUp { behind }))
    }
}

/// A message of the replicated log, as a peer message.
impl From<Message> for PeerMessage {
    fn from(message: Message) -> Self {
        PeerMessage::Raft(message)
    }
}
