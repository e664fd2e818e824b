//! Carries the messages of members over their connections.

use bytes::Bytes;
use tenure_node::transfer::TransferMessage;
use tenure_node::{Input, LinkId, NodeFailure, PeerMessage};
use tenure_raft::{MemberId, Message, SnapshotDelivery, Step, StepKind};

use super::MS;
use super::event::SimEvent;
use super::oracle::ensure;
use super::packet::Packet;
use super::world::SimCluster;
use crate::invariant::{CheckResult, InvariantViolation};

impl SimCluster {
    pub(super) fn send(
        &mut self,
        member: usize,
        to: MemberId,
        message: &PeerMessage,
    ) -> CheckResult {
        if let PeerMessage::Raft(Message::Step(step)) = message {
            self.check_step(member, to, step)?;
        }
        let Some(target) = self.at(to) else { return Ok(()) };
        let bytes = Bytes::from(message.encode());
        ensure(PeerMessage::decode(&bytes).as_ref() == Some(message), "codec", || {
            format!("{member} says what does not read back: {message:?}")
        })?;
        let level = self.sim_members[target].level;
        ensure(is_read_at(level, message, &bytes), "N9", || {
            format!("{member} says to {target}, whose build knows level {level}, {message:?}")
        })?;
        let full = self.links.is_full(member, target, self.now_us);
        let link = self.links.between(member, target);
        let Some(link) = link.filter(|_| !full) else {
            self.faults.count_by("link_overflow", u64::from(full && link.is_some()));
            let boot = self.sim_members[member].boot;
            self.give(member, boot, Input::Unreachable { member: to });
            return Ok(());
        };
        let is_raft = matches!(message, PeerMessage::Raft(_));
        let mut delays = self.network.send(member, target, &mut self.rng, &mut self.faults);
        let is_part = matches!(message, PeerMessage::Transfer(_));
        if !is_raft && !is_part {
            // What is forwarded is lost or late, never doubled: a connection is a stream.
            delays.truncate(1);
            self.faults.count_by("forward_lost", u64::from(delays.is_empty()));
            self.faults.count("forwarded");
        }
        for delay_us in delays {
            let mut at_us = self.now_us + delay_us;
            let newest = self.newest_arrival.entry((member, target)).or_default();
            if !is_raft {
                at_us = at_us.max(*newest);
            }
            if at_us < *newest {
                self.faults.count("reorder");
            }
            *newest = at_us.max(*newest);
            let mut bytes = bytes.clone();
            if let PeerMessage::Commands { number, linger_us, within_us: Some(within_us), requests } =
                message
                && self.counts_waiting
            {
                // This sender subtracts the time that a frame waits in its link from the time left.
                let within_us = Some(within_us.saturating_sub(at_us - self.now_us));
                self.faults.count_by("forward_expired", u64::from(within_us == Some(0)));
                let (number, linger_us) = (*number, *linger_us);
                let requests = requests.clone();
                let message = PeerMessage::Commands { number, linger_us, within_us, requests };
                bytes = Bytes::from(message.encode());
            }
            let packet = Packet::Frame { link, bytes };
            self.queue.push(at_us, SimEvent::Arrive { from: member, to: target, packet });
        }
        Ok(())
    }

    /// S12, S8: what a member lets others know must be durable.
    pub(super) fn check_step(&mut self, member: usize, to: MemberId, step: &Step) -> CheckResult {
        if step.reject || self.sim_members[member].must_stop.is_some() || self.is_survivor(member) {
            return Ok(());
        }
        match step.kind {
            StepKind::Append => self.oracle.sends(member, &step.entries),
            StepKind::VoteAnswer => self.oracle.votes(member, step.term, to.get()),
            StepKind::AppendAnswer => {
                let Some(process) = &self.sim_members[member].process else { return Ok(()) };
                // What was durable when it was acknowledged to an earlier leader may since have been
                // replaced by a later one's, which is not durable yet.
                let is_late = step.term < process.replica().status().term.0;
                let (index, durable) = (step.index, process.log_writer.durable);
                ensure(is_late || index <= durable, "S8", || {
                    format!("{member} acknowledged {index}, {durable} is durable")
                })
            }
            _ => Ok(()),
        }
    }

