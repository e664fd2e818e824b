//! Injects faults at random, and heals some of them.

use fastrand::Rng;
use tenure_node::Reconfiguration;
use tenure_raft::{AdminRequest, MemberId, MembershipChange};
use tenure_store::sim::{DiskFault, Restart};

use super::event::SimEvent;
use super::node_fault::{self, NodeFault};
use super::world::SimCluster;
use super::{MS, S};
use crate::invariant::CheckResult;

/// The kinds of faults in one run. No run has all of them, so that each fault also occurs in calm surroundings.
pub(super) struct Nemesis {
    kinds: Vec<FaultKind>,
    pause_us: u64,
    pub(super) healed: bool,
    /// The time before which no other fault occurs.
    quiet_until_us: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FaultKind {
    Heal,
    Partition,
    Isolate,
    OneWay,
    Bridge,
    Kill,
    PowerLoss,
    CrashLeader,
    CrashAll,
    Pause,
    LongPause,
    DiskError,
    DiskFull,
    FlipLog,
    FlipSnapshot,
    Add,
    Promote,
    Remove,
    Replace,
    Transfer,
    RollBack,
    LoseNewest,
    Forge,
    Reuse,
    Lie,
    BackUp,
    LoseAll,
    /// Something above the log.
    Above(NodeFault),
}

const ALL: [FaultKind; 25] = [
    FaultKind::Heal,
    FaultKind::Partition,
    FaultKind::Isolate,
    FaultKind::OneWay,
    FaultKind::Bridge,
    FaultKind::Kill,
    FaultKind::PowerLoss,
    FaultKind::CrashLeader,
    FaultKind::CrashAll,
    FaultKind::Pause,
    FaultKind::LongPause,
    FaultKind::DiskError,
    FaultKind::DiskFull,
    FaultKind::FlipLog,
    FaultKind::FlipSnapshot,
    FaultKind::Add,
    FaultKind::Promote,
    FaultKind::Remove,
    FaultKind::Replace,
    FaultKind::Transfer,
    FaultKind::RollBack,
    FaultKind::LoseNewest,
    FaultKind::Forge,
    FaultKind::Reuse,
    FaultKind::Lie,
];

impl Nemesis {
    pub(super) fn new(rng: &mut Rng) -> Self {
        let share = rng.u8(1..=3);
        let above = node_fault::ALL.into_iter().map(FaultKind::Above);
        let all = ALL.into_iter().chain(above);
        let mut kinds: Vec<_> = all.filter(|_| rng.u8(0..4) <= share).collect();
        kinds.push(FaultKind::Heal);
        if rng.u8(0..6) == 0 {
            kinds.extend([FaultKind::BackUp; 4]);
            kinds.extend([FaultKind::LoseAll, FaultKind::Promote, FaultKind::Promote]);
        }
        Self { kinds, pause_us: rng.u64(200..3000) * MS, healed: false, quiet_until_us: 0 }
    }

    /// Whether the whole cluster may be lost and restored.
    pub(super) fn may_lose_all(&self) -> bool {
        self.kinds.contains(&FaultKind::LoseAll)
    }

    /// Sets a time before which no other fault occurs.
    pub(super) fn quiet_until(&mut self, at_us: u64) {
        self.quiet_until_us = self.quiet_until_us.max(at_us);
    }

    /// The time before which no other fault occurs.
    pub(super) fn quiet_us(&self) -> u64 {
        self.quiet_until_us
    }

    /// Nothing fails by itself.
    pub(super) fn idle() -> Self {
        Self { kinds: vec![FaultKind::Heal], pause_us: 5 * S, healed: false, quiet_until_us: 0 }
    }

    /// One voter with learners, whose power fails often. It elects itself, so only its disk remembers in which
    /// terms it has led.
    pub(super) fn lonely() -> Self {
        let kinds = vec![
            FaultKind::Add,
            FaultKind::PowerLoss,
            FaultKind::PowerLoss,
            FaultKind::CrashAll,
            FaultKind::Heal,
        ];
        Self { kinds, pause_us: 800 * MS, healed: false, quiet_until_us: 0 }
    }

