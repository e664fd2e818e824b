//! Defines the replica: one member's part in the replicated log, its inputs and its status.

mod admin;
mod admit;
mod agree;
mod apply;
mod commit;
mod level;
mod persist;
mod propose;
mod rollback;
mod snapshot;
mod space;
mod turn;

use std::collections::{BTreeMap, BTreeSet};

use raft::{Config as EngineConfig, RawNode, ReadOnlyOption, StateRole};
use tenure_core::event::WallClock;
use tenure_core::outcome::Effects;
use tenure_core::{Frozen, Machine};
use tenure_store::{Cut, HardState, LogEntry, LogId};
use tenure_types::{Revision, Term};

use crate::clock::LeaseClock;
use crate::config::{
    APPLY_BYTES_MAX, ELECTION_TICKS_MAX, ELECTION_TICKS_MIN, HEARTBEAT_TICKS, MESSAGE_BYTES_MAX,
    MESSAGES_IN_FLIGHT_MAX, ReplicaConfig, UNCOMMITTED_BYTES_MAX, UNLINKED_TICKS_MAX,
    UNLINKED_TICKS_MIN,
};
use crate::hashes::Hashes;
use crate::io::{ProposalId, ReplicaInput, ReplicaOutput, SnapshotDelivery};
use crate::member::{MemberId, Membership};
use crate::message::{Message, StepKind};
use crate::observed::Observations;
use crate::pending::PendingProposals;
use crate::reads::PendingReads;
use crate::recent::Recent;
pub use admit::DroppedMessages;
use admit::KnownIds;
use commit::ToldCommit;
use persist::DeferredMessages;
use propose::ProposalQueue;
pub use propose::keeps;
use rollback::Promises;
use snapshot::{Arrived, Schedule};
use space::Shortage;

/// What a member starts from: a snapshot, and the log after it.
pub struct Boot {
    /// The state in the snapshot.
    pub machine: Machine,
    /// The last entry in that state. All first members of a cluster start from the same snapshot at (1, 1); a member
    /// that joins later starts from nothing, at (0, 0).
    pub applied: LogId,
    /// The members in the snapshot; empty for a member that joins.
    pub members: Membership,
    /// The point the log starts after; not above `applied`.
    pub base: LogId,
    /// The entries of the log, all of them.
    pub entries: Vec<LogEntry>,
    /// The hard state of the log.
    pub hard_state: HardState,
    /// The notes of the log: what this member has observed of the other members' promises.
    pub notes: Vec<u8>,
    /// What was cut from the end of the log when it was opened. A torn write was never acknowledged, but damage to the
    /// newest batch looks the same. A member of a larger cluster asks the others what it had promised, as at every
    /// start. A sole voter continues with what is left.
    pub cut: Option<Cut>,
    /// Members that are known besides those in `members`: those that an operator named to a member that joins. The
    /// replica drops messages of all others.
    pub given: BTreeSet<MemberId>,
}

/// Why a member cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BootError {
    /// The log does not continue the snapshot.
    #[error("log from {base} to {last} does not continue the snapshot at {applied}")]
    Gap {
        /// The index of the entry before the log's first.
        base: u64,
        /// The index of the log's last entry.
        last: u64,
        /// The index of the snapshot's last entry.
        applied: u64,
    },
    /// The notes in the log cannot be read.
    #[error("what the log says about other members is malformed")]
    Notes,
    /// The Raft engine refuses the configuration or state.
    #[error("cannot start: {reason}")]
    Engine {
        /// The engine's error message.
        reason: String,
    },
}

/// One member's part in the replicated log.
pub struct Replica {
    config: ReplicaConfig,
    node: RawNode<Recent>,
    machine: Machine,
    applied: LogId,
    members: Membership,
    clock: LeaseClock,
    queue: ProposalQueue,
    pending: PendingProposals,
    /// A membership change in progress: its proposal id, and its position in the log.
    changing: Option<(ProposalId, LogId)>,
    refused: Vec<ReplicaOutput>,
    reads: PendingReads,
    hashes: Hashes,
    /// The newest level that each other member has declared to know.
    knows: BTreeMap<MemberId, u16>,
    held: DeferredMessages,
    shortage: Shortage,
    rng: Rng,
    election: ElectionTimer,
    contact: Contact,
    promises: Promises,
    known: KnownIds,
    cut: Option<Cut>,
    schedule: Schedule,
    saving: Option<LogId>,
    /// The index up to which the log is to drop entries.
    compact_to: Option<u64>,
    saving_members: Membership,
    arrived: Option<Arrived>,
    applied_bytes: u64,
    /// A hard state in which only the commit index is new. The next write includes it.
    owed: Option<HardState>,
    /// The newest term and vote written.
    voted: (u64, Option<u64>),
    /// The newest entry this member has sealed.
    sealed: LogId,
    told_commit: ToldCommit,
    led: (u64, u64),
    next_tick_us: Option<u64>,
    now_us: u64,
    /// The label of the next entry.
    wall: Option<WallClock>,
    effects: Effects,
    stopped: bool,
    /// Outputs that leave ahead of everything else in the next turn. A member that has forgotten a promise must learn
    /// so before it is sent the missing entries again.
    first: Vec<ReplicaOutput>,
}

