//! Does everything work again once nothing fails any more?

use tenure_raft::MemberId;

use super::S;
use super::client::Client;
use super::event::Event;
use super::oracle::ensure;
use super::world::World;
use crate::invariant::Check;

/// How long a healed cluster may take.
pub(super) const RECOVERY_US: u64 = 40 * S;

impl World {
    /// Ends every fault. What is lost stays lost.
    pub(super) fn heal(&mut self) {
        self.say(|| "everything heals".into());
        self.nemesis.healed = true;
        self.slow_sync = 0;
        self.network.calm();
        self.clients.iter_mut().for_each(Client::wait_to_be_served);
        for node in 0..self.nodes.len() {
            self.nodes[node].disk.set_capacity(None);
            // A pause that is cut short was no longer than it was.
            let left_us = self.nodes[node].paused_until_us.saturating_sub(self.now_us);
            self.nodes[node].stalled.for_us -= left_us;
            self.nodes[node].paused_until_us = 0;
            if !self.nodes[node].is_up() {
                self.queue.push(self.now_us, Event::Start { node });
            }
        }
    }

    /// L1: one leader, everybody at the same place, and somebody has written since.
    pub(super) fn has_recovered(&self) -> bool {
        let Some(leader) = self.leader() else { return false };
        let Some(process) = &self.nodes[leader].process else { return false };
        let status = process.replica.status();
        let members = process.replica.members();
        let alive = |id: &MemberId| self.at(*id).is_some_and(|node| !self.nodes[node].dead);
        let caught_up = |id: &MemberId| {
            let node = self.at(*id).and_then(|node| self.nodes[node].process.as_ref());
            node.is_some_and(|process| {
                process.replica.status().applied.index + 5 >= self.oracle.last()
                    && process.replica.status().leader == status.leader
            })
        };
        status.serving
            && members.all().iter().filter(|id| alive(id)).all(caught_up)
            && self.clients.iter().any(Client::is_served)
    }

    pub(super) fn describe(&self) -> String {
        let mut text = format!("not recovered; agreed up to {}", self.oracle.last());
        for node in &self.nodes {
            let state = match &node.process {
                Some(process) => {
                    let status = process.replica.status();
                    format!(
                        "term {} leader {:?} applied {} last {} members {:?}",
                        status.term,
                        status.leader,
                        status.applied.index,
                        status.last.index,
                        process.replica.members().voters
                    )
                }
                None => format!("down, dead {}", node.dead),
            };
            text += &format!("; {}: {state}", node.id);
        }
        text
    }

    /// S9, S10: members at the same place have the same state, to the byte.
    pub(super) fn compare_all(&self) -> Check {
        let (last, expected) = (self.oracle.last(), self.oracle.full_hash());
        for (number, node) in self.nodes.iter().enumerate() {
            let Some(process) = &node.process else { continue };
            if process.replica.status().applied.index == last {
                let found = process.replica.machine().full_hash();
                ensure(found == expected, "S9", || format!("{number} differs at {last}"))?;
            }
        }
        Ok(())
    }
}