    /// Disks of leaders and followers that return to an earlier state, between elections and crashes; new members
    /// replace those that are lost by it.
    pub(super) fn forgetful() -> Self {
        let mut kinds = vec![FaultKind::RollBack; 8];
        kinds.extend([
            FaultKind::LoseNewest,
            FaultKind::Lie,
            FaultKind::Lie,
            FaultKind::Kill,
            FaultKind::CrashLeader,
            FaultKind::Transfer,
        ]);
        kinds.extend([
            FaultKind::Isolate,
            FaultKind::Heal,
            FaultKind::Heal,
            FaultKind::Replace,
            FaultKind::Replace,
        ]);
        Self { kinds, pause_us: 600 * MS, healed: false, quiet_until_us: 0 }
    }
}

impl SimCluster {
    pub(super) fn inject_fault(&mut self) -> CheckResult {
        if self.nemesis.healed {
            return Ok(());
        }
        self.check_rolled_back()?;
        let next_us = self.rng.u64(self.nemesis.pause_us / 4..self.nemesis.pause_us * 2);
        self.queue.push(self.now_us + next_us, SimEvent::Nemesis);
        if self.now_us < self.nemesis.quiet_until_us {
            return Ok(());
        }
        let kind = self.nemesis.kinds[self.rng.usize(0..self.nemesis.kinds.len())];
        let member = self.rng.usize(0..self.sim_members.len());
        self.trace(|| format!("nemesis {kind:?} {member}"));
        match kind {
            FaultKind::Heal => self.network.heal(),
            FaultKind::Partition => self.partition(),
            FaultKind::Isolate => self.isolate_leader(member),
            FaultKind::OneWay => {
                self.faults.count("one_way");
                let from = self.leader().unwrap_or(member);
                for to in (0..self.sim_members.len()).filter(|to| *to != from) {
                    let (from, to) = if member.is_multiple_of(2) { (from, to) } else { (to, from) };
                    self.network.cut(from, to);
                }
            }
            FaultKind::Bridge => self.bridge(member),
            FaultKind::Kill => self.crash_one(member, Restart::ProcessKilled),
            FaultKind::PowerLoss => self.crash_one(member, Restart::PowerLostAll),
            FaultKind::CrashLeader => {
                let leader = self.leader().unwrap_or(member);
                self.crash_one(leader, Restart::PowerLostSome);
            }
            FaultKind::CrashAll => {
                self.faults.count("crash_of_all");
                let how = [Restart::PowerLostAll, Restart::PowerLostSome][member % 2];
                (0..self.sim_members.len()).for_each(|member| self.crash_one(member, how));
            }
            FaultKind::Pause => {
                let for_us = self.rng.u64(100..400) * MS;
                self.pause(member, for_us, "pause");
            }
            FaultKind::LongPause => {
                let for_us = self.rng.u64(1000..8000) * MS;
                self.pause(member, for_us, "long_pause");
            }
            FaultKind::DiskError => {
                let fault = [DiskFault::WriteError, DiskFault::SyncError][self.rng.usize(0..2)];
                self.sim_members[member].disk.plan(fault);
            }
            FaultKind::DiskFull => match self.rng.u8(0..4) {
                0 => self.sim_members[member].disk.set_capacity(Some(64 * 1024)),
                1 => self.nearly_full(),
                _ => self.sim_members.iter().for_each(|member| member.disk.set_capacity(None)),
            },
            FaultKind::FlipLog => self.flip(member, "log", "flip_in_log"),
            FaultKind::FlipSnapshot => self.flip(member, "snapshots", "flip_in_snapshot"),
            FaultKind::Add => self.add()?,
            FaultKind::Promote => self.promote()?,
            FaultKind::Remove => self.remove()?,
            FaultKind::Replace => self.replace()?,
            FaultKind::Transfer => self.transfer()?,
            FaultKind::RollBack => {
                let leader = self.leader().filter(|_| self.rng.u8(0..4) == 0);
                self.roll_back(leader.unwrap_or(member));
            }
            FaultKind::LoseNewest => {
                let leader = self.leader().filter(|_| self.rng.bool());
                self.lose_newest(leader.unwrap_or(member));
            }
            FaultKind::Forge => self.forge_step(member),
            FaultKind::Reuse => self.reuse(),
            FaultKind::Lie => self.begin_lie(member),
            FaultKind::BackUp => self.back_up(member),
            FaultKind::LoseAll => self.lose_all(),
            FaultKind::Above(trouble) => self.inject_node_fault(trouble, member)?,
        }
        self.watch_links();
        Ok(())
    }

