//! How do the members of a cluster live inside one test, on the time of its Tokio runtime?
//!
//! Replicas, edges and doors are those that ship. What surrounds them is not: one task gives all members their
//! turns, logs are lists, messages between members arrive at once, and clients come in through pipes.
//! Everything is on one thread, as a paused runtime is, so whenever nobody has anything to do, time is the next
//! timer's. For `tenure-testkit`; nothing here is part of the server's interface.

use std::cell::Cell;
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tenure_core::request::{Command, LeaseRef, RequestId};
use tenure_raft::{
    Boot, Config, FIRST, Input, MemberId, Membership, Message, Output, Persist, Replica, Saved,
    TICK_US, Ticket,
};
use tenure_store::{Entry, HardState};
use tenure_types::{Epoch, LeaseId, Revision};
use tokio::io::{DuplexStream, duplex};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::book::{self, Card, Names, Preference};
use crate::door::{Hosts, Inside as Doors};
use crate::edge::{self, Delivery, Edge, Principal};
use crate::lineage::{Incarnation, Lineage};
use crate::member::{End, Event, Lead, Member};
use crate::peer::{Net, Wire};
use crate::ticket::Keys;
use crate::waiting::{Seen, Waiting};

/// Virtual time begins here.
const BEGIN_US: u64 = 1_000_000_000;
/// What a pipe holds before its writer waits.
const PIPE_BYTES: usize = 256 * 1024;
/// As for a member with the usual segments.
const COMMAND_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Answers that nobody waits for; others count from 1.
const NOBODY: Ticket = Ticket(0);
/// Leases of one test, at most.
const LEASES_MAX: usize = 4_096;
/// How often others are renewed while one lease runs out, in ticks.
const RENEW_TICKS: u64 = 5;

thread_local! {
    static BEGAN: Cell<Option<Instant>> = const { Cell::new(None) };
    static ENTERED: Cell<u32> = const { Cell::new(0) };
}

/// The time of this thread's runtime, if members live on it.
pub(crate) fn now_us() -> Option<u64> {
    let passed = Instant::now().saturating_duration_since(BEGAN.get()?);
    Some(BEGIN_US + u64::try_from(passed.as_micros()).unwrap_or(u64::MAX - BEGIN_US))
}

/// A cluster inside this test. It ends when this is dropped.
pub struct Inside {
    world: Arc<Mutex<World>>,
    driver: tokio::task::JoinHandle<()>,
    // It belongs to the thread that began it.
    _here: std::marker::PhantomData<*const ()>,
}

struct World {
    seats: Vec<Seat>,
    bell: Arc<Notify>,
    mail: VecDeque<(MemberId, MemberId, Message)>,
    /// How much the members' clocks are ahead of everybody else's.
    ahead_us: u64,
}

/// A member, whether it runs or not.
struct Seat {
    card: Card,
    /// Its disk.
    log: Vec<Entry>,
    hard_state: HardState,
    up: Option<Up>,
}

/// A member that runs.
struct Up {
    replica: Replica,
    member: Member,
    events: Receiver<Event>,
    waiting: Waiting,
    told: Revision,
    wake_us: u64,
    /// It was handed something since its last turn.
    fresh: bool,
    net: Arc<Net>,
    doors: Doors,
    connections: JoinSet<()>,
}

