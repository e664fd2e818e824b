//! Maintains the queues of locks and turns places into grants.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::num::{NonZeroU32, NonZeroU64};
use tenure_types::{Mode, Name, PlaceNumber};

use super::acquire::Located;
use super::place::{PlaceOptions, UnlinkedPlace};
use super::slots::MetadataTold;
use crate::codec::{EventRef, SubjectRef};
use crate::event::Cause;
use crate::machine::Machine;
use crate::outcome::{self, Answer, Grants, Notice};
use crate::request::{Ask, Purpose};
use crate::state::due::DueKind;
use crate::state::list::{LinkedList, ListLink};
use crate::state::record::{
    AskCount, Grant, GrantMode, GrantOptions, GrantState, IN_LEASE, IN_LOCK, Lock, Place,
    WaitRecord,
};
use crate::state::slab::SlabIndex;

/// The weights of the records in `state_bytes`, without their names and metadata.
pub(crate) const LOCK_BYTES: u64 = 96;
pub(crate) const GRANT_BYTES: u64 = 64;
pub(crate) const PLACE_BYTES: u64 = 64;
pub(crate) const WAIT_BYTES: u64 = 32;

/// The lease, options and request count of a new place or grant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asker<'a> {
    pub(super) lease: SlabIndex,
    pub(super) options: &'a GrantOptions,
    pub(super) asks: AskCount,
}

impl Machine {
    /// Returns the lock of this name, creating it if it does not exist.
    pub(super) fn lock_for(&mut self, located: &Located<'_>) -> SlabIndex {
        match located.lock {
            Some(lock) => lock,
            None => self.create_lock(&located.ask),
        }
    }

    #[inline(never)]
    fn create_lock(&mut self, ask: &Ask<'_>) -> SlabIndex {
        let created = self.coming_revision();
        let slots = ask.mode.slots().and_then(NonZeroU32::new);
        self.state_bytes += LOCK_BYTES + ask.lock.len() as u64;
        let slot = self.locks.insert(Lock {
            name: super::name(ask.lock),
            created,
            modified: created,
            version: 0,
            slots,
            sized: false,
            grants: LinkedList::default(),
            queue: LinkedList::default(),
        });
        self.names.insert(&self.locks, slot);
        slot
    }

    /// Marks a lock as touched: its queue may advance, or the lock may be idle.
    pub(super) fn touch(&mut self, lock: SlabIndex) {
        let record = self.locks.at(lock);
        let is_upgrade = |first| self.places.at(self.waits.at(first).place).upgrade;
        let forgotten =
            mutant!("upgrade_forgotten_when_alone") && record.queue.first.is_some_and(is_upgrade);
        if record.queue.len == 0 || forgotten {
            self.now.idle.push(lock);
        } else if self.now.served == Some(lock) {
            self.now.touched_again = true;
        } else if !mutant!("release_forgets_waiters") {
            self.now.touched.insert(&self.locks, lock);
        }
    }

    /// Grants every place that the touched queues allow, in the order of the locks' names.
    pub(crate) fn grant_pass(&mut self) {
        while let Some(lock) = self.now.touched.pop_first() {
            self.now.served = Some(lock);
            while let Some(first) = self.locks.at(lock).queue.first {
                let place = self.waits.at(first).place;
                let record = self.places.at(place);
                let live = self.is_live(record.lease);
                let planted =
                    [mutant!("grant_to_dead_waiter"), mutant!("expire_holders_before_waiters")];
                let blind = planted.contains(&true);
                if !live && !blind {
                    self.remove_dead(place);
                } else if self.is_grantable(record) {
                    self.grant_place(place);
                } else {
                    break;
                }
            }
            self.now.served = None;
            self.now.idle.push(lock);
            // Its queue cannot advance any more, but locks with smaller names may come first: the order in which idle
            // locks are removed is part of the state.
            if core::mem::take(&mut self.now.touched_again) && !self.now.touched.is_empty() {
                self.now.touched.insert(&self.locks, lock);
            }
        }
    }

    /// Whether the first place of a queue would leave it now: its lease is not live, or it can be granted.
    pub(super) fn may_advance(&self, lock: SlabIndex) -> bool {
        self.locks.at(lock).queue.first.is_some_and(|first| {
            let place = self.places.at(self.waits.at(first).place);
            !self.is_live(place.lease) || self.is_grantable(place)
        })
    }

