//! Recognises repeated requests and answers them without executing them again.

use alloc::boxed::Box;
use tenure_types::{LeaseId, Limit, PlaceNumber, Quota, Refusal, Revision};
use xxhash_rust::xxh3::xxh3_64;

use super::name;
use crate::machine::Machine;
use crate::outcome::{Answer, Outcome};
use crate::request::{
    AskLease, Asks, Command, LEVEL_FAIR_RECORDS, LEVEL_REPAIRED_SHARES, LeaseRef, Request,
    RequestId,
};
use crate::state::list::ListLink;
use crate::state::record::{
    AskCount, AskRecord, HeldRecord, IN_LEASE, IN_ORDER, KeyRequest, Remembered, SeqRequest,
};
use crate::state::shares::RecordOwner;
use crate::state::slab::SlabIndex;

/// How many requests of one lease may be unanswered. The machine drops no record to make room, so this bounds the
/// records of one lease.
pub(crate) const SEQ_WINDOW: u64 = 256;

/// How long an idempotency key is remembered. Clients stop retrying after half of it.
pub(crate) const REMEMBER_MS: u64 = 600_000;

/// What a remembered request of a lease weighs, without names.
const SEQ_REQUEST_BYTES: u64 = 96;

/// What a remembered idempotency key weighs, without names.
const KEY_REQUEST_BYTES: u64 = 128;

impl Machine {
    /// Executes a request unless it was executed before. A renewal is not remembered, because repeating it only extends
    /// a lease and its answer can be long. `command` are the encoded bytes of the command alone, whose hash identifies
    /// it: a repetition may carry another `done`. Returns an error if the request id itself is refused.
    pub(super) fn execute_once(
        &mut self,
        request: &Request<'_>,
        command: &[u8],
    ) -> Result<Outcome, Refusal> {
        match request.id {
            RequestId::None => {
                let result = self.run(request);
                Ok(self.dated(result))
            }
            RequestId::Seq { lease, seq, done } => {
                let slot = self.own_lease(lease)?;
                self.execute_numbered(slot, seq, done, request, command)
            }
            RequestId::Key(key) => self.execute_keyed(request.principal, key, request, command),
        }
    }

    #[inline(never)]
    fn execute_numbered(
        &mut self,
        lease: SlabIndex,
        seq: u64,
        done: u64,
        request: &Request<'_>,
        command: &[u8],
    ) -> Result<Outcome, Refusal> {
        self.forget_requests(lease, done);
        let record = self.leases.at_mut(lease);
        record.done = record.done.max(done);
        let (id, done) = ((record.id, record.created), record.done);
        if seq <= done {
            return Err(Refusal::RequestStale);
        }
        let hash = xxh3_64(command);
        let (_, found) = self.find_numbered(lease, seq);
        if let Some(found) = found
            && !mutant!("repeated_request_runs_again")
        {
            let record = self.seq_requests.at(found);
            if record.hash != hash {
                return Err(Refusal::RequestConflict);
            }
            let (ask, outcome) = (record.answer.ask(), self.repeat(&record.answer));
            if let Some(counted) = ask.and_then(|ask| self.count_repeated(ask, &outcome)) {
                self.seq_requests.at_mut(found).answer = Remembered::Ask(counted);
            }
            return Ok(outcome);
        }
        if seq > done.saturating_add(SEQ_WINDOW) {
            return Err(Refusal::RequestWindow { window: SEQ_WINDOW });
        }
        let room = self.room_for_numbered(lease);
        // A command that makes room is never refused for want of it, and neither is one that repeats a request.
        if let Err(full) = &room
            && request.command.grows()
            && !self.asks_again(&request.command)
        {
            return Err(full.clone());
        }
        let before = self.revision;
        let result = self.run(request);
        // What changed something must not happen twice. Without room there is a bound on that: such a command ends or
        // uses up something that exists.
        let remembered = room.is_ok() || self.revision != before;
        if matches!(request.command, Command::Renew(_)) || !remembered {
            return Ok(self.dated(result));
        }
        // The command may have ended the lease. Then there is no list to keep the record in.
        let alive = self.leases.get(lease).is_some_and(|lease| (lease.id, lease.created) == id);
        if alive && found.is_none() {
            let answer = self.remember(request, &result);
            // Search only now: the command may have removed the neighbouring records.
            let (before, _) = self.find_numbered(lease, seq);
            let in_lease = ListLink::default();
            let slot = self.seq_requests.insert(SeqRequest { lease, seq, hash, answer, in_lease });
            let list = &mut self.leases.at_mut(lease).requests;
            list.insert_after::<IN_LEASE, _>(&mut self.seq_requests, before, slot);
            let (weight, owner) =
                (self.seq_requests.at(slot).weight(), self.leases.at(lease).owner);
            self.state_bytes += weight;
            if self.pays_for_numbered() {
                self.owners.count(owner, |used| used.bytes += weight);
            }
        }
        Ok(self.dated(result))
    }

