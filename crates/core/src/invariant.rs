//! Checks the invariants of the whole state.
//!
//! Tests and simulations run these checks after every command, and the snapshot reader runs them once. The numbers are
//! those of `ARCHITECTURE.md`.

use alloc::string::{String, ToString};
use tenure_types::{Mode, Revision, Token};

use crate::machine::Machine;
use crate::request::LEVEL_SHARES;
use crate::state::due::DueKind;
use crate::state::record::{Grant, GrantMode, GrantState, IN_LEASE, IN_LOCK, IN_QUEUE, Place};
use crate::state::shares::RecordShares;
use crate::state::slab::SlabIndex;

/// A broken invariant.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{invariant}: {detail}")]
pub struct Violation {
    /// Its number in `ARCHITECTURE.md`.
    pub invariant: &'static str,
    /// The observed state that breaks the invariant.
    pub detail: String,
}

/// Returns the violation if the condition does not hold. The detail is formatted only then: a state has millions of
/// records, and every one of them is checked.
fn ensure(
    holds: bool,
    invariant: &'static str,
    detail: impl core::fmt::Display,
) -> Result<(), Violation> {
    if holds { Ok(()) } else { Err(Violation { invariant, detail: detail.to_string() }) }
}

impl Machine {
    /// Checks the whole state.
    pub fn check_invariants(&self) -> Result<(), Violation> {
        self.check_locks()?;
        self.check_grants()?;
        self.check_places()?;
        self.check_leases()?;
        self.check_requests()?;
        self.check_owners()?;
        self.check_history()?;
        self.check_sums()
    }

    /// S1: at every revision an exclusive lock has at most one holder, and no lock has more holders than slots. Q2: no
    /// place at the head of a queue is grantable, and every lock has a grant or a queue.
    fn check_locks(&self) -> Result<(), Violation> {
        for (slot, lock) in self.locks.iter() {
            let grants = || lock.grants.iter::<IN_LOCK, _>(&self.grants).map(|(_, grant)| grant);
            let exclusive = grants().filter(|grant| grant.mode == GrantMode::Exclusive).count();
            ensure(
                exclusive == 0 || lock.grants.len == 1,
                "S1",
                format_args!("lock `{}` is held by others beside an exclusive holder", lock.name),
            )?;
            let slots = lock.slots.map(core::num::NonZeroU32::get);
            for grant in grants() {
                let fits = match (grant.mode, slots) {
                    // A semaphore that was made smaller keeps its holders.
                    (GrantMode::Slot(number), Some(of)) => {
                        number < of || self.level >= LEVEL_SHARES
                    }
                    (GrantMode::Exclusive | GrantMode::Shared, None) => true,
                    _ => false,
                };
                ensure(fits, "S1", format_args!("a grant of lock `{}` has no room", lock.name))?;
            }
            let slots_and_tokens = || grants().map(|grant| (grant.mode.slot(), grant.token));
            ensure(
                slots_and_tokens().zip(slots_and_tokens().skip(1)).all(|(a, b)| match (a.0, b.0) {
                    (Some(a), Some(b)) => a < b,
                    _ => a.1 < b.1,
                }),
                "S1",
                format_args!(
                    "two grants of lock `{}` share a slot or stand out of order",
                    lock.name
                ),
            )?;
            ensure(
                lock.grants.len > 0 || lock.queue.len > 0 || lock.sized,
                "Q2",
                format_args!("lock `{}` exists without a holder or a waiter", lock.name),
            )?;
            ensure(
                self.names.find(&self.locks, lock.name.as_bytes()) == Some(slot),
                "S9",
                format_args!("lock `{}` is not in the index", lock.name),
            )?;
            self.check_queue(slot)?;
        }
        ensure(self.locks.len() == self.names.len(), "S9", "the index has other locks")
    }

