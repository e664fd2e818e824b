//! Keeps this member's record in the directory up to date, and detects that the member was removed.
//!
//! A member that starts at a new address, or with a new name or preference, announces its record over its link to the
//! leader until the directory has it. The link is what proves that the record is the member's own. A member reaches
//! the leader from a new address because both ends of a link dial.
//!
//! The entry that removes a member may never reach it: the leader stops sending once the others have agreed. So a
//! member that hears of no leader for a while asks the others, one after the other, whether its id is retired. So does
//! one that hears nothing from the leader that it knows: a learner calls no election, and believes in that leader. The
//! first that confirms the removal ends the member.
//!
//! A member that has applied its own removal does not end at once. The voters that stay may have the entry without
//! knowing that it is committed, and until then they count its vote: of four voters, two that stay could not elect a
//! leader without it if the third is gone. So it goes on as a follower and asks the voters that stay, until a majority
//! of them has confirmed the removal.

use std::collections::BTreeSet;

use tenure_raft::{MemberId, ReplicaInput as RaftInput};

use crate::control::{Control, Join};
use crate::directory::{self, MemberNames, MemberRecord};
use crate::io::Output;
use crate::node::{NO_CALLER, Node};
use crate::peer::{PeerMessage, WITHIN_LEVEL};

/// The interval at which a member announces a record that differs from the directory.
const ANNOUNCE_US: u64 = 500_000;
/// How long a member hears of no leader before it asks whether it was removed: an election is over by then.
const ALONE_US: u64 = 3_000_000;
/// Between two such questions.
const ASK_US: u64 = 1_000_000;
/// How long a member that has applied its own removal waits for a majority. After that one confirmation is enough: the
/// voters may have been replaced since, so that a majority of them never answers.
const RETIRED_US: u64 = 60_000_000;
/// Between two questions of a member that has applied its own removal.
const ASK_RETIRED_US: u64 = 100_000;

/// The times of the next checks, and the member that was asked last.
#[derive(Default)]
pub(crate) struct StandingCheck {
    announce_us: u64,
    ask_us: u64,
    asked: Option<MemberId>,
    /// The members that have confirmed the removal.
    confirmed: BTreeSet<MemberId>,
    /// Since when this member is retired by its own state.
    retired_us: Option<u64>,
    removed: bool,
    /// Whether the leader has sent something since the last check.
    heard: bool,
    /// The leader at the last check, and when it last sent something.
    leader: Option<MemberId>,
    heard_us: u64,
}

impl StandingCheck {
    /// The leader has sent a step of the log.
    pub(crate) fn heard_leader(&mut self) {
        self.heard = true;
    }

    /// Since when a member hears nothing from this leader, which may be the member itself.
    fn silent_since_us(&mut self, leader: Option<MemberId>, me: MemberId, now_us: u64) -> u64 {
        let heard = std::mem::take(&mut self.heard);
        if heard || leader == Some(me) || leader != self.leader {
            (self.leader, self.heard_us) = (leader, now_us);
        }
        self.heard_us
    }

    /// Whether enough other members have confirmed the removal since the last call.
    pub(crate) fn take_removed(&mut self) -> bool {
        std::mem::take(&mut self.removed)
    }
}

impl Node {
    /// Takes another member's answer to the question whether this one was removed.
    pub(crate) fn standing_answered(&mut self, from: MemberId, answer: &Control) {
        if *answer != Control::Retired {
            return;
        }
        self.standing.confirmed.insert(from);
        let voters = &self.replica.members().voters;
        let confirmed = voters.intersection(&self.standing.confirmed).count();
        let retired_us = self.standing.retired_us.unwrap_or(self.now_us);
        let waited_long = self.now_us.saturating_sub(retired_us) >= RETIRED_US;
        self.standing.removed |=
            !self.replica.is_retired() || confirmed > voters.len() / 2 || waited_long;
    }

