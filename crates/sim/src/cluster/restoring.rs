//! Loses the whole cluster and restores it from a backup as a cluster of one, which others join.
//!
//! Clients do not know: those that held a lock after the backup go on until their leases could have ended. Checked
//! afterwards: no token from before is issued again (S2), no lock is granted while a lease that held it could still be
//! valid (T2, and S1 by what clients believe), and no lease from before lives (T1).

use std::collections::BTreeMap;

use tenure_core::event::Subject;
use tenure_core::{Machine, StoppedFor};
use tenure_node::restore::{self, EpochRequest, UsedEpochs};
use tenure_node::{Incarnation, Input, Lineage, Principal, ReadConsistency, ReadId};
use tenure_raft::Membership;
use tenure_store::sim::Restart;
use tenure_types::{Epoch, Revision};

use super::event::SimEvent;
use super::oracle::ensure;
use super::session_host::{Reader, WaitingRead};
use super::world::SimCluster;
use super::{MS, S};
use crate::invariant::{CheckResult, InvariantViolation};

/// How long a member may take to confirm that its state is the newest.
const BACKUP_US: u64 = 5 * S;

/// A backup, and the ledger of the epochs that its restores were given.
#[derive(Default)]
pub(super) struct SimBackups {
    newest: Option<SimBackup>,
    /// The first one, from before most leases. Its restores must not use the epochs of those of newer ones.
    first: Option<SimBackup>,
    ledger: Vec<Epoch>,
    /// The time at which the cluster was lost, while it is.
    lost_us: Option<u64>,
    /// How often the cluster was restored.
    pub(super) restores: u64,
}

#[derive(Clone)]
struct SimBackup {
    lineage: Lineage,
    state: Vec<u8>,
}

/// What the clients from before a restore may still rely on.
#[derive(Clone, Default)]
pub(super) struct FormerHolds {
    /// When the lease that held each lock could have ended at the earliest.
    until_us: BTreeMap<String, u64>,
}

impl SimBackups {
    /// Whether the cluster is lost and waits for its restore.
    pub(super) fn is_lost(&self) -> bool {
        self.lost_us.is_some()
    }
}

impl FormerHolds {
    /// T2: a lock is not granted while a lease from before the restore could hold it.
    pub(super) fn granted(&self, subject: &Subject, now_us: u64) -> CheckResult {
        let Subject::Lock(lock) = subject else { return Ok(()) };
        let until_us = self.until_us.get(lock.as_str()).copied().unwrap_or(0);
        ensure(until_us <= now_us, "T2", || {
            let early_ms = (until_us - now_us) / MS;
            format!("{lock} is granted {early_ms} ms before a lease from before the restore ends")
        })
    }
}

impl SimCluster {
    /// Begins a backup at any member: of the newest state, as a quorum confirms it.
    pub(super) fn back_up(&mut self, member: usize) {
        if self.is_survivor(member) {
            return;
        }
        let boot = self.sim_members[member].boot;
        let deadline_us = self.sim_members[member].local_us(self.now_us) + BACKUP_US;
        self.numbers += 1;
        let read = self.numbers;
        let (reader, floor, revision) = (Reader::Backup, self.oracle.acknowledged, Revision(0));
        let Some(process) = &mut self.sim_members[member].process else { return };
        let waiting = WaitingRead::new(reader, floor, revision, deadline_us);
        process.host.reads.insert(read, waiting);
        let (read, principal, fresh) =
            (ReadId(read), Principal::anyone(), ReadConsistency::Linearizable);
        self.give(member, boot, Input::Read { read, principal, fresh, deadline_us });
    }

    /// The state of the member is the newest: it is written down.
    pub(super) fn backed_up(&mut self, member: usize) {
        let Some(process) = &self.sim_members[member].process else { return };
        let state = process.node.machine().encode();
        let lineage = self.lineage.clone();
        self.trace(|| format!("{member} is backed up at {:?}", lineage.epoch));
        self.faults.count("backed_up");
        let backup = SimBackup { lineage, state };
        self.backups.first.get_or_insert_with(|| backup.clone());
        self.backups.newest = Some(backup);
    }

