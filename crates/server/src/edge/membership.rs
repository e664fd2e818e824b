//! Adds, promotes and removes members and transfers leadership, whichever member is asked.
//!
//! Every change goes to the leader, from here or over a link, and is waited for. Before one, this member
//! makes sure that it knows everything that was agreed on, so that what is refused is refused for a reason
//! of now; the leader has the last word.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tenure_core::request::{Command, Expect, Put};
use tenure_node::directory::{self, Card, Names};
use tenure_node::{AdminRequest, Node};
use tenure_raft::{Change, MemberId, Membership, Replica, Status, Stop, Why};
use tenure_wire::{Failure, v1};
use tokio::sync::oneshot;

use super::{Edge, Fresh, Principal};
use crate::member::{End, Event, NotTaken};

/// Between two attempts while another change of members is under way.
const PAUSE: Duration = Duration::from_millis(20);

/// How long the leader has for its word on a change, at least.
const ANSWERED: Duration = Duration::from_millis(150);
/// How long a hand-over may take before another is tried: longer than an election.
const HANDED_OVER: Duration = Duration::from_secs(2);

/// The cluster as one member sees it.
#[derive(Clone, Debug)]
pub(crate) struct Cluster {
    /// Who belongs to it.
    pub(crate) members: Membership,
    /// Of the agreement.
    pub(crate) status: Status,
    /// How they are called and where they live.
    pub(crate) book: BTreeMap<MemberId, Names>,
    /// Which of them this member has a connection to, itself among them.
    pub(crate) linked: BTreeSet<MemberId>,
}

impl Cluster {
    /// The cluster as a node sees it.
    pub(crate) fn of(node: &Node) -> Self {
        let replica = node.replica();
        Self {
            members: replica.members().clone(),
            status: replica.status(),
            book: directory::read(replica.machine()),
            linked: node.linked().chain([replica.id()]).collect(),
        }
    }
}

