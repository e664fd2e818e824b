//! Decides the steps by which a member adds, promotes and removes members and transfers leadership for an operator.
//!
//! Every change goes to the leader, from here or over a link. Before one, this member makes sure that it knows
//! everything that was agreed on, so that what is refused is refused for a reason of now; the leader has the last word.
//!
//! ```text
//! invite    bring the clock up to date ─► view now ─► write the invitation
//! add       view now ─► write the record ─► add the learner
//! promote   view now ─► promote
//! remove    view now ─► hand over, if the member leads ─► remove ─► delete the record ─► view now
//! transfer  view now ─► transfer ─► wait for the new leader, at most 2 s ─► view now …
//! ```
//!
//! A driver starts a [`Reconfigure`] with [`Reconfigure::begin`] and does what each output says. One output is under
//! way at a time, and its result is the next input. Without an output, the driver waits for another leader
//! ([`ReconfigureInput::Led`]) or until [`Reconfigure::wake_us`].

use bytes::Bytes;
use tenure_core::outcome::Outcome;
use tenure_core::request::{Command, Expect};
use tenure_raft::{MemberId, MembershipChange, RejectReason};
use tenure_types::{Refusal, Revision};

use crate::cluster::ClusterView;
use crate::directory::{self, MemberRecord};
use crate::failure::{Effect, NodeFailure};
use crate::invitation::NewInvitation;
use crate::io::{AdminRequest, ReadConsistency};

/// Between two attempts while another change of members is under way.
const PAUSE_US: u64 = 20_000;
/// How long the leader has to answer a change, at least.
const ANSWERED_US: u64 = 150_000;
/// How long a transfer may take before another is tried: longer than an election.
const HANDED_OVER_US: u64 = 2_000_000;

/// The change that an operator requests.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reconfiguration {
    /// Let one more member join by itself.
    Invite(NewInvitation),
    /// Add a member that learns.
    Add(MemberRecord),
    /// Give a member that has caught up a vote. One that has a vote keeps it.
    Promote(MemberId),
    /// Remove a member for ever. One that leads hands over first.
    Remove(MemberId),
    /// Let this member lead, or any other than the leader.
    Transfer(Option<MemberId>),
}

/// The result of a change.
#[derive(Clone, Debug)]
pub enum Reconfigured {
    /// The invitation counts since this revision.
    Invited(Revision),
    /// The member was added, or got its vote.
    Changed,
    /// The member had a vote before. Nothing was done.
    HadVote,
    /// The member was removed, and this is the cluster then.
    Removed(Box<ClusterView>),
    /// This member leads.
    Leads {
        /// The member.
        by: MemberId,
        /// Whether the request is the reason.
        through: LeadsThrough,
    },
}

/// Why the member leads that a transfer was to reach.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeadsThrough {
    /// The leader accepted the request.
    Request,
    /// Not through the request: the member led before, or was elected although the leader refused the request.
    Other,
    /// The leader did not answer the request.
    Unknown,
}

/// Why it was not reached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NotReconfigured {
    /// A word of the record cannot stand in the directory.
    Word {
        /// The field of the request.
        field: &'static str,
    },
    /// A member has this id or name already.
    Exists {
        /// The id or the name.
        member: String,
    },
    /// No member, or no voter, has this id.
    NotFound {
        /// The id.
        member: MemberId,
    },
    /// There is no other voter.
    LastVoter,
    /// The machine refused the record.
    Refused(Refusal),
    /// Something failed. Whether it had an effect is said there.
    Failed(NodeFailure),
}

/// The moment of an input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InputContext {
    /// The member's clock.
    pub now_us: u64,
    /// The leader, as this member knows it.
    pub lead: Option<MemberId>,
}

/// Something that happened.
#[derive(Clone, Debug)]
pub enum ReconfigureInput {
    /// The result of [`ReconfigureOutput::View`].
    Viewed(Result<Box<ClusterView>, NodeFailure>),
    /// The result of [`ReconfigureOutput::Write`].
    Written(Result<Outcome, NodeFailure>),
    /// The result of [`ReconfigureOutput::Admin`].
    Changed(Result<(), NodeFailure>),
    /// Another member leads, or none.
    Led,
    /// This member has ended because it was removed. Takes the place of any other input.
    Removed,
}

