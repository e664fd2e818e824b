//! Decides whether the state may grow, given the free disk space of the members.
//!
//! Each member knows its own disk. While it is short of space it reports so to the leader every second. The report
//! expires, so no message is needed when the shortage ends, and a lost message or a new leader does no harm.

use std::collections::{BTreeMap, BTreeSet};

use super::Replica;
use crate::config::{SHORT_KEPT_US, SHORT_US};
use crate::io::{ReplicaOutput, Space};
use crate::member::MemberId;
use crate::message::Message;

/// The members that are short of space.
#[derive(Debug, Default)]
pub(super) struct Shortage {
    here: bool,
    /// The leader to which this member last reported its shortage, and when.
    said: Option<(MemberId, u64)>,
    /// The other members that are short of space, and until when their report counts.
    others: BTreeMap<MemberId, u64>,
}

impl Replica {
    pub(super) fn set_space(&mut self, space: Space) {
        self.shortage.here = space == Space::Short;
    }

    /// Whether this member's own disk is short of space.
    pub(super) fn is_short(&self) -> bool {
        self.shortage.here
    }

    pub(super) fn on_short(&mut self, from: MemberId) {
        if self.members.contains(from) {
            let until_us = self.now_us.saturating_add(SHORT_KEPT_US);
            self.shortage.others.insert(from, until_us);
        }
    }

    /// Whether this leader may propose commands that make the state grow: it has room, and so has a quorum of both
    /// halves of a joint configuration.
    pub(super) fn may_grow(&mut self) -> bool {
        let now_us = self.now_us;
        self.shortage.others.retain(|_, until_us| *until_us > now_us);
        let others = &self.shortage.others;
        let enough = |voters: &BTreeSet<MemberId>| {
            let short = voters.iter().filter(|id| others.contains_key(id)).count();
            voters.is_empty() || voters.len() - short > voters.len() / 2
        };
        !self.shortage.here && enough(&self.members.voters) && enough(&self.members.outgoing)
    }

    pub(super) fn announce_short(&mut self, out: &mut Vec<ReplicaOutput>) {
        let leader = self.leader().filter(|leader| *leader != self.config.id);
        let Some(to) = leader.filter(|_| self.shortage.here) else { return };
        let again_us = match self.shortage.said {
            Some((said_to, at_us)) if said_to == to => at_us.saturating_add(SHORT_US),
            _ => 0,
        };
        if self.now_us >= again_us {
            self.shortage.said = Some((to, self.now_us));
            out.push(ReplicaOutput::Send { to, message: Message::Short });
        }
    }
}
