//! Ends every fault, and checks that the cluster works again.

use tenure_core::codec::encode_request;
use tenure_core::request::{Command, Request, RequestId};
use tenure_node::{Outcomes, directory};
use tenure_raft::MemberId;

use super::S;
use super::ask_history::Repeats;
use super::client::SimClient;
use super::event::SimEvent;
use super::member::SimMember;
use super::oracle::ensure;
use super::world::SimCluster;
use crate::invariant::{CheckResult, InvariantViolation};

/// How long a healed cluster may take. A client may wait for a lock whose holder died: for the longest ttl, and for the
/// time that the leaders before have forgiven, which is bounded by their credit of a minute.
pub(super) const RECOVERY_US: u64 = 100 * S;
/// How long a restored cluster may grant nothing, and the time that it may take to restore it.
pub(super) const QUIET_US: u64 = 50 * S;
/// How long a member of a calm cluster may take for one command.
const PROBE_US: u64 = 3 * S;
/// How long a calm cluster may take to write the records of its members: a new leader may have begun just now, and
/// members announce themselves twice a second.
const RECORDS_US: u64 = 5 * S;
/// The level that a build knows if its members announce their records and read those of others.
const ANNOUNCE_LEVEL: u16 = 2;

impl SimCluster {
    /// Ends every fault. What is lost stays lost.
    pub(super) fn heal(&mut self) {
        self.trace(|| "everything heals".into());
        self.nemesis.healed = true;
        self.slow_sync = 0;
        self.network.calm();
        self.links.calm();
        for client in 0..self.clients.len() {
            let session = self.clients[client].session.as_ref();
            if session.is_some_and(|session| session.deaf || session.mute) {
                // The messages that were lost on it stay lost.
                self.cut_session(client);
            }
        }
        self.clients.iter_mut().for_each(SimClient::wait_to_be_served);
        for member in 0..self.sim_members.len() {
            self.sim_members[member].disk.set_capacity(None);
            self.sim_members[member].disk.set_outage(None);
            self.sim_members[member].disk.tell_the_truth();
            self.sim_members[member].sync_stalled_until_us = 0;
            self.sim_members[member].snapshots_stalled_until_us = 0;
            if let Some(process) = &mut self.sim_members[member].process {
                process.hog = None;
            }
            if !self.sim_members[member].is_up() {
                self.queue.push(self.now_us, SimEvent::Start { member });
            }
        }
    }

    /// L1: there is one leader, all members are at the same index, and some client has written since.
    pub(super) fn has_recovered(&self) -> bool {
        let Some(leader) = self.leader() else { return false };
        let Some(process) = &self.sim_members[leader].process else { return false };
        let status = process.replica().status();
        let members = process.replica().members();
        let alive =
            |id: &MemberId| self.at(*id).is_some_and(|member| !self.sim_members[member].dead);
        let caught_up = |id: &MemberId| {
            let Some(member) = self.at(*id).map(|at| &self.sim_members[at]) else { return false };
            // One that sleeps still believes in the leader that it had, which may lead again.
            let awake = member.paused_until_us <= self.now_us;
            awake
                && member.process.as_ref().is_some_and(|process| {
                    let its = process.replica().status();
                    its.applied.index + 5 >= self.oracle.last()
                        && (its.leader, its.term) == (status.leader, status.term)
                })
        };
        status.serving
            && members.all().iter().filter(|id| alive(id)).all(caught_up)
            && self.clients.iter().any(SimClient::is_served)
    }

    /// N3: in a calm cluster every member has a command of its own clients answered.
    pub(super) fn probe(&mut self) -> CheckResult {
        for member in 0..self.sim_members.len() {
            let target = &self.sim_members[member];
            if target.is_up() && self.members.contains(target.id) {
                let number = self.submit_one(member, PROBE_US);
                self.probes.insert(number, member);
            }
        }
        self.run_until(self.now_us + PROBE_US + S)?;
        match self.probes.first_key_value() {
            Some((_, member)) => {
                let detail = format!("{member} has not answered its clients; {}", self.describe());
                Err(InvariantViolation::new("N3", detail))
            }
            None => Ok(()),
        }
    }

    /// Submits a command that changes nothing, and returns the number of its call.
    pub(super) fn submit_one(&mut self, member: usize, within_us: u64) -> u64 {
        self.numbers += 1;
        let (ask, boot) = (self.numbers, self.sim_members[member].boot);
        let deadline_us = self.sim_members[member].local_us(self.now_us) + within_us;
        let principal = ask.to_string();
        let command = Command::SetLimits(Vec::new());
        let request = Request { principal: &principal, id: RequestId::None, command };
        let mut bytes = Vec::new();
        encode_request(&request, &mut bytes);
        self.oracle.asked.submit(ask, self.numbers + 1, Repeats::Never);
        self.call(member, boot, ask, bytes, deadline_us)
    }

    /// N10: in a calm cluster the directory soon has every member as it is.
    pub(super) fn await_records(&mut self) -> CheckResult {
        let limit_us = self.now_us + RECORDS_US;
        loop {
            match self.check_records() {
                Err(_) if self.now_us < limit_us => self.run_until(self.now_us + S)?,
                checked => return checked,
            }
        }
    }

    /// Whether the directory has every member as it is. Members of an older build announce nothing, and leaders of one
    /// do not understand it.
    fn check_records(&self) -> CheckResult {
        let announces = |member: &SimMember| member.level >= ANNOUNCE_LEVEL;
        let Some(leader) = self.leader().filter(|at| announces(&self.sim_members[*at])) else {
            return Ok(());
        };
        let Some(process) = &self.sim_members[leader].process else { return Ok(()) };
        let known = directory::read(process.node.machine());
        for member in &self.sim_members {
            if !member.is_up() || !self.members.contains(member.id) || !announces(member) {
                continue;
            }
            let (found, expected) = (known.get(&member.id), &member.names);
            ensure(found == Some(expected), "N10", || {
                format!("the directory has member {} as {found:?}, it is {expected:?}", member.id)
            })?;
        }
        Ok(())
    }

    /// A call was answered.
    pub(super) fn probed(&mut self, number: u64, outcomes: &Outcomes) {
        if outcomes.iter().all(Result::is_ok) {
            self.probes.remove(&number);
        }
    }

    pub(super) fn describe(&self) -> String {
        let mut text = format!("not recovered; agreed up to {}", self.oracle.last());
        for member in &self.sim_members {
            let state = match &member.process {
                Some(process) => {
                    let status = process.replica().status();
                    format!(
                        "term {} leader {:?} applied {} last {} members {:?}",
                        status.term,
                        status.leader,
                        status.applied.index,
                        status.last.index,
                        process.replica().members().voters
                    )
                }
                None => format!("down, dead {}", member.dead),
            };
            text += &format!("; {}: {state}", member.id);
        }
        text
    }

    /// S9, S10: members at the same place have the same state, to the byte.
    pub(super) fn compare_all(&self) -> CheckResult {
        let (last, expected) = (self.oracle.last(), self.oracle.full_hash());
        for (number, member) in self.sim_members.iter().enumerate() {
            let Some(process) = &member.process else { continue };
            let is_at_last = process.replica().status().applied.index == last;
            if is_at_last && !self.is_survivor(number) {
                let found = process.node.machine().full_hash();
                ensure(found == expected, "S9", || format!("{number} differs at {last}"))?;
            }
        }
        Ok(())
    }
}
