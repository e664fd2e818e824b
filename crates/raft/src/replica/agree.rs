//! Passes messages to the engine and processes its `Ready` values.

use tenure_store::{HardState, LogId};

use super::{Replica, is_answer};
use crate::engine;
use crate::io::{Persist, ReplicaOutput, Stop};
use crate::member::MemberId;
use crate::message::{Message, Step};

/// The most bytes that an entry needs in the log besides its payload.
const ENTRY_OVERHEAD: usize = 48;

impl Replica {
    pub(super) fn receive(&mut self, from: MemberId, message: Message) {
        if !self.counts(from) {
            return;
        }
        match message {
            Message::Step(step) => self.step(from, *step),
            Message::Hash { index, hash } => self.on_hash(from, index, hash),
            Message::Hello => {
                self.answer_hello(from);
                // It may not know the members that joined while it was away.
                let message = Message::Members(self.members.all());
                self.first.push(ReplicaOutput::Send { to: from, message });
            }
            Message::Remember(observed) => {
                if self.admits_observed(&observed) {
                    self.on_remember(from, &observed);
                }
            }
            Message::Short => self.on_short(from),
            Message::Observed(all) => {
                if all.iter().all(|(_, observed)| self.admits_observed(observed)) {
                    self.on_observed(from, all);
                }
            }
            Message::Members(ids) => self.on_members(ids),
        }
    }

    fn step(&mut self, from: MemberId, step: Step) {
        if !self.admits(from, &step) || self.heartbeat_proves_loss(from, &step) {
            return;
        }
        self.observe(from, &step);
        if self.is_asking() {
            // Any answer would be a promise, and this member may have broken some already.
            self.known.dropped.early += 1;
            return;
        }
        if step.term == self.node.raft.term && is_answer(step.kind) {
            self.contact.now.push((from, step.term));
        }
        let message = engine::step_to(from, self.config.id, step);
        // A message that the engine refuses counts as lost in transit.
        let _ = self.node.step(message);
    }

    /// Processes the engine's `Ready` values until there are none left.
    pub(super) fn process_ready(&mut self, out: &mut Vec<ReplicaOutput>) {
        while !self.stopped && self.node.has_ready() {
            let mut ready = self.node.ready();
            let mut answers: Vec<_> =
                ready.take_messages().into_iter().filter_map(engine::step_from).collect();
            let meta = ready.snapshot().get_metadata();
            let snapshot = (meta.index > 0).then_some(LogId { index: meta.index, term: meta.term });
            if let Some(point) = snapshot {
                self.install(point, out);
            }
            let entries: Vec<_> =
                ready.take_entries().into_iter().map(engine::entry_from).collect();
            self.node.mut_store().append(&entries);
            let hard_state = self.hard_state_to_write(
                ready.hs().map(engine::hard_state_from),
                snapshot.is_some() || !entries.is_empty(),
            );
            if let Some(state) = hard_state
                && (state.term, state.vote) != self.voted
            {
                self.voted = (state.term, state.vote);
                self.held.vote(ready.number());
            }
            if !self.held.is_voting() {
                for (to, step) in std::mem::take(&mut answers) {
                    self.send(to, step, out);
                }
            }
            answers
                .extend(ready.take_persisted_messages().into_iter().filter_map(engine::step_from));
            let committed = ready.take_committed_entries();
            let read_states = ready.take_read_states();
            let number = ready.number();
            let writes = snapshot.is_some() || !entries.is_empty() || hard_state.is_some();
            let writes = writes.then(|| entries.iter().map(|entry| entry.payload.len()).sum());
            self.node.advance_append_async(ready);
            if writes.is_some() {
                self.promises.written_at_us = self.now_us;
                let notes = self.notes();
                self.write(Persist { number, snapshot, entries, hard_state, notes }, out);
            }
            if snapshot.is_some() {
                self.held.installing = Some(number);
            }
            if self.held.hold(number, writes, answers) {
                self.node.on_persist_ready(number);
            }
            self.send_free(out);
            self.apply(committed, out);
            self.tell_engine_applied();
            for state in read_states {
                self.reads.confirm(&state.request_ctx, state.index);
            }
            self.settle_election();
        }
    }

    /// Writes the contents of a `Ready`, in several batches if one would be too large for the log.
    fn write(&mut self, whole: Persist, out: &mut Vec<ReplicaOutput>) {
        let Persist { number: ready, mut snapshot, entries, hard_state, mut notes } = whole;
        let mut rest = entries;
        loop {
            let mut bytes = 0;
            let fits = rest.iter().take_while(|entry| {
                bytes += entry.payload.len() + ENTRY_OVERHEAD;
                bytes <= self.config.batch_bytes
            });
            let len = fits.count().max(1).min(rest.len());
            let later = rest.split_off(len);
            let is_last = later.is_empty();
            // Only the last batch makes the `Ready` durable.
            let number = self.held.next_number(is_last.then_some(ready));
            // The commit index must not point past the entries written so far.
            let hard_state = hard_state.map(|state| match rest.last() {
                Some(last) if !is_last => {
                    HardState { commit: state.commit.min(last.index), ..state }
                }
                _ => state,
            });
            let entries = std::mem::replace(&mut rest, later);
            let snapshot = snapshot.take();
            let notes = notes.take();
            let part = Persist { number, snapshot, entries, hard_state, notes };
            out.push(ReplicaOutput::Persist(Box::new(part)));
            if is_last {
                return;
            }
        }
    }

    /// The hard state that a `Ready` must write. A change of the commit index alone waits for the next write: the
    /// next leader recovers a lost commit index from the entries.
    ///
    /// It must not be written without a sync of its own either. All later messages of this member, including its
    /// heartbeat answers, would wait for that write. A probing leader waits for such an answer before it sends the
    /// entries that would cause the next sync, so the two would wait for each other.
    fn hard_state_to_write(&mut self, new: Option<HardState>, writes: bool) -> Option<HardState> {
        let state = new.or(self.owed.take())?;
        let votes = (state.term, state.vote) != self.voted;
        if votes && !writes && mutant!("vote_not_durable") {
            return None;
        }
        self.owed = Some(state).filter(|_| !votes && !writes);
        Some(state).filter(|_| votes || writes)
    }

    /// Writes what waits for the next write now: the commit index and new observations of other members.
    pub(super) fn write_owed(&mut self, out: &mut Vec<ReplicaOutput>) {
        let (hard_state, notes) = (self.owed.take(), self.notes());
        if hard_state.is_some() || notes.is_some() {
            let number = self.held.next_number(None);
            let owed = Persist { number, hard_state, notes, ..Persist::default() };
            out.push(ReplicaOutput::Persist(Box::new(owed)));
        }
        self.promises.written_at_us = self.now_us;
    }

    /// Stops this member. The next turn outputs the reason.
    pub(super) fn stop(&mut self, reason: Stop) {
        if !self.stopped {
            self.stopped = true;
            self.refused.push(ReplicaOutput::Stop(reason));
        }
    }
}
