//! Simulates clients: what they ask for, and when they believe that they hold a lock.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use fastrand::Rng;
use tenure_core::outcome::{Answer, Grants, Notice, Outcome};
use tenure_node::{NodeFailure, SessionId};
use tenure_types::{Handle, LeaseId, PlaceNumber, Revision, Token};

use super::MS;
use super::ask_history::Repeats;
use super::oracle::ensure;
use super::packet::ClientStream;
use super::session_task::SessionReply;
use super::world::SimCluster;
use crate::invariant::{CheckResult, InvariantViolation};

pub(super) const LOCKS: [&str; 3] = ["alpha", "beta", "gamma"];

/// A client, and what it believes.
pub(super) struct SimClient {
    pub(super) rate_ppm: i64,
    pub(super) ttl_ms: u64,
    /// The time before which it does nothing.
    pub(super) asleep_until_us: u64,
    pub(super) session: Option<SimSession>,
    pub(super) lease: Option<ClientLease>,
    pub(super) hold: Option<BelievedHold>,
    pub(super) waiting: Option<BelievedPlace>,
    /// The newest token of each lock that it has given back, as far as it knows.
    pub(super) released: [Option<Token>; LOCKS.len()],
    /// Commands on their way, by the number of the request.
    pub(super) attempts: BTreeMap<u64, ClientAttempt>,
    /// Commands to be sent again.
    pub(super) again: Vec<Op>,
    /// The ask for a lock or lease whose answer it waits for.
    pub(super) asking: Option<u64>,
    pub(super) renewing: Option<u64>,
    /// The read that it waits for, and until when.
    pub(super) reading: Option<(u64, u64)>,
    pub(super) seq: u64,
    /// Numbers of requests of its lease that are not answered or given up.
    pub(super) open: BTreeSet<u64>,
    /// The newest revision in the answers that it got.
    pub(super) revision: Revision,
    /// Whether something was granted since the faults ended.
    served: bool,
}

/// A connection to one member.
pub(super) struct SimSession {
    pub(super) stream: ClientStream,
    /// Whether messages of the member are lost.
    pub(super) deaf: bool,
    /// Whether messages of the client are lost.
    pub(super) mute: bool,
    /// The number of messages on their way to the client.
    pub(super) mail: u32,
    pub(super) newest_us: u64,
    pub(super) newest_said_us: u64,
    /// The newest revision that the client got for each lease.
    told: BTreeMap<Handle, Revision>,
    /// The requests that were answered with each place, in any order: a lease has one place at a lock, so a client that
    /// repeats an ask, or asks again after it gave one up, is told of the same place by several.
    placed: BTreeMap<(Handle, PlaceNumber), Vec<u64>>,
}

#[derive(Clone, Copy)]
pub(super) struct ClientLease {
    pub(super) id: LeaseId,
    pub(super) handle: Handle,
    pub(super) created: Revision,
    /// By its own clock: just before the newest acknowledged renewal was sent.
    pub(super) c0_us: u64,
    /// The newest revision at which something was taken from it, as far as it was told.
    changed: Revision,
}

/// A lock that it believes it holds.
#[derive(Clone, Copy)]
pub(super) struct BelievedHold {
    pub(super) lock: usize,
    pub(super) token: Token,
    pub(super) revision: Revision,
    /// The time at which it must have stopped because of the ask's own limit, by its own clock.
    until_us: u64,
    /// The session in which it hears of a loss.
    pub(super) hears: Option<SessionId>,
}

/// A place in a queue.
#[derive(Clone)]
pub(super) struct BelievedPlace {
    pub(super) op: Op,
    pub(super) place: PlaceNumber,
    pub(super) revision: Revision,
    /// The session in which it hears of a grant.
    pub(super) hears: Option<SessionId>,
}

/// One command, as often as it is sent.
#[derive(Clone, Debug)]
pub(super) struct Op {
    pub(super) ask: u64,
    pub(super) what: ClientOp,
    pub(super) request: Bytes,
    pub(super) repeats: Repeats,
    pub(super) seq: Option<u64>,
    /// The time at which it was first sent, by the client's clock.
    pub(super) first_us: Option<u64>,
}

