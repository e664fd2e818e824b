//! Carries the question of a member without a leader whether it was removed, and checks N15: a member that was removed
//! and missed it finds out, and no other member takes itself for removed.

use tenure_node::{Control, Input, Join, JoinId, PeerName, directory};
use tenure_raft::MemberId;

use super::event::SimEvent;
use super::member::SimMember;
use super::oracle::ensure;
use super::world::SimCluster;
use super::{MS, S};
use crate::invariant::CheckResult;

/// How long a removed member of a calm cluster may take to find out: it waits for a leader, and then asks one member a
/// second, some of which are lost.
const REMOVED_US: u64 = 30 * S;

impl SimCluster {
    /// A member asks another one. The question may be lost, or late.
    pub(super) fn ask_standing(
        &mut self,
        member: usize,
        of: MemberId,
        address: String,
        question: &Control,
    ) -> CheckResult {
        let read = Control::decode(&question.encode());
        ensure(read.as_ref() == Some(question), "codec", || {
            format!("{question:?} does not read back")
        })?;
        let Control::Join(question) = question.clone() else { return Ok(()) };
        self.faults.count("standing_asked");
        if self.is_lost() {
            self.faults.count("standing_lost");
            return Ok(());
        }
        let late = !self.nemesis.healed && self.rng.u8(0..4) == 0;
        self.faults.count_by("standing_late", u64::from(late));
        let most_us = if late { 5 * S } else { 10 * MS };
        let at_us = self.now_us + self.rng.u64(MS..most_us);
        let boot = self.sim_members[member].boot;
        self.queue.push(at_us, SimEvent::AskStanding { member, boot, of, address, question });
        Ok(())
    }

    /// The question arrives, if a member lives at the address.
    pub(super) fn standing_asked(
        &mut self,
        member: usize,
        boot: u64,
        of: MemberId,
        address: &str,
        asked: Join,
    ) {
        let mut to = self.sim_members.iter().position(|it| it.names.members == address);
        if self.is_survivor(member) && self.rng.bool() {
            // The restored cluster lives at the addresses of the former one.
            to = Some(self.draw_member());
        }
        let Some(to) = to.filter(|to| self.reaches(member, *to)) else { return };
        self.numbers += 1;
        let join = JoinId(self.numbers);
        self.standings.insert(join.0, (member, boot, of));
        let (boot, request, peer_name) = (self.sim_members[to].boot, asked, PeerName::Plain);
        self.give(to, boot, Input::Join { join, request: Box::new(request), peer_name });
    }

    /// A member answers such a question. The answer may be lost, or come from something else at that address.
    pub(super) fn handle_standing_answer(
        &mut self,
        from: usize,
        member: usize,
        boot: u64,
        of: MemberId,
        mut answer: Control,
    ) -> CheckResult {
        let read = Control::decode(&answer.encode());
        ensure(read.as_ref() == Some(&answer), "codec", || {
            format!("{answer:?} does not read back")
        })?;
        self.trace(|| format!("{member} asks {from} about its standing: {answer:?}"));
        if self.sim_members[from].lineage != self.sim_members[member].lineage {
            self.check_survivor_answer(member, &answer)?;
        }
        if !self.reaches(from, member) || self.is_lost() {
            self.faults.count("standing_lost");
            return Ok(());
        }
        if !self.nemesis.healed && self.rng.u8(0..4) == 0 {
            self.faults.count("standing_wrong");
            answer =
                [Control::Who, Control::Refused("not here".into())][self.rng.usize(0..2)].clone();
        }
        self.faults.count_by("standing_retired", u64::from(answer == Control::Retired));
        self.give(member, boot, Input::StandingAnswer { from: of, answer: Box::new(answer) });
        Ok(())
    }

    fn is_lost(&mut self) -> bool {
        !self.nemesis.healed && self.rng.u8(0..4) == 0
    }

    /// N15: in a calm cluster every removed member soon knows that it was removed, if it knows whom to ask.
    pub(super) fn await_removed(&mut self) -> CheckResult {
        let limit_us = self.now_us + REMOVED_US;
        loop {
            let Some(member) = self.sim_members.iter().find(|member| self.misses_removal(member))
            else {
                return Ok(());
            };
            let id = member.id;
            ensure(self.now_us < limit_us, "N15", || {
                format!("member {id} was removed and serves; {}", self.describe())
            })?;
            self.run_until(self.now_us + S)?;
        }
    }

    /// Whether a member was removed and does not know it, although a member that it could ask does.
    fn misses_removal(&self, member: &SimMember) -> bool {
        let Some(process) = &member.process else { return false };
        let mut asks = directory::read(process.node.machine());
        if asks.is_empty() {
            asks.extend(member.given.iter().map(|record| (record.id, record.names.clone())));
        }
        let knows = |other: &SimMember| {
            other.process.as_ref().is_some_and(|process| {
                let members = process.replica().members();
                members.contains(other.id) && members.retired.contains(&member.id)
            })
        };
        let listens = |address: &String| {
            self.sim_members.iter().find(|it| it.names.members == *address).is_some_and(knows)
        };
        if process.replica().is_retired() {
            // It knows, and votes until a majority of those that stay knows it too.
            let voters = &process.replica().members().voters;
            let address = |id: &MemberId| asks.get(id).is_some_and(|names| listens(&names.members));
            return voters.iter().filter(|id| address(id)).count() > voters.len() / 2;
        }
        self.members.retired.contains(&member.id)
            && asks.iter().any(|(id, names)| *id != member.id && listens(&names.members))
    }
}