/// The election timeout, and the state for which it was drawn.
#[derive(Debug)]
struct ElectionTimer {
    timeout: usize,
    drawn_for: (u64, StateRole, u64),
}

/// When the leader of one term last heard from each member.
#[derive(Debug, Default)]
struct Contact {
    term: u64,
    won_at_us: u64,
    heard_us: BTreeMap<MemberId, u64>,
    /// Members heard from since the last turn, with the term of their message.
    now: Vec<(MemberId, u64)>,
}

/// A small pseudo-random generator (SplitMix64): its numbers follow from its seed.
#[derive(Debug)]
struct Rng(u64);

/// The observable status of a replica. Term and index are for display, never for decisions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaStatus {
    /// The term.
    pub term: Term,
    /// The leader, if one is known.
    pub leader: Option<MemberId>,
    /// Whether this member leads.
    pub leading: bool,
    /// Whether this member leads and has applied an entry of its own term.
    pub serving: bool,
    /// The last entry applied.
    pub applied: LogId,
    /// The commit index.
    pub committed: u64,
    /// The last entry of the log.
    pub last: LogId,
    /// The point the log in memory starts after.
    pub base: LogId,
    /// How many writes are not reported as durable yet.
    pub unsynced: usize,
    /// On a leader: the last index that each other member has acknowledged.
    pub matched: BTreeMap<MemberId, u64>,
    /// On a leader: the time since each member that has answered in this term last did so.
    pub silent_us: BTreeMap<MemberId, u64>,
    /// Whether no membership change is in progress and leadership is not being transferred.
    pub settled: bool,
    /// Whether this member still waits for other members to report its promises, and so takes no part.
    pub asking: bool,
    /// What was cut from the end of its log when it started.
    pub cut: Option<Cut>,
    /// How many messages were dropped without processing.
    pub dropped: DroppedMessages,
}

impl Replica {
    /// Restores a member as it was when it stopped. `entropy` must be fresh and unpredictable at each start.
    pub fn new(config: ReplicaConfig, boot: Boot, entropy: u64) -> Result<Self, BootError> {
        let Boot { mut machine, mut applied, members, base, entries, mut hard_state, .. } = boot;
        let observed = Observations::decode(&boot.notes).map_err(|_| BootError::Notes)?;
        let known = KnownIds { given: boot.given, ..KnownIds::default() };
        machine.know_level(config.level_known);
        let last = entries.last().map_or(base.index, |entry| entry.index);
        if base > applied || last < applied.index {
            return Err(BootError::Gap { base: base.index, last, applied: applied.index });
        }
        // Everything in a snapshot was committed, even if the log does not say so yet.
        let raised = hard_state.commit < applied.index;
        hard_state.commit = hard_state.commit.max(applied.index);
        hard_state.term = hard_state.term.max(applied.term);
        let snapshot = (applied.index > 0).then(|| (applied, members.clone()));
        if mutant!("applied_twice_after_restart") && applied.index > base.index {
            applied.index -= 1;
        }
        let mut rng = Rng(entropy);
        let engine_config = EngineConfig {
            id: config.id.get(),
            election_tick: ELECTION_TICKS_MIN,
            min_election_tick: ELECTION_TICKS_MIN,
            max_election_tick: ELECTION_TICKS_MAX + config.extra_election_ticks(),
            heartbeat_tick: HEARTBEAT_TICKS,
            applied: applied.index,
            max_size_per_msg: MESSAGE_BYTES_MAX,
            max_inflight_msgs: MESSAGES_IN_FLIGHT_MAX,
            check_quorum: true,
            pre_vote: true,
            read_only_option: ReadOnlyOption::Safe,
            max_uncommitted_size: UNCOMMITTED_BYTES_MAX,
            max_committed_size_per_ready: APPLY_BYTES_MAX,
            skip_bcast_commit: true,
            ..EngineConfig::default()
        };
        let recent = Recent::new(base, entries, hard_state, members.clone(), snapshot);
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let node = RawNode::new(&engine_config, recent, &logger)
            .map_err(|error| BootError::Engine { reason: error.to_string() })?;
        let reads = PendingReads::new(config.id, rng.next());
        let mut replica = Self {
            node,
            machine,
            applied,
            members,
            clock: LeaseClock::default(),
            queue: ProposalQueue::default(),
            pending: PendingProposals::default(),
            changing: None,
            refused: Vec::new(),
            reads,
            hashes: Hashes::default(),
            knows: BTreeMap::new(),
            held: DeferredMessages::default(),
            rng,
            election: ElectionTimer {
                timeout: ELECTION_TICKS_MIN,
                drawn_for: (0, StateRole::Leader, 0),
            },
            contact: Contact::default(),
            promises: Promises::new(observed),
            known,
            cut: boot.cut,
            shortage: Shortage::default(),
            schedule: Schedule::default(),
            saving: None,
            compact_to: None,
            saving_members: Membership::default(),
            arrived: None,
            applied_bytes: 0,
            owed: raised.then_some(hard_state),
            voted: (hard_state.term, hard_state.vote),
            sealed: LogId::default(),
            told_commit: ToldCommit::default(),
            led: (0, 0),
            next_tick_us: None,
            now_us: 0,
            wall: None,
            effects: Effects::default(),
            stopped: false,
            first: Vec::new(),
            config,
        };
        replica.settle_election();
        replica.draw_snapshot();
        replica.settle_asking();
        Ok(replica)
    }

