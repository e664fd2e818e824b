//! Detects that this member's disk was rolled back, and remembers the promises of the other members.
//!
//! A member whose disk was restored from an old image, or lost its damaged newest batch, has forgotten what the others
//! rely on. It must not vote, acknowledge or lead. So after a start, before it takes part, it asks every other voter
//! what it had promised, and waits for the answers for a bounded time. It also compares with every later answer.
//! `docs/internals/rollback.md` says what this detects and what it cannot detect.

use std::collections::BTreeSet;

use tenure_store::LogId;

use super::Replica;
use crate::config::{ASK_AGAIN_US, ASK_US, CHECKPOINT_US, GREET_US, GREETINGS, TICK_US};
use crate::io::{DiskLoss, ReplicaOutput, Stop};
use crate::member::MemberId;
use crate::message::{Message, Step, StepKind};
use crate::observed::{Observations, Observed};

/// The state of a member's promises: its own, which it asks the others about, and those of the others.
#[derive(Debug)]
pub(super) struct Promises {
    /// What the others have promised.
    pub(super) observed: Observations,
    /// Set at the first turn: until when this member waits for answers.
    ask_until_us: Option<u64>,
    /// The members that have answered since this member started.
    answered: BTreeSet<MemberId>,
    /// Whether this member takes part.
    ready: bool,
    ask_at_us: u64,
    greetings_left: u32,
    /// When this member last wrote to the log.
    pub(super) written_at_us: u64,
    /// When a leader next passes on what has changed, and when it next passes on everything.
    pass_at_us: u64,
    pass_all_at_us: u64,
}

impl Promises {
    pub(super) fn new(observed: Observations) -> Self {
        Self {
            observed,
            ask_until_us: None,
            answered: BTreeSet::new(),
            ready: false,
            ask_at_us: 0,
            greetings_left: GREETINGS,
            written_at_us: 0,
            pass_at_us: 0,
            pass_all_at_us: 0,
        }
    }
}

impl Promises {
    /// Asks the others once more.
    pub(super) fn greet_again(&mut self) {
        self.greetings_left = self.greetings_left.max(1);
    }
}

impl Replica {
    /// Whether this member still waits to learn what it has promised, and so promises nothing.
    pub fn is_asking(&self) -> bool {
        !self.promises.ready
    }

    /// Asks the others what this member has promised: frequently until all voters have answered, and a few times
    /// afterwards, because links need time and messages get lost.
    pub(super) fn ask_others(&mut self, out: &mut Vec<ReplicaOutput>) {
        let (me, now_us) = (self.config.id, self.now_us);
        let until_us = *self.promises.ask_until_us.get_or_insert(now_us.saturating_add(ASK_US));
        self.promises.ready |= now_us >= until_us;
        self.settle_asking();
        if now_us < self.promises.ask_at_us || self.promises.greetings_left == 0 {
            return;
        }
        let pause_us = if self.promises.ready {
            self.promises.greetings_left -= 1;
            GREET_US
        } else {
            ASK_AGAIN_US
        };
        self.promises.ask_at_us = now_us.saturating_add(pause_us);
        let answered = &self.promises.answered;
        let others = self.members.all().into_iter().filter(|id| *id != me);
        let silent = others.filter(|id| self.promises.ready || !answered.contains(id));
        out.extend(silent.map(|to| ReplicaOutput::Send { to, message: Message::Hello }));
    }

    /// Takes part as soon as all other voters have answered. A member that is the sole voter, or that knows no members
    /// yet, does not wait.
    pub(super) fn settle_asking(&mut self) {
        let mut voters = self.members.voters.union(&self.members.outgoing);
        let (me, answered) = (self.config.id, &self.promises.answered);
        self.promises.ready |= voters.all(|id| *id == me || answered.contains(id));
    }

    /// Answers a member that has started or has a new link with what it has promised. Always answers, so that the
    /// member need not wait longer.
    pub(super) fn answer_hello(&mut self, from: MemberId) {
        let message = Message::Remember(self.promises.observed.of(from));
        self.first.push(ReplicaOutput::Send { to: from, message });
    }

    pub(super) fn on_remember(&mut self, from: MemberId, observed: &Observed) {
        self.promises.answered.insert(from);
        self.compare(from, observed);
    }