/// Something that has to happen.
#[derive(Clone, Debug)]
pub enum ReconfigureOutput {
    /// Look at the cluster in a state that is so fresh.
    View(ReadConsistency),
    /// Have this command of the member itself applied.
    Write(Bytes),
    /// Make this request of the leader.
    Admin(AdminRequest),
    /// It is over.
    Done(Result<Reconfigured, NotReconfigured>),
}

/// One operator's request to change the members or the leader, until it is done.
#[derive(Debug)]
pub struct Reconfigure {
    request: Reconfiguration,
    me: MemberId,
    deadline_us: u64,
    /// The cluster before a removal.
    before: Option<Box<ClusterView>>,
    /// Whether an earlier attempt may still have its effect. Then no later failure means that nothing happened.
    in_doubt: bool,
    /// What the leader has answered to a transfer so far.
    through: LeadsThrough,
    at: ReconfigureStage,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum ReconfigureStage {
    /// Bringing the machine's clock up to date.
    Touching,
    Viewing,
    WritingInvitation,
    WritingRecord,
    HandingOver(HandOver, HandOverStage),
    Changing(MembershipChange),
    Paused {
        change: MembershipChange,
        until_us: u64,
    },
    /// The removal failed so. Is the member removed nevertheless?
    Checking(NodeFailure),
    DeletingRecord,
    Confirming,
    Over,
}

/// What makes a transfer of leadership done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct HandOver {
    to: Option<MemberId>,
    /// The leader when the transfer began.
    before: Option<MemberId>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum HandOverStage {
    Viewing,
    Asked,
    Awaiting { until_us: u64 },
}

impl HandOver {
    /// The new leader, if the transfer is done.
    fn done(self, lead: Option<MemberId>) -> Option<MemberId> {
        lead.filter(|by| match self.to {
            Some(to) => *by == to,
            None => Some(*by) != self.before,
        })
    }
}

type NextOutput = Option<ReconfigureOutput>;

impl Reconfigure {
    /// A request that an operator sent to the member `me`.
    pub fn new(request: Reconfiguration, me: MemberId, deadline_us: u64) -> Self {
        let (through, at) = (LeadsThrough::Other, ReconfigureStage::Over);
        Self { request, me, deadline_us, before: None, in_doubt: false, through, at }
    }

    /// Makes the first step.
    pub fn begin(&mut self, moment: InputContext) -> NextOutput {
        match &self.request {
            Reconfiguration::Invite(invitation) => {
                let touch = invitation.touch().into();
                self.at = ReconfigureStage::Touching;
                return Some(ReconfigureOutput::Write(touch));
            }
            Reconfiguration::Add(record) => {
                if let Some(field) = not_a_word(record) {
                    return self.fail(NotReconfigured::Word { field });
                }
            }
            Reconfiguration::Promote(_) | Reconfiguration::Remove(_) => {}
            Reconfiguration::Transfer(to) => return self.hand_over(*to, moment),
        }
        self.at = ReconfigureStage::Viewing;
        Some(ReconfigureOutput::View(ReadConsistency::Linearizable))
    }

    /// When the next [`Reconfigure::turn`] is due, if no output is under way and no input comes first.
    pub fn wake_us(&self) -> u64 {
        match self.at {
            ReconfigureStage::Paused { until_us, .. }
            | ReconfigureStage::HandingOver(_, HandOverStage::Awaiting { until_us }) => until_us,
            _ => u64::MAX,
        }
    }

    /// Lets time pass.
    pub fn turn(&mut self, moment: InputContext) -> NextOutput {
        if moment.now_us < self.wake_us() {
            return None;
        }
        match self.at {
            ReconfigureStage::Paused { change, .. } => self.change(change),
            ReconfigureStage::HandingOver(..) if moment.now_us >= self.deadline_us => {
                self.fail(NotReconfigured::Failed(NodeFailure::Unknown))
            }
            // The request may have been lost on its way.
            ReconfigureStage::HandingOver(hand_over, _) => {
                self.at = ReconfigureStage::HandingOver(hand_over, HandOverStage::Viewing);
                Some(ReconfigureOutput::View(ReadConsistency::Linearizable))
            }
            _ => None,
        }
    }

    /// Takes an input. One that the present state does not wait for changes nothing.
    pub fn handle(&mut self, moment: InputContext, input: ReconfigureInput) -> NextOutput {
        match input {
            ReconfigureInput::Viewed(cluster) => self.viewed(moment, cluster),
            ReconfigureInput::Written(outcome) => self.written(outcome),
            ReconfigureInput::Changed(result) => self.changed(moment, result),
            ReconfigureInput::Led => match self.at {
                ReconfigureStage::HandingOver(hand_over, HandOverStage::Awaiting { .. }) => {
                    hand_over.done(moment.lead).and_then(|by| self.handed_over(by))
                }
                _ => None,
            },
            ReconfigureInput::Removed => self.left_the_cluster(),
        }
    }

