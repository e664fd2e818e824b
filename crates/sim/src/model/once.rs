//! Recognises repeated requests and repeats their answers.

use tenure_core::outcome::{Acquired, Answer, LeaseGrant, Queued};
use tenure_core::request::{Asks, Command, LeaseRef, Request, RequestId};
use tenure_types::{LeaseId, Limit, Name, PlaceNumber, Refusal, Revision};

use super::pass::show;
use super::{HandleOf, LEVEL_REPAIRED, Model, Verdict};

/// How far the requests of a lease may run ahead of the oldest unanswered one.
const WINDOW: u64 = 256;

/// How long a request with a key is remembered.
const REMEMBERED_MS: u64 = 600_000;

/// The record of a request.
#[derive(Clone)]
pub(super) struct RequestRecord {
    /// The command as text; the model compares commands where the machine compares hashes.
    command: String,
    pub(super) result: Verdict,
    /// The revision after the request.
    revision: Revision,
    /// The number of asks with this id; `None` if asks were not counted then.
    pub(super) asks: Option<u64>,
    /// Whether the answer is what is held now, because the request to leave came too late.
    held: Option<HeldThen>,
}

/// The lease and the place of the locks that were held when a request to leave came.
#[derive(Clone)]
struct HeldThen {
    lease: LeaseId,
    created: Revision,
    place: PlaceNumber,
}

/// A request with a key.
#[derive(Clone)]
pub(super) struct KeyedRequest {
    pub(super) principal: String,
    pub(super) key: String,
    at_ms: u64,
    pub(super) record: RequestRecord,
}

impl KeyedRequest {
    fn weight(&self) -> u64 {
        (128 + self.principal.len() + self.key.len() + self.record.names_len()) as u64
    }
}

impl RequestRecord {
    /// The total length of all names in the record.
    pub(super) fn names_len(&self) -> usize {
        let mut names: Vec<&Name> = Vec::new();
        let mut texts = 0;
        match &self.result {
            Ok(Answer::AlreadyHeld(_)) if self.held.is_some() => {}
            Ok(Answer::AlreadyHeld(grants)) => {
                names.extend(grants.as_slice().iter().map(|grant| &grant.lock));
            }
            Ok(_) => {}
            Err(Refusal::Held(held)) => {
                names.push(&held.lock);
                names.extend(held.holder.as_ref().map(|holder| &holder.client));
            }
            Err(Refusal::TokenOutdated { lock, holder }) => {
                names.push(lock);
                names.extend(holder.as_ref().map(|holder| &holder.client));
            }
            Err(Refusal::Deadlock { ring }) => {
                for link in ring {
                    names.push(&link.client);
                    names.push(&link.lock);
                }
            }
            Err(
                Refusal::PoolEmpty { pool: lock }
                | Refusal::Overlap { lock }
                | Refusal::Duplicate { lock }
                | Refusal::OtherKind { lock, .. }
                | Refusal::NotHolder { lock }
                | Refusal::NotWaiting { lock }
                | Refusal::NotExclusive { lock }
                | Refusal::NotCooling { lock }
                | Refusal::GuardFailed { lock },
            ) => names.push(lock),
            Err(Refusal::Quota { setter: Some(setter), .. }) => names.extend(&setter.principal),
            Err(Refusal::Draining(draining)) => {
                names.push(&draining.lock);
                names.extend(&draining.by);
                texts = draining.prefix.len() + draining.reason.len();
            }
            Err(_) => {}
        }
        texts + names.into_iter().map(|name| name.len()).sum::<usize>()
    }
}

impl Model {
    /// Runs a request, or repeats its answer.
    pub(super) fn run_once(&mut self, request: &Request<'_>, handle_of: HandleOf<'_>) -> Verdict {
        match request.id {
            RequestId::None => self.run(request.principal, &request.command, handle_of),
            RequestId::Seq { lease, seq, done } => {
                self.run_seq(lease, seq, done, request, handle_of)
            }
            RequestId::Key(key) => {
                self.run_key(request.principal, key, &request.command, handle_of)
            }
        }
    }

    fn run_seq(
        &mut self,
        lease: LeaseRef,
        seq: u64,
        done: u64,
        request: &Request<'_>,
        handle_of: HandleOf<'_>,
    ) -> Verdict {
        let command = &request.command;
        let id = self.own(lease, handle_of)?;
        let lease = self.leases.get_mut(&id).expect("a live lease exists");
        lease.done = lease.done.max(done);
        let (done, created) = (lease.done, lease.created);
        lease.records.retain(|&seq, _| seq > done);
        if seq <= done {
            return Err(Refusal::RequestStale);
        }
        if let Some(record) = lease.records.get(&seq).cloned() {
            let verdict = self.repeat(&record, command);
            if self.count_repeated(&verdict)
                && let Some(record) =
                    self.leases.get_mut(&id).and_then(|it| it.records.get_mut(&seq))
            {
                record.asks = record.asks.map(|asks| asks + 1);
            }
            return verdict;
        }
        if seq > done.saturating_add(WINDOW) {
            return Err(Refusal::RequestWindow { window: WINDOW });
        }
        let result = self.run(request.principal, command, handle_of);
        let record = self.record(command, &result, handle_of);
        if let Some(lease) = self.leases.get_mut(&id)
            && lease.created == created
            && !matches!(command, Command::Renew(_))
        {
            lease.records.insert(seq, record);
        }
        result
    }

