//! Decides what clients do next: connect, ask, repeat, renew, release, read.

use bytes::Bytes;
use tenure_core::codec::encode_request;
use tenure_core::outcome::Grants;
use tenure_core::request::{
    Acquire, Ask, AskLease, AskWait, Asks, Command, Expect, Hold, LEVEL_PRIORITY, LeaseRef,
    NewLease, Purpose, Put, Request, RequestId, Urgency,
};
use tenure_node::{ReadConsistency, SessionId};
use tenure_types::{LeaseId, Mode};

use super::ask_history::Repeats;
use super::client::{ClientAttempt, ClientOp, LOCKS, Op, SimSession};
use super::event::SimEvent;
use super::packet::{ClientMessage, ClientStream};
use super::session_task::ClientRequest;
use super::world::SimCluster;
use super::{MS, S};
use crate::invariant::CheckResult;

/// The least time that a client allows for its commands.
const TRY_US: u64 = 500 * MS;

impl SimCluster {
    pub(super) fn step_client(&mut self, client: usize) -> CheckResult {
        let think_us = self.rng.u64(20..300) * MS;
        let one = &mut self.clients[client];
        let next_us = (self.now_us + think_us).max(one.asleep_until_us);
        self.queue.push(next_us, SimEvent::Client { client });
        if one.asleep_until_us > self.now_us {
            return Ok(());
        }
        if one.lease.is_some() && !one.is_valid(self.now_us) {
            // The lease is lost for ever: a later answer does not revive it.
            one.forget_lease();
            self.faults.count("lease_lost");
        }
        self.give_up(client);
        if self.clients[client].session.is_none() {
            self.connect(client);
        }
        if self.clients[client].session.is_none() {
            return Ok(());
        }
        self.read(client);
        let mut ops = std::mem::take(&mut self.clients[client].again);
        self.want(client, &mut ops);
        if self.rng.u8(0..25) == 0 {
            self.double(client, &mut ops);
        }
        while !ops.is_empty() {
            let part = self.rng.usize(1..=ops.len());
            let later = ops.split_off(part);
            self.launch(client, ops);
            ops = later;
        }
        Ok(())
    }

    /// Gives up requests that were not answered in time, and sometimes the session with them.
    fn give_up(&mut self, client: usize) {
        let now_us = self.now_us;
        let one = &mut self.clients[client];
        one.reading.take_if(|(_, until_us)| *until_us <= now_us);
        let mut ops = Vec::new();
        for attempt in one.attempts.values_mut() {
            if attempt.given_up_at_us <= now_us && !attempt.given_up {
                attempt.given_up = true;
                ops.push(attempt.op.clone());
            }
        }
        if ops.is_empty() {
            return;
        }
        ops.into_iter().for_each(|op| self.handle_failure(client, op));
        if self.rng.bool() {
            self.cut_session(client);
        }
    }

    /// A client has no session any more: answers to what it has sent are lost.
    pub(super) fn cut_session(&mut self, client: usize) {
        let one = &mut self.clients[client];
        let Some(session) = one.session.take() else { return };
        self.faults.count("session_cut");
        let attempts = std::mem::take(&mut one.attempts);
        let ops = attempts.into_values().filter(|attempt| !attempt.given_up);
        let ops: Vec<Op> = ops.map(|attempt| attempt.op).collect();
        one.reading = None;
        ops.into_iter().for_each(|op| self.handle_failure(client, op));
        // The member may notice late, or not before the client is back.
        let late_us = if self.rng.bool() { self.rng.u64(MS..S) } else { self.rng.u64(0..10 * S) };
        let (stream, said) = (session.stream, ClientMessage::Close);
        self.queue.push(self.now_us + late_us, SimEvent::Said { stream, said });
    }

    /// Ends the sessions at a member that has ended; each client notices sooner or later.
    pub(super) fn end_sessions_at(&mut self, member: usize) {
        for client in 0..self.clients.len() {
            let session = self.clients[client].session.as_ref();
            let Some(stream) = session.map(|it| it.stream).filter(|it| it.member == member) else {
                continue;
            };
            let late_us = if self.rng.bool() { MS } else { self.rng.u64(0..2 * S) };
            self.queue.push(self.now_us + late_us, SimEvent::Cut { stream });
        }
    }

