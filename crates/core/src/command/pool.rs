//! Keeps the requests for any slot of a pool in the queues of its slots.
//!
//! A pool is a prefix, such as `gpu/`. Its slots are the semaphores below it whose numbers of slots an operator has
//! set: each has a name of its own, and its own queue, tokens and history. A request for the pool waits in the queues
//! of all of them. It joins the queue of a slot that is added while it waits, and leaves the queue of one that is
//! removed.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::num::NonZeroU32;
use core::ops::Bound;
use tenure_types::{Limit, Mode, Name, PlaceNumber, Quota, Refusal};

use super::acquire::Located;
use super::name;
use super::queue::WAIT_BYTES;
use super::standing::HeldPart;
use crate::codec::{EventRef, SubjectRef};
use crate::event::Cause;
use crate::machine::Machine;
use crate::outcome::Notice;
use crate::request::Ask;
use crate::state::list::ListLink;
use crate::state::rank::Rank;
use crate::state::record::{Grant, IN_LEASE, IN_QUEUE, Place, WaitRecord};
use crate::state::slab::SlabIndex;

/// A place that waits for any slot of a pool: the prefix of the pool, the rank of the place, and the place.
pub(crate) type PoolKey = (Name, Rank, SlabIndex);

/// One slot of a pool.
pub(super) struct PoolSlot {
    pub(super) name: Name,
    pub(super) lock: SlabIndex,
    pub(super) mode: Mode,
}

impl PoolSlot {
    /// The slot as a lock of a request.
    pub(super) fn located(&self) -> Located<'_> {
        Located { ask: Ask { lock: &self.name, mode: self.mode }, lock: Some(self.lock) }
    }
}

impl Machine {
    /// What a lease already has of a pool, whichever slots the pool has now: a place for a slot of it, or a slot by a
    /// request that has no other grant.
    #[inline(never)]
    pub(super) fn pool_standing(
        &self,
        lease: SlabIndex,
        ask: &Ask<'_>,
    ) -> Result<HeldPart, Refusal> {
        let overlap = || Refusal::Overlap { lock: name(ask.lock) };
        if let Some((place, found)) = self.place_in_pool(lease, ask.lock) {
            let same = self.waits.at(found.first).mode.grants() == ask.mode.grants();
            return if same { Ok(HeldPart::Waits(place)) } else { Err(overlap()) };
        }
        // The order of the list depends on how the state was built.
        let first = self
            .grants_below(lease, ask.lock)
            .min_by_key(|grant| (&self.locks.at(grant.lock).name, grant.token));
        let Some(first) = first else { return Ok(HeldPart::Nothing) };
        let held = self.grants_of_place(lease, first.place).ok_or_else(overlap)?;
        let lock = &self.locks.at(first.lock).name;
        let same = held.as_slice().iter().all(|grant| grant.lock == *lock)
            && held.as_slice().len() as u64 == u64::from(ask.mode.grants());
        if same { Ok(HeldPart::Holds(first.place, held)) } else { Err(overlap()) }
    }

    /// Whether a lease waits for a slot of a pool or holds one. The name of the pool need not be valid.
    pub(super) fn has_of_pool(&self, lease: SlabIndex, pool: &str) -> bool {
        self.place_in_pool(lease, pool).is_some() || self.grants_below(lease, pool).next().is_some()
    }

    /// The place in which a lease waits for a slot of a pool.
    fn place_in_pool(&self, lease: SlabIndex, pool: &str) -> Option<(SlabIndex, &Place)> {
        let of_pool = |place: &Place| place.pool.as_deref().is_some_and(|it| **it == *pool);
        let mut places = self.leases.at(lease).places.iter::<IN_LEASE, _>(&self.places);
        places.find(|(_, place)| of_pool(place))
    }

