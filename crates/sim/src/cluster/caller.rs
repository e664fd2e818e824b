//! Decides what callers without a session do: ask for a lock in one call, go away, repeat the call with the same key at
//! any member, hold and release. Checks N11 from their side.
//!
//! A caller believes only replies that reach it. It keeps its lease by single calls and stops before the lease can end.

use std::collections::BTreeSet;

use bytes::Bytes;
use tenure_core::outcome::{Answer, Outcome};
use tenure_core::request::{
    Acquire, Ask, AskLease, AskWait, Asks, Command, LeaseRef, Purpose, RequestId,
};
use tenure_node::{AcquireTerms, Effect, NodeFailure, PlaceFate, SessionId};
use tenure_types::{Handle, LeaseId, Mode, Token};

use super::call::{CallInput, CallRequest};
use super::caller_lease::encode;
use super::client::LOCKS;
use super::event::SimEvent;
use super::oracle::ensure;
use super::world::SimCluster;
use super::{MS, S};
use crate::invariant::CheckResult;

/// The beginning of every key of a caller.
pub(super) const KEY: &str = "call-";

/// A caller, and what it believes.
#[derive(Default)]
pub(super) struct SimCaller {
    pub(super) lease: Option<CallerLease>,
    /// The time before which it does not ask for a lease again.
    pub(super) granting_until_us: u64,
    want: Option<Want>,
    pub(super) hold: Option<CallerHold>,
    /// The time by which its release must be answered.
    pub(super) releasing_until_us: Option<u64>,
    /// Its calls that members have not ended.
    open: BTreeSet<SessionId>,
    /// Replies on their way to it.
    replies: BTreeSet<SessionId>,
}

pub(super) struct CallerLease {
    pub(super) id: LeaseId,
    pub(super) handle: Handle,
    pub(super) ttl_ms: u64,
    /// Just before the newest acknowledged renewal was sent.
    pub(super) c0_us: u64,
    pub(super) renewed_us: u64,
    /// Whether the answer to everything that was asked for it is known, and every give-back was applied.
    pub(super) clean: bool,
    /// Acquires that were answered with a grant or a place.
    pub(super) answered: u64,
    /// Whether an acquire was taken back since it was last found to hold nothing.
    pub(super) gave_back: bool,
}

/// A lock that it wants, under one key.
struct Want {
    lock: usize,
    key: String,
    request: Bytes,
    call: Option<CallUnderWay>,
    tries: u32,
}

struct CallUnderWay {
    call: SessionId,
    member: usize,
    boot: u64,
    /// When the request reaches the member, and when the caller gives it up.
    arrives_us: u64,
    until_us: u64,
}

#[derive(Clone, Copy)]
pub(super) struct CallerHold {
    pub(super) lock: usize,
    pub(super) token: Token,
}

impl SimCaller {
    /// Something about its lease will stay unknown.
    pub(super) fn spoil(&mut self) {
        if let Some(lease) = &mut self.lease {
            lease.clean = false;
        }
    }

    /// A call ended with the process of its member.
    pub(super) fn lose(&mut self, call: SessionId) {
        self.spoil();
        self.open.remove(&call);
    }

    /// Whether it may act on this lock.
    pub(super) fn acts_on(&self, lock: usize, now_us: u64) -> bool {
        self.is_valid(now_us) && self.hold.is_some_and(|held| held.lock == lock)
    }

    fn is_valid(&self, now_us: u64) -> bool {
        self.lease.as_ref().is_some_and(|lease| now_us < lease.c0_us + lease.ttl_ms * MS / 2)
    }

    /// Lets its lease end by itself.
    pub(super) fn drop_lease(&mut self) {
        (self.lease, self.hold, self.releasing_until_us) = (None, None, None);
    }
}

impl SimCluster {
    pub(super) fn step_caller(&mut self, caller: usize) -> CheckResult {
        let next_us = self.now_us + self.rng.u64(30..250) * MS;
        self.queue.push(next_us, SimEvent::Caller { caller });
        let now_us = self.now_us;
        let one = &mut self.callers[caller];
        if one.lease.is_some() && !one.is_valid(now_us) {
            one.drop_lease();
            self.leave_call(caller);
            self.callers[caller].want = None;
        }
        let one = &mut self.callers[caller];
        if one.lease.is_none() {
            if one.granting_until_us <= now_us {
                self.grant_caller_lease(caller);
            }
            return Ok(());
        }
        self.renew_caller_lease(caller);
        let one = &mut self.callers[caller];
        if let Some(until_us) = one.releasing_until_us {
            if until_us <= now_us {
                // The release may still come true: what is granted meanwhile could be freed by it.
                one.drop_lease();
            }
            return Ok(());
        }
        if one.hold.is_some() {
            if self.rng.u8(0..3) == 0 {
                self.release_caller_lock(caller);
            }
            return Ok(());
        }
        self.choose_next_want(caller);
        Ok(())
    }