impl Inside {
    /// Starts a cluster whose members clients find at these addresses.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime.
    pub fn start(addresses: &[String]) -> Self {
        if ENTERED.replace(ENTERED.get() + 1) == 0 {
            BEGAN.set(Some(Instant::now()));
        }
        let card = |(at, address): (u64, &String)| Card {
            id: MemberId::new(at).expect("counted from 1"),
            names: Names {
                name: format!("member-{at}"),
                members: "-".to_owned(),
                clients: address.clone(),
                preference: Preference::default(),
            },
        };
        let cards: Vec<Card> = (1..).zip(addresses).map(card).collect();
        let seat = |card: Card| {
            let hard_state = HardState { term: FIRST.term, vote: None, commit: FIRST.index };
            Seat { card, log: Vec::new(), hard_state, up: None }
        };
        let seats = cards.into_iter().map(seat).collect();
        let (bell, mail) = (Arc::<Notify>::default(), VecDeque::new());
        let mut world = World { seats, bell: bell.clone(), mail, ahead_us: 0 };
        for at in 0..world.seats.len() {
            world.boot(at);
        }
        let world = Arc::new(Mutex::new(world));
        let driver = tokio::spawn(drive(Arc::downgrade(&world), bell));
        Self { world, driver, _here: std::marker::PhantomData }
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A way to open pipes to members, for clients.
    pub fn dialler(&self) -> impl Fn(&str) -> Option<DuplexStream> + 'static {
        let world = Arc::downgrade(&self.world);
        move |address| {
            let world = world.upgrade()?;
            let mut world = world.lock().unwrap_or_else(PoisonError::into_inner);
            let seat = world.seats.iter_mut().find(|seat| seat.card.names.clients == address)?;
            let up = seat.up.as_mut()?;
            let (here, there) = duplex(PIPE_BYTES);
            // Those that have ended are let go of.
            while up.connections.try_join_next().is_some() {}
            let serving = up.doors.serve(there);
            up.connections.spawn(serving);
            Some(here)
        }
    }

    /// Which member leads, counted from 0; nobody while they elect.
    pub fn leader(&self) -> Option<usize> {
        self.world().leader()
    }

    /// Which members run, counted from 0.
    pub fn running(&self) -> Vec<usize> {
        let world = self.world();
        let up = world.seats.iter().enumerate().filter(|(_, seat)| seat.up.is_some());
        up.map(|(at, _)| at).collect()
    }

    /// Kills a member: its connections break, and it keeps what is in its log.
    pub fn kill(&self, at: usize) {
        self.world().kill(at);
    }

    /// Starts a member again, from its log.
    pub fn restart(&self, at: usize) {
        let mut world = self.world();
        if world.seats.get(at).is_some_and(|seat| seat.up.is_none()) {
            world.boot(at);
            world.bell.notify_one();
        }
    }

    /// Has a lease run out at this very moment: the members' clock goes on until it has, while every other lease is
    /// renewed. Whether it lived, and ended.
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
        for at in 0..world.seats.len() {
            world.kill(at);
        }
        drop(world);
        ENTERED.set(ENTERED.get() - 1);
        if ENTERED.get() == 0 {
            BEGAN.set(None);
        }
    }
}