impl Edge {
    /// Looks at this member as it is.
    pub(crate) async fn look<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&Replica) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        self.look_at_node(|node| ask(node.replica())).await
    }

    /// Looks at this member's node as it is.
    pub(crate) async fn look_at_node<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&Node) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let (done, answer) = oneshot::channel();
        let look = Event::Look(Box::new(move |node| {
            let _ = done.send(ask(node));
        }));
        match self.member().try_tell(look) {
            Ok(()) => match tokio::time::timeout(super::WITHIN, answer).await {
                Ok(answer) => answer.map_err(|_| self.farewell()),
                // The loop waits, for its disk most likely.
                Err(_) => Err(Failure::Deadline),
            },
            Err(NotTaken::Full(_)) => {
                Err(Failure::Overloaded { retry_after_ms: super::RETRY_AFTER_MS })
            }
            Err(NotTaken::Ended(_)) => Err(self.farewell()),
        }
    }

    /// Who belongs to the cluster, as this member knows it.
    pub(crate) async fn view(&self) -> Result<Cluster, Failure> {
        self.look_at_node(Cluster::of).await
    }

    /// The same, not older than now.
    pub(crate) async fn view_now(&self, within: Duration) -> Result<Cluster, Failure> {
        self.read(Fresh::Now, within, |_| ()).await?;
        self.view().await
    }

    /// Adds a member that follows: first its address, so that everyone can reach it.
    pub(crate) async fn add(&self, card: &Card, within: Duration) -> Result<(), v1::Error> {
        let until_us = self.deadline_us(within);
        for (field, word) in [
            ("name", &card.names.name),
            ("member_address", &card.names.members),
            ("client_address", &card.names.clients),
        ] {
            if !directory::is_word(word) {
                let problem = "is missing, too long, or has spaces".to_owned();
                return Err(Failure::InvalidField { field, problem }.into());
            }
        }
        let Cluster { members, book, .. } = self.view_now(within).await?;
        if members.contains(card.id) {
            return Err(Failure::MemberExists { member: card.id.to_string() }.into());
        }
        let namesake = |(id, names): (&MemberId, &Names)| {
            members.contains(*id) && names.name == card.names.name
        };
        if book.iter().any(namesake) {
            return Err(Failure::MemberExists { member: card.names.name.clone() }.into());
        }
        if members.retired.contains(&card.id) {
            return Err(self.rejected(Why::Retired).into());
        }
        let (key, value) = (directory::key(card.id), card.names.to_string());
        let put = Put {
            key: &key,
            value: value.as_bytes(),
            lease: None,
            expect: Expect::Any,
            guard: None,
        };
        let outcome = self.run_own(Command::Put(put), self.until(until_us)).await?;
        outcome.result.map_err(|refusal| v1::Error::from(&refusal))?;
        self.change(Change::AddLearner(card.id), until_us).await
    }

    /// Gives a member that has caught up a vote. One that has a vote keeps it.
    pub(crate) async fn promote(&self, id: MemberId, within: Duration) -> Result<(), v1::Error> {
        let members = self.view_now(within).await?.members;
        if members.voters.contains(&id) {
            return Ok(());
        }
        if !members.contains(id) {
            return Err(Failure::MemberNotFound { member: id.to_string() }.into());
        }
        self.change(Change::Promote(id), self.deadline_us(within)).await
    }

    /// Removes a member for ever, then its address. One that leads hands over first. Tells how the cluster is then,
    /// also if it was this member, which has ended or is about to.
    pub(crate) async fn remove(
        &self,
        id: MemberId,
        within: Duration,
    ) -> Result<Cluster, v1::Error> {
        let until_us = self.deadline_us(within);
        let mut before = self.view_now(within).await?;
        let members = &mut before.members;
        if !members.contains(id) {
            return Err(Failure::MemberNotFound { member: id.to_string() }.into());
        }
        if members.voters.len() == 1 && members.voters.contains(&id) {
            return Err(Failure::QuorumAtRisk.into());
        }
        loop {
            if self.lead().by == Some(id) {
                self.transfer(None, self.until(until_us)).await?;
            }
            let Err(error) = self.change(Change::Remove(id), until_us).await else { break };
            // One that removes itself may end before it hears that it is done.
            let removed = match self.view().await {
                Ok(cluster) => !cluster.members.contains(id),
                Err(_) => self.member().ended() == Some(End::Cluster(Stop::Removed)),
            };
            if removed {
                break;
            }
            // It may have been elected again meanwhile.
            if self.lead().by != Some(id) || self.until(until_us) < ANSWERED {
                return Err(error);
            }
        }
        let key = directory::key(id);
        let delete = Command::Delete { key: &key, expect: Expect::Any, guard: None };
        if id != self.member().id() {
            // An address that stays in the book does no harm: nobody dials one who is no member.
            let _ = self.run_own(delete, self.until(until_us)).await;
            if let Ok(now) = self.view_now(self.until(until_us)).await {
                return Ok(now);
            }
        }
        members.voters.remove(&id);
        members.learners.remove(&id);
        members.retired.insert(id);
        Ok(before)
    }

    /// Lets another member lead: this one, or whichever is best. Tells who leads then. A hand-over may be lost on its
    /// way, so it is tried until somebody else leads.
    pub(crate) async fn transfer(
        &self,
        to: Option<MemberId>,
        within: Duration,
    ) -> Result<MemberId, v1::Error> {
        let until_us = self.deadline_us(within);
        let before = self.lead().by;
        let is_done = |by: Option<MemberId>| match to {
            Some(_) => by == to,
            None => by.is_some() && by != before,
        };
        let mut lead = self.member().lead();
        loop {
            let cluster = self.view_now(self.until(until_us)).await?;
            let heir = match to {
                None => self.heir(&cluster)?,
                Some(id) if !cluster.members.voters.contains(&id) => {
                    return Err(Failure::MemberNotFound { member: id.to_string() }.into());
                }
                Some(id) => id,
            };
            if let Some(by) = self.lead().by.filter(|by| is_done(Some(*by))) {
                return Ok(by);
            }
            let request = AdminRequest::Transfer(heir);
            if let Err(failure) =
                self.admin(&Principal::anyone(), request, self.until(until_us)).await
                && !is_done(self.lead().by)
            {
                return Err(self.failure(failure, within).into());
            }
            let soon = self.until(until_us).min(HANDED_OVER);
            let leads = lead.wait_for(|lead| is_done(lead.by));
            match tokio::time::timeout(soon, leads).await.map(|led| led.map(|lead| lead.by)) {
                Ok(Ok(by)) => return Ok(by.unwrap_or(heir)),
                Ok(Err(_)) => return Err(self.farewell().into()),
                Err(_) if self.until(until_us).is_zero() => return Err(waited(within).into()),
                Err(_) => {}
            }
        }
    }

    /// Who may lead best: the one that has most, as far as that is known here.
    fn heir(&self, cluster: &Cluster) -> Result<MemberId, Failure> {
        let leader = self.lead().by;
        let others = cluster.members.voters.iter().copied().filter(|id| Some(*id) != leader);
        others
            .max_by_key(|id| (cluster.linked.contains(id), cluster.status.matched.get(id).copied()))
            .ok_or(Failure::QuorumAtRisk)
    }

    /// Makes one change, and waits while another one ends.
    async fn change(&self, change: Change, until_us: u64) -> Result<(), v1::Error> {
        loop {
            let request = AdminRequest::Change(vec![change]);
            let within = self.until(until_us);
            match self.admin(&Principal::anyone(), request, within).await {
                // A leader that has just begun says so too. Asked once more without time for the answer, one could
                // not tell that nothing was done.
                Err(tenure_node::Failure::Rejected(Why::ChangeUnderWay))
                    if self.until(until_us) > ANSWERED =>
                {
                    tokio::time::sleep(PAUSE).await;
                }
                result => {
                    return result.map_err(|failure| self.failure(failure, within).into());
                }
            }
        }
    }
}

fn waited(within: Duration) -> Failure {
    Failure::UnknownOutcome { waited_ms: within.as_millis().try_into().unwrap_or(u64::MAX) }
}