    /// The leader, as far as the simulation can tell.
    pub(super) fn leader(&self) -> Option<usize> {
        let leads = |member: &&super::member::SimMember| {
            let process = member.process.as_ref().filter(|_| member.lineage == self.lineage);
            process.is_some_and(|process| process.replica().status().leading)
        };
        let leader = self.sim_members.iter().filter(leads).max_by_key(|member| {
            member.process.as_ref().map(|process| process.replica().status().term)
        })?;
        self.at(leader.id)
    }

    fn partition(&mut self) {
        self.faults.count("partition");
        self.network.heal();
        let side: Vec<bool> = (0..self.sim_members.len()).map(|_| self.rng.bool()).collect();
        for from in 0..side.len() {
            for to in (0..side.len()).filter(|to| side[*to] != side[from]) {
                self.network.cut(from, to);
            }
        }
    }

    fn isolate_leader(&mut self, member: usize) {
        self.faults.count("partition");
        let alone = self.leader().unwrap_or(member);
        for other in (0..self.sim_members.len()).filter(|other| *other != alone) {
            self.network.cut(alone, other);
            self.network.cut(other, alone);
        }
    }

    /// Two halves that reach each other only through one member.
    fn bridge(&mut self, middle: usize) {
        self.faults.count("bridge");
        self.network.heal();
        for from in (0..self.sim_members.len()).filter(|from| *from != middle) {
            for to in (0..self.sim_members.len()).filter(|to| *to != middle && to % 2 != from % 2) {
                self.network.cut(from, to);
            }
        }
    }

    fn crash_one(&mut self, member: usize, how: Restart) {
        if self.sim_members[member].is_up() {
            self.faults.count(match how {
                Restart::ProcessKilled => "kill",
                Restart::PowerLostAll => "power_loss",
                Restart::PowerLostSome => "power_loss_some",
            });
            self.crash(member, how);
        }
    }

    fn pause(&mut self, member: usize, for_us: u64, kind: &'static str) {
        let target = &mut self.sim_members[member];
        if target.is_up() && target.paused_until_us <= self.now_us {
            target.paused_until_us = self.now_us + for_us;
            target.stalled.times += 1;
            target.stalled.for_us += for_us;
            self.faults.count(kind);
        }
    }

    /// Leaves every disk some room, but less than the state may grow into.
    fn nearly_full(&mut self) {
        self.faults.count("nearly_full");
        for member in 0..self.sim_members.len() {
            let room = self.rng.u64(0..30) * 1024;
            let disk = &self.sim_members[member].disk;
            disk.set_capacity(Some(disk.used_bytes() + room));
        }
    }

    /// How many members are lost for good and still count as voters.
    fn lost_voters(&self) -> usize {
        let lost = |id: &&MemberId| {
            self.at(**id).is_none_or(|member| {
                self.sim_members[member].dead || self.sim_members[member].damaged
            })
        };
        self.members.voters.iter().filter(lost).count()
    }

    /// Spoils a disk, as long as a majority keeps a good one.
    fn flip(&mut self, member: usize, dir: &str, kind: &'static str) {
        let is_voter = self.members.voters.contains(&self.sim_members[member].id);
        let is_lost = |member: &super::member::SimMember| {
            (member.dead || member.damaged) && !self.members.retired.contains(&member.id)
        };
        if !is_voter
            || self.members.voters.len() < 3
            || !self.is_settled(member)
            || self.sim_members.iter().any(is_lost)
        {
            return;
        }
        self.crash_one(member, Restart::ProcessKilled);
        let files: Vec<_> = self.sim_members[member]
            .disk
            .files()
            .into_iter()
            .filter(|file| file.starts_with(dir))
            .collect();
        if files.is_empty() {
            return;
        }
        let file = &files[self.rng.usize(0..files.len())];
        if self.sim_members[member].disk.flip_random_bit(file).is_some() {
            self.faults.count(kind);
            self.sim_members[member].damaged = true;
        }
    }

