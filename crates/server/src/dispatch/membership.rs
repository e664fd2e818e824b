//! Adds, promotes and removes members and transfers leadership, on any member.
//!
//! [`Reconfigure`] decides each step. This module performs the step and reports its result. The steps run in a task of
//! their own, to the end even if the caller goes away: else a change could be half done, or done and not recorded.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tenure_core::Machine;
use tenure_core::outcome::Answer;
use tenure_core::request::{Command, Expect};
use tenure_node::directory::{self, MemberRecord};
use tenure_node::invitation::{
    self, EXPIRES_DEFAULT_MS, EXPIRES_MAX_MS, InvitationView, TOKEN_BYTES,
};
use tenure_node::{
    AdminRequest, ClusterView, Effect, InputContext, InvitationToken, LeadsThrough, NewInvitation,
    NotReconfigured, Permit, Reconfiguration, Reconfigure, ReconfigureInput, ReconfigureOutput,
    Reconfigured, undiallable,
};
use tenure_raft::{MemberId, Stop};
use tenure_types::{Revision, Verb};
use tenure_wire::{Failure, v1};

use super::{Dispatch, Principal, ReadConsistency, ReadScope, millis};
use crate::audit::{AuditLog, AuditOutcome, AuditRecord};
use crate::member::End;
use crate::os;

/// The shortest invitation: a shorter one would end before a member has started.
const EXPIRES_MIN_MS: u64 = 1_000;

/// An invitation that was made.
pub(crate) struct Invited {
    pub(crate) token: InvitationToken,
    pub(crate) expires_ms: u64,
    pub(crate) revision: Revision,
}

/// Records a change that no command of the state machine makes, so that the history does not have it: only the member
/// that was asked knows its caller. Dropped without a result, it records the outcome as unknown.
struct ChangeRecord {
    audit: Arc<AuditLog>,
    principal: Principal,
    act: &'static str,
    /// The member that gets a vote or leads, once the leader may have the request.
    sent: Option<MemberId>,
}

impl ChangeRecord {
    /// None for a change that the history has.
    fn of(audit: &Arc<AuditLog>, who: &Principal, request: &Reconfiguration) -> Option<Self> {
        let act = match request {
            Reconfiguration::Promote(_) => "member_promoted",
            Reconfiguration::Transfer(_) => "leadership_transferred",
            // Their keys in the directory are in the history.
            Reconfiguration::Invite(_) | Reconfiguration::Add(_) | Reconfiguration::Remove(_) => {
                return None;
            }
        };
        Some(Self { audit: audit.clone(), principal: who.clone(), act, sent: None })
    }

    fn sends(&mut self, request: &AdminRequest) {
        self.sent = match request {
            AdminRequest::Transfer(to) => Some(*to),
            AdminRequest::Change(changes) => changes.first().map(|change| change.member()),
        };
    }

    /// Records what came of it, unless nothing was changed. Returns whether a record will be written.
    fn ended(&mut self, result: &Result<Reconfigured, NotReconfigured>) -> bool {
        let Some(sent) = self.sent.take() else { return false };
        let (member, outcome) = match result {
            Ok(Reconfigured::Leads { through: LeadsThrough::Other, .. }) => return false,
            Ok(Reconfigured::Leads { by, through: LeadsThrough::Request }) => {
                (*by, AuditOutcome::Done)
            }
            Ok(Reconfigured::Leads { by, through: LeadsThrough::Unknown }) => {
                (*by, AuditOutcome::Unknown)
            }
            Ok(Reconfigured::Changed) => (sent, AuditOutcome::Done),
            Err(NotReconfigured::Failed(why)) if why.effect() == Effect::Unknown => {
                (sent, AuditOutcome::Unknown)
            }
            // Of these no request was sent, or another one than is recorded here.
            Ok(Reconfigured::HadVote | Reconfigured::Invited(_) | Reconfigured::Removed(_)) => {
                return false;
            }
            // The caller has the reason. Nothing was changed.
            Err(
                NotReconfigured::Failed(_)
                | NotReconfigured::Refused(_)
                | NotReconfigured::Word { .. }
                | NotReconfigured::Exists { .. }
                | NotReconfigured::NotFound { .. }
                | NotReconfigured::LastVoter,
            ) => return false,
        };
        self.record(member, outcome)
    }

    fn record(&self, member: MemberId, outcome: AuditOutcome<'_>) -> bool {
        let record = AuditRecord::new(self.act, outcome).target(&member.to_string());
        self.audit.record(&record.principal(self.principal.known()))
    }
}