    /// This member has ended because it was removed: by this request, or by another one meanwhile.
    fn left_the_cluster(&mut self) -> NextOutput {
        let removes_me = self.request == Reconfiguration::Remove(self.me) && self.before.is_some();
        let failure = match self.at {
            ReconfigureStage::Over => return None,
            ReconfigureStage::DeletingRecord | ReconfigureStage::Confirming => {
                return self.done_removing();
            }
            // A member that removes itself may end before it hears that it is done.
            _ if removes_me => return self.done_removing(),
            ReconfigureStage::Checking(failure) => failure,
            // The request may have reached the leader.
            ReconfigureStage::WritingInvitation
            | ReconfigureStage::WritingRecord
            | ReconfigureStage::Changing(_) => NodeFailure::Unknown,
            ReconfigureStage::HandingOver(_, HandOverStage::Asked)
                if matches!(self.request, Reconfiguration::Transfer(_)) =>
            {
                NodeFailure::Unknown
            }
            ReconfigureStage::Touching
            | ReconfigureStage::Viewing
            | ReconfigureStage::Paused { .. }
            | ReconfigureStage::HandingOver(..) => NodeFailure::Stopping,
        };
        self.fail(NotReconfigured::Failed(failure))
    }

    fn viewed(
        &mut self,
        moment: InputContext,
        cluster: Result<Box<ClusterView>, NodeFailure>,
    ) -> NextOutput {
        match (self.at.clone(), cluster) {
            (ReconfigureStage::Viewing, Ok(cluster)) => self.decide(moment, cluster),
            (ReconfigureStage::HandingOver(hand_over, HandOverStage::Viewing), Ok(cluster)) => {
                self.transfer(moment, hand_over, &cluster)
            }
            (
                ReconfigureStage::Viewing
                | ReconfigureStage::HandingOver(_, HandOverStage::Viewing),
                Err(failure),
            ) => self.fail(NotReconfigured::Failed(failure)),
            (ReconfigureStage::Checking(failure), cluster) => {
                let Reconfiguration::Remove(id) = self.request else { return None };
                if cluster.is_ok_and(|cluster| !cluster.members.contains(id)) {
                    return self.removed();
                }
                self.in_doubt |= failure.effect() == Effect::Unknown;
                // It may have been elected again meanwhile.
                if moment.lead != Some(id) || self.left_us(moment) < ANSWERED_US {
                    return self.fail(NotReconfigured::Failed(failure));
                }
                self.remove(moment, id)
            }
            (ReconfigureStage::Confirming, Ok(cluster)) => {
                self.done(Reconfigured::Removed(cluster))
            }
            (ReconfigureStage::Confirming, Err(_)) => self.done_removing(),
            _ => None,
        }
    }

    /// Checks the request against the cluster as it is now, and takes the next step.
    fn decide(&mut self, moment: InputContext, cluster: Box<ClusterView>) -> NextOutput {
        let members = &cluster.members;
        match &self.request {
            Reconfiguration::Invite(invitation) => {
                let put = invitation.put(cluster.clock_ms).into();
                self.at = ReconfigureStage::WritingInvitation;
                Some(ReconfigureOutput::Write(put))
            }
            Reconfiguration::Add(record) => match check_new(record, &cluster) {
                Err(why) => self.fail(why),
                Ok(()) => {
                    let put = directory::put(&directory::key(record.id), &record.names.to_string());
                    self.at = ReconfigureStage::WritingRecord;
                    Some(ReconfigureOutput::Write(put.into()))
                }
            },
            Reconfiguration::Promote(id) if members.voters.contains(id) => {
                self.done(Reconfigured::HadVote)
            }
            Reconfiguration::Promote(member) | Reconfiguration::Remove(member)
                if !members.contains(*member) =>
            {
                self.fail(NotReconfigured::NotFound { member: *member })
            }
            Reconfiguration::Promote(id) => self.change(MembershipChange::Promote(*id)),
            Reconfiguration::Remove(id) => {
                let id = *id;
                if members.voters.len() == 1 && members.voters.contains(&id) {
                    return self.fail(NotReconfigured::LastVoter);
                }
                self.before = Some(cluster);
                self.remove(moment, id)
            }
            Reconfiguration::Transfer(_) => None,
        }
    }

