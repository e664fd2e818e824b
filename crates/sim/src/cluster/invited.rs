//! Has an operator invite members, gives strangers every kind of invitation that admits none, and checks N14: an
//! invitation admits one member, and no member joins without one.

use std::collections::BTreeMap;

use tenure_core::outcome::Outcome;
use tenure_core::request::{Command, Request};
use tenure_node::directory::{MemberNames, MemberRecord};
use tenure_node::{
    Input, InvitationToken, Join, JoinId, NewInvitation, PeerName, Reconfiguration, invitation,
};
use tenure_raft::MemberId;
use tenure_types::Revision;

use super::S;
use super::event::SimEvent;
use super::oracle::ensure;
use super::strangers::{NAME, stranger};
use super::world::SimCluster;
use crate::invariant::CheckResult;

/// How long a joiner waits to hear that its invitation was made, before it tries to join with it anyway.
const ANSWER_WAIT_US: u64 = 35 * S;

/// An invitation that an operator asked for.
pub(super) struct SimInvitation {
    pub(super) token: InvitationToken,
    /// The member that it is for.
    pub(super) member: usize,
    /// Since when it counts, if the operator was told.
    since: Option<Revision>,
}

/// The member that has used each invitation, by the invitation's key.
#[derive(Default)]
pub(super) struct InvitationHistory {
    used: BTreeMap<String, MemberId>,
}

impl InvitationHistory {
    /// N14: an invitation that a member has used is not used by another one.
    pub(super) fn applied(&mut self, request: &Request<'_>, outcome: &Outcome) -> CheckResult {
        let Command::Put(put) = &request.command else { return Ok(()) };
        if outcome.result.is_err() || !put.key.starts_with(invitation::PREFIX) {
            return Ok(());
        }
        let Some(by) = invitation::used_by(put.value) else { return Ok(()) };
        let first = *self.used.entry(put.key.to_owned()).or_insert(by);
        ensure(first == by, "N14", || format!("{first} and {by} have used one invitation"))
    }

    fn has_admitted(&self, member: MemberId) -> bool {
        self.used.values().any(|by| *by == member)
    }

    fn is_used(&self, token: &InvitationToken) -> bool {
        self.used.contains_key(&invitation::key(token))
    }
}

impl SimCluster {
    /// An operator makes an invitation for a member that is about to join.
    pub(super) fn invite(&mut self, member: usize) -> CheckResult {
        let token = self.draw_token();
        let expires_ms = [3_000, 30_000, invitation::EXPIRES_DEFAULT_MS][self.rng.usize(0..3)];
        let only_for = (self.rng.u8(0..4) == 0).then_some(self.sim_members[member].id);
        let incarnation = self.lineage.incarnation;
        self.invitations.push(SimInvitation { token: token.clone(), member, since: None });
        self.faults.count("invite");
        self.ask_to_enter(member, token.clone(), self.now_us + ANSWER_WAIT_US);
        let new = NewInvitation { token, expires_ms, member: only_for, incarnation };
        self.operate(Reconfiguration::Invite(new)).map(drop)
    }

    /// A joiner presents an invitation that was made for another member.
    pub(super) fn share_invitation(&mut self, member: usize) -> bool {
        if self.invitations.is_empty() || self.rng.u8(0..4) > 0 {
            return false;
        }
        let shared = self.rng.usize(0..self.invitations.len());
        let token = self.invitations[shared].token.clone();
        self.faults.count("invitation_shared");
        self.ask_to_enter(member, token, self.now_us);
        true
    }

    /// The operator hears that an invitation was made, and starts the member that it is for.
    pub(super) fn invited(&mut self, new: &NewInvitation, since: Revision) {
        let Some(made) = self.invitations.iter_mut().find(|it| it.token == new.token) else {
            return;
        };
        made.since = Some(since);
        let member = made.member;
        self.queue.push(self.now_us, SimEvent::Enter { member });
    }

    /// An invitation that an operator asked for, if there is one.
    pub(super) fn any_invitation(&self) -> Option<InvitationToken> {
        self.invitations.last().map(|made| made.token.clone())
    }

    fn draw_token(&mut self) -> InvitationToken {
        let mut random = [0; invitation::TOKEN_BYTES];
        self.rng.fill(&mut random);
        InvitationToken::new(random)
    }

    /// An invitation that admits no stranger, and its kind.
    fn useless_invitation(&mut self) -> (&'static str, Option<InvitationToken>) {
        let of = |is: &dyn Fn(&SimInvitation) -> bool| {
            self.invitations.iter().find(|it| is(it)).map(|it| it.token.clone())
        };
        let (revision, oracle) = (self.oracle.revision(), &self.oracle);
        let used = of(&|it| oracle.invitations.is_used(&it.token));
        let expired = of(&|it| {
            it.since.is_some_and(|since| since <= revision)
                && !oracle.has_key(&invitation::key(&it.token))
        });
        let guessed = of(&|_| true).and_then(|token| {
            let text = token.to_string();
            let last = if text.ends_with('0') { '1' } else { '0' };
            InvitationToken::parse(&format!("{}{last}", &text[..text.len() - 1]))
        });
        let (kind, token) = match self.rng.u8(0..6) {
            0 => ("stranger_guessed", Some(self.draw_token())),
            1 => ("stranger_guessed", guessed),
            2 | 3 => ("stranger_used", used),
            4 => ("stranger_expired", expired),
            _ => ("stranger_uninvited", None),
        };
        (if token.is_some() { kind } else { "stranger_uninvited" }, token)
    }

    /// A stranger asks to join as a new member.
    pub(super) fn forge_new_member(&mut self, member: usize) {
        let (kind, invitation) = self.useless_invitation();
        self.faults.count(kind);
        self.numbers += 1;
        let names = MemberNames { name: NAME.into(), ..super::member::names(stranger()) };
        let record = MemberRecord { id: stranger(), names };
        let lineage = self.rng.bool().then(|| self.lineage.clone());
        let request = Join { record, level: tenure_core::LEVEL_MAX, lineage, invitation };
        let peer_name = match self.rng.bool() {
            true => PeerName::Plain,
            false => PeerName::Certified(vec![NAME.into()]),
        };
        let boot = self.sim_members[member].boot;
        self.give(
            member,
            boot,
            Input::Join { join: JoinId(self.numbers), request: Box::new(request), peer_name },
        );
    }

    /// N14: a member that joined by itself has used an invitation.
    pub(super) fn check_invited(&self) -> CheckResult {
        for id in self.members.all() {
            let joins = self.at(id).is_some_and(|at| self.sim_members[at].joins);
            ensure(!joins || self.oracle.invitations.has_admitted(id), "N14", || {
                format!("{id} has joined without an invitation")
            })?;
        }
        Ok(())
    }
}