    /// Refuses if the state, or the quota of the lease's owner, has no room for one more record of the lease.
    fn room_for_numbered(&self, lease: SlabIndex) -> Result<(), Refusal> {
        if !self.pays_for_numbered() {
            return Ok(());
        }
        self.check_space()?;
        let owner = self.leases.at(lease).owner;
        self.check_quota(self.owner_pays(owner), Quota::Bytes, SEQ_REQUEST_BYTES)
    }

    /// Whether a request is about locks that its lease holds or awaits already, so that it takes none, whatever its
    /// answer.
    fn asks_again(&self, command: &Command<'_>) -> bool {
        let acquire = match command {
            Command::Acquire(acquire) => acquire,
            Command::Upgrade(upgrade) => return self.upgrades_again(upgrade),
            _ => return false,
        };
        let lease = match acquire.lease {
            AskLease::Existing(lease) => lease,
            AskLease::New(new) => LeaseRef::Id(new.id),
        };
        let Ok(lease) = self.own_lease(lease) else { return false };
        let mut asks = acquire.locks.as_slice().iter();
        match &acquire.locks {
            // The name of the pool has not been checked yet.
            Asks::Pool(ask) => self.has_of_pool(lease, ask.lock),
            Asks::One(_) | Asks::Many(_) => asks.any(|ask| {
                self.lock_slot(ask.lock).is_some_and(|lock| {
                    self.grant_of(lease, lock).is_some() || self.place_of(lease, lock).is_some()
                })
            }),
        }
    }

    /// Whether the records of numbered requests count against the quota of their owner.
    pub(super) fn pays_for_numbered(&self) -> bool {
        self.level >= LEVEL_FAIR_RECORDS && !mutant!("numbered_request_costs_nothing")
    }

    #[inline(never)]
    fn execute_keyed(
        &mut self,
        principal: &str,
        key: &str,
        request: &Request<'_>,
        command: &[u8],
    ) -> Result<Outcome, Refusal> {
        self.check_name(key)?;
        self.check_limit(Limit::NameBytes, principal.len() as u64)?;
        self.forget_old_keys();
        let hash = xxh3_64(command);
        let index = (Box::from(principal), name(key));
        if let Some(&found) = self.key_requests_by_key.get(&index) {
            let record = self.key_requests.at(found);
            if record.hash != hash {
                return Err(Refusal::RequestConflict);
            }
            let (ask, outcome) = (record.answer.ask(), self.repeat(&record.answer));
            if let Some(counted) = ask.and_then(|ask| self.count_repeated(ask, &outcome)) {
                self.key_requests.at_mut(found).answer = Remembered::Ask(counted);
            }
            return Ok(outcome);
        }
        let lease = self.record_lease(request);
        self.check_share(&RecordOwner::new(principal, lease))?;
        let result = self.run(request);
        if matches!(request.command, Command::Renew(_)) {
            return Ok(self.dated(result));
        }
        let slot = self.key_requests.insert(KeyRequest {
            principal: index.0.clone(),
            key: index.1.clone(),
            lease,
            hash,
            since_ms: self.clock_ms,
            answer: self.remember(request, &result),
            in_order: ListLink::default(),
        });
        self.key_request_order.push::<IN_ORDER, _>(&mut self.key_requests, slot);
        self.key_requests_by_key.insert(index, slot);
        self.key_request_shares.add(self.key_requests.at(slot));
        Ok(self.dated(result))
    }

