//! Runs the members of a cluster inside one test, on the time of its Tokio runtime.
//!
//! Nodes, dispatch and APIs are those that ship. Their surroundings are not: one task gives all members their turns,
//! logs are lists, messages between members arrive at once, and clients connect through pipes. Everything runs on one
//! thread, as a paused runtime does, so whenever no member has anything to do, the next timer sets the time. For
//! `tenure-testkit`; nothing here is part of the server's interface.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tenure_core::event::WallClock;
use tenure_core::request::{Command, LeaseRef, RequestId};
use tenure_node::{CallId, Input, LinkId, Node, Output, PeerMessage, Permit, Principal, ReplyTo};
use tenure_raft::{
    Boot, FIRST, MemberId, Membership, Persist, Replica, ReplicaConfig, SnapshotDelivery, TICK_US,
};
use tenure_store::{HardState, LogEntry};
use tenure_types::{Epoch, LeaseId, Revision};
use tokio::io::{DuplexStream, duplex};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::api::{AllowedHosts, InProcessListener};
use crate::callers::{Callers, CountingObserver};
use crate::dispatch::{self, Delivery, Dispatch};
use crate::inbox::InboxEvents;
use crate::member::{End, LoopEvent, MemberHandle};
use crate::os::Clock;
use crate::peer::{Net, Wire};
use crate::ticket::SigningKeys;
use tenure_node::directory::{self, MemberNames, MemberRecord, Preference};
use tenure_node::transfer::TransferRefusal;
use tenure_node::{Incarnation, Lineage};

/// The start of virtual time.
const BEGIN_US: u64 = 1_000_000_000;
/// The bytes a pipe holds before its writer waits.
const PIPE_BYTES: usize = 256 * 1024;
/// The limit of a member with default segments.
const COMMAND_BYTES_MAX: usize = 2 * 1024 * 1024;
/// The call id of commands whose response is discarded.
const NO_CALLER: CallId = CallId(u64::MAX);
/// The most leases of one test.
const LEASES_MAX: usize = 4_096;
/// The number of ticks between two renewals of the other leases while one lease expires.
const RENEW_TICKS: u64 = 5;

/// The clock of a Tokio runtime, which a test may pause and move.
struct RuntimeClock {
    began: Instant,
    /// How far the members' clock is ahead of the runtime's.
    ahead_us: AtomicU64,
}

impl Clock for RuntimeClock {
    fn now_us(&self) -> u64 {
        let passed = Instant::now().saturating_duration_since(self.began);
        BEGIN_US + crate::os::micros(passed) + self.ahead_us.load(Ordering::Relaxed)
    }
}

/// A cluster inside this test. It ends when this value is dropped.
pub struct Inside {
    world: Arc<Mutex<InsideState>>,
    driver: tokio::task::JoinHandle<()>,
    // The cluster belongs to the thread that started it.
    _here: std::marker::PhantomData<*const ()>,
}

struct InsideState {
    members: Vec<InsideMember>,
    bell: Arc<Notify>,
    mail: VecDeque<(MemberId, MemberId, PeerMessage)>,
    clock: Arc<RuntimeClock>,
    /// The number of the newest connection.
    links: u64,
}

/// A member, running or stopped.
struct InsideMember {
    record: MemberRecord,
    /// The member's log: its disk.
    log: Vec<LogEntry>,
    hard_state: HardState,
    up: Option<RunningMember>,
}

/// A running member.
struct RunningMember {
    node: Node,
    member: MemberHandle,
    events: InboxEvents,
    callers: Callers,
    told: Revision,
    wake_us: u64,
    /// Whether it has received an input since its last turn.
    fresh: bool,
    /// The connections that it opened when it started.
    link: LinkId,
    net: Arc<Net>,
    listeners: InProcessListener,
    connections: JoinSet<()>,
}

