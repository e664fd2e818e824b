//! What do clients do, and when do they believe that they hold a lock?

use bytes::Bytes;
use fastrand::Rng;
use tenure_core::codec::encode_request;
use tenure_core::outcome::Answer;
use tenure_core::request::{
    Acquire, Ask, AskLease, Asks, Command, Expect, Hold, LeaseRef, NewLease, Purpose, Put, Request,
    RequestId, Wait,
};
use tenure_raft::BATCH_US;
use tenure_types::{LeaseId, Mode, Token};

use super::MS;
use super::event::Event;
use super::oracle::ensure;
use super::packet::{Address, Packet, Reply};
use super::world::World;
use crate::invariant::Check;

const LOCKS: [&str; 3] = ["alpha", "beta", "gamma"];
const TRY_US: u64 = 800 * MS;

/// A client, and what it believes.
pub(super) struct Client {
    rate_ppm: i64,
    ttl_ms: u64,
    member: usize,
    lease: Option<Lease>,
    holds: Option<(usize, Token)>,
    /// The newest token of each lock that it has given back, as far as it knows.
    released: [Option<Token>; LOCKS.len()],
    asking: Option<u64>,
    renewing: Option<u64>,
    reading: Option<u64>,
    writes: u64,
    /// Whether something was granted since everything healed.
    served: bool,
}

#[derive(Clone, Copy)]
struct Lease {
    id: LeaseId,
    /// By its own clock: just before the newest acknowledged renewal was sent.
    c0_us: u64,
}

/// One request on its way.
pub(super) struct Attempt {
    pub(super) client: usize,
    pub(super) relay: Option<usize>,
    /// For requests that are known by a key.
    pub(super) key: Option<String>,
    /// For reads: what was acknowledged before.
    pub(super) floor: u64,
    what: What,
    sent_us: u64,
    given_up_at_us: u64,
    request: Bytes,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Grant(LeaseId),
    Renew(LeaseId),
    Acquire(LeaseId, usize),
    Release(usize),
    Write,
    Read,
}

impl Client {
    pub(super) fn new(rng: &mut Rng, rate_ppm: i64) -> Self {
        Self {
            rate_ppm,
            ttl_ms: [2_000, 3_000, 6_000, 30_000][rng.usize(0..4)],
            member: 0,
            lease: None,
            holds: None,
            released: [None; LOCKS.len()],
            asking: None,
            renewing: None,
            reading: None,
            writes: 0,
            served: false,
        }
    }

    fn local_us(&self, now_us: u64) -> u64 {
        let now = i128::from(now_us);
        u64::try_from(now + now * i128::from(self.rate_ppm) / 1_000_000).unwrap_or(0)
    }

    pub(super) fn is_served(&self) -> bool {
        self.served
    }

    pub(super) fn wait_to_be_served(&mut self) {
        self.served = false;
    }

    /// Whether it may act on what it holds.
    fn is_valid(&self, now_us: u64) -> bool {
        self.lease.is_some_and(|lease| self.local_us(now_us) < lease.c0_us + self.ttl_ms * MS / 2)
    }
}

impl World {
    pub(super) fn client_acts(&mut self, client: usize) -> Check {
        let think_us = self.rng.u64(20..300) * MS;
        self.queue.push(self.now_us + think_us, Event::Client { client });
        let now_us = self.now_us;
        let one = &mut self.clients[client];
        if one.lease.is_some() && !one.is_valid(now_us) {
            // Lost, for ever: whatever arrives later does not revive it.
            one.lease = None;
            one.holds = None;
            one.renewing = None;
            self.tally.count("lease_lost");
        }
        self.give_up_or_retry(client);
        if self.clients[client].reading.is_none() && self.rng.bool() {
            self.ask(client, What::Read);
        }
        let one = &self.clients[client];
        let local_us = one.local_us(now_us);
        let Some(lease) = one.lease else {
            if one.asking.is_none() {
                let id = LeaseId::new(self.rng.u64(1..1 << 40)).expect("positive and small");
                self.ask(client, What::Grant(id));
            }
            return Ok(());
        };
        if one.renewing.is_none() && local_us >= lease.c0_us + one.ttl_ms * MS / 3 {
            self.ask(client, What::Renew(lease.id));
            return Ok(());
        }
        if one.asking.is_some() {
            return Ok(());
        }
        let holds = one.holds;
        match (self.rng.u8(0..20), holds) {
            (0, Some(_)) => {
                self.tally.count("dies_holding");
                let one = &mut self.clients[client];
                (one.lease, one.holds, one.asking, one.renewing) = (None, None, None, None);
            }
            (1..=6, _) => self.ask(client, What::Write),
            (7..=9, Some((lock, _))) => self.ask(client, What::Release(lock)),
            (_, Some(_)) => {}
            (_, None) => {
                let lock = self.rng.usize(0..LOCKS.len());
                self.ask(client, What::Acquire(lease.id, lock));
            }
        }
        Ok(())
    }