    /// The lease that owns the record of a request with a key: that of the caller, if it has no principal.
    fn record_lease(&self, request: &Request<'_>) -> Option<LeaseId> {
        if self.level < LEVEL_FAIR_RECORDS || !request.principal.is_empty() {
            return None;
        }
        let slot = self.live_lease(request.command.lease()?).ok()?;
        Some(self.leases.at(slot).id)
    }

    /// Refuses one more record of a request with a key if there is no room for it, or if its owner has as many as are
    /// still free. So an owner alone gets half of them, and what `n` owners leave free is never less than one part in
    /// `n + 1`, which any other owner can have. A record is kept for its whole time: an owner whose share is full is
    /// refused, because without its oldest record a retry that is under way would be executed again.
    fn check_share(&self, owner: &RecordOwner) -> Result<(), Refusal> {
        let total = self.key_request_shares.total();
        self.check_limit(Limit::Requests, total.records + 1)?;
        let (limit, bound) = (Limit::RequestBytes, self.limits.get(Limit::RequestBytes));
        if total.bytes >= bound {
            return Err(Refusal::Limit { limit, bound, asked: total.bytes });
        }
        if self.level < LEVEL_FAIR_RECORDS || mutant!("one_owner_takes_all_records") {
            return Ok(());
        }
        let own = self.key_request_shares.of(owner);
        let free = self.limits.get(Limit::Requests) - total.records;
        if own.records >= free {
            let (bound, asked) = (free, own.records + 1);
            return Err(Refusal::Limit { limit: Limit::Requests, bound, asked });
        }
        let free = bound - total.bytes;
        if own.bytes >= free {
            return Err(Refusal::Limit { limit, bound: free, asked: own.bytes });
        }
        Ok(())
    }

    /// Removes the records of a lease's requests up to `done`.
    pub(super) fn forget_requests(&mut self, lease: SlabIndex, done: u64) {
        while let Some(first) = self.leases.at(lease).requests.first
            && self.seq_requests.at(first).seq <= done
        {
            self.forget_numbered(lease, first);
        }
    }

    /// Removes the record of one request of a lease.
    pub(super) fn forget_numbered(&mut self, lease: SlabIndex, request: SlabIndex) {
        let record = self.leases.at_mut(lease);
        record.requests.remove::<IN_LEASE, _>(&mut self.seq_requests, request);
        let (weight, owner) = (self.seq_requests.remove(request).weight(), record.owner);
        self.state_bytes -= weight;
        if self.pays_for_numbered() {
            self.owners.count(owner, |used| used.bytes -= weight);
        }
    }

    fn forget_old_keys(&mut self) {
        while let Some(first) = self.key_request_order.first {
            let oldest = self.key_requests.at(first);
            if oldest.since_ms.saturating_add(REMEMBER_MS) >= self.clock_ms {
                return;
            }
            self.forget_key(first);
        }
    }

    /// Removes the record of one idempotency key.
    pub(super) fn forget_key(&mut self, request: SlabIndex) {
        self.key_request_order.remove::<IN_ORDER, _>(&mut self.key_requests, request);
        let gone = self.key_requests.remove(request);
        self.key_request_shares.remove(&gone);
        self.key_requests_by_key.remove(&(gone.principal, gone.key));
    }

    /// Returns the record of a number, and the record that it follows or would follow. Numbers mostly increase, so the
    /// search starts at the end.
    pub(super) fn find_numbered(
        &self,
        lease: SlabIndex,
        seq: u64,
    ) -> (Option<SlabIndex>, Option<SlabIndex>) {
        let mut at = self.leases.at(lease).requests.last;
        while let Some(slot) = at {
            let record = self.seq_requests.at(slot);
            if record.seq == seq {
                return (record.in_lease.before, Some(slot));
            }
            if record.seq < seq {
                break;
            }
            at = record.in_lease.before;
        }
        (at, None)
    }