    /// Merges the observations that a leader passes on.
    pub(super) fn on_observed(&mut self, from: MemberId, all: Vec<(MemberId, Observed)>) {
        for (member, observed) in all {
            if member == self.config.id {
                self.compare(from, &observed);
            } else if self.members.contains(member) {
                self.promises.observed.note(member, |known| known.merge(&observed));
            }
        }
    }

    /// Compares what another member remembers with what this member has. The report may be old. A member only ever adds
    /// to its promises, so an old report never accuses a member that has kept them all.
    fn compare(&mut self, by: MemberId, seen: &Observed) {
        if let Some(lost) = self.lost(seen) {
            self.stop(Stop::Forgot { by, lost });
        }
    }

    fn lost(&self, seen: &Observed) -> Option<DiskLoss> {
        let (term, vote) = (self.node.raft.term, MemberId::new(self.node.raft.vote));
        if mutant!("promise_compared_by_index") {
            let index = seen.held.index.max(seen.committed.index);
            let held = LogId { index, term: 0 };
            return (!self.has(held)).then(|| self.lost_entry(held));
        }
        let forgotten = mutant!("vote_forgotten");
        if term < seen.term && !forgotten {
            return Some(DiskLoss::Term { seen: seen.term, durable: term });
        }
        let given = seen.vote.filter(|given| term == seen.term && vote != Some(*given));
        let given = given.filter(|_| !forgotten);
        if let Some(vote) = given {
            return Some(DiskLoss::Vote { term, vote });
        }
        // In a newer term the entry may be missing, because the leader of that term may have replaced it.
        if term == seen.held_in && !self.has(seen.held) {
            return Some(self.lost_entry(seen.held));
        }
        (!self.has(seen.committed)).then(|| self.lost_entry(seen.committed))
    }

    fn lost_entry(&self, held: LogId) -> DiskLoss {
        DiskLoss::Entry { held, last: self.node.raft.raft_log.last_index() }
    }

    /// Whether the log has this entry, or a snapshot covers it.
    fn has(&self, point: LogId) -> bool {
        let log = &self.node.raft.raft_log;
        // The engine's log already begins after a snapshot that was taken in this turn.
        if point.index < log.first_index() {
            return true;
        }
        if point.term == 0 {
            return point.index <= log.last_index();
        }
        point.index <= log.last_index()
            && log.term(point.index).is_ok_and(|term| term == point.term)
    }

    /// Checks a heartbeat, which names what this member has acknowledged to that leader in that term. If this member's
    /// term or log does not contain it, the disk was rolled back. Returns `true` in that case.
    pub(super) fn heartbeat_proves_loss(&mut self, from: MemberId, step: &Step) -> bool {
        if step.kind != StepKind::Heartbeat || step.term < self.node.raft.term || step.commit == 0 {
            return false;
        }
        let by_index = mutant!("promise_compared_by_index");
        let term = if by_index { 0 } else { step.commit_term };
        let acknowledged = LogId { index: step.commit, term };
        let lost = if step.term > self.node.raft.term && !by_index {
            DiskLoss::Term { seen: step.term, durable: self.node.raft.term }
        } else if !self.has(acknowledged) {
            self.lost_entry(acknowledged)
        } else {
            return false;
        };
        self.stop(Stop::Forgot { by: from, lost });
        true
    }