    pub(super) fn handle_session_loss(&mut self, stream: ClientStream) {
        let session = self.clients[stream.client].session.as_ref();
        if session.is_some_and(|session| session.stream == stream) {
            self.cut_session(stream.client);
        }
    }

    /// Opens a session at any member, and asks again for the place in the queue.
    fn connect(&mut self, client: usize) {
        let member = self.draw_member();
        if !self.sim_members[member].is_up() {
            return;
        }
        self.sessions_made += 1;
        let id = SessionId(self.sessions_made);
        let stream = ClientStream { id, client, member, boot: self.sim_members[member].boot };
        let one = &mut self.clients[client];
        one.session = Some(SimSession::new(stream));
        let (lease, waiting) = (one.lease, one.waiting.clone());
        if let Some(waiting) = &waiting {
            one.again.retain(|op| op.ask != waiting.op.ask);
        }
        self.send_to_member(client, ClientMessage::Open);
        // A lease that the hello does not name is attached by its next renewal.
        let named = lease.filter(|_| self.rng.u8(0..4) > 0);
        let leases = named.iter().map(|lease| lease.handle).collect();
        self.send_to_member(client, ClientMessage::Hello { leases });
        if let Some(waiting) = waiting {
            self.faults.count("asked_again");
            self.launch(client, vec![waiting.op]);
        }
    }

    fn send_to_member(&mut self, client: usize, said: ClientMessage) {
        let delay_us = self.network.delay_us(&mut self.rng);
        let Some(session) = &mut self.clients[client].session else { return };
        if session.mute {
            return;
        }
        // A session is a stream: messages arrive in the order in which they were sent.
        session.newest_said_us = session.newest_said_us.max(self.now_us + delay_us);
        let stream = session.stream;
        self.queue.push(session.newest_said_us, SimEvent::Said { stream, said });
    }

    fn read(&mut self, client: usize) {
        let one = &self.clients[client];
        if one.reading.is_some() || self.rng.bool() {
            return;
        }
        let fresh = match self.rng.u8(0..8) {
            0 => ReadConsistency::Stale,
            1 | 2 => ReadConsistency::AtLeast(one.revision),
            _ => ReadConsistency::Linearizable,
        };
        let within_us = self.within_us();
        self.numbers += 1;
        let read = self.numbers;
        self.clients[client].reading = Some((read, self.now_us + within_us.min(S) + TRY_US));
        self.send_to_member(client, ClientMessage::Read { read, fresh, within_us });
    }

    pub(super) fn handle_read_end(&mut self, client: usize, read: u64) {
        self.clients[client].reading.take_if(|(number, _)| *number == read);
    }

    /// How long a caller waits: anything from far too short to far too long.
    fn within_us(&mut self) -> u64 {
        match self.rng.u8(0..10) {
            0 => self.rng.u64(0..2 * MS),
            1 => self.rng.u64(2 * MS..100 * MS),
            2..=4 => self.rng.u64(100 * MS..S),
            5..=8 => self.rng.u64(S..5 * S),
            _ => 30 * S,
        }
    }