impl Inside {
    /// Starts a cluster whose members clients find at these addresses.
    ///
    /// # Panics
    ///
    /// When called outside of a Tokio runtime.
    pub fn start(addresses: &[String]) -> Self {
        let record = |(at, address): (u64, &String)| MemberRecord {
            id: MemberId::new(at).expect("counted from 1"),
            names: MemberNames {
                name: format!("member-{at}"),
                members: "-".to_owned(),
                clients: address.clone(),
                preference: Preference::default(),
            },
        };
        let records: Vec<MemberRecord> = (1..).zip(addresses).map(record).collect();
        let member = |record: MemberRecord| {
            let hard_state = HardState { term: FIRST.term, vote: None, commit: FIRST.index };
            InsideMember { record, log: Vec::new(), hard_state, up: None }
        };
        let members = records.into_iter().map(member).collect();
        let (bell, mail) = (Arc::<Notify>::default(), VecDeque::new());
        let ahead_us = AtomicU64::new(0);
        let clock = Arc::new(RuntimeClock { began: Instant::now(), ahead_us });
        let mut world = InsideState { members, bell: bell.clone(), mail, clock, links: 0 };
        for at in 0..world.members.len() {
            world.boot(at);
        }
        let world = Arc::new(Mutex::new(world));
        let driver = tokio::spawn(drive(Arc::downgrade(&world), bell));
        Self { world, driver, _here: std::marker::PhantomData }
    }

    fn world(&self) -> MutexGuard<'_, InsideState> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a function that opens a pipe from a client to the member at an address.
    pub fn dialler(&self) -> impl Fn(&str) -> Option<DuplexStream> + 'static {
        let world = Arc::downgrade(&self.world);
        move |address| {
            let world = world.upgrade()?;
            let mut world = world.lock().unwrap_or_else(PoisonError::into_inner);
            let member =
                world.members.iter_mut().find(|member| member.record.names.clients == address)?;
            let up = member.up.as_mut()?;
            let (here, there) = duplex(PIPE_BYTES);
            // Drop the connections that have ended.
            while up.connections.try_join_next().is_some() {}
            let serving = up.listeners.serve(there);
            up.connections.spawn(serving);
            Some(here)
        }
    }

    /// The index of the member that leads, from 0; none during an election.
    pub fn leader(&self) -> Option<usize> {
        self.world().leader()
    }

    /// The indexes of the running members, from 0.
    pub fn running(&self) -> Vec<usize> {
        let world = self.world();
        let up = world.members.iter().enumerate().filter(|(_, member)| member.up.is_some());
        up.map(|(at, _)| at).collect()
    }

    /// Kills a member: its connections break, and its log stays.
    pub fn kill(&self, at: usize) {
        self.world().kill(at);
    }

    /// Restarts a member from its log.
    pub fn restart(&self, at: usize) {
        let mut world = self.world();
        if world.members.get(at).is_some_and(|member| member.up.is_none()) {
            world.boot(at);
            world.bell.notify_one();
        }
    }

    /// Makes a lease expire now: advances the members' clock until it has, and renews every other lease meanwhile.
    /// Returns whether the lease existed and ended.
    pub fn let_expire(&self, lease: LeaseId) -> bool {
        let mut world = self.world();
        let expired = world.let_expire(lease);
        world.bell.notify_one();
        expired
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.driver.abort();
        let mut world = self.world();
        for at in 0..world.members.len() {
            world.kill(at);
        }
    }
}

/// Gives the members their turns as long as the cluster exists.
async fn drive(world: Weak<Mutex<InsideState>>, bell: Arc<Notify>) {
    loop {
        let sleep = {
            let Some(world) = world.upgrade() else { return };
            let mut world = world.lock().unwrap_or_else(PoisonError::into_inner);
            let next_us = world.run();
            Duration::from_micros(next_us.saturating_sub(world.now_us()))
        };
        tokio::select! {
            () = bell.notified() => {}
            () = tokio::time::sleep(sleep) => {}
        }
    }
}

impl InsideState {
    fn now_us(&self) -> u64 {
        self.clock.now_us()
    }

    fn leader(&self) -> Option<usize> {
        let leads =
            |member: &InsideMember| member.up.as_ref().is_some_and(|up| up.node.replica().leads());
        self.members.iter().position(leads)
    }