    fn check_queue(&self, slot: SlabIndex) -> Result<(), Violation> {
        let lock = self.locks.at(slot);
        let mut before = None;
        for (_, wait) in lock.queue.iter::<IN_QUEUE, _>(&self.waits) {
            let rank = self.places.at(wait.place).rank();
            ensure(
                before < Some(rank),
                "Q1",
                format_args!("queue of `{}` is out of order", lock.name),
            )?;
            ensure(wait.lock == slot, "Q1", "a wait stands in another lock's queue")?;
            ensure(
                wait.mode.slots() == lock.slots.map(core::num::NonZeroU32::get),
                "S1",
                "a place waits for another kind of lock",
            )?;
            let enough = wait.mode.slots().is_none_or(|of| wait.mode.grants() <= of);
            ensure(enough, "Q9", "a place waits for more slots than there are")?;
            before = Some(rank);
        }
        let indexed = self.ranks.get(&slot).is_none_or(|it| it.len() == lock.queue.len as usize);
        ensure(indexed, "Q1", "the index of a queue's order differs from the queue")?;
        if let Some(first) = lock.queue.first {
            let place = self.waits.at(first).place;
            let granted = self.could_be_granted(place) && !self.is_to_be_served(place);
            ensure(
                !granted,
                "Q2",
                format_args!("the first place of `{}` could be granted", lock.name),
            )?;
        }
        Ok(())
    }

    /// Whether the machine has yet to serve the queues of this place, because they were reopened.
    pub(crate) fn is_to_be_served(&self, place: SlabIndex) -> bool {
        let lease = self.leases.at(self.places.at(place).lease).id;
        self.reopening().is_some_and(|reopening| reopening.is_ahead(lease))
    }

    /// Whether a place can be granted now.
    pub(crate) fn could_be_granted(&self, place: SlabIndex) -> bool {
        let record = self.places.at(place);
        if record.any {
            return !self.is_quiet()
                && self.is_live(record.lease)
                && self.free_wait(record).is_some();
        }
        let locks = self.slots_awaited(place);
        !self.is_quiet()
            && self.is_live(record.lease)
            && locks <= self.tokens_left()
            && self.waits_of(place).all(|(slot, wait)| {
                // An upgrade is grantable beside its own hold, and a drained prefix does not hold it back.
                let lock = self.locks.at(wait.lock);
                lock.queue.first == Some(slot)
                    && match record.upgrade {
                        true => lock.grants.len == 1,
                        false => self.admits(wait.lock, wait.mode) && !self.is_drained(wait.lock),
                    }
            })
    }

    /// S2: no grant has a token above the newest one. T2: every cooling, lock-delay and max hold is in the list of
    /// deadlines.
    fn check_grants(&self) -> Result<(), Violation> {
        let newest = Token::new(self.epoch, self.counter).map_or(0, Token::get);
        let mut beside = 0;
        for (slot, grant) in self.grants.iter() {
            if grant.mode != GrantMode::Exclusive {
                beside += 1;
                let known = self.tokens.find(grant.token) == Some(slot);
                ensure(known, "S9", "a grant is not found by its token")?;
            }
            ensure(grant.token.get() <= newest, "S2", "a grant has a token that was never given")?;
            ensure(grant.place <= self.newest_place, "Q3", "a grant has a place that never was")?;
            ensure(grant.since_ms <= self.clock_ms, "T1", "a grant is from the future")?;
            if let GrantState::Over(over) = &grant.state {
                let kind = over.phase.due();
                let due = self.due.contains(over.until_ms, kind, grant.token.get(), Some(slot));
                ensure(due, "T2", "a grant that keeps others out never ends")?;
            }
            self.check_deadlines(slot, grant)?;
        }
        ensure(beside == self.tokens.len(), "S9", "the index of tokens has other grants")?;
        let in_locks: usize = self.locks.iter().map(|(_, lock)| lock.grants.len as usize).sum();
        ensure(in_locks == self.grants.len(), "S9", "a grant belongs to no lock")
    }

    fn check_deadlines(&self, slot: SlabIndex, grant: &Grant) -> Result<(), Violation> {
        for (due_ms, kind) in self.deadlines_of(grant).into_iter().flatten() {
            let due = self.due.contains(due_ms, kind, grant.token.get(), Some(slot));
            match kind {
                DueKind::Progress => ensure(due, "T6", "a grant is held without progress")?,
                _ => ensure(due, "T2", "a grant is held beyond its longest hold")?,
            }
        }
        Ok(())
    }