    fn run_key(
        &mut self,
        principal: &str,
        key: &str,
        command: &Command<'_>,
        handle_of: HandleOf<'_>,
    ) -> Verdict {
        self.name(key)?;
        self.within(Limit::NameBytes, principal.len() as u64)?;
        let clock_ms = self.clock_ms;
        self.key_records.retain(|record| clock_ms - record.at_ms <= REMEMBERED_MS);
        let same = |record: &KeyedRequest| record.principal == principal && record.key == key;
        if let Some(at) = self.key_records.iter().position(same) {
            let record = self.key_records[at].record.clone();
            let verdict = self.repeat(&record, command);
            if self.count_repeated(&verdict) {
                let asks = &mut self.key_records[at].record.asks;
                *asks = asks.map(|asks| asks + 1);
            }
            return verdict;
        }
        let (number, bound) = (self.key_records.len() as u64, self.limits.get(Limit::Requests));
        if number >= bound {
            return Err(Refusal::Limit { limit: Limit::Requests, bound, asked: number + 1 });
        }
        let bound = self.limits.get(Limit::RequestBytes);
        let asked: u64 = self.key_records.iter().map(KeyedRequest::weight).sum();
        if asked >= bound {
            return Err(Refusal::Limit { limit: Limit::RequestBytes, bound, asked });
        }
        let result = self.run(principal, command, handle_of);
        if matches!(command, Command::Renew(_)) {
            return result;
        }
        self.key_records.push(KeyedRequest {
            principal: principal.to_owned(),
            key: key.to_owned(),
            at_ms: self.clock_ms,
            record: self.record(command, &result, handle_of),
        });
        result
    }

    /// Counts a repeated ask that was answered with its present state. Returns whether it was one.
    fn count_repeated(&mut self, verdict: &Verdict) -> bool {
        // Only asks have such an answer.
        let (Ok(Answer::Acquired(Acquired { place, .. }))
        | Ok(Answer::Queued(Queued { place, .. }))) = verdict
        else {
            return false;
        };
        self.count_ask(*place);
        true
    }

    fn record(
        &self,
        command: &Command<'_>,
        result: &Verdict,
        handle_of: HandleOf<'_>,
    ) -> RequestRecord {
        let held = match (command, result) {
            (Command::Leave { lease, lock }, Ok(Answer::AlreadyHeld(_)))
                if self.level >= LEVEL_REPAIRED =>
            {
                let id = self.live(*lease, handle_of).expect("it holds a lock");
                let mut held = self.held_by(id).into_iter();
                let (_, grant) = held.find(|(name, _)| name.as_str() == *lock).expect("it is held");
                Some(HeldThen { lease: id, created: grant.lease_created, place: grant.place })
            }
            _ => None,
        };
        let revision = if self.events.is_empty() { self.revision } else { self.this_revision() };
        let asks = self.first_ask();
        RequestRecord { command: as_text(command), result: result.clone(), revision, asks, held }
    }

    /// The answer to a repeated request.
    fn repeat(&mut self, record: &RequestRecord, command: &Command<'_>) -> Verdict {
        if record.command != as_text(command) {
            return Err(Refusal::RequestConflict);
        }
        if let Some(then) = &record.held {
            let same = self.leases.get(&then.lease).is_some_and(|it| it.created == then.created);
            let held = match same && self.is_live(then.lease) {
                true => self.held_of_place(then.lease, then.place),
                false => Vec::new(),
            };
            let grants = held.iter().map(|(lock, grant)| show(lock, grant));
            // Who holds none of it any more has left.
            return match held.is_empty() {
                true => Ok(Answer::Left),
                false => Ok(Answer::AlreadyHeld(grants.collect())),
            };
        }
        // The state of an ask may have changed since, and an old token must not look fresh.
        match (command, &record.result) {
            (
                Command::Acquire(_) | Command::Upgrade(_),
                Ok(
                    Answer::Acquired(Acquired { lease, place, .. })
                    | Answer::Queued(Queued { lease, place, .. }),
                ),
            ) => Ok(self.standing_of_record(lease, *place)),
            (_, result) => {
                self.repeated = Some(record.revision);
                result.clone()
            }
        }
    }

    fn standing_of_record(&self, lease: &LeaseGrant, place: PlaceNumber) -> Answer {
        let same = self.leases.get(&lease.id).is_some_and(|now| now.created == lease.created);
        if same && self.is_live(lease.id) { self.standing(lease.id, place) } else { Answer::Ended }
    }
}

/// The command in a form that can be kept and compared.
fn as_text(command: &Command<'_>) -> String {
    // One lock in a list is the same ask as one lock alone, and has the same bytes.
    if let Command::Acquire(ask) = command
        && let [one] = ask.locks.as_slice()
        && ask.pool().is_none()
    {
        let mut ask = ask.clone();
        ask.locks = Asks::One(*one);
        return format!("{:?}", Command::Acquire(ask));
    }
    format!("{command:?}")
}