/// A command on its way.
pub(super) struct ClientAttempt {
    pub(super) session: SessionId,
    pub(super) op: Op,
    pub(super) sent_us: u64,
    pub(super) given_up_at_us: u64,
    pub(super) given_up: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ClientOp {
    Grant(LeaseId),
    Renew(LeaseId),
    Acquire {
        lease: LeaseId,
        lock: usize,
        max_hold_ms: Option<u64>,
    },
    Release(usize),
    Write,
    /// Something whose outcome changes nothing for the client.
    Aside,
}

impl SimClient {
    pub(super) fn new(rng: &mut Rng, rate_ppm: i64) -> Self {
        Self {
            rate_ppm,
            ttl_ms: [2_000, 3_000, 6_000, 30_000][rng.usize(0..4)],
            asleep_until_us: 0,
            session: None,
            lease: None,
            hold: None,
            waiting: None,
            released: [None; LOCKS.len()],
            attempts: BTreeMap::new(),
            again: Vec::new(),
            asking: None,
            renewing: None,
            reading: None,
            seq: 0,
            open: BTreeSet::new(),
            revision: Revision(0),
            served: false,
        }
    }

    pub(super) fn local_us(&self, now_us: u64) -> u64 {
        let now = i128::from(now_us);
        u64::try_from(now + now * i128::from(self.rate_ppm) / 1_000_000).unwrap_or(0)
    }

    pub(super) fn is_served(&self) -> bool {
        self.served
    }

    pub(super) fn wait_to_be_served(&mut self) {
        self.served = false;
    }

    pub(super) fn session_mut(&mut self, id: SessionId) -> Option<&mut SimSession> {
        self.session.as_mut().filter(|session| session.stream.id == id)
    }

    /// Whether it may act on what it holds.
    pub(super) fn is_valid(&self, now_us: u64) -> bool {
        self.lease.is_some_and(|lease| self.local_us(now_us) < lease.c0_us + self.ttl_ms * MS / 2)
    }

    pub(super) fn acts_on(&self, lock: usize, now_us: u64) -> bool {
        let held = self.hold.filter(|held| held.lock == lock);
        held.is_some_and(|held| self.local_us(now_us) < held.until_us) && self.is_valid(now_us)
    }

    /// Everything that it had through its lease is gone.
    pub(super) fn forget_lease(&mut self) {
        (self.lease, self.hold, self.waiting) = (None, None, None);
        (self.asking, self.renewing) = (None, None);
        self.again.clear();
        self.open.clear();
        self.seq = 0;
    }

    /// Whether a repetition of this ask is on its way, or will be sent.
    fn is_asking_again(&self, ask: u64) -> bool {
        self.again.iter().any(|op| op.ask == ask)
            || self.attempts.values().any(|it| !it.given_up && it.op.ask == ask)
    }

    /// Ends an ask, whatever its result.
    pub(super) fn close(&mut self, op: &Op) {
        self.asking.take_if(|ask| *ask == op.ask);
        self.renewing.take_if(|ask| *ask == op.ask);
        if let Some(seq) = op.seq {
            self.open.remove(&seq);
        }
    }
}

impl SimSession {
    pub(super) fn new(stream: ClientStream) -> Self {
        let (told, placed) = (BTreeMap::new(), BTreeMap::new());
        let (deaf, mute, mail, newest_us, newest_said_us) = (false, false, 0, 0, 0);
        Self { stream, deaf, mute, mail, newest_us, newest_said_us, told, placed }
    }
}

impl SimCluster {
    /// Delivers a message to its client.
    pub(super) fn handle_client_replies(
        &mut self,
        stream: ClientStream,
        replies: Vec<SessionReply>,
    ) -> CheckResult {
        let asleep_us = self.clients[stream.client].asleep_until_us;
        let now_us = self.now_us;
        let one = &mut self.clients[stream.client];
        let Some(session) = one.session_mut(stream.id) else { return Ok(()) };
        if asleep_us > now_us {
            self.queue.push(asleep_us, super::event::SimEvent::Mail { stream, replies });
            return Ok(());
        }
        session.mail -= 1;
        self.trace(|| format!("client {} hears {replies:?}", stream.client));
        let mut failed = false;
        for reply in replies {
            match reply {
                SessionReply::Answer { id, outcome } => {
                    failed |= outcome.is_err();
                    self.handle_answer(stream, id, outcome)?;
                }
                SessionReply::Notice { notice, id } => self.handle_notice(stream, notice, id)?,
                SessionReply::ReadOver { read } => self.handle_read_end(stream.client, read),
                SessionReply::Leader => self.faults.count("leader_told"),
            }
        }
        if failed && self.rng.u8(0..4) == 0 {
            // Another member may do better.
            self.cut_session(stream.client);
        }
        Ok(())
    }