/// Gives turns as long as the cluster is there.
async fn drive(world: Weak<Mutex<World>>, bell: Arc<Notify>) {
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

impl World {
    fn now_us(&self) -> u64 {
        crate::os::now_us() + self.ahead_us
    }

    fn leader(&self) -> Option<usize> {
        let leads = |seat: &Seat| seat.up.as_ref().is_some_and(|up| up.replica.leads());
        self.seats.iter().position(leads)
    }

    fn at(&mut self, id: MemberId) -> Option<&mut Up> {
        self.seats.iter_mut().find(|seat| seat.card.id == id)?.up.as_mut()
    }

    fn boot(&mut self, at: usize) {
        let cards: Vec<Card> = self.seats.iter().map(|seat| seat.card.clone()).collect();
        let now_us = self.now_us();
        let seat = &mut self.seats[at];
        let id = seat.card.id;
        let boot = Boot {
            machine: book::first_state(&cards, Epoch::default()),
            applied: FIRST,
            members: Membership::of_voters(cards.iter().map(|card| card.id)),
            base: FIRST,
            entries: seat.log.clone(),
            hard_state: seat.hard_state,
            notes: Vec::new(),
            cut: None,
            given: Default::default(),
        };
        // What is in the log stays there: nobody ever needs a snapshot.
        let (snapshot_entries, snapshot_bytes) = (u64::MAX, u64::MAX);
        let config = Config { snapshot_entries, snapshot_bytes, ..Config::new(id) };
        let level = config.level_known;
        let replica = Replica::new(config, boot, id.get()).expect("it wrote its log itself");
        let lineage = Lineage {
            cluster: book::cluster_id(&cards),
            epoch: Epoch::default(),
            incarnation: Incarnation::default(),
        };
        let (mut member, events) = Member::new(id, lineage.clone(), COMMAND_BYTES_MAX);
        member.bell = self.bell.clone();
        let net = Net::new(level, member.clone(), Wire::new(None));
        let keys = Keys::unkept(&lineage);
        let cluster = lineage.cluster;
        let edge = Edge::new(member.clone(), net.clone(), cluster, true, keys, Handle::current());
        let listens = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let doors = Doors::open(&edge, Hosts::new(listens, &seat.card.names.clients, []));
        seat.up = Some(Up {
            told: replica.machine().revision(),
            replica,
            member: member.clone(),
            events,
            waiting: Waiting::default(),
            wake_us: now_us,
            fresh: true,
            net,
            doors,
            connections: JoinSet::new(),
        });
        self.link(id, &member, level);
    }

    /// Everybody can reach a member, and it can reach everybody.
    fn link(&mut self, id: MemberId, member: &Member, level: u16) {
        let others: Vec<(MemberId, Member)> = self
            .seats
            .iter()
            .filter(|seat| seat.card.id != id)
            .filter_map(|seat| Some((seat.card.id, seat.up.as_ref()?.member.clone())))
            .collect();
        for (other, there) in others {
            for (here, peer, handle) in [(id, other, &there), (other, id, member)] {
                let Some(up) = self.at(here) else { continue };
                up.replica.handle(Input::Knows { member: peer, level });
                up.replica.handle(Input::Linked { member: peer });
                up.fresh = true;
                let mut inside = up.net.inside.lock().unwrap_or_else(PoisonError::into_inner);
                inside.insert(peer, handle.clone());
            }
        }
    }

    fn kill(&mut self, at: usize) {
        let Some(seat) = self.seats.get_mut(at) else { return };
        let (id, up) = (seat.card.id, seat.up.take());
        let Some(mut up) = up else { return };
        for seat in &mut self.seats {
            if let Some(other) = &mut seat.up {
                other.replica.handle(Input::Unreachable { member: id });
                other.net.inside.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
            }
        }
        up.connections.abort_all();
        up.member.over().end(End::Told);
        up.waiting.end();
        // A delivery is what has its tasks look, and see that it has ended.
        up.member.outbox().send(Delivery::Notices(Vec::new()));
        up.member.feed().close();
    }

    /// Gives turns until nobody has anything to do; when somebody will.
    fn run(&mut self) -> u64 {
        loop {
            let mut busy = false;
            while let Some((from, to, message)) = self.mail.pop_front() {
                if let Some(up) = self.at(to) {
                    up.replica.handle(Input::Message { from, message });
                    up.fresh = true;
                }
            }
            let now_us = self.now_us();
            for seat in &mut self.seats {
                busy |= seat.turn(now_us, &mut self.mail);
            }
            if !busy && self.mail.is_empty() {
                break;
            }
        }
        let wakes = self.seats.iter().filter_map(|seat| Some(seat.up.as_ref()?.wake_us));
        wakes.min().unwrap_or(u64::MAX)
    }

    fn let_expire(&mut self, lease: LeaseId) -> bool {
        self.run();
        let Some(ttl_ms) =
            self.look(|up| Some(up.replica.machine().lease(LeaseRef::Id(lease))?.ttl_ms))
        else {
            return false;
        };
        // Twice the ttl and some elections: if it lives then, nobody counts.
        let ticks_max = (ttl_ms * 2 + 10_000) * 1_000 / TICK_US;
        for tick in 0..ticks_max {
            if tick % RENEW_TICKS == 0 {
                self.renew_all_but(lease);
            }
            self.ahead_us += TICK_US;
            self.run();
            if self.look(|up| up.replica.machine().lease(LeaseRef::Id(lease))).is_none() {
                return true;
            }
        }
        false
    }

    /// What the leader knows.
    fn look<T>(&self, ask: impl FnOnce(&Up) -> Option<T>) -> Option<T> {
        ask(self.seats[self.leader()?].up.as_ref()?)
    }

    fn renew_all_but(&mut self, lease: LeaseId) {
        let Some(at) = self.leader() else { return };
        let Some(up) = &mut self.seats[at].up else { return };
        let all = up.replica.machine().leases(None, LEASES_MAX);
        let others = all.iter().filter(|it| it.id != lease).map(|it| LeaseRef::Handle(it.handle));
        let others: Vec<LeaseRef> = others.collect();
        if others.is_empty() {
            return;
        }
        let command = Command::Renew(others);
        let request = edge::encode(&Principal::anyone(), RequestId::None, command);
        up.replica.handle(Input::Submit {
            ticket: NOBODY,
            requests: vec![request],
            patience_us: 0,
        });
        up.fresh = true;
    }
}

impl Seat {
    /// One turn, if it has anything to do; whether it had.
    fn turn(&mut self, now_us: u64, mail: &mut VecDeque<(MemberId, MemberId, Message)>) -> bool {
        let Some(up) = &mut self.up else { return false };
        let mut input = std::mem::take(&mut up.fresh);
        while let Ok(event) = up.events.try_recv() {
            up.handle(event);
            input = true;
        }
        if !input && now_us < up.wake_us {
            return false;
        }
        let mut outputs = Vec::new();
        up.wake_us = up.replica.turn(now_us, &mut outputs);
        for output in outputs {
            match output {
                Output::Send { to, message } => mail.push_back((up.replica.id(), to, message)),
                Output::Persist(persist) => {
                    let number = persist.number;
                    write(&mut self.log, &mut self.hard_state, persist);
                    up.replica.handle(Input::Persisted { number });
                    up.fresh = true;
                }
                other => up.perform(other, now_us),
            }
        }
        up.member.outbox().ring();
        true
    }
}

impl Up {
    fn handle(&mut self, event: Event) {
        let input = match event {
            Event::Input(input) => input,
            Event::Submit(submission) => match self.waiting.submit(submission) {
                Some((ticket, requests, patience_us)) => {
                    Input::Submit { ticket, requests, patience_us }
                }
                None => return,
            },
            Event::Read(ask) => Input::Read { ticket: self.waiting.read(ask) },
            Event::Wish { wish, done } => Input::Admin { ticket: self.waiting.wish(done), wish },
            Event::Look(ask) => return ask(&self.replica),
            Event::Freeze { done } => return drop(done.send(self.replica.freeze())),
            // There is no disk, and nobody leaves.
            Event::Prepared(_) | Event::Synced(_) | Event::Leave { .. } | Event::Die(_) => return,
        };
        self.replica.handle(input);
    }

    fn perform(&mut self, output: Output, now_us: u64) {
        match output {
            Output::Answer { ticket, fate } => {
                // Figures of hand-overs are nobody's business inside a test.
                let (meters, freed) = (self.member.meters(), &mut Vec::new());
                self.waiting.answer(ticket, fate, &mut Seen { now_us, meters, freed });
            }
            Output::ReadReady { ticket } => self.waiting.read_ready(ticket, self.replica.machine()),
            Output::ReadFailed { ticket } => self.waiting.read_failed(ticket),
            Output::Changed { ticket, result } => self.waiting.changed(ticket, result),
            Output::Notices(notices) => self.member.outbox().put(Delivery::Notices(notices)),
            Output::Applied { .. } => {
                let uncounted: Option<fn(_)> = None;
                self.member.feed().offer(&mut self.told, self.replica.machine(), uncounted);
            }
            Output::Led { term, by } => self.member.set_lead(Lead { term, by }),
            Output::SendSnapshot { to, .. } => {
                self.replica.handle(Input::SnapshotSent { to, saved: Saved::No });
            }
            Output::SaveSnapshot { point, .. } => {
                self.replica.handle(Input::SnapshotSaved { point, saved: Saved::No });
            }
            Output::CompactLog { .. } => {}
            Output::Stop(stop) => unreachable!("members in one test agree: {stop}"),
            Output::Send { .. } | Output::Persist(_) => unreachable!("done by the caller"),
        }
    }
}

/// A log that never fails.
fn write(log: &mut Vec<Entry>, hard_state: &mut HardState, persist: Persist) {
    if let Some(first) = persist.entries.first() {
        log.retain(|entry| entry.index < first.index);
        log.extend(persist.entries);
    }
    if let Some(newer) = persist.hard_state {
        *hard_state = newer;
    }
}