    fn remember(&self, request: &Request<'_>, result: &Result<Answer, Refusal>) -> Remembered {
        let ask = |lease: &crate::outcome::LeaseGrant, place| {
            let (lease, created, asks) = (lease.id, lease.created, AskCount::first(self.level));
            Remembered::Ask(AskRecord { lease, created, place, asks })
        };
        if let Ok(Answer::AlreadyHeld(_)) = result
            && let Some(held) = self.held_record(&request.command)
        {
            return Remembered::Held(held);
        }
        match result {
            Ok(Answer::Acquired(acquired)) => ask(&acquired.lease, acquired.place),
            Ok(Answer::Queued(queued)) => ask(&queued.lease, queued.place),
            other => Remembered::Outcome(Box::new(self.dated(other.clone()))),
        }
    }

    /// The record of a request to leave a queue whose lease holds the lock already.
    fn held_record(&self, command: &Command<'_>) -> Option<HeldRecord> {
        let Command::Leave { lease, lock } = command else { return None };
        if self.level < LEVEL_REPAIRED_SHARES || mutant!("held_answer_remembered_whole") {
            return None;
        }
        let slot = self.live_lease(*lease).ok()?;
        let grant = self.grant_of(slot, self.lock_slot(lock)?)?;
        let (lease, place) = (self.leases.at(slot), self.grants.at(grant).place);
        Some(HeldRecord { lease: lease.id, created: lease.created, place })
    }

    /// Repeats the answer with its original revision, by which the caller of a key write identifies its own write.
    fn repeat(&self, answer: &Remembered) -> Outcome {
        match answer {
            Remembered::Outcome(outcome) => Outcome::clone(outcome),
            Remembered::Ask(ask) => {
                self.dated(Ok(self.ask_standing(ask.lease, ask.created, ask.place)))
            }
            Remembered::Held(held) => {
                let standing = self.ask_standing(held.lease, held.created, held.place);
                self.dated(Ok(match standing {
                    Answer::Acquired(acquired) => Answer::AlreadyHeld(acquired.grants),
                    // It neither holds the locks any more nor waits for them.
                    _ => Answer::Left,
                }))
            }
        }
    }

    /// The present state of an acquire request: it waits, it holds, or it is over.
    pub(crate) fn ask_standing(
        &self,
        lease: LeaseId,
        created: Revision,
        place: PlaceNumber,
    ) -> Answer {
        let slot = match self.live_lease(LeaseRef::Id(lease)) {
            Ok(slot) if self.leases.at(slot).created == created => slot,
            _ => return Answer::Ended,
        };
        if let Some(waiting) = self.find_place(slot, place) {
            return self.queued_answer(waiting);
        }
        match self.grants_of_place(slot, place) {
            Some(grants) => self.acquired_answer(slot, place, grants),
            None => Answer::Ended,
        }
    }
}

impl SeqRequest {
    /// The record's share of the weight of the state.
    pub(crate) fn weight(&self) -> u64 {
        SEQ_REQUEST_BYTES + self.answer.name_bytes()
    }
}

impl KeyRequest {
    /// The owner whose share the record takes.
    pub(crate) fn owner(&self) -> RecordOwner {
        RecordOwner::new(&self.principal, self.lease)
    }

    /// The record's share of the bytes of remembered requests.
    pub(crate) fn weight(&self) -> u64 {
        let texts = self.principal.len() + self.key.as_bytes().len();
        KEY_REQUEST_BYTES + texts as u64 + self.answer.name_bytes()
    }
}

impl Remembered {
    fn name_bytes(&self) -> u64 {
        match self {
            Remembered::Ask(_) | Remembered::Held(_) => 0,
            Remembered::Outcome(outcome) => match &outcome.result {
                Ok(answer) => answer.name_bytes(),
                Err(refusal) => refusal.name_bytes(),
            },
        }
    }
}
