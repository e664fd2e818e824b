//! Adds, promotes and removes members and transfers leadership, on any member.
//!
//! [`Reconfigure`] decides each step. This module performs the step and reports its result.

use std::time::Duration;

use tenure_node::directory::MemberRecord;
use tenure_node::{
    ClusterView, InputContext, NotReconfigured, Permit, Reconfiguration, Reconfigure,
    ReconfigureInput, ReconfigureOutput, Reconfigured, undiallable,
};
use tenure_raft::{MemberId, Stop};
use tenure_wire::{Failure, v1};

use super::{Dispatch, Principal};
use crate::member::End;

impl Dispatch {
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
            Reconfigured::Changed | Reconfigured::Leads(_) => Err(Failure::Internal.into()),
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
        let until_us = self.deadline_us(within);
        let mut lead = self.member().lead();
        let mut machine = Reconfigure::new(request, self.member().id(), until_us);
        let mut output = machine.begin(self.moment());
        loop {
            let left = self.until(until_us);
            let input = match output {
                Some(ReconfigureOutput::Done(result)) => {
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
                    let outcome = self.submit(request, Permit::default(), 0, left).await;
                    ReconfigureInput::Written(outcome)
                }
                Some(ReconfigureOutput::Admin(request)) => {
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
