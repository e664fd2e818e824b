//! Adds members to the cluster: the leader's side of a join.
//!
//! The leader checks the request, then calls a new member back at the address that it gives ([`Output::CallBack`]): a
//! member that cannot be reached would count towards the limit and never catch up. Then it writes the member's record
//! to the directory, adds the member as a learner, and answers. One join at a time is that far: a joiner that finds
//! another one in flight is refused and asks again.
//!
//! A new member presents an invitation that an operator made. The leader uses it up before it writes the record, see
//! `invitation.rs`. A member that an operator added by its id needs none, and a repeated join that changes nothing
//! needs none.
//!
//! A join that names an existing member changes that member's record, so it must come from that member:
//!
//! - Under TLS the connection's certificate must have the name that the directory lists under the id. A member that
//!   takes a new name needs a certificate with both names until the directory has the new one.
//! - Without TLS nothing proves who asks. A join then changes the record of a learner that has never acknowledged
//!   anything and has no link, and only with an invitation: for a member that was added and started again elsewhere
//!   before it got the state. Every other member announces its record over its link, see `join/standing.rs`.
//!
//! The leader adds the next new member when the one before has acknowledged entries, or after a while. A learner
//! that never does counts towards the limit of members until an operator removes it.

use std::collections::BTreeMap;

use tenure_core::request::{Command, Expect};
use tenure_raft::{
    MemberId, MembershipChange, ProposalFate, ProposalId, RejectReason, ReplicaInput as RaftInput,
    Stop,
};

use super::undiallable;
use crate::control::{Control, Join};
use crate::directory::{self, MemberNames, MemberRecord};
use crate::invitation::InvitationUse;
use crate::io::{AdminRequest, JoinId, Output};
use crate::node::{NO_CALLER, Node};

/// Members of one cluster, at most: the leader sends every entry to each of them.
const MEMBERS_MAX: usize = 64;
/// How long the cluster may take to agree on one step of a join.
const AGREE_US: u64 = 8_000_000;
/// Before the next member is added while the one before has not acknowledged anything. It bounds how fast strangers
/// can fill the cluster with learners that do not exist.
const GAP_US: u64 = 5_000_000;

/// New members that are called back at a time. Each takes a connection and, at the server, a thread. Many, because a
/// stranger whose address never answers keeps one busy for seconds.
const CALLS_MAX: usize = 64;

/// What the connection that carries a join proves of its other end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PeerName {
    /// The connection proves nothing: it is not encrypted.
    Plain,
    /// Its certificate, signed by the members' authority, is for these names.
    Certified(Vec<String>),
}

impl PeerName {
    fn proves(&self, name: &str) -> bool {
        match self {
            PeerName::Plain => false,
            PeerName::Certified(names) => {
                names.iter().any(|certified| certified.eq_ignore_ascii_case(name))
            }
        }
    }
}

/// The joins in flight.
#[derive(Default)]
pub(crate) struct Joins {
    /// New members that are being called back.
    calling: BTreeMap<JoinId, (Join, PeerName)>,
    /// The one on which the cluster is agreeing.
    current: Option<JoinAttempt>,
    /// The newest member added here, and when.
    newest: Option<(MemberId, u64)>,
}

/// A join on which the cluster is agreeing.
struct JoinAttempt {
    join: JoinId,
    record: MemberRecord,
    proposal: ProposalId,
    due_us: u64,
    /// Whether the directory had no entry for the id before.
    fresh: bool,
    /// Whether the directory has the record already.
    same: bool,
    /// The invitation whose use is being written.
    invitation: Option<InvitationUse>,
}

impl Joins {
    pub(crate) fn is_known(&self, proposal: ProposalId) -> bool {
        self.current.as_ref().is_some_and(|current| current.proposal == proposal)
    }
}

impl Node {
    /// Takes a request to be added, or of a member whose record has changed.
    pub(crate) fn join(&mut self, join: JoinId, request: Join, peer: PeerName) {
        let known = directory::read(self.replica.machine());
        let invitation = match self.check_join(&request, &peer, &known) {
            Err(answer) => return self.answer_join(join, *answer),
            Ok(invitation) => invitation,
        };
        if self.replica.members().contains(request.record.id) {
            return self.agree_on(join, request.record, &known, invitation);
        }
        if self.joins.calling.len() >= CALLS_MAX {
            let why = format!("{CALLS_MAX} other members are being called back: try again");
            return self.answer_join(join, Control::Refused(why));
        }
        self.staged.push(Output::CallBack { join, record: Box::new(request.record.clone()) });
        self.joins.calling.insert(join, (request, peer));
    }

