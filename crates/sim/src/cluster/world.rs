//! How does everything run on one thread?

use std::collections::BTreeMap;

use bytes::Bytes;
use fastrand::Rng;
use tenure_raft::{
    Config, Fate, Input, Kind, MemberId, Membership, Message, Output, Saved, Step, Stop, Ticket,
};
use tenure_store::sim::{Fault, Restart};

use super::client::{Attempt, Client};
use super::event::{Event, Queue};
use super::nemesis::{Nemesis, RECOVERY_US};
use super::network::{Network, Weather};
use super::node::{Node, Wrote};
use super::oracle::{Oracle, ensure};
use super::packet::{Address, Packet, Reply};
use super::{MS, S, Tally};
use crate::invariant::{Check, Violation};

/// What came of one seed.
pub struct Ran {
    /// The broken promise, if one was.
    pub failure: Option<Violation>,
    /// Simulated time.
    pub sim_us: u64,
    /// What happened.
    pub tally: Tally,
    /// Over everything that was sent, in order.
    pub trace: u64,
}

impl Ran {
    pub(super) fn failed(violation: Violation) -> Self {
        Self { failure: Some(violation), sim_us: 0, tally: Tally::default(), trace: 0 }
    }
}

/// A cluster, its clients, and what goes wrong.
pub struct World {
    pub(super) rng: Rng,
    pub(super) now_us: u64,
    pub(super) queue: Queue,
    pub(super) nodes: Vec<Node>,
    pub(super) clients: Vec<Client>,
    pub(super) network: Network,
    pub(super) oracle: Oracle,
    pub(super) nemesis: Nemesis,
    pub(super) attempts: BTreeMap<u64, Attempt>,
    pub(super) attempts_made: u64,
    pub(super) tally: Tally,
    /// The newest membership that anybody has applied.
    pub(super) members: Membership,
    members_at: u64,
    trace: u64,
    newest_arrival: BTreeMap<(Address, Address), u64>,
    /// Whether a cut link loses what is on its way.
    in_flight_lost: bool,
    pub(super) slow_sync: u64,
    snapshot_entries: u64,
    pub(super) verbose: bool,
}

