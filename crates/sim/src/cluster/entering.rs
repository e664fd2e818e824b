//! Brings new members in as a member does that was told where others live: it asks to be added until the leader has
//! (N10).

use tenure_node::directory::MemberNames;
use tenure_node::{
    Control, Input, InvitationToken, Join, JoinError, JoinId, Joined, Joining, MemberInfo, PeerName,
};

use super::event::SimEvent;
use super::oracle::ensure;
use super::strangers::{NAME, stranger};
use super::world::SimCluster;
use super::{MS, S};
use crate::invariant::CheckResult;

/// How long a connection waits for its answer: longer than a leader takes to say that the cluster has not agreed in
/// time.
const ANSWER_WAIT_US: u64 = 10 * S;
/// Before a member that was rejected is started again.
const REJECTED_PAUSE_US: u64 = 5 * S;

impl SimCluster {
    /// A member with an empty disk begins to ask.
    pub(super) fn join(&mut self) -> CheckResult {
        let member = self.new_member();
        self.faults.count("join");
        self.sim_members[member].joins = true;
        if self.share_invitation(member) { Ok(()) } else { self.invite(member) }
    }

    /// A member begins to ask with an invitation, at this time.
    pub(super) fn ask_to_enter(&mut self, member: usize, invitation: InvitationToken, at_us: u64) {
        let members = self.members.all();
        let known = members.into_iter().filter_map(|id| Some(&self.sim_members[self.at(id)?]));
        // Once everything has healed, the operator looks which members live before it names some of them.
        let (live, others): (Vec<_>, Vec<_>) =
            known.partition(|member| !self.nemesis.healed || member.is_up());
        let named = if live.is_empty() { others } else { live };
        let mut seeds: Vec<String> =
            named.iter().map(|member| member.names.members.clone()).collect();
        self.rng.shuffle(&mut seeds);
        seeds.truncate(self.rng.usize(1..=3));
        let target = &mut self.sim_members[member];
        let (record, level) = (target.record(), target.level_known());
        let join = Join { record, level, lineage: None, invitation: Some(invitation) };
        target.entering = Some(Joining::new(seeds, join));
        self.queue.push(at_us, SimEvent::Enter { member });
    }

    /// The member does its next step.
    pub(super) fn enter(&mut self, member: usize) -> CheckResult {
        let Some(entering) = &mut self.sim_members[member].entering else { return Ok(()) };
        let ask = entering.turn(self.now_us);
        let (request, wake_us) = (entering.request(), entering.wake_us());
        if let Some(ended) = entering.ended().cloned() {
            return self.entered(member, ended);
        }
        let Some(ask) = ask else {
            if wake_us != u64::MAX {
                self.queue.push(wake_us.max(self.now_us + 1), SimEvent::Enter { member });
            }
            return Ok(());
        };
        let bytes = request.encode();
        ensure(Control::decode(&bytes).as_ref() == Some(&request), "codec", || {
            format!("{request:?} does not read back")
        })?;
        let Control::Join(request) = request else { return Ok(()) };
        self.numbers += 1;
        let number = self.numbers;
        self.sim_members[member].asked = Some(number);
        let to = self.sim_members.iter().position(|it| it.names.members == ask.address);
        let Some(to) = to.filter(|to| self.reaches(member, *to)) else {
            let answer = Err("connection refused".to_owned());
            let at_us = self.now_us + 5 * MS;
            self.queue.push(at_us, SimEvent::Answered { member, number, answer });
            return Ok(());
        };
        let boot = self.sim_members[to].boot;
        self.joins.insert(number, member);
        let (join, peer_name) = (JoinId(number), PeerName::Plain);
        self.give(to, boot, Input::Join { join, request: Box::new(request), peer_name });
        let answer = Err("timed out".to_owned());
        self.queue
            .push(self.now_us + ANSWER_WAIT_US, SimEvent::Answered { member, number, answer });
        Ok(())
    }

    pub(super) fn reaches(&self, from: usize, to: usize) -> bool {
        let target = &self.sim_members[to];
        let cut = self.network.is_cut(from, to) || self.network.is_cut(to, from);
        target.is_up() && target.paused_until_us <= self.now_us && !cut
    }