    /// Q3: each place is in the queue of each of its locks exactly once.
    fn check_places(&self) -> Result<(), Violation> {
        let mut waits = 0;
        for (slot, place) in self.places.iter() {
            ensure(place.number <= self.newest_place, "Q3", "a place was never given")?;
            let names = || self.waits_of(slot).map(|(_, wait)| &self.locks.at(wait.lock).name);
            let ordered = names().zip(names().skip(1)).all(|(a, b)| a < b);
            ensure(ordered, "Q3", "a place stands twice in a queue, or out of order")?;
            waits += names().count();
            if place.upgrade {
                self.check_upgrade(slot, place)?;
            }
            ensure(!(place.any && place.upgrade), "Q3", "an upgrade cannot choose")?;
            ensure(place.any || place.pool.is_none(), "Q3", "a place needs a whole pool")?;
            if let Some(until_ms) = place.until_ms {
                let number = place.number.0;
                let due = self.due.contains(until_ms.get(), DueKind::WaitLimit, number, Some(slot));
                ensure(due, "Q2", "a wait with a limit never ends")?;
            }
        }
        let grouped: usize =
            self.places.iter().map(|(slot, _)| self.group_keys(slot).count()).sum();
        let mut known = self.places.iter().flat_map(|(slot, _)| {
            self.group_keys(slot).map(move |key| self.groups.get(&key) == Some(&slot))
        });
        let indexed = grouped == self.groups.len() && known.all(|known| known);
        ensure(indexed, "Q6", "two requests of a group wait for one lock")?;
        self.check_pools()?;
        let in_queues: usize = self.locks.iter().map(|(_, lock)| lock.queue.len as usize).sum();
        ensure(waits == self.waits.len() && in_queues == waits, "Q3", "a wait belongs to no place")
    }

    /// Q10: a request for any slot of a pool waits for slots of that pool only, and the index has every slot.
    fn check_pools(&self) -> Result<(), Violation> {
        let places = self.places.iter().filter(|(_, place)| place.pool.is_some());
        ensure(places.count() == self.pool_waiters.len(), "Q10", "a pool has other waiters")?;
        for key in &self.pool_waiters {
            let (pool, _, place) = key;
            let known = self.places.get(*place).is_some();
            let same = known && self.pool_key(*place).as_ref() == Some(key);
            ensure(same, "Q10", "a place is not with its pool")?;
            let mut waits = self.waits_of(*place).map(|(_, wait)| self.locks.at(wait.lock));
            let of_pool = waits.all(|it| it.sized && it.name.as_str().starts_with(pool.as_str()));
            ensure(of_pool, "Q10", "a request for a pool waits for another lock")?;
        }
        let mut sized = self.sized.iter();
        let known = |name: &tenure_types::Name, slot| {
            self.locks.get(slot).is_some_and(|lock| lock.sized && lock.name == *name)
        };
        let indexed = sized.all(|(name, slot)| known(name, *slot));
        let many = self.locks.iter().filter(|(_, lock)| lock.sized).count();
        ensure(indexed && many == self.sized.len(), "Q10", "a slot is not in its pool")
    }

    /// Q8: who waits for an upgrade holds the lock shared, waits for nothing else with it, and stands first.
    fn check_upgrade(&self, slot: SlabIndex, place: &Place) -> Result<(), Violation> {
        let wait = self.waits.at(place.first);
        let held = self.shared_grant(place.lease, wait.lock).is_some();
        ensure(held, "Q8", "an upgrade waits for a lock that its lease does not hold")?;
        let alone = wait.next.is_none() && wait.mode == Mode::Exclusive && place.priority == 0;
        ensure(alone && place.group.is_none(), "Q8", "an upgrade asks for more")?;
        let first = self.locks.at(wait.lock).queue.first.map(|first| self.waits.at(first).place);
        ensure(first == Some(slot), "Q8", "two upgrades wait for one lock")
    }

