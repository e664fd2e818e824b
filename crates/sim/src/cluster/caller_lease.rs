//! Keeps the lease of a caller without a session, and releases its locks, by single calls that any member takes.

use tenure_core::codec::encode_request;
use tenure_core::outcome::Answer;
use tenure_core::request::{Command, Hold, LeaseRef, NewLease, Request, RequestId};
use tenure_node::Outcomes;
use tenure_types::LeaseId;

use super::caller::{CallerHold, CallerLease};
use super::client::LOCKS;
use super::world::SimCluster;
use super::{MS, S};
use crate::invariant::CheckResult;

/// How long a caller waits for the answer to a single call.
const SINGLE_US: u64 = 2 * S;

/// A command of a caller that needs no session and does not wait.
pub(super) enum SingleCall {
    Grant { id: LeaseId, ttl_ms: u64, sent_us: u64 },
    Renew { id: LeaseId, sent_us: u64 },
    Release { id: LeaseId },
}

impl SimCluster {
    pub(super) fn grant_caller_lease(&mut self, caller: usize) {
        let id = LeaseId::new(self.rng.u64(1..1 << 40)).expect("positive and small");
        let ttl_ms = [3_000, 6_000, 12_000][self.rng.usize(0..3)];
        let new = NewLease { id, ttl_ms, client: "caller", metadata: b"" };
        let sent_us = self.now_us;
        let until_us = sent_us + SINGLE_US;
        let single = SingleCall::Grant { id, ttl_ms, sent_us };
        self.callers[caller].granting_until_us = until_us;
        self.single_call(caller, Command::GrantLease(new), single);
    }

    pub(super) fn renew_caller_lease(&mut self, caller: usize) {
        let now_us = self.now_us;
        let Some(lease) = &mut self.callers[caller].lease else { return };
        if now_us >= lease.renewed_us.max(lease.c0_us) + lease.ttl_ms * MS / 8 {
            lease.renewed_us = now_us;
            let (id, sent_us) = (lease.id, now_us);
            let command = Command::Renew(vec![LeaseRef::Id(id)]);
            self.single_call(caller, command, SingleCall::Renew { id, sent_us });
        }
    }

    /// Releases the lock. The caller has stopped its work before.
    pub(super) fn release_caller_lock(&mut self, caller: usize) {
        let until_us = self.now_us + SINGLE_US;
        let one = &mut self.callers[caller];
        let (Some(CallerHold { lock, token }), Some(lease)) = (one.hold.take(), &one.lease) else {
            return;
        };
        one.releasing_until_us = Some(until_us);
        let id = lease.id;
        self.oracle.calls.give_up(token.get());
        let hold = Hold { lease: LeaseRef::Id(id), lock: LOCKS[lock], token };
        self.single_call(caller, Command::Release(hold), SingleCall::Release { id });
    }

    fn single_call(&mut self, caller: usize, command: Command<'_>, single: SingleCall) {
        let member = self.draw_member();
        let boot = self.sim_members[member].boot;
        let deadline_us = self.sim_members[member].local_us(self.now_us) + S;
        let number = self.call(member, boot, 0, encode(RequestId::None, command), deadline_us);
        self.single_calls.insert(number, (caller, single));
    }

    /// A single call has its answer.
    pub(super) fn called(&mut self, number: u64, outcomes: &Outcomes) -> CheckResult {
        let Some((caller, single)) = self.single_calls.remove(&number) else { return Ok(()) };
        let Some(Ok(outcome)) = outcomes.first() else { return Ok(()) };
        if self.rng.u8(0..10) == 0 {
            return Ok(());
        }
        let one = &mut self.callers[caller];
        match (single, &outcome.result) {
            (SingleCall::Grant { id, ttl_ms, sent_us }, Ok(Answer::LeaseGranted(granted)))
                if one.lease.is_none() =>
            {
                let (handle, c0_us, renewed_us) = (granted.handle, sent_us, sent_us);
                let (clean, answered, gave_back) = (true, 0, false);
                let lease = CallerLease {
                    id,
                    handle,
                    ttl_ms,
                    c0_us,
                    renewed_us,
                    clean,
                    answered,
                    gave_back,
                };
                one.lease = Some(lease);
            }
            (SingleCall::Renew { id, sent_us }, Ok(Answer::Renewed(renewed))) => {
                let Some(lease) = one.lease.as_mut().filter(|lease| lease.id == id) else {
                    return Ok(());
                };
                match renewed.first() {
                    Some(Some(_)) => lease.c0_us = lease.c0_us.max(sent_us),
                    _ => one.drop_lease(),
                }
            }
            (SingleCall::Release { id }, Ok(_))
                if one.lease.as_ref().is_some_and(|lease| lease.id == id) =>
            {
                one.releasing_until_us = None;
                return self.check_nothing_left(caller);
            }
            _ => {}
        }
        Ok(())
    }
}

/// A request of a caller, in the form of the log.
pub(super) fn encode(id: RequestId<'_>, command: Command<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_request(&Request { principal: "", id, command }, &mut bytes);
    bytes
}
