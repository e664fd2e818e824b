//! Injects faults above the log: in links, sessions, single threads, clocks, budgets and names.

use tenure_core::LEVEL_MAX;
use tenure_node::directory::Preference;
use tenure_node::{CallId, CommandBatch, Input, Permit, ReplyTo, Weight};
use tenure_raft::MemberId;
use tenure_store::sim::{DiskFault, Outage, Restart};

use super::session_host::SubmittedBatch;
use super::world::SimCluster;
use super::{MS, S};
use crate::invariant::CheckResult;

/// How long a change of members is kept from damage: until every member has written that it is committed.
const SETTLED_US: u64 = 3 * S;

/// What can go wrong above the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeFault {
    CutSession,
    ClientOneWay,
    ClientSleeps,
    BreakLink,
    OverflowLink,
    StallRouter,
    StallSync,
    StallSnapshots,
    Suspend,
    Forge,
    Rename,
    Wipe,
    Overload,
    Leave,
    RaiseLevel,
    Upgrade,
    Flood,
    ReadError,
    Outage,
    DamageRunning,
    ForgeJoin,
    StallLog,
}

/// All of them.
pub(super) const ALL: [NodeFault; 22] = [
    NodeFault::CutSession,
    NodeFault::ClientOneWay,
    NodeFault::ClientSleeps,
    NodeFault::BreakLink,
    NodeFault::OverflowLink,
    NodeFault::StallRouter,
    NodeFault::StallSync,
    NodeFault::StallSnapshots,
    NodeFault::Suspend,
    NodeFault::Forge,
    NodeFault::Rename,
    NodeFault::Wipe,
    NodeFault::Overload,
    NodeFault::Leave,
    NodeFault::RaiseLevel,
    NodeFault::Upgrade,
    NodeFault::Flood,
    NodeFault::ReadError,
    NodeFault::Outage,
    NodeFault::DamageRunning,
    NodeFault::ForgeJoin,
    NodeFault::StallLog,
];

impl SimCluster {
    pub(super) fn inject_node_fault(&mut self, trouble: NodeFault, member: usize) -> CheckResult {
        let client = self.rng.usize(0..self.clients.len());
        match trouble {
            NodeFault::CutSession => self.cut_session(client),
            NodeFault::ClientOneWay => {
                let deaf = self.rng.bool();
                if let Some(session) = &mut self.clients[client].session {
                    session.deaf |= deaf;
                    session.mute |= !deaf;
                    self.faults.count("client_link_one_way");
                }
            }
            NodeFault::ClientSleeps => {
                let until_us = self.now_us + self.rng.u64(S..10 * S);
                let one = &mut self.clients[client];
                // Sleeps follow one another, so that the client's mail stays in order.
                if one.asleep_until_us < self.now_us {
                    one.asleep_until_us = until_us;
                    self.faults.count("client_sleeps");
                }
            }
            NodeFault::BreakLink => {
                // Use the busiest link, the one to the leader.
                let other = self.leader().unwrap_or(0);
                if member != other && self.break_link(member, other) {
                    self.faults.count("link_break");
                }
            }
            NodeFault::OverflowLink => {
                let other = self.leader().unwrap_or(0);
                let until_us = self.now_us + self.rng.u64(50 * MS..2 * S);
                if member != other {
                    self.links.overflow(member, other, until_us);
                }
            }
            NodeFault::StallRouter => {
                let until_us = self.now_us + self.rng.u64(100 * MS..4 * S);
                if let Some(process) = &mut self.sim_members[member].process {
                    process.host.stalled_until_us = until_us;
                    self.faults.count("router_stall");
                }
            }
            NodeFault::StallSync => {
                self.sim_members[member].sync_stalled_until_us =
                    self.now_us + self.rng.u64(S..4 * S);
                self.faults.count("sync_stall");
            }
            NodeFault::StallSnapshots => {
                let until_us = self.now_us + self.rng.u64(S..6 * S);
                self.sim_members[member].snapshots_stalled_until_us = until_us;
                self.faults.count("snapshot_stall");
            }
            NodeFault::Suspend => self.suspend(member),
            NodeFault::Forge => (0..8).for_each(|_| self.forge(member)),
            NodeFault::Rename => self.rename(member),
            NodeFault::Wipe => self.wipe(member)?,
            NodeFault::Overload => self.overload(member),
            NodeFault::Leave => {
                let boot = self.sim_members[member].boot;
                self.give(member, boot, Input::Leave);
            }
            NodeFault::RaiseLevel => {
                // What an operator asks for may be in force, outdated, or known to some members only.
                let next = self.oracle.level() + 1;
                let levels = [next, next, LEVEL_MAX, next - 1, self.rng.u16(1..=LEVEL_MAX + 1)];
                let level = levels[self.rng.usize(0..5)];
                self.raise_level(level);
            }
            NodeFault::Upgrade => self.begin_upgrade(member),
            NodeFault::Flood => self.flood(member),
            // Further disk faults that need only a plan can be added here.
            NodeFault::ReadError => self.sim_members[member].disk.plan(DiskFault::ReadError),
            NodeFault::Outage => {
                let outage = [Outage::ReadOnly, Outage::Device][self.rng.usize(0..2)];
                let ended = self.rng.bool();
                self.sim_members[member].disk.set_outage((!ended).then_some(outage));
            }
            NodeFault::ForgeJoin => self.forge_join(self.leader().unwrap_or(member)),
            NodeFault::StallLog => self.stall_log(member),
            NodeFault::DamageRunning => self.damage_running(member),
        }
        Ok(())
    }

