//! Connects members and breaks their connections: each pair has at most one connection, with its own number.

use std::collections::BTreeMap;

use tenure_node::{Input, LinkId};

use super::event::SimEvent;
use super::world::SimCluster;
use super::{MS, S};
use crate::invariant::CheckResult;

/// The connections, by pair, the smaller number first.
#[derive(Default)]
pub(super) struct Links {
    pairs: BTreeMap<(usize, usize), MemberPair>,
    made: u64,
}

#[derive(Clone, Copy, Default)]
struct MemberPair {
    link: Option<u64>,
    /// The time before which messages find no room.
    full_until_us: u64,
    dialling: bool,
}

fn pair(one: usize, other: usize) -> (usize, usize) {
    (one.min(other), one.max(other))
}

impl Links {
    /// The connection between two members.
    pub(super) fn between(&self, one: usize, other: usize) -> Option<u64> {
        self.pairs.get(&pair(one, other)).and_then(|pair| pair.link)
    }

    /// Whether messages over it find no room.
    pub(super) fn is_full(&self, one: usize, other: usize, now_us: u64) -> bool {
        self.pairs.get(&pair(one, other)).is_some_and(|pair| now_us < pair.full_until_us)
    }

    pub(super) fn overflow(&mut self, one: usize, other: usize, until_us: u64) {
        self.pairs.entry(pair(one, other)).or_default().full_until_us = until_us;
    }

    pub(super) fn calm(&mut self) {
        self.pairs.values_mut().for_each(|pair| pair.full_until_us = 0);
    }
}

impl SimCluster {
    /// Makes a member dial all others.
    pub(super) fn dial_all(&mut self, member: usize) {
        for other in (0..self.sim_members.len()).filter(|other| *other != member) {
            self.dial_later(member, other);
        }
    }

    fn dial_later(&mut self, one: usize, other: usize) {
        let pair = self.links.pairs.entry(pair(one, other)).or_default();
        if pair.link.is_none() && !std::mem::replace(&mut pair.dialling, true) {
            let at_us = self.now_us + self.rng.u64(MS..300 * MS);
            self.queue.push(at_us, SimEvent::Dial { one, other });
        }
    }

    /// Connects two members, unless the one that is dialled refuses it (N10).
    pub(super) fn dial(&mut self, one: usize, other: usize) -> CheckResult {
        let Some(found) = self.links.pairs.get_mut(&pair(one, other)) else { return Ok(()) };
        found.dialling = false;
        if found.link.is_some() {
            return Ok(());
        }
        let up = |member: usize| {
            self.sim_members[member].is_up()
                && self.sim_members[member].paused_until_us <= self.now_us
        };
        if !self.sim_members[one].is_up() || !self.sim_members[other].is_up() {
            // The member that starts will dial.
            return Ok(());
        }
        let cut = self.network.is_cut(one, other) || self.network.is_cut(other, one);
        if cut || !up(one) || !up(other) {
            self.dial_later(one, other);
            return Ok(());
        }
        if self.refuses_link(one, other)? {
            self.links.pairs.entry(pair(one, other)).or_default().dialling = true;
            let at_us = self.now_us + self.rng.u64(S..5 * S);
            self.queue.push(at_us, SimEvent::Dial { one, other });
            return Ok(());
        }
        let Some(found) = self.links.pairs.get_mut(&pair(one, other)) else { return Ok(()) };
        self.links.made += 1;
        let link = self.links.made;
        found.link = Some(link);
        for (member, peer) in [(one, other), (other, one)] {
            let (peer, level) = (self.sim_members[peer].id, self.sim_members[peer].level);
            let boot = self.sim_members[member].boot;
            self.give(member, boot, Input::Linked { member: peer, link: LinkId(link), level });
        }
        Ok(())
    }

    /// Breaks a connection. Each end learns of it in its own time.
    pub(super) fn break_link(&mut self, one: usize, other: usize) -> bool {
        let Some(found) = self.links.pairs.get_mut(&pair(one, other)) else { return false };
        let Some(link) = found.link.take() else { return false };
        for (member, peer) in [(one, other), (other, one)] {
            let late_us = if self.rng.u8(0..4) == 0 { self.rng.u64(0..2 * S) } else { 100 };
            let (boot, peer) = (self.sim_members[member].boot, self.sim_members[peer].id);
            let link = LinkId(link);
            self.queue.push(self.now_us + late_us, SimEvent::Unlinked { member, boot, peer, link });
        }
        self.dial_later(one, other);
        true
    }

    /// Breaks all connections of a member that has ended.
    pub(super) fn break_all(&mut self, member: usize) {
        for other in (0..self.sim_members.len()).filter(|other| *other != member) {
            self.break_link(member, other);
        }
    }

    /// Schedules, after a cut, the time at which members give up connections that carry nothing.
    pub(super) fn watch_links(&mut self) {
        let links: Vec<_> =
            self.links.pairs.iter().filter_map(|(at, pair)| Some((*at, pair.link?))).collect();
        for ((one, other), link) in links {
            if self.network.is_cut(one, other) || self.network.is_cut(other, one) {
                let at_us = self.now_us + self.rng.u64(S..6 * S);
                self.queue.push(at_us, SimEvent::Silent { one, other, link });
            }
        }
    }

    pub(super) fn silent(&mut self, one: usize, other: usize, link: u64) {
        let cut = self.network.is_cut(one, other) || self.network.is_cut(other, one);
        if cut && self.links.between(one, other) == Some(link) {
            self.break_link(one, other);
        }
    }
}