    /// The slots of semaphores that a lease holds below a prefix.
    fn grants_below<'a>(
        &'a self,
        lease: SlabIndex,
        prefix: &'a str,
    ) -> impl Iterator<Item = &'a Grant> {
        let grants = self.leases.at(lease).grants.iter::<IN_LEASE, _>(&self.grants);
        grants.map(|(_, grant)| grant).filter(move |grant| {
            grant.mode.slot().is_some() && self.locks.at(grant.lock).name.starts_with(prefix)
        })
    }

    /// Refuses a new request for a pool by a lease that waits for one of its slots in another way.
    #[inline(never)]
    pub(super) fn check_pool_overlap(
        &self,
        lease: SlabIndex,
        slots: &[Located<'_>],
    ) -> Result<(), Refusal> {
        for slot in slots {
            if slot.lock.is_some_and(|lock| self.place_of(lease, lock).is_some()) {
                return Err(Refusal::Overlap { lock: name(slot.ask.lock) });
            }
        }
        Ok(())
    }

    /// The slots of a pool that a request can be granted, in the order of names.
    #[inline(never)]
    pub(super) fn pool_slots(&self, ask: &Ask<'_>) -> Result<Vec<PoolSlot>, Refusal> {
        let take = ask.mode.grants();
        let prefix = ask.lock.as_bytes();
        let below = self.sized.range::<[u8], _>((Bound::Included(prefix), Bound::Unbounded));
        let below = below.take_while(|(name, _)| name.as_bytes().starts_with(prefix));
        let slot = |(name, lock): (&Name, &SlabIndex)| {
            let of = self.locks.at(*lock).slots?.get();
            let mode = Mode::Slot { of, take };
            (take <= of).then(|| PoolSlot { name: name.clone(), lock: *lock, mode })
        };
        // One more than a request may name is enough to refuse it.
        let most = usize::try_from(self.limits.get(Limit::LocksPerAsk)).unwrap_or(usize::MAX);
        let slots: Vec<PoolSlot> = below.filter_map(slot).take(most.saturating_add(1)).collect();
        if slots.is_empty() || take == 0 {
            return Err(Refusal::PoolEmpty { pool: name(ask.lock) });
        }
        self.check_limit(Limit::LocksPerAsk, slots.len() as u64)?;
        Ok(slots)
    }

    /// Enters a place into the index of pools.
    #[inline(never)]
    pub(crate) fn join_pool(&mut self, place: SlabIndex) {
        if let Some(key) = self.pool_key(place) {
            self.pool_waiters.insert(key);
        }
    }

    /// Removes a place from the index of pools.
    #[inline(never)]
    pub(super) fn leave_pool(&mut self, place: SlabIndex) {
        if let Some(key) = self.pool_key(place) {
            self.pool_waiters.remove(&key);
        }
    }

    pub(crate) fn pool_key(&self, place: SlabIndex) -> Option<PoolKey> {
        let record = self.places.at(place);
        let pool = record.pool.as_deref()?;
        Some((pool.clone(), record.rank(), place))
    }

    /// Notes that an operator has set the number of slots of a semaphore. Requests for a pool that it is below join its
    /// queue, each at the position of its rank, unless they take more slots than it has.
    pub(super) fn add_to_pools(&mut self, lock: SlabIndex) {
        let record = self.locks.at(lock);
        let (lock_name, of) = (record.name.clone(), record.slots.map_or(0, NonZeroU32::get));
        self.sized.insert(lock_name.clone(), lock);
        if self.pool_waiters.is_empty() || mutant!("new_slot_forgets_waiters") {
            return;
        }
        let mut joining: Vec<(Rank, SlabIndex)> = Vec::new();
        for (end, _) in lock_name.as_str().char_indices().skip(1).chain([(lock_name.len(), ' ')]) {
            let Ok(pool) = Name::new(&lock_name.as_str()[..end]) else { continue };
            let first = (pool.clone(), (0, PlaceNumber(0)), lock);
            let of_pool = self.pool_waiters.range(first..).take_while(|(it, _, _)| *it == pool);
            joining.extend(of_pool.map(|(_, rank, place)| (*rank, *place)));
        }
        joining.sort_unstable();
        for (_, place) in joining {
            let take = self.waits.at(self.places.at(place).first).mode.grants();
            if self.may_join(place, lock) && take <= of {
                self.add_wait(place, lock, Mode::Slot { of, take });
            }
        }
    }

    /// Whether a place may wait for one more lock: its lease neither holds nor awaits the lock, no other request of its
    /// group does, and the limits leave room.
    fn may_join(&self, place: SlabIndex, lock: SlabIndex) -> bool {
        let record = self.places.at(place);
        let lease = record.lease;
        let alone = self.grant_of(lease, lock).is_none() && self.place_of(lease, lock).is_none();
        let grouped = self.group_key(place, lock).is_some_and(|it| self.groups.contains_key(&it));
        let waits = self.waits_of(place).count() as u64;
        let queue = u64::from(self.locks.at(lock).queue.len);
        alone
            && !grouped
            && self.may_wait_for_more(place)
            && waits < self.limits.get(Limit::LocksPerAsk)
            && queue < self.limits.get(Limit::WaitersPerLock)
    }

    /// Whether the limits and quotas leave room for one more wait of a place.
    fn may_wait_for_more(&self, place: SlabIndex) -> bool {
        let record = self.places.at(place);
        let locks = u64::from(self.waits.at(record.first).mode.grants());
        let lease = self.leases.at(record.lease);
        let has = u64::from(lease.grants.len) + u64::from(lease.waits);
        let payer = || self.owner_pays(lease.owner);
        self.check_limit(Limit::LocksPerLease, has + locks).is_ok()
            && self.check_quota(payer(), Quota::Locks, locks).is_ok()
            && self.check_quota(payer(), Quota::Bytes, record.owned_bytes(locks)).is_ok()
    }

    /// Adds a wait for one more lock to a place, in the order of names and of ranks.
    fn add_wait(&mut self, place: SlabIndex, lock: SlabIndex, mode: Mode) {
        let lock_name = self.locks.at(lock).name.clone();
        let before = self
            .waits_of(place)
            .take_while(|(_, wait)| self.locks.at(wait.lock).name < lock_name)
            .last()
            .map(|(slot, _)| slot);
        let next = match before {
            Some(before) => self.waits.at(before).next,
            None => Some(self.places.at(place).first),
        };
        let in_queue = ListLink::default();
        let wait = self.waits.insert(WaitRecord { place, lock, mode, next, in_queue });
        match before {
            Some(before) => self.waits.at_mut(before).next = Some(wait),
            None => self.places.at_mut(place).first = wait,
        }
        // It may have asked before others that wait there already.
        self.rank_queue(lock);
        self.enqueue(wait);
        if let Some(key) = self.group_key(place, lock) {
            self.groups.insert(key, place);
        }
        self.state_bytes += WAIT_BYTES;
        self.count_wait(place, mode, |sum, part| sum + part);
        self.emit_wait(place, wait, Cause::Queued);
    }

    /// Notes that the number of slots of a semaphore is left to the requests again. Requests for a pool leave its
    /// queue.
    pub(super) fn remove_from_pools(&mut self, lock: SlabIndex) {
        if self.sized.remove(&self.locks.at(lock).name).is_none() || self.pool_waiters.is_empty() {
            return;
        }
        let queue = self.locks.at(lock).queue;
        let of_pools = queue.iter::<IN_QUEUE, _>(&self.waits);
        let of_pools = of_pools.filter(|(_, wait)| self.places.at(wait.place).pool.is_some());
        let leaving: Vec<(SlabIndex, SlabIndex)> =
            of_pools.map(|(slot, wait)| (slot, wait.place)).collect();
        for (wait, place) in leaving {
            if self.waits_of(place).count() > 1 {
                self.remove_wait(place, wait, Cause::Left);
            } else {
                self.end_pool_wait(place);
            }
        }
    }

    /// Removes one of several waits of a place for any of them.
    pub(super) fn remove_wait(&mut self, place: SlabIndex, wait: SlabIndex, cause: Cause) {
        self.emit_wait(place, wait, cause);
        if let Some(key) = self.group_key(place, self.waits.at(wait).lock) {
            self.groups.remove(&key);
        }
        let before = self.waits_of(place).take_while(|(slot, _)| *slot != wait).last();
        let before = before.map(|(slot, _)| slot);
        self.dequeue(wait);
        let gone = self.waits.remove(wait);
        match (before, gone.next) {
            (Some(before), next) => self.waits.at_mut(before).next = next,
            (None, next) => {
                self.places.at_mut(place).first = next.expect("the place has another wait");
            }
        }
        self.touch(gone.lock);
        self.state_bytes -= WAIT_BYTES;
        self.count_wait(place, gone.mode, |sum, part| sum - part);
    }

    /// Ends a request whose pool has no slot any more.
    fn end_pool_wait(&mut self, place: SlabIndex) {
        let record = self.places.at(place);
        let (number, lease) = (record.number, self.handle(record.lease));
        let pool = record.pool.as_deref().cloned().expect("it waits for a slot of a pool");
        self.remove_place(place, Cause::Left);
        let (revision, refusal) = (self.revision, Some(Box::new(Refusal::PoolEmpty { pool })));
        self.now.notices.push(Notice::WaitEnded { lease, place: number, revision, refusal });
    }

    /// Adds one wait of a place to what its lease and its owner have, or subtracts it.
    fn count_wait(&mut self, place: SlabIndex, mode: Mode, change: impl Fn(u64, u64) -> u64) {
        let record = self.places.at(place);
        let (lease, locks) = (record.lease, u64::from(mode.grants()));
        let bytes = record.owned_bytes(locks);
        let lease = self.leases.at_mut(lease);
        lease.waits = u32::try_from(change(u64::from(lease.waits), locks)).unwrap_or(u32::MAX);
        self.owners.count(lease.owner, |used| {
            used.locks = change(used.locks, locks);
            used.bytes = change(used.bytes, bytes);
        });
    }

    /// Emits the event of a place in the queue of one of its locks.
    fn emit_wait(&mut self, place: SlabIndex, wait: SlabIndex, cause: Cause) {
        let revision = self.begin_revision();
        let (record, wait) = (self.places.at(place), self.waits.at(wait));
        let lease = self.leases.at(record.lease);
        let queued = cause == Cause::Queued;
        self.history.emit(
            revision,
            &EventRef {
                lease: Some(lease.id),
                client: Some(lease.client.as_bytes()),
                mode: Some(wait.mode),
                place: Some(record.number),
                reason: queued.then(|| record.queued_reason()).flatten(),
                priority: queued.then_some(record.priority).filter(|it| *it > 0),
                ..EventRef::new(cause, SubjectRef::Lock(self.locks.at(wait.lock).name.as_bytes()))
            },
        );
    }
}