    /// A member answers a request to join, of a new member or of a stranger.
    pub(super) fn handle_join_answer(
        &mut self,
        from: usize,
        join: JoinId,
        answer: Control,
    ) -> CheckResult {
        if let Some(member) = self.survivor_joins.remove(&join.0) {
            return self.check_survivor_answer(member, &answer);
        }
        if let Some((member, boot, of)) = self.standings.remove(&join.0) {
            return self.handle_standing_answer(from, member, boot, of, answer);
        }
        let Some(member) = self.joins.remove(&join.0) else {
            self.faults.count("join_answered");
            return Ok(());
        };
        let read = Control::decode(&answer.encode());
        ensure(read.as_ref() == Some(&answer), "codec", || {
            format!("{answer:?} does not read back")
        })?;
        let cut = self.network.is_cut(from, member) || self.network.is_cut(member, from);
        if cut || self.rng.u64(0..1000) < self.network.weather.drop {
            // The cluster may have agreed. The member asks again when its connection gives up.
            self.faults.count("join_answer_lost");
            return Ok(());
        }
        let at_us = self.now_us + self.network.delay_us(&mut self.rng);
        self.queue.push(at_us, SimEvent::Answered { member, number: join.0, answer: Ok(answer) });
        Ok(())
    }

    /// The member that asked has an answer, or will have none.
    pub(super) fn answered(&mut self, member: usize, number: u64, answer: Result<Control, String>) {
        if self.sim_members[member].asked.take_if(|asked| *asked == number).is_none() {
            return;
        }
        self.trace(|| format!("{member} wants to join and hears {answer:?}"));
        if let Some(entering) = &mut self.sim_members[member].entering {
            entering.handle(answer);
            self.queue.push(self.now_us, SimEvent::Enter { member });
        }
    }

    /// The leader calls a member back at the address that it gives.
    pub(super) fn call_back(&mut self, member: usize, join: JoinId, names: &MemberNames) {
        let joiner =
            self.joins.get(&join.0).copied().filter(|at| self.sim_members[*at].names == *names);
        let cut = |at: &usize| self.network.is_cut(member, *at) || self.network.is_cut(*at, member);
        let answer = match joiner.filter(|at| !cut(at)) {
            Some(at) => {
                let level = self.sim_members[at].level_known();
                Ok(Control::MemberInfo(MemberInfo::new(
                    self.sim_members[at].id,
                    names.clone(),
                    level,
                )))
            }
            // A stranger that uses the id of a member is not where its record says.
            None if names.name == NAME => Ok(Control::MemberInfo(MemberInfo::new(
                stranger(),
                names.clone(),
                tenure_core::LEVEL_MAX,
            ))),
            None => Err(format!("{} does not answer", names.members)),
        };
        let boot = self.sim_members[member].boot;
        self.give(member, boot, Input::CalledBack { join, answer: answer.map(Box::new) });
    }

    fn entered(&mut self, member: usize, ended: Result<Joined, JoinError>) -> CheckResult {
        self.sim_members[member].entering = None;
        match ended {
            Ok(Joined { lineage, directory }) => {
                ensure(lineage == self.lineage, "N10", || {
                    format!("{member} has joined {lineage:?}, another cluster")
                })?;
                self.faults.count("joined");
                self.sim_members[member].given = directory;
                self.sim_members[member].lineage = lineage;
                self.queue.push(self.now_us, SimEvent::Start { member });
            }
            Err(JoinError::Rejected { .. }) => {
                // The operator repairs something, and starts it again.
                self.faults.count("join_rejected");
                let invitation = self.invitations.iter().rev().find(|it| it.member == member);
                let Some(token) = invitation.map(|it| it.token.clone()) else {
                    return self.invite(member);
                };
                self.ask_to_enter(member, token, self.now_us + REJECTED_PAUSE_US);
            }
            Err(JoinError::Unreachable { .. }) => {
                self.faults.count("join_given_up");
                return self.invite(member);
            }
            Err(JoinError::Uninvited { .. }) => {
                self.faults.count("join_uninvited");
                return self.invite(member);
            }
            Err(JoinError::Retired) => {
                // It was added and removed again before it heard of it.
                self.sim_members[member].dead = true;
            }
        }
        Ok(())
    }
}