    /// A new member was called back at its address.
    pub(crate) fn called_back(&mut self, join: JoinId, answer: Result<Box<Control>, String>) {
        let Some((request, peer)) = self.joins.calling.remove(&join) else { return };
        let MemberRecord { id, names } = &request.record;
        let address = &names.members;
        let why = match answer.map(|answer| *answer) {
            Ok(Control::MemberInfo(me)) if me.record.id == *id => None,
            Ok(_) => Some(format!("another member than {id} answers at {address}")),
            Err(error) => Some(format!("member {id} does not answer at {address}: {error}")),
        };
        if let Some(why) = why {
            return self.answer_join(join, Control::Refused(why));
        }
        // The cluster may have changed meanwhile.
        let known = directory::read(self.replica.machine());
        match self.check_join(&request, &peer, &known) {
            Err(answer) => self.answer_join(join, *answer),
            Ok(invitation) => self.agree_on(join, request.record, &known, invitation),
        }
    }

    /// Has the cluster agree on a record and, if it is of a new member, on that member.
    fn agree_on(
        &mut self,
        join: JoinId,
        record: MemberRecord,
        known: &BTreeMap<MemberId, MemberNames>,
        invitation: Option<InvitationUse>,
    ) {
        let before = known.get(&record.id);
        let (fresh, same) = (before.is_none(), before == Some(&record.names));
        let (proposal, due_us) = (NO_CALLER, 0);
        let current = JoinAttempt { join, record, proposal, due_us, fresh, same, invitation: None };
        match invitation {
            Some(invitation) => self.use_invitation(current, invitation),
            None => self.write_or_add(current),
        }
    }

    fn write_or_add(&mut self, current: JoinAttempt) {
        if current.same { self.add_learner(current) } else { self.write_record(current) }
    }

    /// Uses up an invitation. The write fails if another leader has used it for another member meanwhile.
    fn use_invitation(&mut self, current: JoinAttempt, invitation: InvitationUse) {
        let put = invitation.put(current.record.id);
        let invitation = Some(invitation);
        let proposal = self.wait_for_join(JoinAttempt { invitation, ..current });
        self.replica.handle(RaftInput::Submit {
            proposal,
            requests: [put.into()].into(),
            linger_us: 0,
            deadline_us: u64::MAX,
        });
    }

    /// Whether a member may be added or its record changed, and the invitation that this uses up.
    fn check_join(
        &self,
        request: &Join,
        peer: &PeerName,
        known: &BTreeMap<MemberId, MemberNames>,
    ) -> Result<Option<InvitationUse>, Box<Control>> {
        let refused = |why: String| Err(Box::new(Control::Refused(why)));
        let rejected = |why: String| Err(Box::new(Control::Rejected(why)));
        let Some(identity) = &self.config.identity else {
            return refused("this member is alone and adds no others".into());
        };
        let theirs = request.lineage.as_ref();
        if let Some(why) = theirs.and_then(|theirs| identity.lineage.objection(theirs)) {
            return refused(why);
        }
        let MemberRecord { id, names } = &request.record;
        if matches!(peer, PeerName::Certified(_)) && !peer.proves(&names.name) {
            return refused(format!("the certificate is not for `{}`", names.name));
        }
        let members = self.replica.members();
        // An id stays retired for ever, so a member that does not lead knows it too.
        if members.retired.contains(id) {
            return Err(Box::new(Control::Retired));
        }
        let status = self.replica.status();
        if !status.leading {
            return Err(Box::new(self.elsewhere(known)));
        }
        if !status.serving {
            return refused("the leader has just begun: try again".into());
        }
        let machine = self.replica.machine();
        let incarnation = identity.lineage.incarnation;
        let mut invitation =
            InvitationUse::check(machine, incarnation, *id, request.invitation.as_ref());
        if !members.contains(*id)
            && let Err(why) = invitation
        {
            return Err(Box::new(Control::Uninvited(why.into())));
        }
        let level = machine.level();
        if request.level < level {
            return rejected(Stop::Outgrown { level, known: request.level }.to_string());
        }
        if let Err(why) = self.check_record(*id, names, known) {
            return rejected(why);
        }
        if members.contains(*id) {
            let before = known.get(id);
            let learns = members.learners.contains(id) && !members.voters.contains(id);
            let absent = status.matched.get(id).is_none_or(|matched| *matched == 0)
                && !self.links.contains_key(id);
            let by_invitation = learns && absent && invitation.is_ok();
            let changed = before != Some(names);
            if changed && !may_change(*id, before, peer, by_invitation) {
                return refused(format!(
                    "member {id} is in the cluster: its record is changed by itself, over its link \
                     or with a certificate for the name that the directory has"
                ));
            }
            // What proves to be the member's own needs no invitation.
            if !changed || may_change(*id, before, peer, false) {
                invitation = Err("not needed");
            }
        } else if members.all().len() >= MEMBERS_MAX {
            return rejected(format!("the cluster has {MEMBERS_MAX} members"));
        } else if let Some((newest, at_us)) = self.joins.newest
            && members.learners.contains(&newest)
            && status.matched.get(&newest).is_none_or(|matched| *matched == 0)
            && self.now_us.saturating_sub(at_us) < GAP_US
        {
            return refused(format!("member {newest} was added just now: try again"));
        }
        if self.joins.current.is_some() {
            return refused("another member is being added: try again".into());
        }
        Ok(invitation.ok())
    }