    pub(super) fn deliver_packet(&mut self, from: usize, to: usize, packet: Packet) -> CheckResult {
        let cut = self.in_flight_lost && self.network.is_cut(from, to);
        if cut || !self.sim_members[to].is_up() {
            self.report_snapshot_loss(from, to, &packet);
            return Ok(());
        }
        self.mix(packet.trace());
        let Some(process) = &self.sim_members[to].process else { return Ok(()) };
        let boot = self.sim_members[to].boot;
        match packet {
            Packet::Frame { link, bytes } => {
                if self.links.between(from, to) != Some(link) {
                    // It was on its way when the connection broke.
                    return Ok(());
                }
                let from = self.sim_members[from].id;
                let Some(message) = PeerMessage::decode(&bytes) else {
                    return Err(InvariantViolation::new("codec", "a frame does not read back"));
                };
                if let PeerMessage::Commands { within_us, requests, .. } = &message {
                    self.forwarded(to, *within_us, requests);
                }
                self.give(to, boot, Input::Peer { from, link: LinkId(link), message });
            }
            Packet::Snapshot { step, id, file } => {
                let saved = match process.receive(id, &file) {
                    Ok((machine, members)) => {
                        let (from, machine) = (self.sim_members[from].id, Box::new(machine));
                        let members = Box::new(members);
                        let input = Input::SnapshotReceived { from, step, machine, members };
                        self.give(to, boot, input);
                        SnapshotDelivery::Delivered
                    }
                    Err(error) => {
                        self.outgrown(to, &error);
                        SnapshotDelivery::Failed
                    }
                };
                let (boot, to) = (self.sim_members[from].boot, self.sim_members[to].id);
                let at_us = self.now_us + MS;
                self.queue.push(at_us, SimEvent::Sent { member: from, boot, to, saved });
            }
        }
        Ok(())
    }

    /// Reports the end of a snapshot whose stream broke: every snapshot sent ends in a report.
    fn report_snapshot_loss(&mut self, from: usize, to: usize, packet: &Packet) {
        if let Packet::Snapshot { .. } = packet {
            let (boot, to) = (self.sim_members[from].boot, self.sim_members[to].id);
            let at_us = self.now_us + 300 * MS;
            self.queue.push(
                at_us,
                SimEvent::Sent { member: from, boot, to, saved: SnapshotDelivery::Failed },
            );
        }
    }

    pub(super) fn send_snapshot(&mut self, member: usize, to: MemberId, step: Step) {
        let boot = self.sim_members[member].boot;
        let file = step.snapshot.as_ref().and_then(|head| {
            self.sim_members[member].process.as_ref().and_then(|process| process.file(head.point))
        });
        let (Some((id, file)), Some(target)) = (file, self.at(to)) else {
            self.give(member, boot, Input::SnapshotSent { to, saved: SnapshotDelivery::Failed });
            return;
        };
        if self.network.is_cut(member, target) || self.rng.u8(0..5) == 0 {
            self.faults.count("snapshot_cut");
            let at_us = self.now_us + 300 * MS;
            self.queue
                .push(at_us, SimEvent::Sent { member, boot, to, saved: SnapshotDelivery::Failed });
            return;
        }
        let at_us = self.now_us + self.rng.u64(5 * MS..300 * MS);
        let packet = Packet::Snapshot { step: Box::new(step), id, file };
        self.queue.push(at_us, SimEvent::Arrive { from: member, to: target, packet });
    }
}

/// Whether a member whose build knows the rules up to this level reads this.
fn is_read_at(level: u16, message: &PeerMessage, bytes: &Bytes) -> bool {
    let reads = |failure: &NodeFailure| match failure {
        NodeFailure::Unknown | NodeFailure::Rejected(_) | NodeFailure::TooLarge { .. } => true,
        NodeFailure::Forbidden { verb: Some(_) } => level >= 3,
        NodeFailure::PriorityForbidden { .. } => level >= 15,
        _ => level >= 2,
    };
    match message {
        PeerMessage::Raft(_) => true,
        PeerMessage::Commands { .. } => level >= 2 || bytes.first() == Some(&0xc0),
        PeerMessage::Admin { .. } => level >= 3 || bytes.first() == Some(&0xc2),
        PeerMessage::Answers { outcomes, .. } => {
            outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).all(reads)
        }
        PeerMessage::AdminAnswer { result, .. } => result.as_ref().err().is_none_or(reads),
        PeerMessage::Transfer(message) => match **message {
            TransferMessage::Offer { .. } | TransferMessage::Chunk { .. } => level >= 2,
            // The older member began the transfer itself.
            _ => true,
        },
        PeerMessage::Announce { .. } => level >= 2,
    }
}