    /// Every member is lost with its disk, at times but for a minority. An operator begins to restore the cluster.
    pub(super) fn lose_all(&mut self) {
        if self.backups.newest.is_none() || self.backups.lost_us.is_some() {
            return;
        }
        self.trace(|| "every member is lost".into());
        let spared = self.draw_survivors();
        for member in 0..self.sim_members.len() {
            self.end(member, Restart::ProcessKilled);
            if spared.contains(&member) {
                continue;
            }
            let target = &mut self.sim_members[member];
            (target.dead, target.entering, target.asked) = (true, None, None);
            target.outgrown = false;
            (target.must_stop, target.going_back, target.old_disk) = (None, None, None);
        }
        self.joins.clear();
        self.invitations.clear();
        self.network.heal();
        self.backups.lost_us = Some(self.now_us);
        let at_us = self.now_us + self.rng.u64(100..10_000) * MS;
        self.nemesis.quiet_until(at_us + S);
        self.queue.push(at_us, SimEvent::Restore);
    }

    /// Restores the cluster from a backup, not always from the newest one.
    pub(super) fn restore(&mut self) -> CheckResult {
        let Some(lost_us) = self.backups.lost_us.take() else { return Ok(()) };
        let first = self.backups.first.clone().filter(|_| self.rng.u8(0..3) == 0);
        let Some(SimBackup { lineage: before, state }) =
            first.or_else(|| self.backups.newest.clone())
        else {
            return Ok(());
        };
        let unreadable = |problem| {
            InvariantViolation::new("S10", format!("the backup does not read back: {problem:?}"))
        };
        let mut machine = Machine::decode(&state).map_err(unreadable)?;
        machine.know_level(tenure_core::LEVEL_MAX);
        let used = UsedEpochs { epochs: &self.backups.ledger, writable: true };
        let refused = |refusal| {
            InvariantViolation::new("S2", format!("there is no epoch to restore to: {refusal:?}"))
        };
        let epoch = restore::choose_epoch(EpochRequest::default(), before.epoch, used);
        let epoch = epoch.map_err(refused)?;
        self.backups.ledger.push(epoch);
        let member = self.new_member();
        self.sim_members[member].level = tenure_core::LEVEL_MAX;
        let (id, names) = (self.sim_members[member].id, self.sim_members[member].names.clone());
        // The operator may say how long all clients have been cut off from the former cluster.
        let cut_off_ms = (self.now_us - lost_us) / MS;
        let stopped = StoppedFor::ForMs(if self.rng.bool() { cut_off_ms } else { 0 });
        restore::restore(&mut machine, epoch, stopped, id, Some(&names)).map_err(refused)?;
        ensure(machine.leases(None, 1).is_empty(), "T1", || {
            "a lease from before the restore lives".into()
        })?;
        self.trace(|| format!("restored at {epoch:?} with {stopped:?} as member {id}"));
        self.faults.count("restored");
        self.faults.count_by("restored_again", u64::from(self.backups.restores > 0));
        self.backups.restores += 1;
        let incarnation = Incarnation(self.rng.u64(1..));
        self.survive();
        self.lineage = Lineage { cluster: before.cluster, epoch, incarnation };
        self.sim_members[member].lineage = self.lineage.clone();
        self.members = Membership::of_voters([id]);
        (self.members_at, self.members_since_us) = (0, self.now_us);
        let laid_down = self.sim_members[member].bootstrap(&self.members, &machine);
        laid_down.expect("an empty disk without faults takes a log");
        let former = self.former_holds(lost_us);
        self.oracle = self.oracle.restored(machine, former);
        self.chunks.clear();
        self.in_time.clear();
        self.queue.push(self.now_us, SimEvent::Start { member });
        for _ in 0..2 {
            self.join()?;
        }
        Ok(())
    }

    /// When the leases of the lost cluster could have ended at the earliest, by clocks of any rate. A restore may
    /// follow another one, while the holders from before both still act.
    fn former_holds(&self, lost_us: u64) -> FormerHolds {
        let mut former = self.oracle.former_holds();
        for (lock, left_ms) in self.oracle.held() {
            let until_us = lost_us + left_ms * MS * 98 / 100;
            let known_us = former.until_us.entry(lock).or_default();
            *known_us = until_us.max(*known_us);
        }
        former
    }
}