    /// Removes the place of a lease that is not live.
    #[cold]
    #[inline(never)]
    fn remove_dead(&mut self, place: SlabIndex) {
        self.remove_place(place, self.dead_cause(place));
    }

    /// Why the place of a lease that is not live ends.
    fn dead_cause(&self, place: SlabIndex) -> Cause {
        let lease = self.leases.at(self.places.at(place).lease);
        if self.owners.is_revoked(lease.owner) { Cause::Revoked } else { Cause::Expired }
    }

    /// Whether a place can be granted all its locks now, or the one that it needs.
    fn is_grantable(&self, record: &Place) -> bool {
        if self.is_quiet() {
            return false;
        }
        if record.any && !mutant!("any_waits_for_all") {
            return self.free_wait(record).is_some();
        }
        let (mut next, mut locks) = (Some(record.first), 0);
        while let Some(slot) = next {
            let wait = self.waits.at(slot);
            let lock = self.locks.at(wait.lock);
            if lock.queue.first != Some(slot) || !self.admits_wait(lock, record, wait.mode) {
                return false;
            }
            // The lease of an upgrade is a holder already.
            if !self.drains.is_empty()
                && self.is_drained(wait.lock)
                && !record.upgrade
                && !mutant!("drain_holds_back_new_asks_only")
            {
                return false;
            }
            next = wait.next;
            locks += u64::from(wait.mode.grants());
        }
        locks <= self.tokens_left()
    }

    /// Whether the holders of a lock leave room for a place that waits for it.
    pub(crate) fn admits_place(&self, wait: &WaitRecord) -> bool {
        self.admits_wait(self.locks.at(wait.lock), self.places.at(wait.place), wait.mode)
    }

    #[inline]
    pub(super) fn admits_wait(&self, lock: &Lock, place: &Place, mode: Mode) -> bool {
        if place.upgrade {
            // Its own lease is one of the holders.
            return lock.grants.len == 1 || mutant!("upgrade_beside_other_holders");
        }
        self.admits_mode(lock, mode)
    }

    /// Whether the holders of a lock leave room for a request in this mode.
    pub(crate) fn admits(&self, lock: SlabIndex, mode: Mode) -> bool {
        self.admits_mode(self.locks.at(lock), mode)
    }

    #[inline]
    fn admits_mode(&self, lock: &Lock, mode: Mode) -> bool {
        match mode {
            Mode::Exclusive => lock.grants.len == 0 || mutant!("second_exclusive_holder"),
            // A lock never has shared and exclusive grants together, so the first one decides for all.
            Mode::Shared => lock
                .grants
                .first
                .is_none_or(|first| self.grants.at(first).mode == GrantMode::Shared),
            // All of its slots or none, so that a large request is never left with a part.
            Mode::Slot { of, take } => {
                let take = if mutant!("one_free_slot_is_enough") { 1 } else { take };
                lock.grants.len.saturating_add(take) <= of
            }
        }
    }

