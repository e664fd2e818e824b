//! Runs a whole cluster on one thread, event by event.

use std::collections::BTreeMap;

use bytes::Bytes;
use fastrand::Rng;
use tenure_core::LEVEL_MAX;
use tenure_node::{
    BACKLOG_MAX, BootstrapResult, Incarnation, Input, Lineage, SessionBounds, WindowBounds,
};
use tenure_raft::{MemberId, Membership};
use tenure_store::SnapshotId;
use tenure_store::sim::DiskFault;
use tenure_types::Epoch;

use super::call::GiveBack;
use super::caller::SimCaller;
use super::caller_lease::SingleCall;
use super::client::SimClient;
use super::event::{EventQueue, SimEvent};
use super::invited::SimInvitation;
use super::links::Links;
use super::member::{SimBounds, SimMember};
use super::nemesis::Nemesis;
use super::network::{NetworkQuality, SimNetwork};
use super::oracle::{Oracle, ensure, first_state};
use super::recovery::{QUIET_US, RECOVERY_US};
use super::restoring::SimBackups;
use super::session_host::WaitKey;
use super::watcher::Watcher;
use super::{FaultCounts, MS, S, bootstrapping};
use crate::invariant::{CheckResult, InvariantViolation};

/// The number of cursors that hop between members.
const WATCHERS: u64 = 4;
/// The most callers without a session.
const CALLERS_MAX: usize = 3;

/// A window that a few clients fill.
const SMALL_WINDOW: WindowBounds = WindowBounds { shared: 2 * 1024, alone: 8 * 1024 };
/// A session that a client fills.
const SMALL_SESSION: SessionBounds =
    SessionBounds { in_flight: 4, requests: 64, questions: 1, leases: 4 };

/// The result of one seed.
pub struct SeedResult {
    /// The broken promise, if one was.
    pub failure: Option<InvariantViolation>,
    /// Simulated time.
    pub sim_us: u64,
    /// The faults and events that occurred.
    pub faults: FaultCounts,
    /// Over everything that was sent, answered and stored, in order.
    pub trace: u64,
}

impl SeedResult {
    /// Whether another run went the same way: to the byte, to the microsecond, and to the last fault.
    pub fn is_same(&self, other: &Self) -> bool {
        (self.trace, self.sim_us) == (other.trace, other.sim_us)
            && self.faults.line() == other.faults.line()
            && self.failure == other.failure
    }

    pub(super) fn failed(violation: InvariantViolation) -> Self {
        Self { failure: Some(violation), sim_us: 0, faults: FaultCounts::default(), trace: 0 }
    }
}