    /// The member's machine sleeps: its clock stands still meanwhile.
    fn suspend(&mut self, member: usize) {
        let for_us = self.rng.u64(S..10 * S);
        let target = &mut self.sim_members[member];
        if target.is_up() && target.paused_until_us <= self.now_us {
            target.paused_until_us = self.now_us + for_us;
            target.asleep_us += for_us;
            target.stalled.times += 1;
            target.stalled.for_us += for_us;
            self.faults.count("suspend");
        }
    }

    /// A member starts again with another name, address and preference. It announces them itself.
    fn rename(&mut self, member: usize) {
        if !self.sim_members[member].is_up() {
            return;
        }
        self.numbers += 1;
        let (id, number) = (self.sim_members[member].id, self.numbers);
        let port = self.rng.u16(1..);
        let names = &mut self.sim_members[member].names;
        names.name = format!("m{id}-{number}");
        names.members = format!("h{id}:{port}");
        names.preference = Preference::new(self.rng.u8(0..=100)).unwrap_or_default();
        self.faults.count("rename");
        self.crash(member, Restart::ProcessKilled);
    }

    /// A bit of a disk changes while its process runs.
    fn damage_running(&mut self, member: usize) {
        if !self.may_be_lost(member) || !self.sim_members[member].is_up() {
            return;
        }
        let mut files = self.sim_members[member].disk.files();
        files.retain(|file| file.starts_with("log") || file.starts_with("snapshots"));
        if files.is_empty() {
            return;
        }
        let file = &files[self.rng.usize(0..files.len())];
        if self.sim_members[member].disk.damage_while_running(file).is_some() {
            self.sim_members[member].damaged = true;
        }
    }

    /// Submits one command as a call without a session.
    pub(super) fn call(
        &mut self,
        member: usize,
        boot: u64,
        ask: u64,
        request: Vec<u8>,
        deadline_us: u64,
    ) -> u64 {
        self.numbers += 1;
        let number = self.numbers;
        let asked_at_us = self.sim_members[member].local_us(self.now_us);
        let Some(process) = &mut self.sim_members[member].process else { return number };
        let admitted = process.admission.admit(Weight::Asks, request.len() as u64);
        let Some(permit) = admitted else { return number };
        let pending = SubmittedBatch { session: None, asks: vec![ask], admitted: 1, deadline_us };
        let reply = ReplyTo::Call(CallId(number));
        process.host.submitted(reply, pending);
        let batch = CommandBatch {
            requests: [request.into()].into(),
            linger_us: 0,
            asked_at_us,
            deadline_us,
            reply,
            permit,
        };
        self.give(member, boot, Input::Submit(Box::new(batch)));
        number
    }

    /// Whether the cluster can lose this member: a majority keeps a good disk.
    fn may_be_lost(&self, member: usize) -> bool {
        let lost = |other: &super::member::SimMember| other.dead || other.damaged;
        self.members.voters.contains(&self.sim_members[member].id)
            && self.members.voters.len() >= 3
            && self.is_settled(member)
            && !self.sim_members.iter().any(|other| lost(other) && self.members.contains(other.id))
    }

    /// Whether a majority would know the newest members without this one. A change of members counts on a member once
    /// it has applied it: if the one that did is lost before the others hear of it, and a removed voter is gone, those
    /// that are left are no majority of the members that they know.
    pub(super) fn is_settled(&self, without: usize) -> bool {
        let knows = |id: &&MemberId| {
            let at = self.at(**id).filter(|at| *at != without);
            let process = at.and_then(|at| self.sim_members[at].process.as_ref());
            process.is_some_and(|process| *process.replica().members() == self.members)
        };
        let voters = &self.members.voters;
        !self.members.is_joint()
            && self.now_us >= self.members_since_us + SETTLED_US
            && voters.iter().filter(knows).count() > voters.len() / 2
    }

    /// A member's disk is gone for good. Another member takes its place, under its own id.
    fn wipe(&mut self, member: usize) -> CheckResult {
        if !self.may_be_lost(member) || self.leader() == Some(member) {
            return Ok(());
        }
        self.faults.count("wiped");
        self.end(member, Restart::ProcessKilled);
        (self.sim_members[member].dead, self.sim_members[member].damaged) = (true, true);
        self.add()
    }

    /// Other clients use up a member's budget, for a while.
    fn overload(&mut self, member: usize) {
        let Some(process) = &mut self.sim_members[member].process else { return };
        if process.hog.take().is_some() {
            return;
        }
        let mut hog = Permit::default();
        while let Some(one) = process.admission.admit(Weight::Asks, 1) {
            hog.join(one);
        }
        process.hog = Some(hog);
        self.faults.count("overload");
    }
}
