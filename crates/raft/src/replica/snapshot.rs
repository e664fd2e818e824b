//! Decides when to write a snapshot, and installs one that has arrived.

use tenure_core::Machine;
use tenure_store::LogId;

use super::Replica;
use crate::config::{ReplicaConfig, SNAPSHOT_PAUSE_US};
use crate::engine;
use crate::io::{ReplicaOutput, SnapshotDelivery};
use crate::member::{MemberId, Membership};
use crate::message::Step;

/// The resolution with which the moment of the next snapshot is drawn.
const JITTER_PARTS: u64 = 256;

/// The memory that an entry takes beside its payload, roughly. It bounds the number of small entries that a member with
/// a large state keeps until its next snapshot.
const ENTRY_OVERHEAD_BYTES: u64 = 128;

/// A state that has arrived and that the engine has not yet accepted.
pub(super) struct Arrived {
    point: LogId,
    machine: Box<Machine>,
    members: Membership,
}

/// When the next snapshot is due.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    /// Drawn for each snapshot, in parts of 256. The members of a cluster apply the same bytes and must not all write
    /// their state at the same moment.
    jitter: u64,
    /// The earliest time of the next snapshot: the last one failed, or the disk is short of space and the last one was
    /// recent.
    not_before_us: u64,
    /// Bytes of the entries that the snapshot being saved covers.
    saving_bytes: u64,
    /// The size of the state at the last snapshot, or when the member started. A state that grows faster than its
    /// entries would never be written if its present size counted.
    state_bytes: u64,
}

impl Replica {
    /// Draws the offset of the next snapshot from its regular moment, which depends on the size of the state now.
    pub(super) fn draw_snapshot(&mut self) {
        self.schedule.jitter = self.rng.next() % JITTER_PARTS;
        let stats = self.machine.stats();
        self.schedule.state_bytes =
            stats.history_bytes + stats.record_bytes + self.machine.state_bytes();
    }

    /// Whether enough has been applied since the last snapshot. Writing a state costs as much as writing its size in
    /// entries, so a large one is written less often, also if the entries are many and small.
    fn is_snapshot_due(&self, since: u64) -> bool {
        let half = |whole: u64| {
            let drawn = u128::from(whole / 2) * u128::from(self.schedule.jitter);
            u64::try_from(drawn / u128::from(JITTER_PARTS)).unwrap_or(u64::MAX)
        };
        let ReplicaConfig { snapshot_bytes, snapshot_entries, .. } = self.config;
        let state = self.schedule.state_bytes;
        let bytes = snapshot_bytes - half(snapshot_bytes);
        let entries = snapshot_entries - half(snapshot_entries);
        let worth = state.saturating_add(half(state));
        let kept = self.applied_bytes.saturating_add(since.saturating_mul(ENTRY_OVERHEAD_BYTES));
        let many = since >= entries && (state <= snapshot_bytes || kept >= worth);
        many || self.applied_bytes >= bytes.max(worth)
    }

    /// Requests a snapshot once enough has been applied since the last one, or a member needs one, or this member's
    /// disk is short of the space that the entries take.
    pub(super) fn want_snapshot(&mut self, out: &mut Vec<ReplicaOutput>) {
        let since = self.applied.index - self.node.store().snapshot_point().index;
        if since == 0 || self.saving.is_some() || self.held.installing.is_some() {
            return;
        }
        let wanted = self.node.store().take_wanted();
        let rested = self.now_us >= self.schedule.not_before_us;
        let short = self.is_short();
        if !wanted && !(rested && (short || self.is_snapshot_due(since))) {
            return;
        }
        if short {
            self.schedule.not_before_us = self.now_us.saturating_add(SNAPSHOT_PAUSE_US);
        }
        self.schedule.saving_bytes = self.applied_bytes;
        self.draw_snapshot();
        let mut point = self.applied;
        if mutant!("snapshot_behind_state") {
            point.index -= 1;
            point.term = self.entry(point.index).map_or(point.term, |entry| entry.term);
        }
        let mut meta = Vec::new();
        self.members.encode(&mut meta);
        let frozen = Box::new(self.machine.freeze());
        self.saving = Some(point);
        self.saving_members = self.members.clone();
        self.applied_bytes = 0;
        out.push(ReplicaOutput::SaveSnapshot { point, meta, frozen });
    }