    /// Records what a message proves that its sender has promised.
    pub(super) fn observe(&mut self, from: MemberId, step: &Step) {
        if !self.members.contains(from) {
            return;
        }
        let (term, me) = (step.term, self.config.id);
        let log = &self.node.raft.raft_log;
        let committed = |upto: u64| {
            let index = upto.min(log.committed);
            let term = log.term(index).unwrap_or(0);
            Some(LogId { index, term }).filter(|point| point.term > 0)
        };
        match step.kind {
            StepKind::Append | StepKind::Heartbeat | StepKind::Snapshot
                if mutant!("leader_not_remembered") => {}
            StepKind::Append | StepKind::Heartbeat | StepKind::Snapshot => {
                // A leader has every committed entry, unless its term is over.
                let committed =
                    committed(step.durable.index).filter(|_| term >= self.node.raft.term);
                self.promises.observed.note(from, |observed| {
                    observed.note_vote(term, from);
                    observed.note_held(term, step.durable);
                    committed.into_iter().for_each(|point| observed.note_committed(point));
                });
            }
            StepKind::Vote => self.promises.observed.note(from, |seen| seen.note_vote(term, from)),
            StepKind::VoteAnswer if !step.reject && term == self.node.raft.term => {
                self.promises.observed.note(from, |seen| seen.note_vote(term, me));
            }
            StepKind::AppendAnswer if term == self.node.raft.term && self.leads() => {
                if step.reject {
                    self.remind(from, step);
                    return;
                }
                if step.index > log.last_index() {
                    return;
                }
                let held = LogId { index: step.index, term: log.term(step.index).unwrap_or(0) };
                let committed = committed(step.index);
                self.promises.observed.note(from, |observed| {
                    observed.note_term(term);
                    observed.note_held(term, held);
                    committed.into_iter().for_each(|point| observed.note_committed(point));
                });
            }
            StepKind::AppendAnswer | StepKind::HeartbeatAnswer | StepKind::VoteAnswer => {
                self.promises.observed.note(from, |observed| observed.note_term(term));
            }
            _ => {}
        }
    }

    /// Reminds a follower that rejects an append below what it once acknowledged. The reminder leaves ahead of the
    /// entries that the engine sends now, because once those have arrived the loss cannot be detected.
    fn remind(&mut self, from: MemberId, step: &Step) {
        let observed = self.promises.observed.of(from);
        if observed.held_in == step.term && step.reject_hint < observed.held.index {
            self.answer_hello(from);
        }
    }

    /// Adds to a leader's step what is durable on its own disk, and the term of the entry that it names as committed.
    pub(super) fn complete(&self, step: &mut Step) {
        let log = &self.node.raft.raft_log;
        let point = |index| LogId { index, term: log.term(index).unwrap_or(0) };
        if matches!(step.kind, StepKind::Append | StepKind::Heartbeat | StepKind::Snapshot) {
            step.durable = Some(point(log.persisted)).filter(|at| at.term > 0).unwrap_or_default();
        }
        if step.kind == StepKind::Heartbeat {
            step.commit_term = point(step.commit).term;
        }
    }

    /// On a leader, tells all others what it knows of each of them and of itself: changes at every tick, everything
    /// once in a while.
    pub(super) fn pass_on(&mut self, out: &mut Vec<ReplicaOutput>) {
        // A leader's report about itself is a promise too, so its term must be durable.
        if !self.leads() || self.held.is_voting() || self.now_us < self.promises.pass_at_us {
            return;
        }
        self.promises.pass_at_us = self.now_us.saturating_add(TICK_US);
        let mut passed = if self.now_us >= self.promises.pass_all_at_us {
            self.promises.pass_all_at_us = self.now_us.saturating_add(CHECKPOINT_US);
            self.promises.observed.take_unpassed();
            self.promises.observed.all()
        } else {
            self.promises.observed.take_unpassed()
        };
        if passed.is_empty() {
            return;
        }
        passed.push((self.config.id, self.own_promise()));
        super::to_all(&self.members, self.config.id, &Message::Observed(passed), out);
    }

    /// What this leader has promised by leading.
    fn own_promise(&self) -> Observed {
        let log = &self.node.raft.raft_log;
        let point = |index| LogId { index, term: log.term(index).unwrap_or(0) };
        let mut own = Observed::default();
        if mutant!("leader_not_remembered") {
            return own;
        }
        own.note_vote(self.node.raft.term, self.config.id);
        own.note_held(self.node.raft.term, point(log.persisted));
        own.note_committed(point(log.persisted.min(log.committed)));
        own
    }

    /// The notes for the next write, if they have changed.
    pub(super) fn notes(&mut self) -> Option<Vec<u8>> {
        let unwritten = self.promises.observed.are_unwritten();
        unwritten.then(|| self.promises.observed.encode(&self.members))
    }

    /// Writes what waits for the next write, if there was none for the length of a checkpoint.
    pub(super) fn write_at_checkpoint(&mut self, out: &mut Vec<ReplicaOutput>) {
        let due_us = self.promises.written_at_us.saturating_add(CHECKPOINT_US);
        let waits = self.owed.is_some() || self.promises.observed.are_unwritten();
        if waits && self.now_us >= due_us {
            self.write_owed(out);
        }
    }
}
