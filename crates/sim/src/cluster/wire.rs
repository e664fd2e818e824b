//! What is sent, and what becomes of what arrives?

use bytes::Bytes;
use tenure_raft::{Input, Kind, MemberId, Message, Saved, Step, Ticket};

use super::MS;
use super::event::Event;
use super::oracle::ensure;
use super::packet::{Address, Packet};
use super::world::World;
use crate::invariant::{Check, Violation};

impl World {
    pub(super) fn send_raft(&mut self, node: usize, to: MemberId, message: &Message) -> Check {
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
    pub(super) fn check_step(&mut self, node: usize, to: MemberId, step: &Step) -> Check {
        if step.reject || self.nodes[node].must_stop.is_some() {
            return Ok(());
        }
        match step.kind {
            Kind::Append => self.oracle.sends(node, &step.entries),
            Kind::VoteAnswer => self.oracle.votes(node, step.term, to.get()),
            Kind::AppendAnswer => {
                let Some(process) = &self.nodes[node].process else { return Ok(()) };
                // What was durable when it was acknowledged to an earlier leader may since have been
                // replaced by a later one's, which is not durable yet.
                let is_late = step.term < process.replica.status().term.0;
                let (index, durable) = (step.index, process.durable);
                ensure(is_late || index <= durable, "S8", || {
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

    pub(super) fn arrive(&mut self, from: Address, to: Address, packet: Packet) -> Check {
        let cut = self.in_flight_lost && self.network.is_cut(from, to);
        let nobody = matches!(to, Address::Node(node) if self.nodes[node].process.is_none());
        if cut || nobody {
            self.snapshot_lost(from, to, &packet);
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
                        let step = *step;
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

    /// Every snapshot that was sent ends in a report, also when its stream dies on the way.
    fn snapshot_lost(&mut self, from: Address, to: Address, packet: &Packet) {
        if let (Address::Node(sender), Address::Node(node), Packet::Snapshot { .. }) =
            (from, to, packet)
        {
            let (boot, to) = (self.nodes[sender].boot, self.nodes[node].id);
            let at_us = self.now_us + 300 * MS;
            self.queue.push(at_us, Event::Sent { node: sender, boot, to, saved: Saved::No });
        }
    }

    pub(super) fn send_snapshot(&mut self, node: usize, to: MemberId, step: Step) {
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
        let packet = Packet::Snapshot { step: Box::new(step), id, file };
        self.queue.push(at_us, Event::Arrive { from, to: target, packet });
    }
}
