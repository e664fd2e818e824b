//! Upgrades members to newer builds, and raises the level of the rules as an operator does (N9, N12).

use tenure_core::LEVEL_MAX;
use tenure_core::codec::encode_request;
use tenure_core::request::{Command, Request, RequestId};
use tenure_node::{NodeFailure, Outcomes};
use tenure_raft::RejectReason;
use tenure_store::sim::Restart;

use super::event::SimEvent;
use super::oracle::ensure;
use super::world::SimCluster;
use super::{MS, S};
use crate::invariant::CheckResult;

/// How long a request for a level may take.
const RAISE_US: u64 = S;

impl SimCluster {
    /// Upgrades one member, or one after another all that there are, and then asks for the level that they know.
    pub(super) fn begin_upgrade(&mut self, member: usize) {
        let level = if self.rng.bool() { LEVEL_MAX } else { self.rng.u16(1..=LEVEL_MAX) };
        if self.rng.bool() {
            return self.upgrade(member, level);
        }
        self.faults.count("upgrade_of_all");
        let mut at_us = self.now_us;
        for member in 0..self.sim_members.len() {
            self.queue.push(at_us, SimEvent::Upgrade { member, level });
            at_us += self.rng.u64(100 * MS..2 * S);
        }
        self.queue.push(at_us + 2 * S, SimEvent::RaiseLevel { level });
    }

    /// A member starts again with a build that knows this level, if it knows less.
    pub(super) fn upgrade(&mut self, member: usize, level: u16) {
        let quiet_us = self.nemesis.quiet_us();
        if self.now_us < quiet_us {
            return self.queue.push(quiet_us, SimEvent::Upgrade { member, level });
        }
        let target = &mut self.sim_members[member];
        let lost = target.dead && !target.outgrown || target.damaged;
        if self.nemesis.healed || lost || target.level >= level {
            return;
        }
        target.level = level;
        (target.dead, target.outgrown) = (false, false);
        self.faults.count("upgrade");
        self.trace(|| format!("{member} is upgraded to level {level}"));
        self.crash(member, Restart::ProcessKilled);
    }

    /// An operator asks any member for this level. Members of an older build prevent it.
    pub(super) fn raise_level(&mut self, level: u16) {
        let Some(member) = self.operated() else { return };
        let boot = self.sim_members[member].boot;
        let command = Command::RaiseLevel { level };
        let request = Request { principal: "", id: RequestId::None, command };
        let mut bytes = Vec::new();
        encode_request(&request, &mut bytes);
        let deadline_us = self.sim_members[member].local_us(self.now_us) + RAISE_US;
        self.faults.count("raise_level");
        let number = self.call(member, boot, 0, bytes, deadline_us);
        self.raises.insert(number, level);
    }

    /// N12: a level that is reported as raised is in force.
    pub(super) fn handle_raise_answer(&mut self, number: u64, outcomes: &Outcomes) -> CheckResult {
        let Some(level) = self.raises.remove(&number) else { return Ok(()) };
        for outcome in outcomes {
            let refused = match outcome {
                Ok(outcome) => outcome.result.is_err(),
                Err(NodeFailure::Rejected(RejectReason::LevelNotKnown { .. })) => true,
                Err(_) => false,
            };
            self.faults.count_by("raise_refused", u64::from(refused));
            let done = outcome.as_ref().is_ok_and(|outcome| outcome.result.is_ok());
            let in_force = self.oracle.level();
            ensure(!done || in_force >= level, "N12", || {
                format!("level {level} is reported as raised, and {in_force} is in force")
            })?;
        }
        Ok(())
    }

    /// N9: the level is raised only to one that every voter knows. A learner that joins meanwhile may not.
    pub(super) fn check_level(&self, before: u16) -> CheckResult {
        let level = self.oracle.level();
        if level == before {
            return Ok(());
        }
        self.trace(|| format!("the level is raised from {before} to {level}"));
        for member in
            self.sim_members.iter().filter(|member| self.members.voters.contains(&member.id))
        {
            ensure(member.level >= level, "N9", || {
                let (id, known) = (member.id, member.level);
                format!("the level is raised to {level}, and member {id} knows {known}")
            })?;
        }
        Ok(())
    }
}