    /// Adds what the client wants to do now.
    fn want(&mut self, client: usize, ops: &mut Vec<Op>) {
        let one = &self.clients[client];
        let local_us = one.local_us(self.now_us);
        let writes = self.rng.u8(0..3);
        for _ in 0..writes.saturating_sub(1) {
            ops.push(self.put(client));
        }
        let one = &self.clients[client];
        let Some(lease) = one.lease else {
            if one.asking.is_none() {
                let id = LeaseId::new(self.rng.u64(1..1 << 40)).expect("positive and small");
                let ttl_ms = one.ttl_ms;
                let new = NewLease { id, ttl_ms, client: "client", metadata: b"" };
                let op = self.op(ClientOp::Grant(id), Command::GrantLease(new), Id::None, client);
                self.clients[client].asking = Some(op.ask);
                ops.push(op);
            }
            return;
        };
        if one.renewing.is_none() && local_us >= lease.c0_us + one.ttl_ms * MS / 3 {
            let named = [LeaseRef::Id(lease.id), LeaseRef::Handle(lease.handle)];
            let command = Command::Renew(vec![named[self.rng.usize(0..2)]]);
            let op = self.op(ClientOp::Renew(lease.id), command, Id::None, client);
            self.clients[client].renewing = Some(op.ask);
            ops.push(op);
        }
        let one = &self.clients[client];
        if one.asking.is_some() || one.waiting.is_some() {
            return;
        }
        match (self.rng.u8(0..20), one.hold) {
            (0, Some(_)) => {
                self.faults.count("dies_holding");
                self.clients[client].forget_lease();
            }
            (7..=9, Some(_)) => self.release(client),
            (10, Some(held)) => {
                // An operator takes the lock away; the holder hears of it.
                let (lock, token) = (LOCKS[held.lock], held.token);
                let urgency = Urgency::Cooling;
                let command = Command::Force { lock, token, by: "ops", reason: "", urgency };
                ops.push(self.op(ClientOp::Aside, command, Id::None, client));
                self.faults.count("forced");
            }
            (_, Some(_)) => {}
            (_, None) => {
                let op = self.acquire(client, lease.id);
                self.clients[client].asking = Some(op.ask);
                ops.push(op);
            }
        }
    }

    fn acquire(&mut self, client: usize, lease: LeaseId) -> Op {
        let lock = self.rng.usize(0..LOCKS.len());
        let wait = match self.rng.u8(0..4) {
            0 => AskWait::No,
            1 => AskWait::Unlimited,
            _ => AskWait::Limit { ms: self.rng.u64(200..4_000) },
        };
        let max_hold_ms = (self.rng.u8(0..4) == 0).then(|| self.rng.u64(1_000..4_000));
        let acquire = Acquire {
            lease: AskLease::Existing(LeaseRef::Id(lease)),
            locks: Asks::One(Ask { lock: LOCKS[lock], mode: Mode::Exclusive }),
            any: false,
            wait,
            metadata: b"",
            lock_delay_ms: 0,
            max_hold_ms,
            min_hold_ms: 0,
            progress_within_ms: 0,
            supersede: None,
            resume: false,
            priority: self.urgency(client),
            purpose: Purpose::Lock,
            independent: false,
        };
        let id = if self.rng.u8(0..4) == 0 { Id::None } else { Id::Seq(lease) };
        let what = ClientOp::Acquire { lease, lock, max_hold_ms };
        self.op(what, Command::Acquire(acquire), id, client)
    }

    /// The priority of all requests of a client: every third one is more urgent than the others, once the rules of the
    /// cluster know priorities.
    pub(super) fn urgency(&self, client: usize) -> u8 {
        if client % 3 == 1 && self.oracle.level() >= LEVEL_PRIORITY { 2 } else { 0 }
    }

    /// Releases a lock. The client has stopped its work before.
    pub(super) fn release(&mut self, client: usize) {
        let one = &mut self.clients[client];
        let (Some(held), Some(lease)) = (one.hold.take(), one.lease) else { return };
        one.released[held.lock] = Some(held.token);
        let hold =
            Hold { lease: LeaseRef::Id(lease.id), lock: LOCKS[held.lock], token: held.token };
        let id = if self.rng.bool() { Id::None } else { Id::Seq(lease.id) };
        let op = self.op(ClientOp::Release(held.lock), Command::Release(hold), id, client);
        self.clients[client].asking = Some(op.ask);
        self.clients[client].again.push(op);
    }

