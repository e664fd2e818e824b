//! Generates the steps of a sequence.
//!
//! Everything is drawn from one seed. The generator makes steps one at a time, so that they can use the machine's
//! answers. A step once made is concrete and can be run again without the generator.

mod absurd;
mod access;
mod command;
mod hand_on;
mod memory;
pub mod step;
mod swarm;

use fastrand::Rng;
use tenure_core::StoppedFor;
use tenure_core::outcome::Effects;
use tenure_types::Limit;

pub use step::{OwnedRequest, SequenceStep, StepCommand};

use crate::observe::ObservedState;
use memory::GeneratorMemory;
use swarm::{CommandKind, Swarm};

/// Makes the steps of one sequence.
pub struct Generator {
    rng: Rng,
    swarm: Swarm,
    memory: GeneratorMemory,
    term: u64,
    /// The clock at the beginning of the present term, as the rules compute it.
    base: u64,
    count: u64,
    epoch: u16,
    /// The number of commands still to come.
    left: usize,
    first: bool,
}

impl Generator {
    /// A generator for about `commands` commands.
    pub fn new(seed: u64, commands: usize) -> Self {
        let mut rng = Rng::with_seed(seed);
        let swarm = Swarm::draw(&mut rng);
        // Not drawn, so that the other sequences stay as they are.
        let swarm = if seed % 4 == 3 { swarm.with_access() } else { swarm };
        let swarm = if seed % 5 == 4 { swarm.with_priorities(seed) } else { swarm };
        let swarm = if seed % 7 == 6 { swarm.with_progress(seed) } else { swarm };
        let swarm = if seed % 6 == 5 { swarm.with_hand_on(seed) } else { swarm };
        let swarm = if seed % 9 == 8 { swarm.with_shares(seed) } else { swarm };
        let swarm = if seed % 8 == 7 { swarm.with_choices(seed) } else { swarm };
        let swarm = if seed % 11 == 10 { swarm.with_reopenings(seed) } else { swarm };
        // Lengths differ: short sequences are cheap and find shallow bugs.
        let left = rng.usize(commands.div_ceil(4)..=commands.max(1));
        Self {
            rng,
            swarm,
            memory: GeneratorMemory::default(),
            term: 1,
            base: 0,
            count: 0,
            epoch: 0,
            left,
            first: true,
        }
    }

    /// The next step, or `None` at the end.
    pub fn next(&mut self, view: &ObservedState) -> Option<SequenceStep> {
        if self.left == 0 {
            return None;
        }
        if std::mem::take(&mut self.first) {
            let mut commands = Vec::new();
            if self.swarm.newest {
                commands.push(step::OwnedCommand::RaiseLevel { level: tenure_core::LEVEL_MAX });
            }
            if self.swarm.newest && self.swarm.access {
                commands.extend(access::first(self));
            }
            if self.swarm.tight && !(self.swarm.newest && self.swarm.access) {
                commands.push(step::OwnedCommand::SetLimits(command::tight_limits(self, view)));
            }
            if let Some(ends) = self.swarm.slices.filter(|_| !self.swarm.access) {
                commands.push(step::OwnedCommand::SetLimits(vec![(Limit::EndsPerEntry, ends)]));
            }
            let item = |command| StepCommand::Request(Box::new(OwnedRequest::plain(command)));
            return Some(self.entry(commands.into_iter().map(item).collect()));
        }
        let roll = self.rng.u32(..1_000);
        let swarm = &self.swarm;
        let (leaders, snapshots) = (swarm.leaders, swarm.leaders + swarm.snapshots);
        let restores = snapshots + swarm.restores;
        if roll < leaders {
            return Some(self.change_leader(view));
        }
        if roll < snapshots {
            return Some(SequenceStep::Snapshot);
        }
        if roll < restores {
            return Some(self.restore(view));
        }
        if roll >= 997 {
            let len = self.rng.usize(..=1);
            let payload = (0..len).map(|_| self.rng.u8(..)).collect();
            return Some(SequenceStep::Unreadable { log_term: self.term, payload });
        }
        self.advance(view);
        let many = self.rng.usize(1..=self.swarm.batch).min(self.left);
        // Sometimes time passes without any command.
        let many = if self.rng.u32(..20) == 0 { 0 } else { many };
        self.left -= many.max(1);
        let items = (0..many).map(|_| self.item(view)).collect();
        Some(self.entry(items))
    }