    fn at(&mut self, id: MemberId) -> Option<&mut RunningMember> {
        self.members.iter_mut().find(|member| member.record.id == id)?.up.as_mut()
    }

    fn boot(&mut self, at: usize) {
        let records: Vec<MemberRecord> =
            self.members.iter().map(|member| member.record.clone()).collect();
        let now_us = self.now_us();
        let member = &mut self.members[at];
        let id = member.record.id;
        let boot = Boot {
            machine: directory::first_state(&records, tenure_core::LEVEL_MAX, Epoch::default()),
            applied: FIRST,
            members: Membership::of_voters(records.iter().map(|record| record.id)),
            base: FIRST,
            entries: member.log.clone(),
            hard_state: member.hard_state,
            notes: Vec::new(),
            cut: None,
            given: Default::default(),
        };
        // The log keeps every entry, so no member ever needs a snapshot.
        let (snapshot_entries, snapshot_bytes) = (u64::MAX, u64::MAX);
        let config = ReplicaConfig { snapshot_entries, snapshot_bytes, ..ReplicaConfig::new(id) };
        let level = config.level_known;
        let replica = Replica::new(config, boot, id.get()).expect("it wrote its log itself");
        let lineage = Lineage {
            cluster: directory::cluster_id(&records),
            epoch: Epoch::default(),
            incarnation: Incarnation::default(),
        };
        let (clock, bell) = (self.clock.clone(), Some(self.bell.clone()));
        let (handle, events) = MemberHandle::new(id, lineage.clone(), clock, bell);
        let admission = handle.admission().clone();
        let node_config = tenure_node::NodeConfig {
            command_bytes_max: COMMAND_BYTES_MAX,
            admission,
            identity: None,
            chunk_bytes: tenure_node::transfer::CHUNK_BYTES,
        };
        let net = Net::new(level, handle.clone(), Wire::new(None));
        let keys = SigningKeys::unkept(&lineage);
        let cluster = lineage.cluster;
        let dispatch =
            Dispatch::new(handle.clone(), net.clone(), cluster, true, keys, Handle::current());
        let listens = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listeners = InProcessListener::open(
            &dispatch,
            AllowedHosts::new(listens, &member.record.names.clients, []),
        );
        member.up = Some(RunningMember {
            told: replica.machine().revision(),
            node: Node::new(replica, node_config),
            member: handle,
            events,
            callers: Callers::default(),
            wake_us: now_us,
            fresh: true,
            link: LinkId::default(),
            net,
            listeners,
            connections: JoinSet::new(),
        });
        self.link(id, level);
    }

    /// Connects a member with every other running member.
    fn link(&mut self, id: MemberId, level: u16) {
        self.links += 1;
        let link = LinkId(self.links);
        if let Some(up) = self.at(id) {
            up.link = link;
        }
        let up = self.members.iter().filter(|member| member.record.id != id && member.up.is_some());
        let others: Vec<MemberId> = up.map(|member| member.record.id).collect();
        for other in others {
            for (here, member) in [(id, other), (other, id)] {
                let Some(up) = self.at(here) else { continue };
                up.node.handle(Input::Linked { member, link, level });
                up.fresh = true;
            }
        }
    }

    fn kill(&mut self, at: usize) {
        let Some(member) = self.members.get_mut(at) else { return };
        let (id, up) = (member.record.id, member.up.take());
        let Some(mut up) = up else { return };
        for member in &mut self.members {
            if let Some(other) = &mut member.up {
                other.node.handle(Input::Unreachable { member: id });
                // Of two members, the one that started later opened their connection.
                let link = other.link.max(up.link);
                other.node.handle(Input::Unlinked { member: id, link });
                other.fresh = true;
            }
        }
        up.connections.abort_all();
        up.member.over().end(End::Told);
        let mut outputs = Vec::new();
        up.node.end(&mut outputs);
        for output in outputs {
            up.callers.perform(output, &up.node, &up.member);
        }
        // A delivery wakes the member's tasks, which then see that it has ended.
        up.member.outbox().send(Delivery::Notices(Vec::new()));
        up.member.feed().close();
    }

