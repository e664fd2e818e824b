//! Sends every kind of peer message from strangers and removed members: N6.

use bytes::Bytes;
use tenure_core::codec::encode_request;
use tenure_core::outcome::{Answer, Outcome};
use tenure_core::request::{Command, Expect, Put, Request, RequestId};
use tenure_node::directory::{MemberNames, MemberRecord};
use tenure_node::{Input, Join, JoinId, LinkId, PeerMessage, PeerName, Principal, directory};
use tenure_raft::{AdminRequest, MemberId, MembershipChange};
use tenure_types::Revision;

use super::oracle::ensure;
use super::world::SimCluster;
use crate::invariant::CheckResult;

/// The principal of forged commands.
pub(super) const NAME: &str = "stranger";
/// The id of a process that never was a member.
const STRANGER: u64 = 0xdead;

/// Whether this gives a stranger's record to a member.
pub(super) fn takes_over(request: &Request<'_>) -> bool {
    matches!(&request.command, Command::Put(put)
        if put.key.starts_with(directory::PREFIX) && put.value.starts_with(NAME.as_bytes()))
}

/// Whether a stranger sent this request.
pub(super) fn is_forged(request: &Request<'_>) -> bool {
    let theirs = directory::key(stranger());
    let is_record = matches!(&request.command, Command::Put(put) if put.key == theirs);
    request.principal == NAME || is_record
}

pub(super) fn stranger() -> MemberId {
    MemberId::new(STRANGER).expect("it is positive")
}

fn put(principal: &str, key: &str) -> Bytes {
    let put = Put { key, value: b"a b c", lease: None, expect: Expect::Any, guard: None };
    let request = Request { principal, id: RequestId::None, command: Command::Put(put) };
    let mut bytes = Vec::new();
    encode_request(&request, &mut bytes);
    Bytes::from(bytes)
}

impl SimCluster {
    /// Sends a message from a non-member to a member, most often to the leader.
    pub(super) fn forge(&mut self, member: usize) {
        let leader = self.leader().filter(|_| self.rng.bool());
        let member = leader.unwrap_or(member);
        let Some(process) = &self.sim_members[member].process else { return };
        let members = process.replica().members();
        if members.voters.is_empty() {
            // This member still waits for the list of members, and has nothing that could be changed.
            return;
        }
        let retired: Vec<MemberId> =
            members.retired.iter().copied().filter(|id| self.at(*id).is_some()).collect();
        let removed = !retired.is_empty() && self.rng.bool();
        let from = if removed { retired[self.rng.usize(0..retired.len())] } else { stranger() };
        let number = self.rng.u64(1..50_000);
        let (kind, message) = match self.rng.u8(0..6) {
            0 | 1 => {
                let own = directory::key(stranger());
                let principal = Principal::member();
                let requests = vec![put(NAME, "forged"), put(principal.name(), &own)];
                let within_us = [None, Some(5_000_000)][self.rng.usize(0..2)];
                let message = PeerMessage::Commands { number, linger_us: 0, within_us, requests };
                ("forged_commands", message)
            }
            2 | 3 => {
                let changes = vec![MembershipChange::AddLearner(stranger())];
                let request = AdminRequest::Change(changes);
                let principal = Some(Principal::member().name().to_owned());
                ("forged_admin", PeerMessage::Admin { number, principal, request })
            }
            4 => {
                let outcome = Outcome { revision: Revision(1), result: Ok(Answer::Released) };
                let outcomes = vec![Ok(outcome)];
                ("forged_answers", PeerMessage::Answers { number, outcomes })
            }
            _ => ("forged_admin_answer", PeerMessage::AdminAnswer { number, result: Ok(()) }),
        };
        self.faults.count(kind);
        self.faults.count(if removed { "removed_member_frame" } else { "stranger_frame" });
        let boot = self.sim_members[member].boot;
        let bytes = Bytes::from(message.encode());
        let message = PeerMessage::decode(&bytes).expect("what is encoded reads back");
        self.give(member, boot, Input::Peer { from, link: LinkId::default(), message });
    }

    /// A stranger asks to join, as a new member and under the id of a voter.
    pub(super) fn forge_join(&mut self, member: usize) {
        self.forge_new_member(member);
        let boot = self.sim_members[member].boot;
        let voters: Vec<MemberId> = self.members.voters.iter().copied().collect();
        let id = voters[self.rng.usize(0..voters.len())];
        let names = MemberNames { name: NAME.into(), ..super::member::names(stranger()) };
        self.numbers += 1;
        let record = MemberRecord { id, names };
        let level = tenure_core::LEVEL_MAX;
        let lineage = Some(self.lineage.clone());
        let request = Join { record, level, lineage, invitation: None };
        let peer_name = match self.rng.u8(0..3) {
            0 => PeerName::Plain,
            _ => PeerName::Certified(vec![NAME.into()]),
        };
        self.faults.count("forged_join");
        self.give(
            member,
            boot,
            Input::Join { join: JoinId(self.numbers), request: Box::new(request), peer_name },
        );
    }

    /// N6: a stranger never becomes a member by its own word.
    pub(super) fn check_members(&self) -> CheckResult {
        ensure(!self.members.contains(stranger()), "N6", || {
            "a stranger has made itself a member".into()
        })?;
        self.check_invited()
    }
}