    /// Releases what a place was granted that the client has given up for another one.
    pub(super) fn give_back(&mut self, client: usize, grants: &Grants) {
        let Some(lease) = self.clients[client].lease else { return };
        for grant in grants.as_slice() {
            let one = &mut self.clients[client];
            let Some(lock) = LOCKS.iter().position(|name| *name == &*grant.lock) else { continue };
            if one.hold.as_ref().is_some_and(|held| held.lock == lock) {
                continue;
            }
            one.released[lock] = one.released[lock].max(Some(grant.token));
            let hold =
                Hold { lease: LeaseRef::Id(lease.id), lock: LOCKS[lock], token: grant.token };
            let op = self.op(ClientOp::Aside, Command::Release(hold), Id::None, client);
            self.clients[client].again.push(op);
            self.faults.count("given_back");
        }
    }

    fn put(&mut self, client: usize) -> Op {
        let lease = self.clients[client].lease;
        let id = match (self.rng.u8(0..4), lease) {
            (0 | 1, _) => Id::Key,
            (2, Some(lease)) => Id::Seq(lease.id),
            _ => Id::None,
        };
        let value = self.numbers.to_string();
        // Sometimes the value is larger than the log accepts.
        let large = self.rng.u8(0..100) == 0;
        let value = if large { value.repeat(1_000) } else { value };
        self.faults.count_by("too_large", u64::from(large));
        let put = Put {
            key: "counter",
            value: value.as_bytes(),
            lease: None,
            expect: Expect::Any,
            guard: None,
        };
        self.op(ClientOp::Write, Command::Put(put), id, client)
    }

    fn op(&mut self, what: ClientOp, command: Command<'_>, id: Id, client: usize) -> Op {
        self.numbers += 1;
        let ask = self.numbers;
        let principal = ask.to_string();
        let one = &mut self.clients[client];
        let mut seq = None;
        let id = match id {
            Id::None => RequestId::None,
            Id::Key => RequestId::Key("key"),
            Id::Seq(lease) => {
                one.seq += 1;
                one.open.insert(one.seq);
                seq = Some(one.seq);
                let done = one.open.first().copied().unwrap_or(one.seq) - 1;
                RequestId::Seq { lease: LeaseRef::Id(lease), seq: one.seq, done }
            }
        };
        let repeats = match (&id, &command) {
            (RequestId::None, Command::Renew(_) | Command::GrantLease(_)) => Repeats::Harmless,
            (RequestId::None, _) => Repeats::Never,
            _ => Repeats::Recognised,
        };
        let mut bytes = Vec::new();
        encode_request(&Request { principal: &principal, id, command }, &mut bytes);
        Op { ask, what, request: Bytes::from(bytes), repeats, seq, first_us: None }
    }

    /// Sends something again that is still on its way.
    fn double(&mut self, client: usize, ops: &mut Vec<Op>) {
        let under_way = self.clients[client].attempts.values().filter(|attempt| !attempt.given_up);
        let known = |op: &&Op| op.repeats == Repeats::Recognised;
        let doubled: Vec<Op> =
            under_way.map(|attempt| &attempt.op).filter(known).cloned().collect();
        self.faults.count_by("duplicate_batch", doubled.len() as u64);
        ops.extend(doubled);
    }

    fn launch(&mut self, client: usize, ops: Vec<Op>) {
        let within_us = self.within_us();
        let now_us = self.now_us;
        let one = &mut self.clients[client];
        let Some(session) = &one.session else { return };
        let session = session.stream.id;
        let sent_us = one.local_us(now_us);
        let given_up_at_us = now_us + within_us.min(S) + TRY_US;
        self.faults.count_by("batch_of_several", u64::from(ops.len() > 1));
        let mut requests = Vec::new();
        for mut op in ops {
            op.first_us.get_or_insert(sent_us);
            self.numbers += 1;
            let id = self.numbers;
            let sent = op.clone();
            let attempt =
                ClientAttempt { session, op: sent, sent_us, given_up_at_us, given_up: false };
            one.attempts.insert(id, attempt);
            requests.push(ClientRequest { id, op, within_us });
        }
        self.send_to_member(client, ClientMessage::Requests(requests));
    }
}

/// By what a repetition is recognised.
#[derive(Clone, Copy)]
enum Id {
    None,
    Key,
    Seq(LeaseId),
}
