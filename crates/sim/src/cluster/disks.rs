//! Lets the disk of one member lie: writes land elsewhere, sectors stay as they were, syncs do nothing.
//!
//! A member cannot see such a fault while it runs. It shows at the next start, when the disk lacks what the member had
//! acknowledged: it is then a disk that went back, and the member must stop, or nothing that counted is lost. As in
//! `rollback.rs` that can be asked of a member only if others remember and can be reached, so the network calms down
//! first. `control.rs` shows what follows if the disks of a majority lie.

use tenure_store::sim::{DiskFault, Restart};

use super::event::SimEvent;
use super::rollback::NOTICE_US;
use super::world::SimCluster;
use super::{MS, S};

/// How a disk lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lie {
    /// One write lands at another place.
    Misdirected,
    /// One sector stays as it was although a sync covered it.
    Stale,
    /// Syncs report success and do nothing.
    Sync,
}

const LIES: [Lie; 3] = [Lie::Misdirected, Lie::Stale, Lie::Sync];

impl SimCluster {
    /// The disk of a member begins to lie.
    pub(super) fn begin_lie(&mut self, member: usize) {
        if !self.can_notice(member) || self.leader().is_none() {
            return;
        }
        self.network.calm();
        let lie = LIES[self.rng.usize(0..LIES.len())];
        self.trace(|| format!("the disk of {member} lies: {lie:?}"));
        let target = &mut self.sim_members[member];
        match lie {
            Lie::Misdirected => target.disk.plan(DiskFault::MisdirectedWrite),
            Lie::Stale => target.disk.plan(DiskFault::StaleSector),
            Lie::Sync => target.disk.set_lying_syncs(true),
        }
        (target.damaged, target.may_forget) = (true, true);
        target.going_back = None;
        let until_us = self.now_us + self.rng.u64(200..2000) * MS;
        self.nemesis.quiet_until(until_us + 2 * S);
        let boot = self.sim_members[member].boot;
        self.queue.push(until_us, SimEvent::Lied { member, boot, lie });
    }

    /// The member ends and starts again from what its disk really has: first its promises are noted, and the others get
    /// the time to hear of them.
    pub(super) fn lied(&mut self, member: usize, boot: u64, lie: Lie) {
        if self.nemesis.healed || boot != self.sim_members[member].boot {
            return self.sim_members[member].disk.tell_the_truth();
        }
        let Some(going) = self.sim_members[member].going_back.take() else {
            self.sim_members[member].going_back = self.going_back(member);
            let at_us = self.now_us + super::rollback::SETTLE_US;
            return self.queue.push(at_us, SimEvent::Lied { member, boot, lie });
        };
        let Some(now) = self.going_back(member) else { return };
        let heard = self.leader().is_some_and(|leader| self.have_heard(member, leader, going));
        let how = match lie {
            Lie::Misdirected if self.rng.bool() => Restart::ProcessKilled,
            // What was written and never lasted is gone.
            _ if self.rng.bool() => Restart::PowerLostAll,
            _ => Restart::PowerLostSome,
        };
        self.end(member, how);
        self.sim_members[member].disk.tell_the_truth();
        let starts_us = self.now_us + MS;
        if let Some(found) = self.copy_disk(member) {
            if found.lacks(going) && heard {
                self.faults.count("lie_forgot");
                self.sim_members[member].must_stop = Some(starts_us + NOTICE_US);
            } else if found.lacks(now) {
                // No other member can be asked to know. Its operator replaces it.
                self.sim_members[member].dead = true;
                return;
            } else {
                self.faults.count("lie_harmless");
            }
        }
        self.queue.push(starts_us, SimEvent::Start { member });
        self.nemesis.quiet_until(starts_us + NOTICE_US + S);
    }
}
