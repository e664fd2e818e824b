//! When is the state written as a whole, and when is it replaced?

use tenure_core::Machine;
use tenure_store::Point;

use super::Replica;
use crate::engine;
use crate::io::{Output, Saved};
use crate::member::{MemberId, Membership};
use crate::message::{Kind, Step};

/// A state that has arrived, until the engine says whether it wants it.
pub(super) struct Arrived {
    point: Point,
    machine: Box<Machine>,
    members: Membership,
}

impl Replica {
    /// Asks for a snapshot once enough has been applied since the last.
    pub(super) fn want_snapshot(&mut self, out: &mut Vec<Output>) {
        let since = self.applied.index - self.node.store().snapshot_point().index;
        let enough = self.applied_bytes >= self.config.snapshot_bytes
            || since >= self.config.snapshot_entries
            || since > 0 && self.node.store().take_wanted();
        if !enough || self.saving.is_some() || self.held.installing.is_some() {
            return;
        }
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
        out.push(Output::SaveSnapshot { point, meta, frozen });
    }

    /// The newest snapshot on this member's disk is damaged or gone. It is not sent again; a new one is asked for,
    /// at the same point if nothing was applied since.
    pub fn snapshot_damaged(&mut self, point: Point) {
        self.node.mut_store().forget_snapshot(point);
    }

    pub(super) fn snapshot_saved(&mut self, point: Point, saved: Saved) {
        if self.saving != Some(point) {
            return;
        }
        self.saving = None;
        let members = std::mem::take(&mut self.saving_members);
        if saved == Saved::No || point <= self.node.store().snapshot_point() {
            return;
        }
        // The log is kept from the snapshot before on: if the newest turns out to be damaged, that
        // one still does.
        let to = self.node.store().snapshot_point().index;
        self.node.mut_store().set_snapshot(point, members);
        if self.node.mut_store().compact(to) {
            self.refused.push(Output::CompactLog { to });
        }
    }

    pub(super) fn snapshot_received(
        &mut self,
        from: MemberId,
        step: Step,
        machine: Box<Machine>,
        members: Membership,
    ) {
        let Some(head) = &step.snapshot else { return };
        // One at a time: the engine is told again later.
        if step.kind != Kind::Snapshot || self.held.installing.is_some() {
            return;
        }
        self.arrived = Some(Arrived { point: head.point, machine, members });
        let message = engine::step_to(from, self.config.id, step);
        let _ = self.node.step(message);
        if self.node.snap().is_none() {
            self.arrived = None;
        }
    }

    /// The engine has taken the snapshot that arrived: it replaces the state and the log.
    pub(super) fn install(&mut self, point: Point, out: &mut Vec<Output>) {
        let arrived = self.arrived.take().expect("the engine takes only what was handed to it");
        assert_eq!(arrived.point, point, "the engine takes the snapshot that it was handed");
        assert!(point.index >= self.applied.index, "a snapshot never takes the state back");
        self.machine = *arrived.machine;
        self.machine.know_level(self.config.level_known);
        self.members = arrived.members;
        self.applied = point;
        self.applied_bytes = 0;
        self.node.mut_store().reset(point, self.members.clone());
        self.pending.skipped(point.index, out);
        if let Some((ticket, _)) = self.changing.take() {
            let result = Err(crate::io::Why::Replaced);
            out.push(Output::Changed { ticket, result });
        }
        out.push(Output::Applied { point, revision: self.machine.revision() });
    }
}