    fn handle_answer(
        &mut self,
        stream: ClientStream,
        id: u64,
        outcome: Result<Outcome, NodeFailure>,
    ) -> CheckResult {
        let one = &mut self.clients[stream.client];
        let attempt = one.attempts.remove(&id).filter(|it| it.session == stream.id);
        let Some(attempt) = attempt else {
            let detail = format!(
                "client {} is answered request {id}, which it did not send in this session",
                stream.client
            );
            return Err(InvariantViolation::new("N1", detail));
        };
        match outcome {
            Ok(outcome) => self.handle_outcome(stream, id, attempt.op, attempt.sent_us, outcome),
            Err(_) if attempt.given_up => Ok(()),
            Err(_) => {
                self.handle_failure(stream.client, attempt.op);
                Ok(())
            }
        }
    }

    /// Handles a command without an outcome: sends it again if that is allowed, or gives it up. A client that waits for
    /// its place always asks again, as the SDK does: until it is answered in this session, it may miss the grant.
    pub(super) fn handle_failure(&mut self, client: usize, op: Op) {
        let again = op.repeats == Repeats::Recognised && self.rng.u8(0..4) > 0;
        let one = &mut self.clients[client];
        let waits = one.waiting.as_ref().is_some_and(|waiting| waiting.op.ask == op.ask);
        if waits && one.is_asking_again(op.ask) {
            return;
        }
        if again || waits {
            self.faults.count("retry");
            one.again.push(op);
        } else {
            one.close(&op);
        }
    }