    /// Whether the quiet period after a restore is in force. Nothing is granted during it. `end_due` ends it, so that
    /// its end and the grants that follow share one revision.
    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet_until_ms.is_some()
    }

    /// Adds a place to the queues of its locks. `asks` must be in the order of names.
    pub(super) fn add_place(
        &mut self,
        asker: Asker<'_>,
        asks: &[Located<'_>],
        until_ms: Option<NonZeroU64>,
        options: &PlaceOptions<'_>,
    ) -> SlabIndex {
        self.newest_place.0 += 1;
        let created = self.coming_revision();
        let mut first = None;
        for located in asks.iter().rev() {
            let lock = self.lock_for(located);
            first = Some(self.waits.insert(WaitRecord {
                // A placeholder: the place is inserted last, when its first wait is known.
                place: lock,
                lock,
                mode: located.ask.mode,
                next: first,
                in_queue: ListLink::default(),
            }));
        }
        let grants: u32 = asks.iter().map(|located| located.ask.mode.grants()).sum();
        let locks = u64::from(grants);
        let record = Place {
            number: self.newest_place,
            lease: asker.lease,
            first: first.expect("an ask names at least one lock"),
            created,
            since_ms: self.clock_ms,
            until_ms,
            options: asker.options.clone(),
            group: options.group.map(|group| Box::new(super::name(group))),
            independent: options.independent,
            upgrade: options.upgrade,
            any: options.any,
            pool: options.pool.map(|pool| Box::new(super::name(pool))),
            priority: options.priority,
            asks: asker.asks,
            in_lease: ListLink::default(),
        };
        let (bytes, weight) = (record.owned_bytes(locks), record.weight());
        let place = self.places.insert(record);
        let mut next = first;
        while let Some(slot) = next {
            let wait = self.waits.at_mut(slot);
            wait.place = place;
            next = wait.next;
            self.enqueue(slot);
            self.state_bytes += WAIT_BYTES;
        }
        let lease = self.leases.at_mut(asker.lease);
        lease.waits += grants;
        lease.places.push::<IN_LEASE, _>(&mut self.places, place);
        self.owners.count(lease.owner, |used| {
            used.places += 1;
            used.locks += locks;
            used.bytes += bytes;
        });
        if let Some(until_ms) = until_ms {
            self.due.insert(until_ms.get(), DueKind::WaitLimit, self.newest_place.0, Some(place));
        }
        self.state_bytes += weight;
        if options.pool.is_some() {
            self.join_pool(place);
        }
        place
    }

    /// Removes a place and emits one event for each of its locks.
    pub(super) fn remove_place(&mut self, place: SlabIndex, cause: Cause) {
        self.emit_place(place, cause);
        self.unlink_place(place);
    }

    /// Emits one event for each lock of a place.
    ///
    /// The event of a request that is refused as a deadlock names no place: the request gets none, and the next request
    /// will have its number. It does not name the other leases of the cycle either: who may see this lock need not see
    /// theirs.
    pub(super) fn emit_place(&mut self, place: SlabIndex, cause: Cause) {
        let revision = self.begin_revision();
        let record = self.places.at(place);
        let number = (cause != Cause::Deadlock).then_some(record.number);
        let lease = self.leases.at(record.lease);
        let mut next = Some(record.first);
        while let Some(slot) = next {
            let wait = self.waits.at(slot);
            next = wait.next;
            self.history.emit_inlined(
                revision,
                &EventRef {
                    lease: Some(lease.id),
                    client: Some(lease.client.as_bytes()),
                    mode: Some(wait.mode),
                    place: number,
                    reason: (cause == Cause::Queued).then(|| record.queued_reason()).flatten(),
                    priority: (cause == Cause::Queued)
                        .then_some(record.priority)
                        .filter(|it| *it > 0),
                    ..EventRef::new(
                        cause,
                        SubjectRef::Lock(self.locks.at(wait.lock).name.as_bytes()),
                    )
                },
            );
        }
    }

    /// Removes a place from its queues and its lease without an event. Marks its locks as touched.
    pub(super) fn unlink_place(&mut self, place: SlabIndex) -> UnlinkedPlace {
        let record = self.places.at(place);
        let (lease, first) = (record.lease, record.first);
        let (in_group, in_pool) = (record.group.is_some(), record.pool.is_some());
        if in_group {
            self.leave_group(place);
        }
        if in_pool {
            self.leave_pool(place);
        }
        let mut next = Some(first);
        let mut locks = 0;
        while let Some(slot) = next {
            self.dequeue(slot);
            let wait = self.waits.at(slot);
            let lock = wait.lock;
            next = wait.next;
            locks += wait.mode.grants();
            self.waits.free(slot);
            self.touch(lock);
            self.state_bytes -= WAIT_BYTES;
        }
        let lease = self.leases.at_mut(lease);
        lease.waits -= locks;
        lease.places.remove::<IN_LEASE, _>(&mut self.places, place);
        let owner = lease.owner;
        let record = self.places.at_mut(place);
        self.owners.count(owner, |used| {
            used.places -= 1;
            used.locks -= u64::from(locks);
            used.bytes -= record.owned_bytes(u64::from(locks));
        });
        if let Some(until_ms) = record.until_ms {
            self.due.remove(until_ms.get(), DueKind::WaitLimit, record.number.0);
        }
        self.state_bytes -= record.weight();
        let left = UnlinkedPlace {
            number: record.number,
            lease: record.lease,
            options: core::mem::take(&mut record.options),
            asks: record.asks,
        };
        self.places.free(place);
        left
    }

    /// Grants all locks of a waiting place and adds a notice for its lease.
    fn grant_place(&mut self, place: SlabIndex) {
        let record = self.places.at(place);
        if record.upgrade {
            return self.grant_upgrade(place);
        }
        let (any, first) = (record.any, record.first);
        let chosen = if any { self.choose(place) } else { None };
        let first = self.waits.at(first);
        let one = chosen.or(first.next.is_none().then_some((first.lock, first.mode)));
        let only = one.filter(|(_, mode)| mode.grants() == 1);
        // Most places wait for one lock and need no list.
        let many: Vec<(SlabIndex, Mode)> = match (only, one) {
            (Some(_), _) => Vec::new(),
            (None, Some(one)) => Vec::from([one]),
            (None, None) => self.waits_of(place).map(|(_, wait)| (wait.lock, wait.mode)).collect(),
        };
        let record = self.unlink_place(place);
        let asker = Asker { lease: record.lease, options: &record.options, asks: record.asks };
        let grants = if let Some((lock, mode)) = only {
            Grants::One(self.grant_lock(lock, mode.of_grant(), asker, record.number))
        } else {
            let mut grants = Vec::new();
            for (lock, mode) in many {
                self.grant_slots(lock, mode, asker, record.number, &mut grants);
            }
            grants.into_iter().collect()
        };
        self.now.notices.push(Notice::Granted {
            lease: self.handle(record.lease),
            place: record.number,
            revision: self.revision,
            grants,
        });
    }

    /// Grants one lock, or one slot of a semaphore.
    pub(super) fn grant_lock(
        &mut self,
        lock: SlabIndex,
        mode: Mode,
        asker: Asker<'_>,
        place: PlaceNumber,
    ) -> outcome::LockGrant {
        let at = self.insertion_point(lock, mode);
        self.insert_grant(lock, at, asker, place, MetadataTold::InEvent)
    }

    /// Grants one lock in this mode, after that grant of the lock.
    pub(super) fn insert_grant(
        &mut self,
        lock: SlabIndex,
        (mode_now, before): (GrantMode, Option<SlabIndex>),
        asker: Asker<'_>,
        place: PlaceNumber,
        told: MetadataTold,
    ) -> outcome::LockGrant {
        let token = self.next_token();
        let grant = self.grants.insert(Grant {
            lock,
            token,
            place,
            since_ms: self.clock_ms,
            state: GrantState::Held(asker.lease),
            options: asker.options.clone(),
            mode: mode_now,
            asks: asker.asks,
            in_lock: ListLink::default(),
            in_lease: ListLink::default(),
        });
        self.tokens.insert(mode_now, token, grant);
        let revision = self.begin_revision();
        let record = self.locks.at_mut(lock);
        record.grants.insert_after::<IN_LOCK, _>(&mut self.grants, before, grant);
        record.change(revision);
        let lease = self.leases.at_mut(asker.lease);
        lease.grants.push::<IN_LEASE, _>(&mut self.grants, grant);
        let metadata = asker.options.metadata();
        self.state_bytes += GRANT_BYTES + metadata.len() as u64;
        self.owners.count(lease.owner, |used| {
            used.locks += 1;
            used.bytes += metadata.len() as u64;
        });
        let slot = mode_now.slot();
        self.history.emit_inlined(
            revision,
            &EventRef {
                lease: Some(lease.id),
                client: Some(lease.client.as_bytes()),
                token: Some(token),
                mode: Some(mode_now.asked(record.slots)),
                slot,
                place: Some(place),
                value: (!metadata.is_empty() && told == MetadataTold::InEvent).then_some(metadata),
                ..EventRef::new(Cause::Granted, SubjectRef::Lock(record.name.as_bytes()))
            },
        );
        let shown = outcome::LockGrant { lock: record.name.clone(), token, slot };
        if !asker.options.is_plain() {
            self.add_deadlines(grant);
        }
        shown
    }

    /// Returns the mode of a new grant, for a semaphore with the lowest free slot, and the grant after which to insert
    /// it.
    pub(super) fn insertion_point(
        &self,
        lock: SlabIndex,
        mode: Mode,
    ) -> (GrantMode, Option<SlabIndex>) {
        let grants = self.locks.at(lock).grants;
        match mode {
            Mode::Exclusive => (GrantMode::Exclusive, grants.last),
            Mode::Shared => (GrantMode::Shared, grants.last),
            Mode::Slot { of, .. } => self.free_slot(lock, of, (0, None)),
        }
    }

    /// The grant of a lock after which one in this mode is inserted.
    pub(super) fn grant_before(&self, lock: SlabIndex, mode: GrantMode) -> Option<SlabIndex> {
        let grants = self.locks.at(lock).grants;
        let Some(slot) = mode.slot() else { return grants.last };
        let lower = grants.iter::<IN_LOCK, _>(&self.grants);
        lower.take_while(|(_, it)| it.mode.slot() < Some(slot)).last().map(|(slot, _)| slot)
    }

    /// Emits `Vacant` for each election that lost its leader and has no new one.
    pub(crate) fn announce_vacancies(&mut self) {
        if !self.now.vacant.is_empty() {
            self.announce_each_vacancy();
        }
    }

    #[inline(never)]
    fn announce_each_vacancy(&mut self) {
        let mut locks: Vec<(Name, SlabIndex)> = core::mem::take(&mut self.now.vacant)
            .into_iter()
            .map(|lock| (self.locks.at(lock).name.clone(), lock))
            .collect();
        locks.sort_unstable();
        locks.dedup();
        for (name, lock) in locks {
            let grants = self.locks.at(lock).grants;
            let held = grants.iter::<IN_LOCK, _>(&self.grants).any(|(_, grant)| grant.is_held());
            if !held {
                self.emit(&EventRef::new(Cause::Vacant, SubjectRef::Lock(name.as_bytes())));
            }
        }
    }

    /// Removes locks that have neither a grant nor a queue nor a number of slots that an operator set.
    pub(crate) fn drop_idle_locks(&mut self) {
        while let Some(lock) = self.now.idle.pop() {
            let Some(record) = self.locks.get(lock) else { continue };
            if record.grants.len > 0 || record.queue.len > 0 || record.sized {
                continue;
            }
            self.drop_lock(lock);
        }
    }

    #[inline(never)]
    fn drop_lock(&mut self, lock: SlabIndex) {
        let gone = self.locks.remove(lock);
        self.names.remove(&gone.name, lock);
        self.state_bytes -= gone.weight();
    }

    /// Returns the waiting place of a lease with this number.
    pub(super) fn find_place(&self, lease: SlabIndex, number: PlaceNumber) -> Option<SlabIndex> {
        let places = self.leases.at(lease).places;
        places
            .iter::<IN_LEASE, _>(&self.places)
            .find(|(_, place)| place.number == number)
            .map(|(slot, _)| slot)
    }

    pub(super) fn queued_answer(&self, place: SlabIndex) -> Answer {
        let record = self.places.at(place);
        let ahead = self.waits_from(record.first).map(|(slot, _)| self.count_ahead(slot));
        let ahead = if record.any { ahead.min() } else { ahead.max() };
        Answer::Queued(outcome::Queued {
            lease: self.lease_grant(record.lease),
            place: record.number,
            ahead: ahead.unwrap_or(0),
        })
    }

    /// Counts the places ahead of a wait in its queue. The last wait, such as a new one, has all others ahead of it, so
    /// the length of the queue is enough.
    pub(crate) fn count_ahead(&self, wait: SlabIndex) -> u64 {
        let record = self.waits.at(wait);
        if record.in_queue.after.is_none() {
            return u64::from(self.locks.at(record.lock).queue.len) - 1;
        }
        self.count_before(wait)
    }

    #[inline(never)]
    fn count_before(&self, wait: SlabIndex) -> u64 {
        let record = self.waits.at(wait);
        if let Some(index) = self.ranks.get(&record.lock) {
            return index.ahead(self.places.at(record.place).rank()) as u64;
        }
        let before = |slot: &SlabIndex| self.waits.at(*slot).in_queue.before;
        core::iter::successors(before(&wait), before).count() as u64
    }
}

impl Lock {
    /// Records that the holders or their metadata changed.
    pub(super) fn change(&mut self, revision: tenure_types::Revision) {
        self.modified = revision;
        self.version += 1;
    }

    /// The weight of the lock in `state_bytes`.
    pub(crate) fn weight(&self) -> u64 {
        LOCK_BYTES + self.name.as_bytes().len() as u64
    }
}

impl Grant {
    /// Whether a lease still holds it.
    pub(crate) fn is_held(&self) -> bool {
        matches!(self.state, GrantState::Held(_))
    }

    pub(crate) fn is_election(&self) -> bool {
        self.options.purpose() == Purpose::Election
    }
}

/// The instant at which a grant with `max_hold` is taken away: one ttl before `max_hold` is over, so that the holder
/// has stopped when the cooling that follows ends, at the deadline of its lease.
pub(crate) fn max_hold_due(since_ms: u64, max_hold_ms: u64, ttl_ms: u64) -> u64 {
    let hold_ms = max_hold_ms.saturating_sub(ttl_ms);
    since_ms.saturating_add(hold_ms).min(crate::state::due::CLOCK_MAX)
}