impl Drop for ChangeRecord {
    fn drop(&mut self) {
        if let Some(member) = self.sent {
            self.record(member, AuditOutcome::Unknown);
        }
    }
}

impl Dispatch {
    /// Makes an invitation, with which one member can join by itself.
    pub(crate) async fn invite(
        &self,
        who: &Principal,
        expires_ms: Option<u64>,
        member: Option<MemberId>,
        within: Duration,
    ) -> Result<Invited, v1::Error> {
        let expires_ms = expires_ms.unwrap_or(EXPIRES_DEFAULT_MS);
        if !(EXPIRES_MIN_MS..=EXPIRES_MAX_MS).contains(&expires_ms) {
            let problem = format!("is not between {EXPIRES_MIN_MS} and {EXPIRES_MAX_MS}");
            return Err(Failure::InvalidField { field: "expires_ms", problem }.into());
        }
        let token = InvitationToken::new(os::random_bytes::<TOKEN_BYTES>());
        let incarnation = self.member().lineage().incarnation;
        let new = NewInvitation { token: token.clone(), expires_ms, member, incarnation };
        match self.reconfigure(who, Reconfiguration::Invite(new), within).await? {
            Reconfigured::Invited(revision) => Ok(Invited { token, expires_ms, revision }),
            // Results of other requests.
            Reconfigured::Changed
            | Reconfigured::HadVote
            | Reconfigured::Removed(_)
            | Reconfigured::Leads { .. } => Err(Failure::Internal.into()),
        }
    }

    /// The invitations that have not expired, without their secrets.
    pub(crate) async fn invitations(
        &self,
        who: &Principal,
        within: Duration,
    ) -> Result<(Revision, Vec<v1::InvitationView>), v1::Error> {
        self.may_operate(who)?;
        // The machine's clock, by which invitations expire, stands still while nothing is written.
        self.move_clock(within).await?;
        let incarnation = self.member().lineage().incarnation;
        let scope = ReadScope::Name(Verb::Operate, String::new());
        let ask = move |machine: &Machine| {
            let left_ms = |it: &InvitationView| it.deadline_ms.saturating_sub(machine.clock_ms());
            let view = |it: InvitationView| v1::InvitationView {
                expires_ms: left_ms(&it),
                id: it.id,
                member_id: it.member.map(MemberId::get),
                used_by: it.used_by.map(MemberId::get),
            };
            invitation::live(machine, incarnation).into_iter().map(view).collect()
        };
        Ok(self.read_page(who, scope, ReadConsistency::Linearizable, within, ask).await?)
    }

    /// Deletes an invitation. Returns whether it existed.
    pub(crate) async fn cancel_invitation(
        &self,
        who: &Principal,
        id: &str,
        within: Duration,
    ) -> Result<(Revision, bool), v1::Error> {
        self.may_operate(who)?;
        let Some(key) = invitation::key_of(id) else {
            let problem = "is not the id of an invitation: 16 hexadecimal digits".to_owned();
            return Err(Failure::InvalidField { field: "id", problem }.into());
        };
        let delete = Command::Delete { key: &key, expect: Expect::Any, guard: None };
        let request = self.written_for(who, directory::encode(delete).into()).await;
        let outcome = self.run(request, Permit::default(), 0, within).await?;
        match outcome.result {
            Ok(Answer::Deleted { existed }) => Ok((outcome.revision, existed)),
            Ok(_) => Err(Failure::Internal.into()),
            Err(refusal) => Err(v1::Error::from(&refusal)),
        }
    }

    /// Adds a member without a vote.
    pub(crate) async fn add(
        &self,
        who: &Principal,
        record: MemberRecord,
        within: Duration,
    ) -> Result<(), v1::Error> {
        if let Some(why) = undiallable(&record.names.members) {
            let problem = format!("cannot be dialled: {why}");
            return Err(Failure::InvalidField { field: "member_address", problem }.into());
        }
        self.reconfigure(who, Reconfiguration::Add(record), within).await.map(drop)
    }

    /// Gives a vote to a member that has caught up. A member that has a vote keeps it.
    pub(crate) async fn promote(
        &self,
        who: &Principal,
        id: MemberId,
        within: Duration,
    ) -> Result<(), v1::Error> {
        self.reconfigure(who, Reconfiguration::Promote(id), within).await.map(drop)
    }

