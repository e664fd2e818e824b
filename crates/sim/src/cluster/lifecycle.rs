//! Starts a member, writes and syncs its log, and ends it.

use tenure_core::Machine;
use tenure_node::Input;
use tenure_raft::{Persist, ReplicaConfig, SnapshotDelivery};
use tenure_store::sim::Restart;

use super::event::SimEvent;
use super::log_writer::{Syncing, WriteResult};
use super::member::CUT_SHORT;
use super::oracle::ensure;
use super::world::SimCluster;
use super::{MS, S};
use crate::invariant::{CheckResult, InvariantViolation};

impl SimCluster {
    pub(super) fn start(&mut self, member: usize) -> CheckResult {
        if self.sim_members[member].is_up()
            || self.sim_members[member].dead
            || self.sim_members[member].entering.is_some()
        {
            return Ok(());
        }
        self.count_rollback(member);
        let config = ReplicaConfig {
            snapshot_entries: self.snapshot_entries,
            hash_every: 20,
            batch_bytes: 8 * 1024,
            level_known: self.sim_members[member].level.min(tenure_core::LEVEL_MAX),
            ..ReplicaConfig::new(self.sim_members[member].id)
        };
        let entropy = self.rng.u64(..);
        // A member that has joined was told of the others. If an operator has added it by hand, it is given their
        // names.
        let told = &self.sim_members[member].given;
        let given = match &told[..] {
            [] => self.members.all(),
            told => told.iter().map(|record| record.id).collect(),
        };
        if let Err(error) = self.sim_members[member].start(config, given, self.sizes, entropy) {
            self.sim_members[member].process = None;
            self.trace(|| format!("{member} does not start: {error:#}"));
            ensure(!error.to_string().contains(CUT_SHORT), "S8", || format!("{member}: {error}"))?;
            if self.sim_members[member].damaged || self.outgrown(member, &error) {
                self.sim_members[member].dead = true;
            } else {
                // The disk may still be full or failing.
                self.sim_members[member].crash(Restart::ProcessKilled);
                self.queue.push(self.now_us + S, SimEvent::Start { member });
                ensure(!error.to_string().contains("corrupt"), "S8", || {
                    format!("{member} cannot start: {error:#}")
                })?;
            }
            return Ok(());
        }
        self.trace(|| format!("{member} starts"));
        let process = self.sim_members[member].process.as_ref().expect("it has just started");
        let (seen, machine) = (process.seen, process.node.machine());
        if !self.is_survivor(member) {
            self.oracle.state(member, seen, machine)?;
        }
        self.wake(member, self.now_us);
        self.dial_all(member);
        Ok(())
    }

    /// Ends for good a member of an older build that got a state of newer rules. Returns whether that was the error.
    pub(super) fn outgrown(&mut self, member: usize, error: &anyhow::Error) -> bool {
        let error = error.downcast_ref::<tenure_raft::LoadError>();
        let outgrown = error.is_some_and(tenure_raft::LoadError::is_outgrown);
        if outgrown && self.sim_members[member].level < tenure_core::LEVEL_MAX {
            self.trace(|| format!("{member} is outgrown"));
            self.faults.count("outgrown");
            self.end(member, Restart::ProcessKilled);
            (self.sim_members[member].dead, self.sim_members[member].outgrown) = (true, true);
            return true;
        }
        false
    }

    /// Writes what a turn wants persisted, and returns whether the process continues.
    pub(super) fn write(
        &mut self,
        member: usize,
        persist: &Persist,
    ) -> Result<bool, InvariantViolation> {
        let Some(process) = &mut self.sim_members[member].process else { return Ok(false) };
        let written = process.log_writer.write(persist, self.now_us);
        let rolled = std::mem::take(&mut process.log_writer.rolled_under_sync);
        self.faults.count_by("rolled_under_sync", rolled);
        match written {
            Err(error) => Err(InvariantViolation::new("S12", format!("{error:#}"))),
            Ok(WriteResult::Stop) => {
                self.crash(member, Restart::ProcessKilled);
                Ok(false)
            }
            Ok(WriteResult::Done) => Ok(true),
        }
    }

    pub(super) fn compact(&mut self, member: usize, to: u64) -> CheckResult {
        let Some(process) = &mut self.sim_members[member].process else { return Ok(()) };
        let compacted = process.log_writer.compact_to(to);
        let under_sync = std::mem::take(&mut process.log_writer.compacted_under_sync);
        self.faults.count_by("compacted_under_sync", under_sync);
        match compacted {
            Err(error) => Err(InvariantViolation::new("S12", format!("{error:#}"))),
            Ok(WriteResult::Stop) => {
                self.crash(member, Restart::ProcessKilled);
                Ok(())
            }
            Ok(WriteResult::Done) => Ok(()),
        }
    }

