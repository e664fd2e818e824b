//! Recognises repeated requests and repeats their answers.

use tenure_core::outcome::{Acquired, Answer, LeaseGrant, Queued};
use tenure_core::request::{AskLease, Asks, Command, LeaseRef, Request, RequestId, Revoker};
use tenure_types::{LeaseId, Limit, Mode, Name, PlaceNumber, Quota, Refusal, Revision};

use super::pass::show;
use super::{HandleOf, LEVEL_FAIR_RECORDS, LEVEL_REPAIRED, Model, Place, Verdict};

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
    /// The lease that it is about, if it came without a principal.
    lease: Option<LeaseId>,
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
        let full = self.full_for(id);
        if let Some(full) = &full
            && grows(command)
            && !self.asks_again(command, handle_of)
        {
            return Err(full.clone());
        }
        let result = self.run(request.principal, command, handle_of);
        let record = self.record(command, &result, handle_of);
        let changed = !self.events.is_empty();
        if let Some(lease) = self.leases.get_mut(&id)
            && lease.created == created
            && !matches!(command, Command::Renew(_))
            && (full.is_none() || changed)
        {
            lease.records.insert(seq, record);
        }
        result
    }

    /// Why there is no room for one more record of a lease, if there is none.
    fn full_for(&self, lease: LeaseId) -> Option<Refusal> {
        if self.level < LEVEL_FAIR_RECORDS {
            return None;
        }
        let owner = self.leases[&lease].owner.as_ref();
        self.room().and_then(|()| self.within_quota(owner, Quota::Bytes, 96)).err()
    }

    /// Whether an ask is about locks that its lease holds or awaits.
    fn asks_again(&self, command: &Command<'_>, handle_of: HandleOf<'_>) -> bool {
        let held = |lease| self.held_by(lease);
        match command {
            Command::Upgrade(ask) => {
                let Ok(lease) = self.own(ask.lease, handle_of) else { return false };
                let waits = |place: &Place| place.upgrade && place.locks[0].0.as_str() == ask.lock;
                self.places_of(lease).iter().any(waits)
                    || held(lease).iter().any(|(name, grant)| {
                        name.as_str() == ask.lock && grant.mode == Mode::Exclusive
                    })
            }
            Command::Acquire(ask) => {
                let lease = match ask.lease {
                    AskLease::Existing(lease) => lease,
                    AskLease::New(new) => LeaseRef::Id(new.id),
                };
                let Ok(lease) = self.own(lease, handle_of) else { return false };
                let (places, grants) = (self.places_of(lease), held(lease));
                if let Some(pool) = ask.pool() {
                    return places
                        .iter()
                        .any(|place| place.pool.as_ref().is_some_and(|it| it.as_str() == pool))
                        || grants
                            .iter()
                            .any(|(name, grant)| grant.slot.is_some() && name.starts_with(pool));
                }
                let names = ask.locks.as_slice().iter().filter_map(|it| Name::new(it.lock).ok());
                names.into_iter().any(|name| {
                    places.iter().any(|place| !place.upgrade && place.mode_of(&name).is_some())
                        || grants.iter().any(|(held, _)| *held == name)
                })
            }
            _ => false,
        }
    }

    /// The lease that a command without a principal is sent for.
    fn sent_for(&self, command: &Command<'_>, handle_of: HandleOf<'_>) -> Option<LeaseId> {
        let lease = match command {
            Command::Acquire(ask) => match ask.lease {
                AskLease::Existing(lease) => lease,
                AskLease::New(_) => return None,
            },
            Command::Release(hold)
            | Command::Downgrade(hold)
            | Command::Update { hold, .. }
            | Command::Progress { hold, .. }
            | Command::HandOn { hold, .. } => hold.lease,
            Command::Revoke { lease, by: Revoker::Holder } | Command::Leave { lease, .. } => *lease,
            Command::Upgrade(ask) => ask.lease,
            Command::Abandon(abandon) => abandon.lease,
            Command::Put(put) => put.lease?,
            _ => return None,
        };
        self.live(lease, handle_of).ok()
    }

    /// Refuses one more record with a key to an owner that has as many as are free.
    fn within_share(&self, principal: &str, lease: Option<LeaseId>) -> Result<(), Refusal> {
        let all = &self.key_records;
        let number = all.len() as u64;
        let bytes: u64 = all.iter().map(KeyedRequest::weight).sum();
        let (records_max, bytes_max) =
            (self.limits.get(Limit::Requests), self.limits.get(Limit::RequestBytes));
        let limit = |limit, bound, asked| Err(Refusal::Limit { limit, bound, asked });
        if number >= records_max {
            return limit(Limit::Requests, records_max, number + 1);
        }
        if bytes >= bytes_max {
            return limit(Limit::RequestBytes, bytes_max, bytes);
        }
        if self.level < LEVEL_FAIR_RECORDS {
            return Ok(());
        }
        let own = |record: &&KeyedRequest| match lease {
            Some(lease) => record.lease == Some(lease),
            None => record.lease.is_none() && record.principal == principal,
        };
        let own: Vec<u64> = all.iter().filter(own).map(KeyedRequest::weight).collect();
        let (own_number, own_bytes) = (own.len() as u64, own.iter().sum());
        if own_number >= records_max - number {
            return limit(Limit::Requests, records_max - number, own_number + 1);
        }
        if own_bytes >= bytes_max - bytes {
            return limit(Limit::RequestBytes, bytes_max - bytes, own_bytes);
        }
        Ok(())
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
        let is_anonymous = self.level >= LEVEL_FAIR_RECORDS && principal.is_empty();
        let lease = if is_anonymous { self.sent_for(command, handle_of) } else { None };
        self.within_share(principal, lease)?;
        let result = self.run(principal, command, handle_of);
        if matches!(command, Command::Renew(_)) {
            return result;
        }
        self.key_records.push(KeyedRequest {
            principal: principal.to_owned(),
            key: key.to_owned(),
            lease,
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

/// Whether a command may add to the state.
fn grows(command: &Command<'_>) -> bool {
    match command {
        Command::GrantLease(_)
        | Command::Acquire(_)
        | Command::Upgrade(_)
        | Command::Update { .. }
        | Command::Resize { slots: Some(_), .. } => true,
        Command::Put(put) => !put.key.starts_with("tenure/"),
        _ => false,
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