    fn give_up_or_retry(&mut self, client: usize) {
        let Client { asking, renewing, reading, .. } = self.clients[client];
        for slot in [asking, renewing, reading] {
            let Some(number) = slot else { continue };
            let Some(attempt) = self.attempts.get(&number) else { continue };
            if attempt.given_up_at_us > self.now_us {
                continue;
            }
            let (key, request) = (attempt.key.clone(), attempt.request.clone());
            let one = &mut self.clients[client];
            for slot in [&mut one.asking, &mut one.renewing, &mut one.reading] {
                slot.take_if(|slot| *slot == number);
            }
            one.member = self.rng.usize(0..self.nodes.len());
            if key.is_some() && self.rng.u8(0..4) > 0 {
                self.tally.count("retry");
                self.launch(client, What::Write, request, key);
            }
        }
    }

    fn ask(&mut self, client: usize, what: What) {
        let number = self.attempts_made + 1;
        let one = &mut self.clients[client];
        let principal = number.to_string();
        let mut key = None;
        let lease = one.lease.map(|lease| LeaseRef::Id(lease.id));
        let command = match (what, lease) {
            (What::Grant(id), _) => {
                let ttl_ms = one.ttl_ms;
                Command::GrantLease(NewLease { id, ttl_ms, client: "client", metadata: b"" })
            }
            (What::Renew(id), _) => Command::Renew(vec![LeaseRef::Id(id)]),
            (What::Acquire(id, lock), _) => Command::Acquire(Acquire {
                lease: AskLease::Existing(LeaseRef::Id(id)),
                locks: Asks::One(Ask { lock: LOCKS[lock], mode: Mode::Exclusive }),
                wait: [Wait::No, Wait::Limit { ms: 3_000 }][usize::from(number.is_multiple_of(2))],
                metadata: b"",
                lock_delay_ms: 0,
                max_hold_ms: None,
                purpose: Purpose::Lock,
                independent: false,
            }),
            (What::Release(lock), Some(lease)) => {
                // The work has stopped before the lock is given back.
                let Some((_, token)) = one.holds.take() else { return };
                one.released[lock] = Some(token);
                Command::Release(Hold { lease, lock: LOCKS[lock], token })
            }
            (What::Write, _) => {
                one.writes += 1;
                key = Some(format!("{client}-{}", one.writes));
                Command::Put(Put {
                    key: "counter",
                    value: principal.as_bytes(),
                    lease: None,
                    expect: Expect::Any,
                    guard: None,
                })
            }
            (What::Read, _) => return self.launch(client, what, Bytes::new(), None),
            (What::Release(_), None) => return,
        };
        let id = key.as_deref().map_or(RequestId::None, RequestId::Key);
        let principal = if key.is_some() { "writer" } else { &principal };
        let mut bytes = Vec::new();
        encode_request(&Request { principal, id, command }, &mut bytes);
        self.launch(client, what, Bytes::from(bytes), key);
    }

