//! What happens when a member's loop turns?

use tenure_core::codec::{decode_request, open_entry};
use tenure_raft::{Fate, Output, Space, Stop, Ticket, Why};
use tenure_store::Entry;
use tenure_store::sim::Restart;

use super::MS;
use super::event::Event;
use super::oracle::ensure;
use super::packet::{Address, Packet, Reply};
use super::world::World;
use crate::invariant::{Check, Violation};

impl World {
    pub(super) fn turn(&mut self, node: usize, boot: u64) -> Check {
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
        process.look(self.now_us);
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

    pub(super) fn perform(&mut self, node: usize, output: Output) -> Check {
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
                    let space = process.space;
                    let stalled = self.nodes[node].stalled;
                    let own = |entry: &&tenure_store::Entry| entry.term == status.term.0;
                    for entry in persist.entries.iter().filter(own) {
                        self.oracle.seals(entry, self.now_us, stalled);
                        ensure(space == Space::Enough || !grows(entry), "S14", || {
                            format!("{node} is short of space and seals {}", entry.index)
                        })?;
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

    pub(super) fn stopped(&mut self, node: usize, reason: &Stop) -> Check {
        self.say(|| format!("{node} stops: {reason}"));
        let target = &mut self.nodes[node];
        let expected = match reason {
            Stop::Removed => true,
            Stop::Forgot { .. } => target.must_stop.is_some() || target.may_forget,
            _ => false,
        };
        target.crash(Restart::ProcessKilled);
        target.dead = true;
        let invariant = if matches!(reason, Stop::Diverged { .. }) { "S9" } else { "S8" };
        ensure(expected, invariant, || format!("{node} stopped: {reason}"))
    }

    /// A member has applied entries, or a snapshot.
    pub(super) fn applied(&mut self, node: usize) -> Check {
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

    pub(super) fn answer(&mut self, node: usize, ticket: Ticket, fate: Fate) -> Check {
        let attempt = ticket.0;
        let Some(found) = self.attempts.get(&attempt) else { return Ok(()) };
        let process = self.nodes[node].process.as_ref();
        let short = process.is_some_and(|process| process.space == Space::Short);
        let reply = match fate {
            Fate::Applied(outcomes) => {
                let Some(outcome) = outcomes.into_iter().next() else {
                    return Err(Violation::new("S13", format!("no outcome for {attempt}")));
                };
                self.oracle.answers(attempt, found.key.as_deref(), &outcome)?;
                self.tally.count_by("done_while_full", u64::from(short));
                Reply::Outcome(outcome)
            }
            Fate::NotDone { why, .. } => {
                self.tally.count("not_done");
                self.tally.count_by("refused_full", u64::from(why == Why::DiskFull));
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

    pub(super) fn reply(&mut self, node: usize, attempt: u64, reply: Reply) {
        let Some(found) = self.attempts.get(&attempt) else { return };
        let to = match found.relay {
            Some(relay) if relay != node => Address::Node(relay),
            _ => Address::Client(found.client),
        };
        self.send(Address::Node(node), to, Packet::Reply { attempt, reply });
    }

    /// S6: a read sees whatever was acknowledged before it began.
    pub(super) fn read_ready(&mut self, node: usize, ticket: Ticket, applied: u64) -> Check {
        let Some(found) = self.attempts.get(&ticket.0) else { return Ok(()) };
        let floor = found.floor;
        ensure(applied >= floor, "S6", || {
            format!("{node} served a read at {applied}, {floor} was acknowledged before it began")
        })?;
        self.tally.count("read");
        self.reply(node, ticket.0, Reply::Read);
        Ok(())
    }
}

/// Whether an entry has a command that makes the state grow.
fn grows(entry: &Entry) -> bool {
    let Ok(mut opened) = open_entry(&entry.payload) else { return false };
    opened.any(|request| decode_request(request).is_ok_and(|request| request.command.grows()))
}