    /// S5: every held grant, place and leased key belongs to a lease that exists.
    fn check_leases(&self) -> Result<(), Violation> {
        let (mut grants, mut places, mut keys) = (0, 0, 0);
        for (slot, lease) in self.leases.iter() {
            let due =
                self.due.contains(lease.deadline_ms, DueKind::Lease, lease.id.get(), Some(slot));
            ensure(due, "T1", "a lease never ends")?;
            let longest_ms = self.deadline(u64::from(lease.ttl_ms));
            ensure(lease.deadline_ms <= longest_ms, "T1", "a lease outlives its ttl")?;
            ensure(lease.created <= self.revision, "S5", "a lease is from the future")?;
            ensure(
                self.leases_by_id.get(&lease.id) == Some(&slot),
                "S9",
                "a lease is not indexed",
            )?;
            let mut held = lease.grants.iter::<IN_LEASE, _>(&self.grants);
            ensure(
                held.all(|(_, grant)| matches!(grant.state, GrantState::Held(by) if by == slot)),
                "S5",
                "a lease lists a grant that is not its own",
            )?;
            let mut waiting = lease.places.iter::<IN_LEASE, _>(&self.places);
            ensure(waiting.all(|(_, place)| place.lease == slot), "Q3", "a place has two leases")?;
            let waits: u64 = lease
                .places
                .iter::<IN_LEASE, _>(&self.places)
                .map(|(slot, _)| self.slots_awaited(slot))
                .sum();
            ensure(waits == u64::from(lease.waits), "Q3", "a lease miscounts what it waits for")?;
            grants += lease.grants.len as usize;
            places += lease.places.len as usize;
            keys += lease.keys.len as usize;
        }
        ensure(self.leases.len() == self.leases_by_id.len(), "S9", "the index has other leases")?;
        let held = self.grants.iter().filter(|(_, grant)| grant.is_held()).count();
        ensure(grants == held, "S5", "a grant is held by a lease that has ended")?;
        ensure(places == self.places.len(), "Q2", "a place outlives its lease")?;
        let leased = self.keys.iter().filter(|(_, key)| key.lease.is_some()).count();
        ensure(keys == leased, "S5", "a key outlives its lease")
    }

    /// S7: the records of requests are in order and within their bounds.
    fn check_requests(&self) -> Result<(), Violation> {
        let mut remembered = 0;
        for (_, lease) in self.leases.iter() {
            let seqs =
                || lease.requests.iter::<IN_LEASE, _>(&self.seq_requests).map(|(_, r)| r.seq);
            let ordered = seqs().zip(seqs().skip(1)).all(|(a, b)| a < b);
            ensure(ordered, "S7", "requests of a lease are out of order")?;
            let last = lease.done.saturating_add(crate::command::SEQ_WINDOW);
            let within = seqs().all(|seq| seq > lease.done && seq <= last);
            ensure(within, "S7", "a request is remembered outside the window")?;
            remembered += lease.requests.len as usize;
        }
        ensure(remembered == self.seq_requests.len(), "S7", "a request outlives its lease")?;
        let mut shares = RecordShares::default();
        self.key_requests.iter().for_each(|(_, request)| shares.add(request));
        ensure(shares == self.key_request_shares, "S7", "idempotency keys are miscounted")?;
        let indexed = self.key_requests_by_key.len() == self.key_requests.len()
            && self.key_request_order.len as usize == self.key_requests.len();
        ensure(indexed, "S7", "an idempotency key is not indexed")
    }

    /// A3: the leases of a revoked principal are in the list of deadlines until they end. A4: what a principal uses is
    /// counted as its records are.
    fn check_owners(&self) -> Result<(), Violation> {
        for (id, owner) in self.owners.iter() {
            let Some(since_ms) = owner.revoked_ms.filter(|_| owner.used.leases > 0) else {
                continue;
            };
            let number = u64::from(id.number());
            let due = self.due.contains(since_ms, DueKind::Revoked, number, None);
            ensure(due && since_ms <= self.clock_ms, "A3", "a lease outlives its principal")?;
        }
        let counted = self.count_owners();
        ensure(counted.as_ref() == Some(&self.owners), "A4", "what a principal uses is miscounted")
    }

    /// W3: history is complete from its floor to the newest revision.
    fn check_history(&self) -> Result<(), Violation> {
        let mut next = self.history.floor();
        for (revision, _) in self.history.records(Revision(0)) {
            ensure(revision == next, "W3", "history has a gap")?;
            next = revision.next();
        }
        ensure(next == self.revision.next(), "W3", "history does not reach the newest revision")
    }

    fn check_sums(&self) -> Result<(), Violation> {
        ensure(self.base_ms <= self.clock_ms, "T1", "the clock is behind its base")?;
        ensure(self.weigh() == self.state_bytes, "S9", "the weight of the state is miscounted")?;
        let deadlines = self.leases.len()
            + self.places.iter().filter(|(_, place)| place.until_ms.is_some()).count()
            + self.grants.iter().filter(|(_, grant)| !grant.is_held()).count()
            + self
                .grants
                .iter()
                .map(|(_, g)| self.deadlines_of(g).iter().flatten().count())
                .sum::<usize>()
            + usize::from(self.quiet_until_ms.is_some())
            + usize::from(self.reopening.is_some())
            + self.owners.ending();
        ensure(self.due.len() == deadlines, "S9", "something is due that does not exist")
    }
}