    /// Why a record cannot stand in the directory.
    pub(super) fn check_record(
        &self,
        id: MemberId,
        names: &MemberNames,
        known: &BTreeMap<MemberId, MemberNames>,
    ) -> Result<(), String> {
        if let Some(why) = undiallable(&names.members) {
            return Err(format!("other members cannot dial `{}`: {why}", names.members));
        }
        let members = self.replica.members();
        let clashes = |(other, theirs): &(&MemberId, &MemberNames)| {
            **other != id && members.contains(**other) && theirs.name == names.name
        };
        match known.iter().find(clashes) {
            Some((other, _)) => Err(format!("member {other} is called `{}` already", names.name)),
            None => Ok(()),
        }
    }

    /// Where the leader is, as far as this member knows.
    fn elsewhere(&self, known: &BTreeMap<MemberId, MemberNames>) -> Control {
        let leader = self.lead.by.filter(|by| *by != self.id()).and_then(|by| known.get(&by));
        match leader {
            Some(names) => Control::Elsewhere(names.members.clone()),
            None => Control::Refused("no member leads: try again".into()),
        }
    }

    fn write_record(&mut self, current: JoinAttempt) {
        let put =
            directory::put(&directory::key(current.record.id), &current.record.names.to_string());
        let proposal = self.wait_for_join(current);
        let requests = [put.into()];
        self.replica.handle(RaftInput::Submit {
            proposal,
            requests: requests.into(),
            linger_us: 0,
            deadline_us: u64::MAX,
        });
    }

    fn add_learner(&mut self, current: JoinAttempt) {
        let id = current.record.id;
        if self.replica.members().contains(id) {
            return self.joined(current);
        }
        let proposal = self.wait_for_join(current);
        let request = AdminRequest::Change(vec![MembershipChange::AddLearner(id)]);
        self.replica.handle(RaftInput::Admin { proposal, request });
    }

    fn wait_for_join(&mut self, current: JoinAttempt) -> ProposalId {
        let proposal = self.in_flight.number();
        let due_us = self.now_us.saturating_add(AGREE_US);
        self.timers.set(due_us, proposal.0);
        self.joins.current = Some(JoinAttempt { proposal, due_us, ..current });
        self.again = true;
        proposal
    }

    fn take_join(&mut self, proposal: ProposalId) -> Option<JoinAttempt> {
        let current = self.joins.current.take_if(|current| current.proposal == proposal)?;
        self.timers.cancel(current.due_us, proposal.0);
        Some(current)
    }

    /// Takes the replica's result for the record.
    pub(crate) fn join_written(&mut self, proposal: ProposalId, fate: ProposalFate) {
        let Some(mut current) = self.take_join(proposal) else { return };
        let invitation = current.invitation.take();
        let why = match fate {
            ProposalFate::Applied(outcomes) => {
                match (outcomes.into_iter().next().map(|it| it.result), invitation) {
                    (Some(Ok(_)), None) => return self.add_learner(current),
                    (Some(Ok(_)), Some(used)) if used.has_expired(self.replica.machine()) => {
                        let answer = Control::Uninvited("the invitation has expired".into());
                        return self.answer_join(current.join, answer);
                    }
                    (Some(Ok(_)), Some(_)) => return self.write_or_add(current),
                    (Some(Err(refusal)), _) => refusal.to_string(),
                    (None, _) => "the record has no outcome".into(),
                }
            }
            ProposalFate::NotDone { why, .. } => return self.join_failed(current.join, why),
            ProposalFate::Unknown { .. } => "it is not known whether the record was written".into(),
        };
        self.answer_join(current.join, Control::Refused(why));
    }