    /// Begins a sync, in the loop or on its own thread.
    pub(super) fn begin_sync(&mut self, member: usize) -> CheckResult {
        let boot = self.sim_members[member].boot;
        let Some(process) = &mut self.sim_members[member].process else { return Ok(()) };
        if process.log_writer.prepare() {
            let at_us = self.now_us + self.rng.u64(MS..30 * MS);
            self.queue.push(at_us, SimEvent::Prepare { member, boot });
        }
        let target = &mut self.sim_members[member];
        let process = target.process.as_mut().expect("it was there above");
        let leads = process.replica().leads();
        let Ok(begun) = process.log_writer.begin(&target.disk, leads) else {
            self.crash(member, Restart::ProcessKilled);
            return Ok(());
        };
        let waits = match begun {
            Syncing::Nothing => return Ok(()),
            Syncing::Durable(number) => {
                self.give(member, boot, Input::Persisted { number });
                return Ok(());
            }
            // In some runs the loop never waits, so that more happens while a sync is under way.
            Syncing::Here => !self.syncs_beside,
            Syncing::Aside => false,
        };
        let slow = self.rng.u64(0..1000) < self.slow_sync;
        let stalled_us = self.sim_members[member].sync_stalled_until_us.saturating_sub(self.now_us);
        let delay_us = match self.rng.u8(0..4) {
            _ if slow => self.rng.u64(10..800) * MS,
            0 => 0,
            _ => self.rng.u64(60..400),
        };
        self.faults.count_by("slow_sync", u64::from(slow));
        self.faults.count_by("sync_aside", u64::from(!waits));
        let took_us = delay_us + stalled_us;
        if waits && took_us == 0 {
            self.sync(member, boot, took_us, waits)?;
            return Ok(());
        }
        let at_us = self.now_us + took_us;
        if waits {
            // The loop waits. Only the disk goes on.
            self.sim_members[member].loop_waits_until_us = at_us;
            self.faults.count_by("loop_waited", u64::from(took_us >= S / 10));
        }
        self.queue.push(at_us, SimEvent::Sync { member, boot, took_us, waits });
        Ok(())
    }

    /// The disk has made the log durable, or has failed to.
    pub(super) fn sync(
        &mut self,
        member: usize,
        boot: u64,
        took_us: u64,
        waits: bool,
    ) -> CheckResult {
        let target = &mut self.sim_members[member];
        let Some(process) = target.process.as_mut().filter(|_| target.boot == boot) else {
            return Ok(());
        };
        process.log_writer.end_sync(took_us);
        if waits {
            return self.handle_sync_end(member, boot);
        }
        let at_us = self.now_us + self.rng.u64(0..300);
        self.queue.push(at_us, SimEvent::Synced { member, boot });
        Ok(())
    }

    /// Hands the result of a sync to the event loop, and begins the next sync.
    pub(super) fn handle_sync_end(&mut self, member: usize, boot: u64) -> CheckResult {
        let target = &mut self.sim_members[member];
        let Some(process) = target.process.as_mut().filter(|_| target.boot == boot) else {
            return Ok(());
        };
        let Some(report) = process.log_writer.report.take() else { return Ok(()) };
        match process.log_writer.finish(report) {
            Err(_) => {
                self.crash(member, Restart::ProcessKilled);
                Ok(())
            }
            Ok(number) => {
                if let Some(number) = number {
                    self.give(member, boot, Input::Persisted { number });
                }
                self.begin_sync(member)
            }
        }
    }

    pub(super) fn prepare(&mut self, member: usize, boot: u64) {
        let target = &mut self.sim_members[member];
        let Some(process) = target.process.as_mut().filter(|_| target.boot == boot) else { return };
        if process.log_writer.prepared() == WriteResult::Stop {
            self.crash(member, Restart::ProcessKilled);
        }
    }

    /// A thread takes the reserve for a full disk again.
    pub(super) fn restore_reserve(&mut self, member: usize, boot: u64) {
        let target = &mut self.sim_members[member];
        if let Some(process) = target.process.as_mut().filter(|_| target.boot == boot) {
            process.log_writer.restore();
        }
    }

    /// A loop that had nothing to take marks the end of its log. Returns whether the process continues.
    pub(super) fn mark_if_quiet(&mut self, member: usize) -> bool {
        let now_us = self.now_us;
        let Some(process) = &mut self.sim_members[member].process else { return false };
        match process.log_writer.mark_if_quiet(now_us) {
            Ok(marked) => {
                self.faults.count_by("marked", u64::from(marked));
                true
            }
            Err(_) => {
                self.crash(member, Restart::ProcessKilled);
                false
            }
        }
    }

    pub(super) fn save(&mut self, member: usize) -> CheckResult {
        let boot = self.sim_members[member].boot;
        let stalled_us = self.sim_members[member].snapshots_stalled_until_us;
        if self.now_us < stalled_us {
            self.faults.count("save_stalled");
            self.queue.push(stalled_us, SimEvent::Save { member, boot });
            return Ok(());
        }
        let Some(process) = &mut self.sim_members[member].process else { return Ok(()) };
        let Some((point, bytes, saved)) = process.save() else { return Ok(()) };
        let again = Machine::decode(&bytes).map(|machine| machine.encode());
        ensure(again.as_ref() == Ok(&bytes), "S10", || {
            let problem = again.err();
            format!("the snapshot of {member} at {point:?} does not read back: {problem:?}")
        })?;
        let saved =
            if saved.is_ok() { SnapshotDelivery::Delivered } else { SnapshotDelivery::Failed };
        self.faults.count_by("snapshot_saved", u64::from(saved == SnapshotDelivery::Delivered));
        self.give(member, boot, Input::SnapshotSaved { point, saved });
        Ok(())
    }

    /// Ends a process and schedules its restart.
    pub(super) fn crash(&mut self, member: usize, how: Restart) {
        self.trace(|| format!("{member} crashes: {how:?}"));
        self.end(member, how);
        let at_us = self.now_us + self.rng.u64(10..5000) * MS;
        self.queue.push(at_us, SimEvent::Start { member });
    }

    /// Ends a process: its connections and sessions are gone.
    pub(super) fn end(&mut self, member: usize, how: Restart) {
        let was_up = self.sim_members[member].is_up();
        self.end_calls_at(member);
        self.sim_members[member].crash(how);
        if was_up {
            self.break_all(member);
            self.end_sessions_at(member);
        }
    }
}