    /// Takes an input. Its outputs come from the next [`Replica::turn`].
    pub fn handle(&mut self, input: ReplicaInput) {
        if self.stopped {
            return;
        }
        match input {
            ReplicaInput::Message { from, message } => self.receive(from, message),
            ReplicaInput::Submit { proposal, requests, linger_us, deadline_us } => {
                self.queue.add(proposal, requests, linger_us, deadline_us);
            }
            ReplicaInput::Read { proposal } => {
                if !self.reads.add(proposal) {
                    self.refused.push(ReplicaOutput::ReadFailed { proposal });
                }
            }
            ReplicaInput::Persisted { number } => self.persisted(number),
            ReplicaInput::SnapshotSaved { point, saved } => self.snapshot_saved(point, saved),
            ReplicaInput::SnapshotReceived { from, step, machine, members } => {
                self.snapshot_received(from, *step, machine, *members);
            }
            ReplicaInput::SnapshotSent { to, saved } => {
                let status = match saved {
                    SnapshotDelivery::Delivered => raft::SnapshotStatus::Finish,
                    SnapshotDelivery::Failed => raft::SnapshotStatus::Failure,
                };
                self.node.report_snapshot(to.get(), status);
            }
            ReplicaInput::Knows { member, level } => self.on_level(member, level),
            ReplicaInput::Linked { member } => self.linked(member),
            ReplicaInput::Unlinked { member } => self.unlinked(member),
            ReplicaInput::Known { ids } => self.known.given = ids,
            ReplicaInput::Unreachable { member } => self.node.report_unreachable(member.get()),
            ReplicaInput::Space(space) => self.set_space(space),
            ReplicaInput::WallClock(wall) => self.wall = Some(wall),
            ReplicaInput::Admin { proposal, request } => self.admin(proposal, request),
        }
        self.settle_election();
    }

    /// The id of this member.
    pub fn id(&self) -> MemberId {
        self.config.id
    }

    /// The machine, for queries: after [`ReplicaOutput::ReadReady`], or for an answer that may be stale.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Freezes the present state, to be written while the machine goes on. Returns its last entry, level and revision.
    pub fn freeze(&mut self) -> (LogId, u16, Revision, Frozen) {
        let (level, revision) = (self.machine.level(), self.machine.revision());
        (self.applied, level, revision, self.machine.freeze())
    }

    /// The members, according to the part of the log that this member has applied.
    pub fn members(&self) -> &Membership {
        &self.members
    }

    /// Whether this member was removed, according to the part of the log that it has applied. It goes on as a follower
    /// that never leads: the others may need its vote until a majority of them has applied the removal too. The caller
    /// ends it after that.
    pub fn is_retired(&self) -> bool {
        self.members.retired.contains(&self.config.id)
    }