    /// The caller goes on with what it wants, wants something else, or nothing for now.
    fn choose_next_want(&mut self, caller: usize) {
        let now_us = self.now_us;
        let one = &mut self.callers[caller];
        if let Some(under_way) = one.want.as_ref().and_then(|want| want.call.as_ref()) {
            if under_way.until_us > now_us && self.rng.u8(0..8) > 0 {
                return;
            }
            self.leave_call(caller);
        }
        let again = self.rng.u8(0..3) > 0;
        let one = &mut self.callers[caller];
        match &one.want {
            Some(_) if again => {
                self.faults.count("call_retried");
                return self.send_call(caller);
            }
            Some(_) => one.want = None,
            None => {}
        }
        let clean = one.lease.as_ref().is_some_and(|lease| lease.clean);
        let busy = !one.open.is_empty() || self.gives_back(caller);
        if !clean && self.rng.bool() {
            self.callers[caller].drop_lease();
        } else if !busy || self.rng.u8(0..4) == 0 {
            self.new_want(caller);
            self.send_call(caller);
        }
    }

    fn gives_back(&self, caller: usize) -> bool {
        self.give_backs.values().any(|it| it.caller == caller)
    }

    fn new_want(&mut self, caller: usize) {
        let Some(lease) = &self.callers[caller].lease else { return };
        self.numbers += 1;
        let key = format!("{KEY}{}", self.numbers);
        let lock = self.rng.usize(0..LOCKS.len());
        let wait = match self.rng.u8(0..4) {
            0 => AskWait::No,
            1 => AskWait::Limit { ms: self.rng.u64(200..4_000) },
            _ => AskWait::Unlimited,
        };
        let acquire = Acquire {
            lease: AskLease::Existing(LeaseRef::Id(lease.id)),
            locks: Asks::One(Ask { lock: LOCKS[lock], mode: Mode::Exclusive }),
            any: false,
            wait,
            metadata: b"",
            lock_delay_ms: 0,
            max_hold_ms: None,
            min_hold_ms: 0,
            progress_within_ms: 0,
            supersede: None,
            resume: false,
            priority: self.urgency(caller),
            purpose: Purpose::Lock,
            independent: false,
        };
        let request = encode(RequestId::Key(&key), Command::Acquire(acquire)).into();
        self.callers[caller].want = Some(Want { lock, key, request, call: None, tries: 0 });
    }

    /// Sends the call for the wanted lock to any member.
    fn send_call(&mut self, caller: usize) {
        let member = self.draw_member();
        let delay_us = self.network.delay_us(&mut self.rng);
        let place = if self.rng.u8(0..10) == 0 { PlaceFate::Kept } else { PlaceFate::GivenUp };
        let within_us = [50 * MS, S, 5 * S][self.rng.usize(0..3)];
        let wait_us = self.rng.u64(0..3_000) * MS;
        let linger_us = self.rng.u64(20..3_000) * MS;
        let one = &mut self.callers[caller];
        let Some(want) = &mut one.want else { return };
        self.sessions_made += 1;
        let (call, boot) = (SessionId(self.sessions_made), self.sim_members[member].boot);
        want.tries += 1;
        let until_us = self.now_us + linger_us;
        let arrives_us = self.now_us + delay_us;
        want.call = Some(CallUnderWay { call, member, boot, arrives_us, until_us });
        let terms = AcquireTerms { within_us, wait_us, place };
        let (key, request) = (want.key.clone(), want.request.clone());
        if place == PlaceFate::Kept {
            one.spoil();
        }
        let one = &mut self.callers[caller];
        one.open.insert(call);
        self.faults.count("call");
        let input = CallInput::Begin(CallRequest { caller, key, request, terms });
        self.queue.push(arrives_us, SimEvent::Call { member, boot, call, input });
    }

    /// The caller closes the connection of its call. Its member notices sooner or later.
    fn leave_call(&mut self, caller: usize) {
        let under_way = self.callers[caller].want.as_mut().and_then(|want| want.call.take());
        let Some(CallUnderWay { call, member, boot, arrives_us, .. }) = under_way else { return };
        self.faults.count("call_abandoned");
        let most_us = if self.rng.bool() { 20 * MS } else { 3 * S };
        // The end of a connection follows what was sent on it.
        let at_us = self.now_us.max(arrives_us) + self.rng.u64(1..most_us);
        let input = CallInput::CallerGone;
        self.queue.push(at_us, SimEvent::Call { member, boot, call, input });
    }

    /// The ask of a call has an answer at its member.
    pub(super) fn handle_call_answer(
        &mut self,
        caller: usize,
        answer: &Result<Outcome, NodeFailure>,
    ) {
        let one = &mut self.callers[caller];
        let handle = match answer {
            Ok(Outcome { result: Ok(Answer::Acquired(it)), .. }) => it.lease.handle,
            Ok(Outcome { result: Ok(Answer::Queued(it)), .. }) => it.lease.handle,
            Ok(_) => return,
            Err(failure) if failure.effect() == Effect::None => return,
            Err(_) => return one.spoil(),
        };
        if let Some(lease) = one.lease.as_mut().filter(|lease| lease.handle == handle) {
            lease.answered += 1;
        }
    }

    /// The member has nothing to do any more for a call.
    pub(super) fn handle_call_end(&mut self, caller: usize, call: SessionId) -> CheckResult {
        self.callers[caller].open.remove(&call);
        self.check_nothing_left(caller)
    }