    fn written(&mut self, outcome: Result<Outcome, NodeFailure>) -> NextOutput {
        match (&self.at, &self.request) {
            (ReconfigureStage::Touching | ReconfigureStage::WritingInvitation, _) => {
                match outcome {
                    Ok(Outcome { result: Err(refusal), .. }) => {
                        self.fail(NotReconfigured::Refused(refusal))
                    }
                    Ok(_) if self.at == ReconfigureStage::Touching => {
                        self.at = ReconfigureStage::Viewing;
                        Some(ReconfigureOutput::View(ReadConsistency::Linearizable))
                    }
                    Ok(outcome) => self.done(Reconfigured::Invited(outcome.revision)),
                    Err(failure) => self.fail(NotReconfigured::Failed(failure)),
                }
            }
            (ReconfigureStage::WritingRecord, Reconfiguration::Add(record)) => {
                match outcome.map(|it| it.result) {
                    Ok(Ok(_)) => self.change(MembershipChange::AddLearner(record.id)),
                    Ok(Err(refusal)) => self.fail(NotReconfigured::Refused(refusal)),
                    Err(failure) => self.fail(NotReconfigured::Failed(failure)),
                }
            }
            // An address that stays in the directory does no harm: no member dials an id that is no member.
            (ReconfigureStage::DeletingRecord, _) => {
                self.at = ReconfigureStage::Confirming;
                Some(ReconfigureOutput::View(ReadConsistency::Linearizable))
            }
            _ => None,
        }
    }

    fn change(&mut self, change: MembershipChange) -> NextOutput {
        self.at = ReconfigureStage::Changing(change);
        Some(ReconfigureOutput::Admin(AdminRequest::Change(vec![change])))
    }

    fn changed(&mut self, moment: InputContext, result: Result<(), NodeFailure>) -> NextOutput {
        let change = match self.at {
            ReconfigureStage::Changing(change) => change,
            ReconfigureStage::HandingOver(hand_over, HandOverStage::Asked) => {
                return self.hand_over_answered(moment, hand_over, result);
            }
            _ => return None,
        };
        match (result, &self.request) {
            // A leader that has just begun says so too. Asked once more without time for the answer, the leader could
            // not tell that nothing was done.
            (Err(NodeFailure::Rejected(RejectReason::ChangeUnderWay)), _)
                if self.left_us(moment) > ANSWERED_US =>
            {
                let until_us = moment.now_us.saturating_add(PAUSE_US);
                self.at = ReconfigureStage::Paused { change, until_us };
                None
            }
            (Ok(()), Reconfiguration::Remove(_)) => self.removed(),
            (Ok(()), _) => self.done(Reconfigured::Changed),
            (Err(_), Reconfiguration::Remove(_)) if mutant!("failed_removal_reported_as_done") => {
                self.removed()
            }
            (Err(failure), Reconfiguration::Remove(_)) => {
                let forgets = mutant!("unknown_removal_reported_as_no_effect");
                let failure = if forgets { NodeFailure::Expired } else { failure };
                self.at = ReconfigureStage::Checking(failure);
                Some(ReconfigureOutput::View(ReadConsistency::Stale))
            }
            (Err(failure), _) => self.fail(NotReconfigured::Failed(failure)),
        }
    }

    fn remove(&mut self, moment: InputContext, id: MemberId) -> NextOutput {
        if moment.lead == Some(id) {
            return self.hand_over(None, moment);
        }
        self.change(MembershipChange::Remove(id))
    }

    fn removed(&mut self) -> NextOutput {
        let Reconfiguration::Remove(id) = self.request else { return None };
        if id == self.me {
            return self.done_removing();
        }
        let key = directory::key(id);
        let delete = Command::Delete { key: &key, expect: Expect::Any, guard: None };
        self.at = ReconfigureStage::DeletingRecord;
        Some(ReconfigureOutput::Write(directory::encode(delete).into()))
    }

    /// Tells of the cluster without the removed member, as far as it is known.
    fn done_removing(&mut self) -> NextOutput {
        let Reconfiguration::Remove(id) = self.request else { return None };
        let mut cluster = self.before.take()?;
        let members = &mut cluster.members;
        members.voters.remove(&id);
        members.learners.remove(&id);
        members.retired.insert(id);
        self.done(Reconfigured::Removed(cluster))
    }