    fn launch(&mut self, client: usize, what: What, request: Bytes, key: Option<String>) {
        self.attempts_made += 1;
        let number = self.attempts_made;
        let floor = self.oracle.acknowledged;
        let now_us = self.now_us;
        let one = &mut self.clients[client];
        let sent_us = one.local_us(now_us);
        let slot = match what {
            What::Renew(_) => &mut one.renewing,
            What::Read => &mut one.reading,
            _ => &mut one.asking,
        };
        *slot = Some(number);
        let patience_us = match what {
            What::Renew(_) => BATCH_US.min(one.ttl_ms * MS / 60),
            _ => 0,
        };
        let mut member = one.member % self.nodes.len();
        if what == What::Read {
            member = self.reader();
        }
        let attempt = Attempt {
            client,
            relay: None,
            key,
            floor,
            what,
            sent_us,
            given_up_at_us: now_us + TRY_US,
            request: request.clone(),
        };
        self.attempts.insert(number, attempt);
        let packet = match what {
            What::Read => Packet::Read { attempt: number },
            _ => Packet::Ask { attempt: number, request, patience_us, relay: None },
        };
        self.send(Address::Client(client), Address::Node(member), packet);
        // Answers that come later than this find nobody.
        self.attempts.retain(|made, _| made + 256 > number);
    }

    /// Whom to ask: anybody, or one that believes that it leads, which need not be true any more.
    fn reader(&mut self) -> usize {
        let leads = |node: &super::node::Node| {
            node.process.as_ref().is_some_and(|process| process.replica.status().leading)
        };
        let leaders: Vec<_> = (0..self.nodes.len()).filter(|at| leads(&self.nodes[*at])).collect();
        if leaders.is_empty() || self.rng.u8(0..3) == 0 {
            return self.rng.usize(0..self.nodes.len());
        }
        leaders[self.rng.usize(0..leaders.len())]
    }

    pub(super) fn client_hears(&mut self, client: usize, number: u64, reply: Reply) -> Check {
        let one = &mut self.clients[client];
        if one.asking == Some(number) {
            one.asking = None;
        } else if one.renewing == Some(number) {
            one.renewing = None;
        } else if one.reading == Some(number) {
            one.reading = None;
        } else {
            return Ok(());
        }
        let Some(attempt) = self.attempts.get(&number) else { return Ok(()) };
        let (what, sent_us) = (attempt.what, attempt.sent_us);
        let Reply::Outcome(outcome) = reply else {
            if !matches!(what, What::Read) {
                one.member = self.rng.usize(0..self.nodes.len());
            }
            return Ok(());
        };
        match (what, outcome.result) {
            (What::Grant(id), Ok(Answer::LeaseGranted(_))) => {
                one.lease = Some(Lease { id, c0_us: sent_us });
            }
            (What::Renew(id), Ok(Answer::Renewed(renewed))) => {
                let renewed = renewed.first().is_some_and(Option::is_some);
                if let Some(lease) = one.lease.as_mut().filter(|lease| lease.id == id) {
                    if renewed {
                        lease.c0_us = lease.c0_us.max(sent_us);
                    } else {
                        (one.lease, one.holds) = (None, None);
                    }
                }
            }
            (What::Acquire(id, lock), Ok(Answer::Acquired(acquired))) => {
                let granted = acquired.grants.as_slice().first().map(|grant| grant.token);
                if one.lease.is_some_and(|lease| lease.id == id) && one.is_valid(self.now_us) {
                    one.holds = granted.map(|token| (lock, token));
                    if granted <= one.released[lock] {
                        // A release that was not answered may still come true: what it gave back is
                        // not taken up again.
                        self.ask(client, What::Release(lock));
                        return Ok(());
                    }
                    one.served = true;
                    self.tally.count("held");
                    return self.check_overlap(client, lock);
                }
            }
            (What::Acquire(..), Err(_)) | (What::Renew(_), Err(_)) => {}
            _ => {}
        }
        Ok(())
    }

    /// S1, in real time: no two clients may act on one lock.
    fn check_overlap(&self, client: usize, lock: usize) -> Check {
        let now_us = self.now_us;
        for (other, one) in self.clients.iter().enumerate() {
            let acts = one.holds.is_some_and(|(held, _)| held == lock) && one.is_valid(now_us);
            ensure(other == client || !acts, "S1", || {
                format!("clients {other} and {client} both act on {}", LOCKS[lock])
            })?;
        }
        Ok(())
    }
}