/// A cluster, its clients, and its faults.
pub struct SimCluster {
    pub(super) rng: Rng,
    pub(super) now_us: u64,
    pub(super) queue: EventQueue<SimEvent>,
    pub(super) sim_members: Vec<SimMember>,
    pub(super) clients: Vec<SimClient>,
    /// Callers without a session.
    pub(super) callers: Vec<SimCaller>,
    /// Commands of theirs that do not wait, by call.
    pub(super) single_calls: BTreeMap<u64, (usize, SingleCall)>,
    /// Commands that take an acquire of theirs back, by batch.
    pub(super) give_backs: BTreeMap<WaitKey, GiveBack>,
    pub(super) watchers: Vec<Watcher>,
    pub(super) network: SimNetwork,
    pub(super) oracle: Oracle,
    pub(super) nemesis: Nemesis,
    pub(super) links: Links,
    /// The counter for asks, batches, reads and admin requests.
    pub(super) numbers: u64,
    pub(super) sessions_made: u64,
    /// Chunks of snapshots that were read for sending.
    pub(super) chunks: BTreeMap<(SnapshotId, u64), Bytes>,
    /// The invitations that an operator asked for.
    pub(super) invitations: Vec<SimInvitation>,
    /// Requests to join, and who made them.
    pub(super) joins: BTreeMap<u64, usize>,
    /// Questions about a member's standing, and which member asked them, in which process.
    pub(super) standings: BTreeMap<u64, (usize, u64, MemberId)>,
    /// Requests to join of members of a former cluster, and who made them.
    pub(super) survivor_joins: BTreeMap<u64, usize>,
    /// The one life of the cluster.
    pub(super) lineage: Lineage,
    /// Why no cluster was bootstrapped.
    unfounded: Option<InvariantViolation>,
    /// Calls that a healed cluster must answer, and where they were made.
    pub(super) probes: BTreeMap<u64, usize>,
    /// Asks that were forwarded to a member and not proposed since: whether one came in time.
    pub(super) in_time: BTreeMap<(usize, u64), bool>,
    /// Whether members count what a frame waits in its link.
    pub(super) counts_waiting: bool,
    pub(super) backups: SimBackups,
    pub(super) faults: FaultCounts,
    /// The newest membership that any member has applied.
    pub(super) members: Membership,
    pub(super) members_at: u64,
    /// How many requests to remove a member were made and have not ended with "nothing happened".
    pub(super) removals: BTreeMap<MemberId, u64>,
    /// The time at which the newest membership was applied.
    pub(super) members_since_us: u64,
    pub(super) trace: u64,
    pub(super) newest_arrival: BTreeMap<(usize, usize), u64>,
    /// Whether a cut link loses the messages on their way.
    pub(super) in_flight_lost: bool,
    pub(super) slow_sync: u64,
    /// Whether every sync runs beside its loop, also those for which a member would wait.
    pub(super) syncs_beside: bool,
    /// The newest level that the oldest build of the initial members knows.
    oldest_initial_member: u16,
    /// Calls that raise the level, and to which.
    pub(super) raises: BTreeMap<u64, u16>,
    pub(super) snapshot_entries: u64,
    pub(super) sizes: SimBounds,
    pub(super) verbose: bool,
}

impl SimCluster {
    /// A cluster that follows from a seed.
    pub fn new(seed: u64) -> Self {
        let size = [1, 3, 3, 3, 3, 3, 5, 5, 5][Rng::with_seed(!seed).usize(0..9)];
        Self::sized(seed, size)
    }

    /// A cluster of `size` voters; everything else follows from the seed.
    pub(super) fn sized(seed: u64, size: usize) -> Self {
        let mut rng = Rng::with_seed(seed);
        let worst =
            [(0, 0, 0), (5, 5, 5), (50, 20, 20), (200, 50, 30), (20, 20, 200)][rng.usize(0..5)];
        let weather = NetworkQuality {
            drop: worst.0,
            duplicate: worst.1,
            spike: worst.2,
            delay_us: (100, rng.u64(500..10 * MS)),
        };
        let mut world = Self {
            now_us: 0,
            queue: EventQueue::default(),
            sim_members: Vec::new(),
            clients: Vec::new(),
            callers: Vec::new(),
            single_calls: BTreeMap::new(),
            give_backs: BTreeMap::new(),
            watchers: (0..WATCHERS).map(|at| Watcher::new(seed ^ at << 48)).collect(),
            network: SimNetwork::new(weather),
            oracle: Oracle::new(first_state(&[], 1)),
            nemesis: Nemesis::new(&mut rng),
            links: Links::default(),
            numbers: 0,
            sessions_made: 0,
            chunks: BTreeMap::new(),
            invitations: Vec::new(),
            joins: BTreeMap::new(),
            standings: BTreeMap::new(),
            survivor_joins: BTreeMap::new(),
            lineage: Lineage {
                cluster: String::new(),
                epoch: Epoch::default(),
                incarnation: Incarnation::default(),
            },
            unfounded: None,
            probes: BTreeMap::new(),
            in_time: BTreeMap::new(),
            counts_waiting: rng.bool(),
            backups: SimBackups::default(),
            faults: FaultCounts::default(),
            members: Membership::default(),
            members_at: 0,
            removals: BTreeMap::new(),
            members_since_us: 0,
            trace: seed,
            newest_arrival: BTreeMap::new(),
            in_flight_lost: rng.bool(),
            slow_sync: [0, 0, 5, 30][rng.usize(0..4)],
            syncs_beside: rng.u8(0..3) == 0,
            oldest_initial_member: rng.u16(1..=LEVEL_MAX),
            raises: BTreeMap::new(),
            snapshot_entries: [40, 100, 400][rng.usize(0..3)],
            sizes: SimBounds {
                chunk_bytes: [256, 1024, 64 * 1024][rng.usize(0..3)],
                backlog: [24, 200, BACKLOG_MAX][rng.usize(0..3)],
                log_bytes: [128, 1024, 1024 * 1024][rng.usize(0..3)],
                window: [SMALL_WINDOW, WindowBounds::default()][rng.usize(0..2)],
                rate: [10, 10_000][rng.usize(0..2)],
                mail: [3, 16, 65_536][rng.usize(0..3)],
                sweep: [1, 2, 8][usize::try_from(seed % 3).unwrap_or(0)],
                session: [SMALL_SESSION, SessionBounds::default()][rng.usize(0..2)],
            },
            verbose: false,
            rng,
        };
        if size == 1 && world.rng.bool() {
            world.nemesis = Nemesis::lonely();
            world.slow_sync = 500;
        }
        if size >= 3 && world.rng.u8(0..6) == 0 {
            world.nemesis = Nemesis::forgetful();
        }
        (0..size).for_each(|_| {
            world.new_member();
        });
        let began_us = match world.bootstrap() {
            Ok(began_us) => began_us,
            Err(violation) => {
                world.unfounded = Some(violation);
                0
            }
        };
        let clients = world.rng.usize(1..=6);
        for client in 0..clients {
            let rate_ppm = world.draw_rate();
            world.clients.push(SimClient::new(&mut world.rng, rate_ppm));
            world.queue.push(began_us + S + client as u64 * MS, SimEvent::Client { client });
        }
        for caller in 0..world.rng.usize(0..=CALLERS_MAX) {
            world.callers.push(SimCaller::default());
            world.queue.push(began_us + S, SimEvent::Caller { caller });
        }
        for watcher in 0..world.watchers.len() {
            world.queue.push(began_us + S, SimEvent::Watch { watcher });
        }
        if world.nemesis.may_lose_all() {
            world.queue.push(began_us + S / 2, SimEvent::BackUp { member: 0 });
        }
        world.queue.push(began_us + 2 * S, SimEvent::Nemesis);
        world
    }