    fn handle_outcome(
        &mut self,
        stream: ClientStream,
        request: u64,
        op: Op,
        sent_us: u64,
        outcome: Outcome,
    ) -> CheckResult {
        let client = stream.client;
        let one = &mut self.clients[client];
        one.revision = one.revision.max(outcome.revision);
        let asked = one.asking == Some(op.ask) || one.renewing == Some(op.ask);
        // A client asks for its place again in each session.
        let waits = one.waiting.as_ref().is_some_and(|waiting| waiting.op.ask == op.ask);
        one.close(&op);
        if let Ok(Answer::Queued(queued)) = &outcome.result
            && let Some(session) = one.session_mut(stream.id)
        {
            let place = (queued.lease.handle, queued.place);
            session.placed.entry(place).or_default().push(request);
        }
        if !asked && !waits {
            return Ok(());
        }
        let first_us = op.first_us.unwrap_or(sent_us);
        match (op.what, outcome.result) {
            (ClientOp::Grant(id), Ok(Answer::LeaseGranted(lease))) => {
                let (handle, created) = (lease.handle, lease.created);
                one.forget_lease();
                one.lease =
                    Some(ClientLease { id, handle, created, c0_us: first_us, changed: created });
            }
            (ClientOp::Renew(id), Ok(Answer::Renewed(renewed))) => {
                let Some(lease) = one.lease.as_mut().filter(|lease| lease.id == id) else {
                    return Ok(());
                };
                match renewed.into_iter().next().flatten() {
                    Some(renewal) => {
                        lease.c0_us = lease.c0_us.max(sent_us);
                        lease.changed = lease.changed.max(renewal.changed);
                        // Something was taken away since.
                        one.hold.take_if(|held| held.revision < renewal.changed);
                    }
                    None => one.forget_lease(),
                }
            }
            (ClientOp::Acquire { lease, .. }, result)
                if one.lease.is_some_and(|it| it.id == lease) =>
            {
                one.waiting = None;
                match result {
                    Ok(Answer::Acquired(acquired)) => {
                        return self.granted(stream, &op, &acquired.grants, outcome.revision);
                    }
                    Ok(Answer::Queued(queued)) => {
                        let (place, revision) = (queued.place, outcome.revision);
                        let hears = Some(stream.id);
                        one.waiting = Some(BelievedPlace { op, place, revision, hears });
                        self.faults.count("queued");
                    }
                    _ => {}
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Handles the grant of a lock, by an answer or by a notice.
    fn granted(
        &mut self,
        stream: ClientStream,
        op: &Op,
        grants: &Grants,
        revision: Revision,
    ) -> CheckResult {
        let now_us = self.now_us;
        let one = &mut self.clients[stream.client];
        let ClientOp::Acquire { lock, max_hold_ms, .. } = op.what else { return Ok(()) };
        let Some(token) = grants.as_slice().first().map(|grant| grant.token) else { return Ok(()) };
        if !one.is_valid(now_us) {
            return Ok(());
        }
        let first_us = op.first_us.unwrap_or(0);
        let until_us = max_hold_ms.map_or(u64::MAX, |ms| first_us + ms * MS / 2);
        one.hold = Some(BelievedHold { lock, token, revision, until_us, hears: Some(stream.id) });
        // A release that was not answered may still come true: what it gave back is not taken up again.
        let given_back = one.released[lock].is_some_and(|released| token <= released);
        // A member that is behind tells of a grant after the leader has renewed the lease and has said that something
        // was taken since: it may have been this.
        let taken = one.lease.is_some_and(|lease| revision < lease.changed);
        if given_back || taken {
            self.release(stream.client);
            return Ok(());
        }
        one.served = true;
        self.faults.count("held");
        self.faults.count_by("held_after_restore", u64::from(self.backups.restores > 0));
        self.check_overlap(stream.client, lock)
    }

    fn handle_notice(&mut self, stream: ClientStream, notice: Notice, id: u64) -> CheckResult {
        let one = &mut self.clients[stream.client];
        let (lease, revision) = match &notice {
            Notice::Granted { lease, revision, .. }
            | Notice::Lost { lease, revision, .. }
            | Notice::WaitEnded { lease, revision, .. }
            | Notice::LeaseEnded { lease, revision, .. } => (*lease, *revision),
        };
        if let Some(session) = &mut one.session {
            let before = session.told.insert(lease, revision).unwrap_or_default();
            ensure(before <= revision, "N5", || {
                format!("client {} heard of {revision} after {before}", stream.client)
            })?;
        }
        if one.lease.is_none_or(|known| known.handle != lease) {
            return Ok(());
        }
        match notice {
            Notice::Granted { place, grants, .. } => {
                let Some(waiting) = one.waiting.take_if(|waiting| waiting.place == place) else {
                    self.give_back(stream.client, &grants);
                    return Ok(());
                };
                let session = one.session_mut(stream.id);
                let placed = session.and_then(|it| it.placed.remove(&(lease, place)));
                let requests = placed.unwrap_or_default();
                let is_known = requests.contains(&id);
                ensure(waiting.hears != Some(stream.id) || is_known, "N5", || {
                    let client = stream.client;
                    format!("client {client} waits by requests {requests:?} and hears of {id}")
                })?;
                self.faults.count("granted_by_notice");
                return self.granted(stream, &waiting.op, &grants, revision);
            }
            Notice::WaitEnded { place, .. } => {
                one.waiting.take_if(|waiting| waiting.place == place);
            }
            Notice::Lost { token, .. } => {
                if one.hold.take_if(|held| held.token == token).is_some() {
                    self.faults.count("lost_by_notice");
                }
            }
            Notice::LeaseEnded { .. } => one.forget_lease(),
        }
        Ok(())
    }

    /// S1, in real time: no two clients may act on one lock.
    fn check_overlap(&self, client: usize, lock: usize) -> CheckResult {
        let now_us = self.now_us;
        for (other, one) in self.clients.iter().enumerate() {
            ensure(other == client || !one.acts_on(lock, now_us), "S1", || {
                format!("clients {other} and {client} both act on {}", LOCKS[lock])
            })?;
        }
        let caller = self.callers.iter().position(|one| one.acts_on(lock, now_us));
        ensure(caller.is_none(), "S1", || {
            format!("client {client} and caller {caller:?} both act on {}", LOCKS[lock])
        })
    }
}