    /// Takes the replica's result for the change of members.
    pub(crate) fn join_changed(&mut self, proposal: ProposalId, result: Result<(), RejectReason>) {
        let Some(current) = self.take_join(proposal) else { return };
        let id = current.record.id;
        match result {
            Ok(()) => {
                self.joins.newest = Some((id, self.now_us));
                self.joined(current);
            }
            Err(_) if self.replica.members().contains(id) => self.joined(current),
            Err(RejectReason::Retired) => self.answer_join(current.join, Control::Retired),
            Err(why) => {
                if current.fresh {
                    self.remove_record(id);
                }
                self.join_failed(current.join, why);
            }
        }
    }

    /// The replica cannot tell whether the member was added. Its record stays: the joiner asks again.
    pub(crate) fn join_unknown(&mut self, proposal: ProposalId) {
        let Some(current) = self.take_join(proposal) else { return };
        if self.replica.members().contains(current.record.id) {
            return self.joined(current);
        }
        let why = "it is not known whether the member was added: try again";
        self.answer_join(current.join, Control::Refused(why.into()));
    }

    /// Removes the record of a member that was not added. The record stays if this member no longer leads; the next
    /// attempt of the joiner writes it again.
    fn remove_record(&mut self, id: MemberId) {
        let key = directory::key(id);
        let command = Command::Delete { key: &key, expect: Expect::Any, guard: None };
        let requests = [directory::encode(command).into()];
        self.replica.handle(RaftInput::Submit {
            proposal: NO_CALLER,
            requests: requests.into(),
            linger_us: 0,
            deadline_us: u64::MAX,
        });
        self.again = true;
    }

    fn join_failed(&mut self, join: JoinId, why: RejectReason) {
        let answer = match why {
            RejectReason::NotLeader { .. } | RejectReason::Replaced => {
                self.elsewhere(&directory::read(self.replica.machine()))
            }
            why => Control::Refused(why.to_string()),
        };
        self.answer_join(join, answer);
    }

    fn joined(&mut self, current: JoinAttempt) {
        let Some(identity) = &self.config.identity else { return };
        let (machine, members) = (self.replica.machine(), self.replica.members());
        let mut known = directory::read(machine);
        known.retain(|id, _| members.contains(*id));
        // The leader's own record may not be in the directory yet, and the joiner must know it to accept its messages.
        known.insert(identity.record.id, identity.record.names.clone());
        let directory = known.into_iter().map(|(id, names)| MemberRecord { id, names });
        let (lineage, level) = (identity.lineage.clone(), machine.level());
        let answer = Control::Joined { lineage, level, directory: directory.collect() };
        self.answer_join(current.join, answer);
    }

    fn answer_join(&mut self, join: JoinId, answer: Control) {
        self.staged.push(Output::JoinAnswer { join, answer: Box::new(answer) });
    }

    /// Gives up a join on which the cluster has not agreed in time. The member may still be added later, and asks
    /// again.
    pub(crate) fn join_due(&mut self, proposal: ProposalId) {
        if let Some(current) = self.take_join(proposal) {
            let why = "the cluster has not agreed in time: try again";
            self.answer_join(current.join, Control::Refused(why.into()));
        }
    }

    /// The member ends: the joiner asks another one.
    pub(crate) fn end_joins(&mut self) {
        for (join, _) in std::mem::take(&mut self.joins.calling) {
            self.answer_join(join, Control::Refused("this member is stopping".into()));
        }
        if let Some(current) = self.joins.current.take() {
            self.timers.cancel(current.due_us, current.proposal.0);
            let why = "this member is stopping";
            self.answer_join(current.join, Control::Refused(why.into()));
        }
    }
}

/// Whether a join may change the record of an existing member. `by_invitation`: the member is a learner that was never
/// there, and the join has an invitation that admits it.
fn may_change(
    id: MemberId,
    before: Option<&MemberNames>,
    peer: &PeerName,
    by_invitation: bool,
) -> bool {
    if mutant!("join_takes_over_a_member") {
        return true;
    }
    match (peer, before) {
        (PeerName::Plain, _) => by_invitation,
        // The name of a member that an operator added by hand is its id until it announces a name.
        (PeerName::Certified(_), Some(before)) if before.name == id.to_string() => by_invitation,
        (PeerName::Certified(_), Some(before)) => peer.proves(&before.name),
        (PeerName::Certified(_), None) => by_invitation,
    }
}

#[cfg(test)]
mod tests;