    /// Gives turns until no member has anything to do. Returns the time of the next timer.
    fn run(&mut self) -> u64 {
        loop {
            let mut busy = false;
            while let Some((from, to, message)) = self.mail.pop_front() {
                // Of two members, the one that started later opened their connection.
                let link = self.at(from).map(|up| up.link).unwrap_or_default();
                if let Some(up) = self.at(to) {
                    let link = link.max(up.link);
                    up.node.handle(Input::Peer { from, link, message });
                    up.fresh = true;
                }
            }
            let now_us = self.now_us();
            for member in &mut self.members {
                busy |= member.turn(now_us, &mut self.mail);
            }
            if !busy && self.mail.is_empty() {
                break;
            }
        }
        let wakes = self.members.iter().filter_map(|member| Some(member.up.as_ref()?.wake_us));
        wakes.min().unwrap_or(u64::MAX)
    }

    fn let_expire(&mut self, lease: LeaseId) -> bool {
        self.run();
        let Some(ttl_ms) =
            self.ask_leader(|up| Some(up.node.machine().lease(LeaseRef::Id(lease))?.ttl_ms))
        else {
            return false;
        };
        // Twice the ttl and some elections: a lease that lives after that does not expire at all.
        let ticks_max = (ttl_ms * 2 + 10_000) * 1_000 / TICK_US;
        for tick in 0..ticks_max {
            if tick % RENEW_TICKS == 0 {
                self.renew_all_but(lease);
            }
            self.clock.ahead_us.fetch_add(TICK_US, Ordering::Relaxed);
            self.run();
            if self.ask_leader(|up| up.node.machine().lease(LeaseRef::Id(lease))).is_none() {
                return true;
            }
        }
        false
    }

    /// Queries the leader.
    fn ask_leader<T>(&self, ask: impl FnOnce(&RunningMember) -> Option<T>) -> Option<T> {
        ask(self.members[self.leader()?].up.as_ref()?)
    }

    fn renew_all_but(&mut self, lease: LeaseId) {
        let Some(at) = self.leader() else { return };
        let Some(up) = &mut self.members[at].up else { return };
        let all = up.node.machine().leases(None, LEASES_MAX);
        let others = all.iter().filter(|it| it.id != lease).map(|it| LeaseRef::Handle(it.handle));
        let others: Vec<LeaseRef> = others.collect();
        if others.is_empty() {
            return;
        }
        let command = Command::Renew(others);
        let request = dispatch::encode(&Principal::member(), RequestId::None, command);
        let (asked_at_us, deadline_us) = (self.clock.now_us(), u64::MAX);
        up.node.handle(Input::Submit(Box::new(tenure_node::CommandBatch {
            requests: [request].into(),
            linger_us: 0,
            asked_at_us,
            deadline_us,
            reply: ReplyTo::Call(NO_CALLER),
            permit: Permit::default(),
        })));
        up.fresh = true;
    }
}

impl InsideMember {
    /// Gives the member one turn if it has anything to do, and returns whether it had.
    fn turn(
        &mut self,
        now_us: u64,
        mail: &mut VecDeque<(MemberId, MemberId, PeerMessage)>,
    ) -> bool {
        let Some(up) = &mut self.up else { return false };
        let mut input = std::mem::take(&mut up.fresh);
        for event in up.events.take_all() {
            up.handle(event);
            input = true;
        }
        if !input && now_us < up.wake_us {
            return false;
        }
        // Virtual time began in 1970.
        up.node.handle(Input::WallClock(WallClock { unix_ms: now_us / 1_000 }));
        let mut outputs = Vec::new();
        // Handovers are not measured inside a test.
        let mut counted = CountingObserver { meters: up.member.meters(), freed: &mut Vec::new() };
        up.wake_us = up.node.turn(now_us, &mut outputs, &mut counted);
        up.member.publish(up.node.machine());
        for output in outputs {
            match output {
                Output::Send { to, message } => {
                    mail.push_back((up.node.replica().id(), to, message));
                }
                Output::Persist(persist) => {
                    let number = persist.number;
                    write(&mut self.log, &mut self.hard_state, *persist);
                    up.node.handle(Input::Persisted { number });
                    up.fresh = true;
                }
                other => up.perform(other),
            }
        }
        up.member.outbox().ring();
        true
    }
}