    fn hand_over(&mut self, to: Option<MemberId>, moment: InputContext) -> NextOutput {
        let hand_over = HandOver { to, before: moment.lead };
        self.at = ReconfigureStage::HandingOver(hand_over, HandOverStage::Viewing);
        Some(ReconfigureOutput::View(ReadConsistency::Linearizable))
    }

    fn transfer(
        &mut self,
        moment: InputContext,
        hand_over: HandOver,
        cluster: &ClusterView,
    ) -> NextOutput {
        let successor = match hand_over.to {
            None => successor(cluster, moment.lead),
            Some(id) if cluster.members.voters.contains(&id) => Some(id),
            Some(member) => return self.fail(NotReconfigured::NotFound { member }),
        };
        let Some(successor) = successor else { return self.fail(NotReconfigured::LastVoter) };
        if let Some(by) = hand_over.done(moment.lead) {
            return self.handed_over(by);
        }
        self.at = ReconfigureStage::HandingOver(hand_over, HandOverStage::Asked);
        Some(ReconfigureOutput::Admin(AdminRequest::Transfer(successor)))
    }

    /// The leader has answered a request to hand over.
    fn hand_over_answered(
        &mut self,
        moment: InputContext,
        hand_over: HandOver,
        result: Result<(), NodeFailure>,
    ) -> NextOutput {
        match result {
            Ok(()) => self.through = LeadsThrough::Request,
            Err(failure) if failure.effect() == Effect::None => {}
            Err(_) if self.through == LeadsThrough::Request => {}
            Err(_) => self.through = LeadsThrough::Unknown,
        }
        if let Some(by) = hand_over.done(moment.lead) {
            return self.handed_over(by);
        }
        if let Err(failure) = result {
            return self.fail(NotReconfigured::Failed(failure));
        }
        self.in_doubt |= matches!(self.request, Reconfiguration::Transfer(_));
        let until_us = moment.now_us.saturating_add(HANDED_OVER_US).min(self.deadline_us);
        self.at = ReconfigureStage::HandingOver(hand_over, HandOverStage::Awaiting { until_us });
        self.turn(moment)
    }

    fn handed_over(&mut self, by: MemberId) -> NextOutput {
        match self.request {
            Reconfiguration::Remove(id) => self.change(MembershipChange::Remove(id)),
            _ => self.done(Reconfigured::Leads { by, through: self.through }),
        }
    }

    fn left_us(&self, moment: InputContext) -> u64 {
        self.deadline_us.saturating_sub(moment.now_us)
    }

    fn done(&mut self, reached: Reconfigured) -> NextOutput {
        self.at = ReconfigureStage::Over;
        Some(ReconfigureOutput::Done(Ok(reached)))
    }

    fn fail(&mut self, why: NotReconfigured) -> NextOutput {
        self.at = ReconfigureStage::Over;
        let why = match why {
            NotReconfigured::Failed(_) if self.in_doubt => {
                NotReconfigured::Failed(NodeFailure::Unknown)
            }
            why => why,
        };
        Some(ReconfigureOutput::Done(Err(why)))
    }
}

/// The field of a new member's record that cannot stand in the directory.
fn not_a_word(record: &MemberRecord) -> Option<&'static str> {
    let names = &record.names;
    let fields = [
        ("name", &names.name),
        ("member_address", &names.members),
        ("client_address", &names.clients),
    ];
    fields.into_iter().find(|(_, word)| !directory::is_word(word)).map(|(field, _)| field)
}

/// Why a member cannot be added.
fn check_new(record: &MemberRecord, cluster: &ClusterView) -> Result<(), NotReconfigured> {
    let members = &cluster.members;
    if members.contains(record.id) {
        return Err(NotReconfigured::Exists { member: record.id.to_string() });
    }
    let name = &record.names.name;
    if cluster.directory.iter().any(|(id, names)| members.contains(*id) && names.name == *name) {
        return Err(NotReconfigured::Exists { member: name.clone() });
    }
    if members.retired.contains(&record.id) {
        return Err(NotReconfigured::Failed(NodeFailure::Rejected(RejectReason::Retired)));
    }
    Ok(())
}

/// The voter that may lead best: the one that has most, as far as that is known here.
fn successor(cluster: &ClusterView, leader: Option<MemberId>) -> Option<MemberId> {
    let others = cluster.members.voters.iter().copied().filter(|id| Some(*id) != leader);
    others.max_by_key(|id| (cluster.up.contains(id), cluster.status.matched.get(id).copied()))
}

#[cfg(test)]
mod tests;