    /// Bootstraps the cluster; tells when its last initial member has.
    fn bootstrap(&mut self) -> Result<u64, InvariantViolation> {
        let initial_members =
            self.sim_members.iter().map(|member| (member.record(), member.level_known())).collect();
        let bootstrapped =
            bootstrapping::bootstrap(&mut self.rng, &mut self.faults, initial_members)?;
        let BootstrapResult { cluster, initial_members, level } = bootstrapped.agreed;
        self.lineage.cluster = cluster;
        self.sim_members.iter_mut().for_each(|member| member.lineage = self.lineage.clone());
        let first = first_state(&initial_members, level);
        self.members = Membership::of_voters(self.sim_members.iter().map(|member| member.id));
        for (member, at_us) in bootstrapped.at_us.iter().enumerate() {
            let written = self.sim_members[member].bootstrap(&self.members, &first);
            written.expect("an empty disk without faults takes a log");
            self.queue.push(*at_us, SimEvent::Start { member });
            self.sim_members[member].names = bootstrapped.records[member].names.clone();
        }
        self.oracle = Oracle::new(first);
        Ok(bootstrapped.at_us.into_iter().max().unwrap_or(0))
    }

    /// Prints what happens.
    pub fn verbose(mut self) -> Self {
        self.verbose = true;
        self
    }

    /// Runs until a promise is broken or the time is over.
    pub fn run(mut self) -> SeedResult {
        let failure = self.run_phases().err();
        SeedResult { failure, ..self.over() }
    }