impl World {
    /// A cluster that follows from a seed.
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let size = if rng.u8(0..3) == 0 { 5 } else { 3 };
        let worst =
            [(0, 0, 0), (5, 5, 5), (50, 20, 20), (200, 50, 30), (20, 20, 200)][rng.usize(0..5)];
        let weather = Weather {
            drop: worst.0,
            duplicate: worst.1,
            spike: worst.2,
            delay_us: (100, rng.u64(500..10 * MS)),
        };
        let mut world = Self {
            now_us: 0,
            queue: Queue::default(),
            nodes: Vec::new(),
            clients: Vec::new(),
            network: Network::new(weather),
            oracle: Oracle::new(),
            nemesis: Nemesis::new(&mut rng),
            attempts: BTreeMap::new(),
            attempts_made: 0,
            tally: Tally::default(),
            members: Membership::default(),
            members_at: 0,
            trace: seed,
            newest_arrival: BTreeMap::new(),
            in_flight_lost: rng.bool(),
            slow_sync: [0, 0, 5, 30][rng.usize(0..4)],
            snapshot_entries: [40, 100, 400][rng.usize(0..3)],
            verbose: false,
            rng,
        };
        (0..size).for_each(|_| {
            world.new_node();
        });
        let voters = Membership::of_voters(world.nodes.iter().map(|node| node.id));
        for node in 0..size {
            world.nodes[node].found(&voters).expect("an empty disk without faults takes a log");
            world.queue.push(0, Event::Start { node });
        }
        world.members = voters;
        let clients = world.rng.usize(1..=6);
        for client in 0..clients {
            let rate_ppm = world.draw_rate();
            world.clients.push(Client::new(&mut world.rng, rate_ppm));
            world.queue.push(S + client as u64 * MS, Event::Client { client });
        }
        world.queue.push(2 * S, Event::Nemesis);
        world
    }

    /// Prints what happens.
    pub fn verbose(mut self) -> Self {
        self.verbose = true;
        self
    }

    /// Runs until a promise is broken or the time is over.
    pub fn run(mut self) -> Ran {
        let failure = self.run_phases().err();
        for node in &self.nodes {
            for (fault, times) in node.disk.counts() {
                let kind = match fault {
                    Fault::LostWrite => "lost_write",
                    Fault::TornWrite => "torn_write",
                    Fault::WriteError => "write_error",
                    Fault::SyncError => "sync_error",
                    Fault::NoSpace => "no_space",
                    _ => continue,
                };
                self.tally.count_by(kind, times);
            }
        }
        self.tally.count_by("term", self.oracle.terms() as u64);
        self.tally.count_by("entry", self.oracle.last());
        let Self { now_us: sim_us, tally, trace, .. } = self;
        Ran { failure, sim_us, tally, trace }
    }

    fn run_phases(&mut self) -> Check {
        let faulty_us = self.rng.u64(40..120) * S;
        self.run_until(faulty_us)?;
        self.heal();
        let limit_us = self.now_us + RECOVERY_US;
        while !self.has_recovered() {
            ensure(self.now_us < limit_us, "L1", || self.describe())?;
            self.run_until(self.now_us + S)?;
        }
        Ok(())
    }

    fn run_until(&mut self, end_us: u64) -> Check {
        while let Some((at_us, event)) = self.queue.pop() {
            if at_us > end_us {
                self.queue.push(at_us, event);
                break;
            }
            self.now_us = at_us;
            self.happen(event)?;
        }
        self.now_us = end_us;
        Ok(())
    }

    fn happen(&mut self, event: Event) -> Check {
        match event {
            Event::Turn { node, boot } => self.turn(node, boot),
            Event::Arrive { from, to, packet } => self.arrive(from, to, packet),
            Event::Sync { node, boot } => self.sync(node, boot),
            Event::Synced { node, boot, number } => {
                self.give(node, boot, Input::Persisted { number });
                Ok(())
            }
            Event::Write { node, boot } if self.nodes[node].boot == boot => {
                if let Some(process) = &mut self.nodes[node].process {
                    process.retrying = false;
                }
                self.write(node)
            }
            Event::Save { node, boot } if self.nodes[node].boot == boot => {
                self.save(node);
                Ok(())
            }
            Event::Sent { node, boot, to, saved } => {
                self.give(node, boot, Input::SnapshotSent { to, saved });
                Ok(())
            }
            Event::Start { node } => self.start(node),
            Event::Client { client } => self.client_acts(client),
            Event::Nemesis => self.strike(),
            Event::Write { .. } | Event::Save { .. } => Ok(()),
        }
    }

    pub(super) fn new_node(&mut self) -> usize {
        let number = self.nodes.len() as u64 + 1;
        let id = MemberId::new(number).expect("numbers start at one");
        let rate_ppm = self.draw_rate();
        let (seed, offset_us) = (self.rng.u64(..), self.rng.u64(0..1000 * S));
        self.nodes.push(Node::new(id, seed, rate_ppm, offset_us));
        self.nodes.len() - 1
    }

    fn draw_rate(&mut self) -> i64 {
        if self.rng.bool() {
            return 0;
        }
        self.tally.count("clock_rate");
        self.rng.i64(-super::oracle::RATE_PPM..=super::oracle::RATE_PPM)
    }

    pub(super) fn at(&self, id: MemberId) -> Option<usize> {
        self.nodes.iter().position(|node| node.id == id)
    }

    /// Hands an input to a member, and wakes it.
    pub(super) fn give(&mut self, node: usize, boot: u64, input: Input) {
        let target = &mut self.nodes[node];
        if target.boot == boot
            && let Some(process) = &mut target.process
        {
            process.inbox.push(input);
            let at_us = self.now_us + self.rng.u64(20..200);
            self.wake(node, at_us);
        }
    }

    fn wake(&mut self, node: usize, at_us: u64) {
        let target = &mut self.nodes[node];
        let at_us = at_us.max(target.paused_until_us);
        if target.turn_at_us.is_none_or(|old| at_us < old) {
            target.turn_at_us = Some(at_us);
            self.queue.push(at_us, Event::Turn { node, boot: target.boot });
        }
    }

    fn start(&mut self, node: usize) -> Check {
        if self.nodes[node].is_up() || self.nodes[node].dead {
            return Ok(());
        }
        let config = Config {
            snapshot_entries: self.snapshot_entries,
            hash_every: 20,
            batch_bytes: 8 * 1024,
            ..Config::new(self.nodes[node].id)
        };
        let entropy = self.rng.u64(..);
        if let Err(error) = self.nodes[node].start(config, entropy) {
            self.nodes[node].process = None;
            self.say(|| format!("{node} does not start: {error:#}"));
            if self.nodes[node].damaged {
                self.nodes[node].dead = true;
            } else {
                // The disk may still be full or failing.
                self.nodes[node].crash(Restart::ProcessKilled);
                self.queue.push(self.now_us + S, Event::Start { node });
                ensure(!error.to_string().contains("corrupt"), "S8", || {
                    format!("{node} cannot start: {error:#}")
                })?;
            }
            return Ok(());
        }
        self.say(|| format!("{node} starts"));
        let process = self.nodes[node].process.as_ref().expect("it has just started");
        let (seen, machine) = (process.seen, process.replica.machine());
        self.oracle.state(node, seen, machine)?;
        self.wake(node, self.now_us);
        Ok(())
    }

    fn turn(&mut self, node: usize, boot: u64) -> Check {
        let target = &mut self.nodes[node];
        if target.boot != boot || target.turn_at_us != Some(self.now_us) {
            return Ok(());
        }
        target.turn_at_us = None;
        if target.paused_until_us > self.now_us {
            let at_us = target.paused_until_us;
            self.wake(node, at_us);
            return Ok(());
        }
        let local_us = target.local_us(self.now_us);
        let Some(process) = &mut target.process else { return Ok(()) };
        for input in process.inbox.drain(..) {
            process.replica.handle(input);
        }
        let mut outputs = std::mem::take(&mut process.outputs);
        let wake_us = process.replica.turn(local_us, &mut outputs);
        let wake_us = target.real_us(wake_us).max(self.now_us + 1);
        self.wake(node, wake_us);
        // The oracle learns what was applied before anybody hears of it.
        self.applied(node)?;
        for output in outputs.drain(..) {
            self.perform(node, output)?;
        }
        if let Some(process) = &mut self.nodes[node].process {
            process.outputs = outputs;
            self.write(node)?;
        }
        Ok(())
    }

    fn perform(&mut self, node: usize, output: Output) -> Check {
        let Some(process) = &mut self.nodes[node].process else { return Ok(()) };
        match output {
            Output::Send { to, message } => self.send_raft(node, to, &message),
            Output::SendSnapshot { to, step } => {
                self.send_snapshot(node, to, step);
                Ok(())
            }
            Output::Persist(persist) => {
                let status = process.replica.status();
                if status.leading {
                    let stalled = self.nodes[node].stalled;
                    let own = |entry: &&tenure_store::Entry| entry.term == status.term.0;
                    for entry in persist.entries.iter().filter(own) {
                        self.oracle.seals(entry, self.now_us, stalled);
                    }
                }
                let process = self.nodes[node].process.as_mut().expect("it was there above");
                process.batches.push_back(persist);
                Ok(())
            }
            Output::Answer { ticket, fate } => self.answer(node, ticket, fate),
            Output::ReadReady { ticket } => {
                let applied = process.replica.status().applied.index;
                self.read_ready(node, ticket, applied)
            }
            Output::ReadFailed { ticket } => {
                self.reply(node, ticket.0, Reply::NotDone);
                Ok(())
            }
            Output::SaveSnapshot { point, meta, frozen } => {
                process.saving = Some((point, meta, frozen));
                let at_us = self.now_us + self.rng.u64(MS..100 * MS);
                let boot = self.nodes[node].boot;
                self.queue.push(at_us, Event::Save { node, boot });
                Ok(())
            }
            Output::CompactLog { to } => {
                process.compact_to = Some(to);
                Ok(())
            }
            Output::Led { term, by } => {
                self.say(|| format!("{node} in {term:?} is led by {by:?}"));
                if by == Some(self.nodes[node].id) {
                    self.oracle.leads(node, term.0)?;
                }
                Ok(())
            }
            Output::Changed { ticket, result } => {
                self.say(|| format!("change {ticket:?} at {node}: {result:?}"));
                Ok(())
            }
            Output::Stop(reason) => self.stopped(node, &reason),
            Output::Applied { .. } | Output::Notices(_) => Ok(()),
        }
    }

    fn stopped(&mut self, node: usize, reason: &Stop) -> Check {
        self.say(|| format!("{node} stops: {reason}"));
        let target = &mut self.nodes[node];
        let expected = match reason {
            Stop::Removed => true,
            Stop::Forgot { .. } => target.must_stop.is_some(),
            _ => false,
        };
        target.crash(Restart::ProcessKilled);
        target.dead = true;
        let invariant = if matches!(reason, Stop::Diverged { .. }) { "S9" } else { "S8" };
        ensure(expected, invariant, || format!("{node} stopped: {reason}"))
    }

    /// A member has applied entries, or a snapshot.
    fn applied(&mut self, node: usize) -> Check {
        let Some(process) = &mut self.nodes[node].process else { return Ok(()) };
        let applied = process.replica.status().applied;
        if applied == process.seen {
            return Ok(());
        }
        let from = process.seen.index + 1;
        process.seen = applied;
        for index in from..=applied.index {
            match process.replica.entry(index) {
                Some(entry) => self.oracle.applies(node, entry)?,
                None => {
                    // A snapshot has taken the place of everything up to here.
                    self.tally.count("snapshot_installed");
                    break;
                }
            }
        }
        self.oracle.state(node, applied, process.replica.machine())?;
        if applied.index > self.members_at && *process.replica.members() != self.members {
            self.members = process.replica.members().clone();
            if self.members.is_joint() {
                self.tally.count("joint");
            }
        }
        self.members_at = self.members_at.max(applied.index);
        Ok(())
    }

    fn answer(&mut self, node: usize, ticket: Ticket, fate: Fate) -> Check {
        let attempt = ticket.0;
        let Some(found) = self.attempts.get(&attempt) else { return Ok(()) };
        let reply = match fate {
            Fate::Applied(outcomes) => {
                let Some(outcome) = outcomes.into_iter().next() else {
                    return Err(Violation::new("S13", format!("no outcome for {attempt}")));
                };
                self.oracle.answers(attempt, found.key.as_deref(), &outcome)?;
                Reply::Outcome(outcome)
            }
            Fate::NotDone { .. } => {
                self.tally.count("not_done");
                if found.key.is_none() {
                    self.oracle.answers_not_done(attempt)?;
                }
                Reply::NotDone
            }
            Fate::Unknown { .. } => {
                self.tally.count("unknown");
                Reply::Unknown
            }
        };
        self.reply(node, attempt, reply);
        Ok(())
    }

    fn reply(&mut self, node: usize, attempt: u64, reply: Reply) {
        let Some(found) = self.attempts.get(&attempt) else { return };
        let to = match found.relay {
            Some(relay) if relay != node => Address::Node(relay),
            _ => Address::Client(found.client),
        };
        self.send(Address::Node(node), to, Packet::Reply { attempt, reply });
    }

    /// S6: a read sees whatever was acknowledged before it began.
    fn read_ready(&mut self, node: usize, ticket: Ticket, applied: u64) -> Check {
        let Some(found) = self.attempts.get(&ticket.0) else { return Ok(()) };
        let floor = found.floor;
        ensure(applied >= floor, "S6", || {
            format!("{node} served a read at {applied}, {floor} was acknowledged before it began")
        })?;
        self.tally.count("read");
        self.reply(node, ticket.0, Reply::Read);
        Ok(())
    }

    fn send_raft(&mut self, node: usize, to: MemberId, message: &Message) -> Check {
        if let Message::Step(step) = message {
            self.check_step(node, to, step)?;
        }
        if let Some(target) = self.at(to) {
            let packet = Packet::Raft(Bytes::from(message.encode()));
            self.send(Address::Node(node), Address::Node(target), packet);
        }
        Ok(())
    }

    /// S12, S8: what a member lets others know must be durable.
    fn check_step(&mut self, node: usize, to: MemberId, step: &Step) -> Check {
        if step.reject || self.nodes[node].must_stop.is_some() {
            return Ok(());
        }
        match step.kind {
            Kind::VoteAnswer => self.oracle.votes(node, step.term, to.get()),
            Kind::AppendAnswer => {
                let durable = self.nodes[node].process.as_ref().map_or(0, |p| p.durable);
                let index = step.index;
                ensure(index <= durable, "S8", || {
                    format!("{node} acknowledged {index}, {durable} is durable")
                })
            }
            _ => Ok(()),
        }
    }

    pub(super) fn send(&mut self, from: Address, to: Address, packet: Packet) {
        let mut delays = self.network.send(from, to, &mut self.rng, &mut self.tally);
        if !matches!(packet, Packet::Raft(_)) {
            // A session is a stream: what it carries is lost or late, never doubled.
            delays.truncate(1);
        }
        for delay_us in delays {
            let at_us = self.now_us + delay_us;
            let newest = self.newest_arrival.entry((from, to)).or_default();
            if at_us < *newest {
                self.tally.count("reorder");
            }
            *newest = at_us.max(*newest);
            self.queue.push(at_us, Event::Arrive { from, to, packet: packet.clone() });
        }
    }

    fn arrive(&mut self, from: Address, to: Address, packet: Packet) -> Check {
        if self.in_flight_lost && self.network.is_cut(from, to) {
            return Ok(());
        }
        self.mix(packet.trace());
        let Address::Node(node) = to else {
            let Address::Client(client) = to else { return Ok(()) };
            let Packet::Reply { attempt, reply } = packet else { return Ok(()) };
            return self.client_hears(client, attempt, reply);
        };
        let Some(process) = &self.nodes[node].process else { return Ok(()) };
        let boot = self.nodes[node].boot;
        match packet {
            Packet::Raft(bytes) => {
                let Address::Node(from) = from else { return Ok(()) };
                let from = self.nodes[from].id;
                let message = Message::decode(&bytes)
                    .map_err(|error| Violation::new("codec", error.to_string()))?;
                self.give(node, boot, Input::Message { from, message });
            }
            Packet::Ask { attempt, request, patience_us, relay } => {
                let status = process.replica.status();
                let leader = status.leader.filter(|_| !status.leading);
                match leader.and_then(|leader| self.at(leader)).filter(|_| relay.is_none()) {
                    Some(leader) => {
                        if let Some(found) = self.attempts.get_mut(&attempt) {
                            found.relay = Some(node);
                        }
                        let relay = Some(node);
                        let packet = Packet::Ask { attempt, request, patience_us, relay };
                        self.send(to, Address::Node(leader), packet);
                    }
                    None => {
                        let (ticket, requests) = (Ticket(attempt), vec![request]);
                        self.give(node, boot, Input::Submit { ticket, requests, patience_us });
                    }
                }
            }
            Packet::Read { attempt } => {
                self.give(node, boot, Input::Read { ticket: Ticket(attempt) });
            }
            Packet::Reply { attempt, reply } => {
                if let Some(found) = self.attempts.get(&attempt) {
                    let client = Address::Client(found.client);
                    self.send(to, client, Packet::Reply { attempt, reply });
                }
            }
            Packet::Snapshot { step, id, file } => {
                let Address::Node(sender) = from else { return Ok(()) };
                let saved = match process.receive(id, &file) {
                    Ok((machine, members)) => {
                        let (from, machine) = (self.nodes[sender].id, Box::new(machine));
                        self.give(
                            node,
                            boot,
                            Input::SnapshotReceived { from, step, machine, members },
                        );
                        Saved::Yes
                    }
                    Err(_) => Saved::No,
                };
                let (boot, to) = (self.nodes[sender].boot, self.nodes[node].id);
                let at_us = self.now_us + MS;
                self.queue.push(at_us, Event::Sent { node: sender, boot, to, saved });
            }
        }
        Ok(())
    }

    fn send_snapshot(&mut self, node: usize, to: MemberId, step: Step) {
        let boot = self.nodes[node].boot;
        let file = step.snapshot.as_ref().and_then(|head| {
            self.nodes[node].process.as_ref().and_then(|process| process.file(head.point))
        });
        let (Some((id, file)), Some(target)) = (file, self.at(to)) else {
            self.give(node, boot, Input::SnapshotSent { to, saved: Saved::No });
            return;
        };
        let (from, target) = (Address::Node(node), Address::Node(target));
        if self.network.is_cut(from, target) || self.rng.u8(0..5) == 0 {
            self.tally.count("snapshot_cut");
            let at_us = self.now_us + 300 * MS;
            self.queue.push(at_us, Event::Sent { node, boot, to, saved: Saved::No });
            return;
        }
        let at_us = self.now_us + self.rng.u64(5 * MS..300 * MS);
        let packet = Packet::Snapshot { step, id, file };
        self.queue.push(at_us, Event::Arrive { from, to: target, packet });
    }

    fn write(&mut self, node: usize) -> Check {
        let boot = self.nodes[node].boot;
        let Some(process) = &mut self.nodes[node].process else { return Ok(()) };
        match process.write() {
            Err(error) => return Err(Violation::new("S12", format!("{error:#}"))),
            Ok(Wrote::Fatal) => {
                self.crash(node, Restart::ProcessKilled);
                return Ok(());
            }
            Ok(Wrote::NoSpace) if process.retrying => {}
            Ok(Wrote::NoSpace) => {
                process.retrying = true;
                self.queue.push(self.now_us + 200 * MS, Event::Write { node, boot });
            }
            Ok(Wrote::Done) => {}
        }
        if process.written > process.synced && !process.syncing {
            process.syncing = true;
            let slow = self.rng.u64(0..1000) < self.slow_sync;
            let delay_us = if slow { self.rng.u64(10..800) * MS } else { self.rng.u64(60..400) };
            self.tally.count_by("slow_sync", u64::from(slow));
            self.queue.push(self.now_us + delay_us, Event::Sync { node, boot });
        }
        Ok(())
    }

    fn sync(&mut self, node: usize, boot: u64) -> Check {
        let target = &mut self.nodes[node];
        let Some(process) = target.process.as_mut().filter(|_| target.boot == boot) else {
            return Ok(());
        };
        if process.log.sync().is_err() {
            self.crash(node, Restart::ProcessKilled);
            return Ok(());
        }
        process.syncing = false;
        process.synced = process.written;
        process.durable = process.log.last_index();
        let number = process.synced;
        self.queue.push(self.now_us, Event::Synced { node, boot, number });
        Ok(())
    }

    fn save(&mut self, node: usize) {
        let boot = self.nodes[node].boot;
        let Some(process) = &mut self.nodes[node].process else { return };
        let Some((point, saved)) = process.save() else { return };
        let saved = if saved.is_ok() { Saved::Yes } else { Saved::No };
        self.tally.count_by("snapshot_saved", u64::from(saved == Saved::Yes));
        self.give(node, boot, Input::SnapshotSaved { point, saved });
    }

    /// Ends a process, to be started again soon.
    pub(super) fn crash(&mut self, node: usize, how: Restart) {
        self.say(|| format!("{node} crashes: {how:?}"));
        self.nodes[node].crash(how);
        let at_us = self.now_us + self.rng.u64(10..5000) * MS;
        self.queue.push(at_us, Event::Start { node });
    }

    fn mix(&mut self, bytes: &[u8]) {
        let mut trace = self.trace ^ self.now_us;
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            trace = (trace ^ u64::from_le_bytes(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            trace ^= trace >> 29;
        }
        self.trace = trace;
    }

    pub(super) fn say(&self, text: impl FnOnce() -> String) {
        if self.verbose {
            println!("{:>10.3}  {}", self.now_us as f64 / S as f64, text());
        }
    }
}