    /// Removes a member for ever, then its record in the directory. A leader hands over first. Returns the cluster
    /// after the removal, also if the removed member is this one, which has ended or is about to.
    pub(crate) async fn remove(
        &self,
        who: &Principal,
        id: MemberId,
        within: Duration,
    ) -> Result<ClusterView, v1::Error> {
        match self.reconfigure(who, Reconfiguration::Remove(id), within).await? {
            Reconfigured::Removed(cluster) => Ok(*cluster),
            // Results of other requests.
            Reconfigured::Invited(_)
            | Reconfigured::Changed
            | Reconfigured::HadVote
            | Reconfigured::Leads { .. } => Err(Failure::Internal.into()),
        }
    }

    /// Transfers leadership to the given member, or to the best one if none is given.
    pub(crate) async fn transfer(
        &self,
        who: &Principal,
        to: Option<MemberId>,
        within: Duration,
    ) -> Result<(), v1::Error> {
        self.reconfigure(who, Reconfiguration::Transfer(to), within).await.map(drop)
    }

    async fn reconfigure(
        &self,
        who: &Principal,
        request: Reconfiguration,
        within: Duration,
    ) -> Result<Reconfigured, v1::Error> {
        self.may_operate(who)?;
        let (dispatch, who) = (self.clone(), who.clone());
        let steps = async move { dispatch.steps(&who, request, within).await };
        match self.spawn_for_caller(steps).await {
            Ok(result) => result,
            // The task ends without a result only if this member stops or a step panics.
            Err(_) => Err(Failure::UnknownOutcome { waited_ms: millis(within) }.into()),
        }
    }

    async fn steps(
        &self,
        who: &Principal,
        request: Reconfiguration,
        within: Duration,
    ) -> Result<Reconfigured, v1::Error> {
        let until_us = self.deadline_us(within);
        let mut lead = self.member().lead();
        let mut record = ChangeRecord::of(self.member().audit(), who, &request);
        let mut machine = Reconfigure::new(request, self.member().id(), until_us);
        let mut output = machine.begin(self.moment());
        loop {
            let left = self.until(until_us);
            let input = match output {
                Some(ReconfigureOutput::Done(result)) => {
                    if record.is_some_and(|mut it| it.ended(&result)) {
                        self.member().audit().recorded_durably().await;
                    }
                    return result.map_err(|why| self.not_reconfigured(why, within));
                }
                Some(ReconfigureOutput::View(fresh)) => {
                    let cluster = self.cluster_at(who, fresh, left).await;
                    if self.member().ended() == Some(End::Cluster(Stop::Removed)) {
                        ReconfigureInput::Removed
                    } else {
                        ReconfigureInput::Viewed(cluster.map(Box::new))
                    }
                }
                Some(ReconfigureOutput::Write(request)) => {
                    let request = self.written_for(who, request).await;
                    let outcome = self.submit(request, Permit::default(), 0, left).await;
                    ReconfigureInput::Written(outcome)
                }
                Some(ReconfigureOutput::Admin(request)) => {
                    if let Some(record) = &mut record {
                        record.sends(&request);
                    }
                    ReconfigureInput::Changed(self.admin(who, request, left).await)
                }
                None => {
                    let due = self.until(machine.wake_us());
                    // This member owns the sender of the watch channel, so `changed` does not fail.
                    if tokio::time::timeout(due, lead.changed()).await.is_err() {
                        output = machine.turn(self.moment());
                        continue;
                    }
                    ReconfigureInput::Led
                }
            };
            output = machine.handle(self.moment(), input);
        }
    }

    /// A command of this member that carries the name of the caller for which it is made.
    pub(super) async fn written_for(&self, who: &Principal, request: Bytes) -> Bytes {
        let Ok(level) = self.inspect(|replica| replica.machine().level()).await else {
            return request;
        };
        let principal = Principal::member_for(who, level);
        directory::encode_as(&principal, &request).map_or(request, Bytes::from)
    }

    fn moment(&self) -> InputContext {
        InputContext { now_us: self.now_us(), lead: self.lead().by }
    }

    fn not_reconfigured(&self, why: NotReconfigured, within: Duration) -> v1::Error {
        match why {
            NotReconfigured::Word { field } => {
                let problem = "is missing, too long, or has spaces".to_owned();
                Failure::InvalidField { field, problem }.into()
            }
            NotReconfigured::Exists { member } => Failure::MemberExists { member }.into(),
            NotReconfigured::NotFound { member } => {
                Failure::MemberNotFound { member: member.to_string() }.into()
            }
            NotReconfigured::LastVoter => Failure::QuorumAtRisk.into(),
            NotReconfigured::Refused(refusal) => v1::Error::from(&refusal),
            NotReconfigured::Failed(failure) => self.failure(failure, within).into(),
        }
    }
}