    /// What a run that is over has seen.
    pub(super) fn over(mut self) -> SeedResult {
        self.mix_disks();
        for member in &self.sim_members {
            for (fault, times) in member.disk.counts() {
                let kind = match fault {
                    DiskFault::LostWrite => "lost_write",
                    DiskFault::TornWrite => "torn_write",
                    DiskFault::WriteError => "write_error",
                    DiskFault::SyncError => "sync_error",
                    DiskFault::NoSpace => "no_space",
                    DiskFault::ReadError => "read_error",
                    DiskFault::ReadOnly => "read_only",
                    DiskFault::DeviceError => "device_error",
                    DiskFault::DamageWhileRunning => "damage_while_running",
                    DiskFault::MisdirectedWrite => "misdirected_write",
                    DiskFault::StaleSector => "stale_sector",
                    DiskFault::LyingSync => "lying_sync",
                    DiskFault::OverlappingSync => "overlapping_sync",
                    DiskFault::LostDirectoryChange => "lost_directory_change",
                    // The simulated cluster causes these itself, and counts them by cause.
                    DiskFault::PowerLoss
                    | DiskFault::BitFlip
                    | DiskFault::SlowSync
                    | DiskFault::DamagedNewestBatch => continue,
                };
                self.faults.count_by(kind, times);
            }
        }
        self.faults.count_by("term", self.oracle.terms() as u64);
        self.faults.count_by("entry", self.oracle.last());
        self.faults.count_by("level_raised", self.oracle.raises());
        let Self { now_us: sim_us, faults, trace, .. } = self;
        SeedResult { failure: None, sim_us, faults, trace }
    }

    fn run_phases(&mut self) -> CheckResult {
        if let Some(violation) = self.unfounded.take() {
            return Err(violation);
        }
        let faulty_us = self.rng.u64(40..120) * S;
        self.run_until(faulty_us)?;
        self.heal();
        let mut limit_us = self.now_us + RECOVERY_US;
        if self.backups.restores > 0 || self.backups.is_lost() {
            limit_us += QUIET_US;
        }
        while !self.has_recovered() {
            ensure(self.now_us < limit_us, "L1", || self.describe())?;
            self.run_until(self.now_us + S)?;
        }
        self.probe()?;
        self.await_records()?;
        self.await_removed()?;
        self.compare_all()
    }

    pub(super) fn run_until(&mut self, end_us: u64) -> CheckResult {
        while let Some((at_us, event)) = self.queue.pop() {
            if at_us > end_us {
                self.queue.push(at_us, event);
                break;
            }
            self.now_us = at_us;
            self.oracle.now_us = at_us;
            self.handle_event(event)?;
        }
        self.now_us = end_us;
        Ok(())
    }

    fn handle_event(&mut self, event: SimEvent) -> CheckResult {
        self.mix_message(&event);
        match event {
            SimEvent::Turn { member, boot } => self.turn(member, boot),
            SimEvent::Arrive { from, to, packet } => self.deliver_packet(from, to, packet),
            SimEvent::Sync { member, boot, took_us, waits } => {
                self.sync(member, boot, took_us, waits)
            }
            SimEvent::Synced { member, boot } => self.handle_sync_end(member, boot),
            SimEvent::Prepare { member, boot } => {
                self.prepare(member, boot);
                Ok(())
            }
            SimEvent::Reserve { member, boot } => {
                self.restore_reserve(member, boot);
                Ok(())
            }
            SimEvent::WriteLog { member, boot } => self.write_log(member, boot),
            SimEvent::Save { member, boot } if self.sim_members[member].boot == boot => {
                self.save(member)
            }
            SimEvent::Save { .. } => Ok(()),
            SimEvent::Transfer { member, boot, step } if self.sim_members[member].boot == boot => {
                self.perform_transfer_step(member, *step)
            }
            SimEvent::Transfer { .. } => Ok(()),
            SimEvent::Sent { member, boot, to, saved } => {
                self.give(member, boot, Input::SnapshotSent { to, saved });
                Ok(())
            }
            SimEvent::Start { member } => self.start(member),
            SimEvent::Dial { one, other } => self.dial(one, other),
            SimEvent::Silent { one, other, link } => {
                self.silent(one, other, link);
                Ok(())
            }
            SimEvent::Unlinked { member, boot, peer, link } => {
                self.give(member, boot, Input::Unlinked { member: peer, link });
                Ok(())
            }
            SimEvent::Route { member, boot } => self.route(member, boot),
            SimEvent::Sweep { member, boot, leases } => {
                self.sweep(member, boot, leases);
                Ok(())
            }
            SimEvent::Said { stream, said } => {
                self.handle_client_message(stream, said);
                Ok(())
            }
            SimEvent::Session { stream } => self.run_session(stream),
            SimEvent::Mail { stream, replies } => self.handle_client_replies(stream, replies),
            SimEvent::Cut { stream } => {
                self.handle_session_loss(stream);
                Ok(())
            }
            SimEvent::Client { client } => self.step_client(client),
            SimEvent::Caller { caller } => self.step_caller(caller),
            SimEvent::Call { member, boot, call, input } => {
                self.handle_call_input(member, boot, call, input)
            }
            SimEvent::CallReply { caller, call, reply } => {
                self.handle_caller_reply(caller, call, reply)
            }
            SimEvent::Operation { member, boot, operation } => {
                self.handle_operation_timer(member, boot, operation)
            }
            SimEvent::Watch { watcher } => self.watch(watcher),
            SimEvent::Nemesis => self.inject_fault(),
            SimEvent::Enter { member } => self.enter(member),
            SimEvent::Answered { member, number, answer } => {
                self.answered(member, number, answer);
                Ok(())
            }
            SimEvent::AskStanding { member, boot, of, address, question } => {
                self.standing_asked(member, boot, of, &address, question);
                Ok(())
            }
            SimEvent::Lied { member, boot, lie } => {
                self.lied(member, boot, lie);
                Ok(())
            }
            SimEvent::BackUp { member } => {
                self.back_up(member);
                Ok(())
            }
            SimEvent::Restore => self.restore(),
            SimEvent::SurvivorJoins { member } => {
                self.join_survivor(member);
                Ok(())
            }
            SimEvent::Upgrade { member, level } => {
                self.upgrade(member, level);
                Ok(())
            }
            SimEvent::RaiseLevel { level } => {
                self.raise_level(level);
                Ok(())
            }
            SimEvent::RollBack { member } => {
                self.go_back(member);
                Ok(())
            }
        }
    }