    /// Sends a request to a member, which need not lead, as no operator's tool does: past the checks of an operation.
    pub(super) fn request_admin(&mut self, request: AdminRequest) -> bool {
        let Some(member) = self.operated() else { return false };
        let within_us = [50 * MS, S, 5 * S, 30 * S][self.rng.usize(0..4)];
        let deadline_us = self.sim_members[member].local_us(self.now_us) + within_us;
        if let AdminRequest::Change(changes) = &request {
            // Its result is not looked at, so it may have had an effect.
            for change in changes.iter().filter(|it| matches!(it, MembershipChange::Remove(_))) {
                *self.removals.entry(change.member()).or_default() += 1;
            }
        }
        self.send_admin(member, request, deadline_us, None);
        true
    }

    pub(super) fn add(&mut self) -> CheckResult {
        if self.members.all().len() >= 6 || self.sim_members.len() >= 16 {
            return Ok(());
        }
        if self.rng.bool() {
            return self.join();
        }
        let member = self.new_member();
        let record = self.sim_members[member].record();
        self.queue.push(self.now_us, SimEvent::Start { member });
        if self.operate(Reconfiguration::Add(record))? {
            self.faults.count("add");
        }
        Ok(())
    }

    fn promote(&mut self) -> CheckResult {
        let Some(id) = self.members.learners.first().copied() else { return Ok(()) };
        let is_sound =
            |member: usize| self.sim_members[member].is_up() && !self.sim_members[member].damaged;
        if self.at(id).is_some_and(is_sound) && self.operate(Reconfiguration::Promote(id))? {
            self.faults.count("promote");
        }
        Ok(())
    }

    /// The member that the cluster can best do without.
    fn needless(&self) -> Option<MemberId> {
        let leader = self.leader().map(|leader| self.sim_members[leader].id);
        let others = || self.members.all().into_iter().filter(|id| Some(*id) != leader);
        let dead = |id: &MemberId| self.at(*id).is_none_or(|member| self.sim_members[member].dead);
        others().find(dead).or_else(|| others().next_back())
    }

    fn remove(&mut self) -> CheckResult {
        let leader = self.leader().filter(|_| self.rng.u8(0..4) == 0);
        let leader = leader.map(|leader| self.sim_members[leader].id);
        let Some(id) = leader.or_else(|| self.needless()) else { return Ok(()) };
        let healthy = self.members.voters.len() - self.lost_voters();
        let is_dead = self.at(id).is_none_or(|member| self.sim_members[member].dead);
        // Of two voters, the one that stays needs the other until it knows of the removal.
        let of_two = (healthy, self.members.voters.len()) == (2, 2);
        if self.members.voters.contains(&id) && !is_dead && healthy <= 3 && !of_two {
            return Ok(());
        }
        let of_two = of_two && self.members.voters.contains(&id);
        if self.operate(Reconfiguration::Remove(id))? {
            self.faults.count("remove");
            self.faults.count_by("remove_of_two", u64::from(of_two));
            self.faults.count_by("remove_leader", u64::from(leader == Some(id)));
        }
        Ok(())
    }

    /// Adds one learner as a voter and removes one voter, in one step.
    fn replace(&mut self) -> CheckResult {
        let Some(new) = self.members.learners.first().copied() else { return self.add() };
        let Some(old) = self.needless() else { return Ok(()) };
        let alive = self.at(new).is_some_and(|member| self.sim_members[member].is_up());
        if alive && old != new {
            self.request_admin(AdminRequest::Change(vec![
                MembershipChange::Promote(new),
                MembershipChange::Remove(old),
            ]));
        }
        Ok(())
    }

    fn transfer(&mut self) -> CheckResult {
        let voters: Vec<_> = self.members.voters.iter().copied().collect();
        let to = voters[self.rng.usize(0..voters.len())];
        let to = (self.rng.u8(0..4) > 0).then_some(to);
        let leader = self.leader();
        if self.operate(Reconfiguration::Transfer(to))? {
            self.faults.count("transfer");
        }
        // At times the old leader is the last to know.
        if let Some(leader) = leader.filter(|_| self.rng.bool()) {
            for from in (0..self.sim_members.len()).filter(|from| *from != leader) {
                self.network.cut(from, leader);
            }
        }
        Ok(())
    }
}
