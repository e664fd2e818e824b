//! Runs one turn of the replica: ticks, proposals, the engine's `Ready` values and the clock.

use super::Replica;
use crate::clock::Checkpoint;
use crate::config::TICK_US;
use crate::io::ReplicaOutput;

impl Replica {
    /// Ends a turn: does everything that the inputs taken so far require. `now_us` is the member's monotonic clock,
    /// read after the last input was taken.
    ///
    /// Returns the latest time of the next turn, by the same clock.
    pub fn turn(&mut self, now_us: u64, out: &mut Vec<ReplicaOutput>) -> u64 {
        let before_us = self.now_us;
        self.now_us = self.now_us.max(now_us);
        if mutant!("clock_read_before_input") && before_us > 0 {
            // As if the clock had been read before the event loop went to sleep.
            self.now_us = before_us;
        }
        if !self.stopped {
            self.ask_others(out);
            out.append(&mut self.first);
            self.tick(out);
            self.follow_term(out);
            self.announce_short(out);
            self.propose_waiting(out);
            self.process_ready(out);
            self.checkpoint(out);
            self.tell_commit();
            self.leave_joint();
            self.ask_reads(out);
            self.process_ready(out);
            // A state that made the member stop is neither shown nor kept.
            if !self.stopped {
                self.reads.applied(self.applied.index, out);
                self.send_free(out);
                self.want_snapshot(out);
                self.follow_term(out);
                self.pass_on(out);
                self.compact(out);
                self.write_at_checkpoint(out);
            }
        }
        out.append(&mut self.refused);
        self.now_us = self.now_us.max(now_us);
        self.wake_at_us()
    }

    fn wake_at_us(&self) -> u64 {
        let latest = self.now_us.saturating_add(TICK_US);
        let counting = self.clock.wake_by_us().filter(|_| self.leads());
        // While the disk is behind, its next report triggers the queue.
        let queued = self.queue.until_us().filter(|_| !self.is_disk_behind());
        [self.next_tick_us, counting, queued, self.reads.retry_at_us(), self.told_commit.due_us()]
            .into_iter()
            .flatten()
            .fold(latest, u64::min)
            .max(self.now_us)
    }

    /// Ticks once at most: an event loop that was late has missed the other ticks, and its election timeout is extended
    /// by them.
    fn tick(&mut self, out: &mut Vec<ReplicaOutput>) {
        let due_us = *self.next_tick_us.get_or_insert(self.now_us.saturating_add(TICK_US));
        if self.now_us < due_us {
            return;
        }
        let in_step = due_us.saturating_add(TICK_US);
        let next_us = if in_step > self.now_us { in_step } else { self.now_us + TICK_US };
        self.next_tick_us = Some(next_us);
        if self.is_asking() {
            return;
        }
        if self.members.sole_voter() == Some(self.config.id) {
            // A sole voter wins at once, and needs its log durable before that.
            self.process_ready(out);
            if self.held.unsynced() > 0 && !self.leads() {
                return;
            }
            if !self.leads() && self.held.installing.is_none() {
                // No other member could lead, so there is nothing to wait for.
                self.campaign();
            }
        }
        if self.held.installing.is_none() {
            self.node.tick();
            self.settle_election();
        }
    }

    fn campaign(&mut self) {
        // The engine refuses only if this member may not lead. The ticks go on either way.
        if self.node.campaign().is_ok() {
            self.settle_election();
        }
    }

    /// Handles a change of term or leader.
    fn follow_term(&mut self, out: &mut Vec<ReplicaOutput>) {
        let led = (self.node.raft.term, self.node.raft.leader_id);
        if led != self.led {
            if led.0 != self.led.0 {
                self.reads.fail_all(out);
            }
            self.led = led;
            out.push(ReplicaOutput::Led { term: self.term(), by: self.leader() });
        }
        let heard = std::mem::take(&mut self.contact.now);
        if !self.leads() {
            return;
        }
        let term = self.node.raft.term;
        if self.contact.term != term {
            self.contact.term = term;
            self.contact.won_at_us = self.now_us;
            self.contact.heard_us.clear();
        }
        self.clock.lead(self.term());
        for (member, heard_term) in heard {
            if heard_term == term {
                self.contact.heard_us.insert(member, self.now_us);
            }
        }
    }

    /// The latest instant by which a quorum of voters, in both halves of a joint configuration, had answered in this
    /// term.
    pub(super) fn quorum_at_us(&self) -> u64 {
        let half = |voters: &std::collections::BTreeSet<crate::member::MemberId>| {
            let mut heard: Vec<u64> = voters
                .iter()
                .map(|id| {
                    if *id == self.config.id {
                        return self.now_us;
                    }
                    let heard = self.contact.heard_us.get(id).copied();
                    heard.unwrap_or(self.contact.won_at_us)
                })
                .collect();
            heard.sort_unstable();
            // A majority answered at or after the median.
            heard.get((heard.len().max(1) - 1) / 2).copied().unwrap_or(self.now_us)
        };
        half(&self.members.voters).min(half(&self.members.outgoing))
    }

    /// Lets the clock end the turn, and seals an entry if the clock requires one.
    fn checkpoint(&mut self, out: &mut Vec<ReplicaOutput>) {
        if !self.leads() || self.stopped {
            return;
        }
        self.clock.lead(self.term());
        let rest = Checkpoint {
            now_us: self.now_us,
            quorum_at_us: self.quorum_at_us(),
            due_ms: self.machine.next_due_ms(),
            in_flight: self.sealed.term == self.node.raft.term
                && self.sealed.index > self.applied.index,
        };
        if self.clock.checkpoint(rest) {
            self.propose_now(out);
        }
    }

    fn ask_reads(&mut self, out: &mut Vec<ReplicaOutput>) {
        #[cfg(mutants)]
        if mutant!("read_before_own_term") && self.leads() {
            self.reads.confirm_unasked(self.applied.index);
        }
        for context in self.reads.ask(self.now_us, out) {
            self.node.read_index(context);
        }
    }
}