    pub(super) fn new_member(&mut self) -> usize {
        let number = self.sim_members.len() as u64 + 1;
        let id = MemberId::new(number).expect("numbers start at one");
        let rate_ppm = self.draw_rate();
        let (seed, offset_us) = (self.rng.u64(..), self.rng.u64(0..1000 * S));
        // Builds of several versions live side by side. The level of the cluster is that of its oldest initial member.
        let is_bootstrapped = !self.lineage.cluster.is_empty();
        let oldest = if is_bootstrapped { 1 } else { self.oldest_initial_member };
        let level = if self.rng.bool() { LEVEL_MAX } else { self.rng.u16(oldest..=LEVEL_MAX) };
        self.faults.count_by("older_build", u64::from(level < LEVEL_MAX));
        let build = (level, self.lineage.clone());
        self.sim_members.push(SimMember::new(id, build, seed, rate_ppm, offset_us));
        self.sim_members.len() - 1
    }

    fn draw_rate(&mut self) -> i64 {
        if self.rng.bool() {
            return 0;
        }
        self.faults.count("clock_rate");
        self.rng.i64(-super::oracle::RATE_PPM..=super::oracle::RATE_PPM)
    }

    pub(super) fn at(&self, id: MemberId) -> Option<usize> {
        self.sim_members.iter().position(|member| member.id == id)
    }

    /// Hands an input to a member, and wakes it.
    pub(super) fn give(&mut self, member: usize, boot: u64, input: Input) {
        let target = &self.sim_members[member];
        if target.boot == boot && target.is_up() {
            self.put_in_inbox(member, input);
            let at_us = self.now_us + self.rng.u64(20..200);
            self.wake(member, at_us);
        }
    }

    pub(super) fn wake(&mut self, member: usize, at_us: u64) {
        let target = &mut self.sim_members[member];
        let at_us = at_us.max(target.paused_until_us).max(target.loop_waits_until_us);
        if target.turn_at_us.is_none_or(|old| at_us < old) {
            target.turn_at_us = Some(at_us);
            self.queue.push(at_us, SimEvent::Turn { member, boot: target.boot });
        }
    }

    pub(super) fn trace(&self, text: impl FnOnce() -> String) {
        if self.verbose {
            println!("{:>10.3}  {}", self.now_us as f64 / S as f64, text());
        }
    }
}