    /// Announces the record, or asks whether the member was removed, if that is due. A replica turns at least once in
    /// a tick, so this needs no timer of its own.
    pub(crate) fn keep_standing(&mut self) {
        let retired = self.replica.is_retired();
        if retired && self.standing.retired_us.is_none() {
            self.standing.retired_us = Some(self.now_us);
        }
        if self.config.identity.is_none() {
            // It has no address to ask at.
            self.standing.removed |= retired;
            return;
        }
        if self.now_us >= self.standing.announce_us && self.lead.by.is_some() {
            self.standing.announce_us = self.now_us.saturating_add(ANNOUNCE_US);
            self.announce();
            self.sweep_invitations();
        }
        let (leader, me) = (self.lead.by, self.id());
        let silent_us = self.standing.silent_since_us(leader, me, self.now_us);
        let since_us = self.leaderless_us.unwrap_or(silent_us);
        let alone = self.now_us.saturating_sub(since_us) >= ALONE_US;
        if (alone || retired) && self.now_us >= self.standing.ask_us {
            let pause_us = if retired { ASK_RETIRED_US } else { ASK_US };
            self.standing.ask_us = self.now_us.saturating_add(pause_us);
            self.ask_standing();
        }
    }

    fn announce(&mut self) {
        let Some(identity) = &self.config.identity else { return };
        let MemberRecord { id, names } = identity.record.clone();
        let key = self.replica.machine().key(&directory::key(id));
        let known = key.is_some_and(|key| key.value[..] == *names.to_string().as_bytes());
        if known || !self.replica.members().contains(id) {
            return;
        }
        let Some(leader) = self.lead.by else { return };
        if leader == id {
            if !self.replica.status().serving {
                // It looks again in its next turn.
                self.standing.announce_us = self.now_us;
            }
            return self.take_announcement(id, &names);
        }
        // An older leader does not know the message. The record waits until a newer one leads.
        if self.links.get(&leader).is_some_and(|linked| linked.level >= WITHIN_LEVEL) {
            let message = PeerMessage::Announce { names: Box::new(names) };
            self.staged.push(Output::Send { to: leader, message });
        }
    }

    /// Why the leader does not write this member's record to the directory, to be logged; none if it does or has.
    pub fn record_objection(&self) -> Option<String> {
        let MemberRecord { id, names } = &self.config.identity.as_ref()?.record;
        self.check_record(*id, names, &directory::read(self.replica.machine())).err()
    }

    /// Writes the record that a member has announced over its link. Ignores a record that is not valid in the
    /// directory.
    pub(crate) fn take_announcement(&mut self, from: MemberId, names: &MemberNames) {
        let known = directory::read(self.replica.machine());
        let may = self.replica.status().serving && known.get(&from) != Some(names);
        if !may || self.check_record(from, names, &known).is_err() {
            return;
        }
        let requests = [directory::put(&directory::key(from), &names.to_string()).into()];
        self.replica.handle(RaftInput::Submit {
            proposal: NO_CALLER,
            requests: requests.into(),
            linger_us: 0,
            deadline_us: u64::MAX,
        });
        self.again = true;
    }

    fn ask_standing(&mut self) {
        let Some(identity) = &self.config.identity else { return };
        let me = identity.record.id;
        let mut others = directory::read(self.replica.machine());
        if others.is_empty() {
            others.extend(identity.given.iter().map(|record| (record.id, record.names.clone())));
        }
        others.remove(&me);
        if self.replica.is_retired() {
            let voters = &self.replica.members().voters;
            others.retain(|id, _| voters.contains(id));
        }
        let after = |asked: MemberId| others.range(asked..).find(|(id, _)| **id != asked);
        let next = self.standing.asked.and_then(after).or_else(|| others.first_key_value());
        let Some((id, names)) = next else { return };
        let (record, level) = (identity.record.clone(), identity.level_known);
        let lineage = Some(identity.lineage.clone());
        let join = Join { record, level, lineage, invitation: None };
        let (address, name) = (names.members.clone(), names.name.clone());
        self.standing.asked = Some(*id);
        self.staged.push(Output::AskStanding {
            of: *id,
            address,
            name,
            question: Box::new(Control::Join(join)),
        });
    }
}