    /// Handles a newest snapshot that is damaged or gone on this member's disk. The member no longer sends it, and
    /// requests a new one, at the same point if nothing was applied since.
    pub fn snapshot_damaged(&mut self, point: LogId) {
        if !mutant!("damaged_snapshot_sent_again") {
            self.node.mut_store().forget_snapshot(point);
        }
    }

    /// Lets the log drop the entries that a snapshot covers.
    pub(super) fn compact(&mut self, out: &mut Vec<ReplicaOutput>) {
        if let Some(to) = self.compact_to.take() {
            // The log drops only entries that it knows to be committed.
            self.write_owed(out);
            out.push(ReplicaOutput::CompactLog { to });
        }
    }

    pub(super) fn snapshot_saved(&mut self, point: LogId, saved: SnapshotDelivery) {
        if self.saving != Some(point) {
            return;
        }
        self.saving = None;
        let members = std::mem::take(&mut self.saving_members);
        if saved == SnapshotDelivery::Failed {
            // Only the log still covers these entries.
            self.applied_bytes += self.schedule.saving_bytes;
            self.schedule.not_before_us = self.now_us.saturating_add(SNAPSHOT_PAUSE_US);
            return;
        }
        if point <= self.node.store().snapshot_point() {
            return;
        }
        // The log is kept from the previous snapshot on: if the newest one turns out to be damaged, the previous one
        // still works.
        let to = self.node.store().snapshot_point().index;
        self.node.mut_store().set_snapshot(point, members);
        if self.node.mut_store().compact(to) {
            self.compact_to = Some(to);
        }
        // Followers that are a little behind still get entries.
        self.node.mut_store().trim(self.config.snapshot_bytes / 4);
    }

    pub(super) fn snapshot_received(
        &mut self,
        from: MemberId,
        step: Step,
        machine: Box<Machine>,
        members: Membership,
    ) {
        if !self.counts(from) || !self.admits_snapshot(from, &step, &members) {
            return;
        }
        let Some(head) = &step.snapshot else { return };
        self.observe(from, &step);
        // One at a time: the leader sends the snapshot again later.
        if self.held.installing.is_some() || self.is_asking() {
            return;
        }
        let point = head.point;
        let message = engine::step_to(from, self.config.id, step);
        let _ = self.node.step(message);
        let wanted = self.node.snap().map(raft::prelude::Snapshot::get_metadata);
        match wanted.map(|meta| LogId { index: meta.index, term: meta.term }) {
            None => self.arrived = None,
            Some(wanted) if wanted == point || mutant!("stale_snapshot_replaces_a_newer_one") => {
                self.arrived = Some(Arrived { point, machine, members });
            }
            // A snapshot from a stale leader came after a newer one, which the engine keeps.
            Some(_) => {}
        }
    }

    /// Replaces the state and the log by the snapshot that the engine has accepted.
    pub(super) fn install(&mut self, point: LogId, out: &mut Vec<ReplicaOutput>) {
        let arrived = self.arrived.take().expect("the engine takes only what was handed to it");
        assert_eq!(arrived.point, point, "the engine takes the snapshot that it was handed");
        assert!(point.index >= self.applied.index, "a snapshot never takes the state back");
        self.machine = *arrived.machine;
        self.machine.know_level(self.config.level_known);
        self.members = arrived.members;
        self.members_changed();
        self.applied = point;
        self.applied_bytes = 0;
        self.draw_snapshot();
        self.node.mut_store().reset(point, self.members.clone());
        self.pending.skipped(point.index, out);
        // As with commands, this member never sees which entry was at that position.
        let is_skipped = |it: &mut (_, LogId)| it.1.index <= point.index;
        if let Some((proposal, _)) = self.changing.take_if(is_skipped) {
            out.push(if mutant!("skipped_change_is_no_effect") {
                let result = Err(crate::io::RejectReason::Replaced);
                ReplicaOutput::Changed { proposal, result }
            } else {
                ReplicaOutput::ChangeUnknown { proposal }
            });
        }
        out.push(ReplicaOutput::Applied { point, revision: self.machine.revision() });
    }
}