impl RunningMember {
    fn handle(&mut self, event: LoopEvent) {
        self.member.meters().taken(1);
        match self.callers.take(event) {
            Ok(input) => self.node.handle(input),
            Err(LoopEvent::Inspect { ask, .. }) => ask(&self.node),
            Err(LoopEvent::Freeze { done }) => drop(done.send(self.node.freeze())),
            // There are no sockets, there is no disk that reports anything, and no member leaves or dies.
            Err(
                LoopEvent::Prepared(_)
                | LoopEvent::Synced(_)
                | LoopEvent::Incoming(_)
                | LoopEvent::Leave { .. }
                | LoopEvent::Die(_),
            ) => {}
            Err(
                LoopEvent::Input(_)
                | LoopEvent::Call { .. }
                | LoopEvent::Read(_)
                | LoopEvent::Admin { .. }
                | LoopEvent::Join { .. },
            ) => unreachable!("the node takes these"),
        }
    }

    fn perform(&mut self, output: Output) {
        let Some(output) = self.callers.perform(output, &self.node, &self.member) else { return };
        match output {
            Output::Notices(notices) => self.member.outbox().put(Delivery::Notices(notices)),
            Output::Applied { .. } => {
                let uncounted: Option<fn(_)> = None;
                self.member.feed().offer(&mut self.told, self.node.machine(), uncounted, None);
            }
            Output::Led(lead) => self.member.set_lead(lead),
            Output::Directory { directory, .. } => self.net.learn_names(&directory),
            Output::SendSnapshot { to, .. } => {
                self.node.handle(Input::SnapshotSent { to, saved: SnapshotDelivery::Failed });
            }
            Output::SaveSnapshot { point, .. } => {
                self.node.handle(Input::SnapshotSaved { point, saved: SnapshotDelivery::Failed });
            }
            Output::Skipped => self.member.outbox().put(Delivery::CloseAll),
            Output::CallBack { join, .. } => {
                let answer = Err("no member joins inside a test".to_owned());
                self.node.handle(Input::CalledBack { join, answer });
            }
            // There are no snapshots: the log keeps every entry.
            Output::CompactLog { .. } => {}
            Output::FindSnapshot { to, point } => {
                self.node.handle(Input::SnapshotFound { to, point, id: None });
            }
            Output::OpenTransfer { number, .. } => {
                let reason = TransferRefusal::Disk;
                self.node.handle(Input::TransferFailed { number, reason });
            }
            Output::ReadChunk { .. }
            | Output::WriteChunk { .. }
            | Output::FinishTransfer { .. } => unreachable!("no snapshot was found or begun"),
            // The failed search of a snapshot has told the node all of it.
            Output::TransferEnded { .. } => {}
            // A member that hears of no leader asks whether it was removed. No member is removed here.
            Output::AskStanding { .. } => {}
            Output::MayEnd => unreachable!("no member is told to leave: `kill` ends it"),
            Output::Stop(stop) => unreachable!("members in one test agree: {stop}"),
            Output::Send { .. } | Output::Persist(_) => unreachable!("the turn performs these"),
            Output::Answer { .. }
            | Output::ReadReady { .. }
            | Output::ReadFailed { .. }
            | Output::JoinAnswer { .. }
            | Output::AdminDone { .. } => unreachable!("callers take these"),
        }
    }
}

/// Appends to a log that never fails.
fn write(log: &mut Vec<LogEntry>, hard_state: &mut HardState, persist: Persist) {
    if let Some(first) = persist.entries.first() {
        log.retain(|entry| entry.index < first.index);
        log.extend(persist.entries);
    }
    if let Some(newer) = persist.hard_state {
        *hard_state = newer;
    }
}