    /// Records the effects of a step.
    pub fn learn(&mut self, step: &SequenceStep, effects: &Effects, after: &ObservedState) {
        self.memory.learn(step, effects, after);
        if let SequenceStep::Restore { epoch, .. } = step {
            self.epoch = self.epoch.max(*epoch);
        }
    }

    fn entry(&mut self, items: Vec<StepCommand>) -> SequenceStep {
        // An entry sealed under one term and logged under another occurs when the leader changes in between. None of
        // its commands may take effect.
        let payload_term = match self.rng.u32(..60) {
            0 => self.term + 1,
            1 => self.term.saturating_sub(1),
            _ => self.term,
        };
        SequenceStep::Entry { log_term: self.term, payload_term, count_ms: self.count, items }
    }

    fn change_leader(&mut self, view: &ObservedState) -> SequenceStep {
        self.term += self.rng.u64(1..=3);
        self.base = view.clock;
        self.count = 0;
        SequenceStep::Empty { log_term: self.term }
    }

    fn restore(&mut self, view: &ObservedState) -> SequenceStep {
        self.base = view.clock;
        self.count = 0;
        self.term += 1;
        // Sometimes use an epoch that is not above the present one, which changes nothing.
        let epoch = if self.rng.u32(..6) == 0 { self.epoch } else { self.epoch + 1 };
        // The whole quiet period is longer than most sequences, so mostly its end is near.
        let limits = [Limit::TtlMaxMs, Limit::LockDelayMs].map(|limit| view.limits.get(limit));
        let stopped = match self.rng.u32(..4) {
            0 => StoppedFor::ForGood,
            1 => StoppedFor::ForMs(0),
            _ => {
                let whole: u64 = limits.into_iter().sum();
                StoppedFor::ForMs(whole.saturating_sub(self.rng.u64(..8_000)))
            }
        };
        SequenceStep::Restore { epoch, stopped }
    }

    /// Advances the leader's count.
    fn advance(&mut self, view: &ObservedState) {
        let roll = self.rng.u32(..100);
        let (leaps, edges) = (self.swarm.leaps, self.swarm.leaps + self.swarm.edges);
        if self.swarm.end_of_time && self.rng.u32(..150) == 0 {
            self.count = if self.rng.bool() { u64::MAX } else { (1 << 60) - 2_000 };
        } else if self.swarm.silences && self.rng.u32(..60) == 0 {
            let long = 600_000 + self.rng.u64(0..=2);
            self.count = self.count.saturating_add(long);
        } else if self.swarm.patient && !self.swarm.end_of_time && roll < 30 {
            self.count = self.count.saturating_add(self.rng.u64(5_000..90_000));
        } else if roll < leaps {
            self.count = self.count.saturating_add(self.rng.u64(900..7_000));
        } else if let Some(due) = view.next_due.filter(|_| roll < edges) {
            // One before, exactly at, or one after the deadline, where off-by-one errors show.
            let target = (due + self.rng.u64(0..=2)).saturating_sub(1);
            self.count = self.count.max(target.saturating_sub(self.base));
        } else if self.rng.bool() {
            self.count = self.count.saturating_add(self.rng.u64(1..300));
        } else if self.rng.u32(..40) == 0 {
            // A count that went back: the clock must not follow.
            self.count = self.count.saturating_sub(self.rng.u64(1..2_000));
        }
    }

    fn item(&mut self, view: &ObservedState) -> StepCommand {
        let kind = self.swarm.kind(&mut self.rng);
        if kind == CommandKind::Raw {
            return absurd::raw(self, view);
        }
        let mut request = command::request(self, view, kind);
        // A repeated request and an abandoned one keep their principal.
        if self.swarm.access && !matches!(kind, CommandKind::Retry | CommandKind::Abandon) {
            access::sign(self, view, &mut request);
        }
        StepCommand::Request(Box::new(request))
    }
}