    /// The caller finds that the connection of its call has ended without a reply.
    pub(super) fn handle_connection_loss(&mut self, caller: usize, call: SessionId) {
        if let Some(want) = &mut self.callers[caller].want {
            want.call.take_if(|under_way| under_way.call == call);
        }
    }

    /// A reply leaves the member, which takes it for told.
    pub(super) fn reply_to_caller(
        &mut self,
        caller: usize,
        call: SessionId,
        reply: Result<Outcome, NodeFailure>,
    ) {
        if matches!(&reply, Err(failure) if failure.effect() == Effect::Unknown) {
            // The caller is told that a place or a grant may be left. It repeats its call, or its lease frees it.
            self.callers[caller].spoil();
        }
        if self.rng.u8(0..10) == 0 {
            // The lease frees what the caller never hears of, unless it repeats its call.
            self.faults.count("call_reply_lost");
            self.callers[caller].spoil();
            return;
        }
        self.callers[caller].replies.insert(call);
        let at_us = self.now_us + self.network.delay_us(&mut self.rng);
        self.queue.push(at_us, SimEvent::CallReply { caller, call, reply });
    }

    /// A reply reaches its caller.
    pub(super) fn handle_caller_reply(
        &mut self,
        caller: usize,
        call: SessionId,
        reply: Result<Outcome, NodeFailure>,
    ) -> CheckResult {
        self.trace(|| format!("caller {caller} hears {reply:?}"));
        let now_us = self.now_us;
        let one = &mut self.callers[caller];
        one.replies.remove(&call);
        let valid = one.is_valid(now_us);
        let handle = one.lease.as_ref().map(|lease| lease.handle);
        let waits = |want: &mut Want| want.call.as_ref().is_some_and(|it| it.call == call);
        let waited = one.want.as_mut().is_some_and(waits);
        match reply {
            Ok(Outcome { result: Ok(Answer::Acquired(acquired)), .. }) => {
                let mine = handle == Some(acquired.lease.handle);
                let grant = acquired.grants.as_slice().first();
                let want = one.want.take_if(|_| waited && mine && valid);
                if let (Some(want), Some(grant)) = (want, grant) {
                    let (lock, token) = (want.lock, grant.token);
                    one.hold = Some(CallerHold { lock, token });
                    self.faults.count("call_told");
                    self.faults.count_by("call_told_a_retry", u64::from(want.tries > 1));
                    self.oracle.calls.tell(token.get())?;
                    return self.check_callers(caller, lock);
                }
                one.spoil();
            }
            Ok(Outcome { result: Ok(_), .. }) => {
                one.spoil();
                one.want.take_if(|_| waited);
            }
            Ok(Outcome { result: Err(_), .. }) | Err(_) => {
                one.want.iter_mut().filter(|_| waited).for_each(|want| want.call = None);
            }
        }
        self.check_nothing_left(caller)
    }

    /// An acquire of this caller was taken back: from now on it is worth looking whether anything is left.
    pub(super) fn note_given_back(&mut self, caller: usize) {
        if let Some(lease) = &mut self.callers[caller].lease {
            lease.gave_back = true;
        }
    }

    /// N11: when every call is over and everything abandoned was taken back, the caller's lease holds and waits for
    /// nothing that the caller was not told of.
    pub(super) fn check_nothing_left(&mut self, caller: usize) -> CheckResult {
        let gives_back = self.gives_back(caller);
        let one = &mut self.callers[caller];
        let quiet = one.open.is_empty()
            && one.replies.is_empty()
            && one.hold.is_none()
            && one.releasing_until_us.is_none()
            && !gives_back;
        let Some(lease) = one.lease.as_mut().filter(|lease| quiet && lease.clean) else {
            return Ok(());
        };
        // A member that repeats an ask for a lost leader may have it counted twice: the lease frees that.
        if !self.oracle.calls.has_counted(lease.id, lease.answered) {
            return Ok(());
        }
        if std::mem::take(&mut lease.gave_back) {
            self.faults.count("call_left_nothing");
        }
        let (id, Some(view)) = (lease.id, self.oracle.lease(lease.id)) else { return Ok(()) };
        ensure(view.holds.is_empty() && view.waits.is_empty(), "N11", || {
            let (holds, waits) = (&view.holds, &view.waits);
            format!("lease {id} of caller {caller} is left with {holds:?} and {waits:?}")
        })
    }

    /// S1, in real time: no other client or caller may act on the lock that this one was told of.
    fn check_callers(&self, caller: usize, lock: usize) -> CheckResult {
        let now_us = self.now_us;
        let client = self.clients.iter().position(|one| one.acts_on(lock, now_us));
        let others = || self.callers.iter().enumerate().filter(|(other, _)| *other != caller);
        let other = others().find(|(_, one)| one.acts_on(lock, now_us));
        ensure(client.is_none() && other.is_none(), "S1", || {
            let (other, lock) = (other.map(|(other, _)| other), LOCKS[lock]);
            format!("caller {caller} acts on {lock}, so do client {client:?} or caller {other:?}")
        })
    }
}