    /// Returns an entry of the log that is still in memory.
    pub fn entry(&self, index: u64) -> Option<&LogEntry> {
        self.node.store().entry(index)
    }

    /// The present status.
    pub fn status(&self) -> ReplicaStatus {
        let raft = &self.node.raft;
        let leading = self.leads();
        let (mut matched, mut silent_us) = (BTreeMap::new(), BTreeMap::new());
        if leading {
            let heard = self.contact.heard_us.iter().filter(|_| self.contact.term == raft.term);
            silent_us.extend(heard.map(|(id, at_us)| (*id, self.now_us.saturating_sub(*at_us))));
            let others = raft.prs().iter().filter(|(id, _)| **id != raft.id);
            matched.extend(others.filter_map(|(id, p)| Some((MemberId::new(*id)?, p.matched))));
        }
        ReplicaStatus {
            term: self.term(),
            leader: MemberId::new(raft.leader_id),
            leading,
            serving: leading && self.clock.started(self.term()),
            applied: self.applied,
            committed: raft.raft_log.committed,
            last: self.node.store().last(),
            base: self.node.store().base(),
            unsynced: self.held.unsynced(),
            matched,
            silent_us,
            settled: self.changing.is_none()
                && !self.members.is_joint()
                && !raft.has_pending_conf()
                && raft.lead_transferee.is_none(),
            asking: self.is_asking(),
            cut: self.cut,
            dropped: self.known.dropped,
        }
    }

    /// Whether this member leads, as far as it knows.
    pub fn leads(&self) -> bool {
        self.node.raft.state == StateRole::Leader
    }

    /// Handles a new link. Each end may know promises or members that the other does not.
    fn linked(&mut self, to: MemberId) {
        let message = Message::Members(self.members.all());
        self.first.push(ReplicaOutput::Send { to, message: Message::Hello });
        self.first.push(ReplicaOutput::Send { to, message });
    }

    /// Handles the end of a link. The kernel closes the connections of a process that is killed, so a follower need not
    /// wait for the election timeout: it no longer counts the leader as alive when others ask for its vote, and soon
    /// asks for theirs. Others refuse as long as they hear from the leader, and so does this member once it hears from
    /// the leader again.
    fn unlinked(&mut self, member: MemberId) {
        let raft = &mut self.node.raft;
        // A member that may not lead takes part in no election, and still names the leader to clients.
        if raft.state != StateRole::Follower || raft.leader_id != member.get() || !raft.promotable()
        {
            return;
        }
        raft.become_follower(raft.term, raft::INVALID_ID);
        self.settle_election();
        if !self.config.reluctant {
            let span = (UNLINKED_TICKS_MAX - UNLINKED_TICKS_MIN) as u64;
            let more = usize::try_from(self.rng.next() % span).unwrap_or(0);
            let left = UNLINKED_TICKS_MIN + more;
            self.node.raft.election_elapsed = self.election.timeout.saturating_sub(left);
        }
    }

    fn term(&self) -> Term {
        Term(self.node.raft.term)
    }

    fn leader(&self) -> Option<MemberId> {
        MemberId::new(self.node.raft.leader_id)
    }

    /// Replaces the engine's random election timeout by our own. The value is always the one drawn here, so nothing
    /// depends on when the engine draws.
    fn settle_election(&mut self) {
        let raft = &mut self.node.raft;
        let now = (raft.term, raft.state, raft.leader_id);
        if now != self.election.drawn_for {
            self.election.drawn_for = now;
            let span = (ELECTION_TICKS_MAX - ELECTION_TICKS_MIN) as u64;
            let more = usize::try_from(self.rng.next() % span).unwrap_or(0);
            self.election.timeout = ELECTION_TICKS_MIN + more + self.config.extra_election_ticks();
        }
        raft.set_randomized_election_timeout(self.election.timeout);
    }
}

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }
}

/// Whether a step is an answer to a leader, which proves that its sender receives the leader's messages.
fn is_answer(kind: StepKind) -> bool {
    matches!(kind, StepKind::AppendAnswer | StepKind::HeartbeatAnswer)
}

/// Sends a message to every other member.
fn to_all(members: &Membership, me: MemberId, message: &Message, out: &mut Vec<ReplicaOutput>) {
    let others = members.all().into_iter().filter(|id| *id != me);
    out.extend(others.map(|to| ReplicaOutput::Send { to, message: message.clone() }));
}
