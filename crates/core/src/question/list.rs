//! Builds the views of locks, queues, leases and keys, one at a time or in pages.
//!
//! Each call reads at most as many records as the caller requested.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Bound;
use tenure_types::{Handle, LeaseId, Mode, Name, PlaceNumber, Refusal, Revision};

use crate::machine::Machine;
use crate::outcome::{Answer, LeaseGrant};
use crate::request::{Hold, LeaseRef};
use crate::state::rank::ranked_ms;
use crate::state::record::{GrantState, IN_LEASE, IN_LOCK, IN_QUEUE, Lease};
use crate::state::slab::SlabIndex;
use crate::view::{HolderView, KeyView, LeaseView, LockView, WaiterView};

/// The most holders in the view of a lock: as many as a semaphore has slots by default.
const HOLDERS_MAX: usize = 1_024;
/// The bytes from which a view takes no further holder, and what each weighs beside its texts. Eight views are read at
/// once for a page of a list, and a page has a mebibyte.
const HOLDERS_BYTES: usize = 256 * 1024;
const HOLDER_BYTES: usize = 128;

/// The locks of a machine in the order of their names; see [`Machine::sorted_locks`].
#[derive(Clone, Copy)]
pub struct SortedLocks<'a> {
    pub(super) machine: &'a Machine,
}

impl<'a> SortedLocks<'a> {
    /// The machine that has these locks.
    pub fn machine(&self) -> &'a Machine {
        self.machine
    }

    /// The locks whose names begin with `prefix`, in the order of names, starting after `after`.
    pub fn locks(&self, prefix: &str, after: Option<&str>, max: usize) -> Vec<LockView> {
        let machine = self.machine;
        machine
            .names
            .list(start(prefix, after), prefix.as_bytes(), max)
            .into_iter()
            .map(|slot| machine.lock_view(slot))
            .collect()
    }
}

impl Machine {
    /// Returns a lock, if it has a holder or a queue.
    pub fn lock(&self, lock: &str) -> Option<LockView> {
        self.lock_slot(lock).map(|slot| self.lock_view(slot))
    }

    /// Sorts up to `max` names of locks, and returns the lists of locks once all names are sorted.
    ///
    /// There is no other way to list locks. Sorting a million names at once takes longer than an event loop may stand
    /// still, so every caller says how many names it has time for, and calls again until it gets the lists.
    pub fn sorted_locks(&self, max: usize) -> Option<SortedLocks<'_>> {
        self.names.settle(&self.locks, max).then_some(SortedLocks { machine: self })
    }

    /// Returns the grant in force with this lease and token, or the refusal that a command of the lease's principal
    /// would get.
    pub fn holding(&self, hold: &Hold<'_>) -> Result<HolderView, Refusal> {
        self.check_known_name(hold.lock)?;
        let lease = self.live_lease(hold.lease)?;
        self.held_by(lease, hold).map(|grant| self.holder_view(grant))
    }

    /// The present state of an acquire request that got a place: `Queued`, `Acquired` or `Ended`.
    pub fn what_became_of(&self, lease: LeaseId, created: Revision, place: PlaceNumber) -> Answer {
        self.ask_standing(lease, created, place)
    }

    /// Whether a lease exists and has not expired.
    pub fn has_lease(&self, lease: LeaseRef) -> bool {
        self.live_lease(lease).is_ok()
    }

    /// Whether a lease was granted and is gone. `false` also for a lease that this state has not seen yet, and for one
    /// that is due and not ended.
    pub fn has_forgotten(&self, lease: Handle) -> bool {
        let is_it = |it: &Lease| it.generation == lease.generation;
        let slot = SlabIndex::from_number(lease.slot);
        lease.generation <= self.epoch.generation(self.leases_granted)
            && !slot.and_then(|slot| self.leases.get(slot)).is_some_and(is_it)
    }

    /// The places in a lock's queue, first to last, starting after `after`.
    ///
    /// Reading a page of a long queue walks the queue from its head to the beginning of the page.
    pub fn queue(&self, lock: &str, after: Option<PlaceNumber>, max: usize) -> Vec<WaiterView> {
        let Some(slot) = self.lock_slot(lock) else { return Vec::new() };
        let queue = self.locks.at(slot).queue;
        let waits = || queue.iter::<IN_QUEUE, _>(&self.waits);
        let number = |place: SlabIndex| self.places.at(place).number;
        // A place that is gone stood before those that came later, as far as one can know.
        let is_there = after.is_some_and(|it| waits().any(|(_, wait)| number(wait.place) == it));
        let mut behind = None;
        let mut passed = after.is_none();
        let mut views = Vec::new();
        for (ahead, (slot, wait)) in waits().enumerate() {
            let number = number(wait.place);
            let later = !is_there && after.is_none_or(|after| number > after);
            if passed || later {
                if views.len() == max {
                    break;
                }
                views.push(self.waiter_view(slot, ahead as u64, behind));
            }
            passed |= Some(number) == after;
            behind = Some(number);
        }
        views
    }

    /// How many of the first `max` places in a lock's queue request it shared.
    pub fn waiting_shared(&self, lock: &str, max: usize) -> u64 {
        let Some(slot) = self.lock_slot(lock) else { return 0 };
        let queue = self.locks.at(slot).queue;
        let first = queue.iter::<IN_QUEUE, _>(&self.waits).take(max);
        first.filter(|(_, wait)| wait.mode == Mode::Shared).count() as u64
    }

    /// Returns a live lease.
    pub fn lease(&self, lease: LeaseRef) -> Option<LeaseView> {
        self.live_lease(lease).ok().map(|slot| self.lease_view(slot))
    }

    /// How long ago a live lease was granted or last renewed.
    pub fn renewed_ms(&self, lease: LeaseRef) -> Option<u64> {
        let lease = self.leases.at(self.live_lease(lease).ok()?);
        let left_ms = lease.deadline_ms.saturating_sub(self.clock_ms);
        Some(u64::from(lease.ttl_ms).saturating_sub(left_ms))
    }

    /// Live leases in the order of their ids, starting after `after`.
    pub fn leases(&self, after: Option<LeaseId>, max: usize) -> Vec<LeaseView> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.leases_by_id
            .range((start, Bound::Unbounded))
            .filter(|(_, slot)| self.is_live(**slot))
            .take(max)
            .map(|(_, slot)| self.lease_view(*slot))
            .collect()
    }

    /// Returns a key.
    pub fn key(&self, key: &str) -> Option<KeyView> {
        self.keys_by_name.get(key.as_bytes()).map(|slot| self.key_view(*slot))
    }

    /// The keys whose names begin with `prefix`, in the order of names, starting after `after`.
    pub fn keys(&self, prefix: &str, after: Option<&str>, max: usize) -> Vec<KeyView> {
        self.keys_by_name
            .range::<[u8], _>((start(prefix, after), Bound::Unbounded))
            .take_while(|(name, _)| name.as_bytes().starts_with(prefix.as_bytes()))
            .take(max)
            .map(|(_, slot)| self.key_view(*slot))
            .collect()
    }

    /// What the grant of a live lease answered: its names and ttl, without what it holds.
    pub fn grant_of_lease(&self, lease: LeaseRef) -> Option<LeaseGrant> {
        self.live_lease(lease).ok().map(|slot| self.lease_grant(slot))
    }

    /// The grants in force of a lock that belong or belonged to a lease.
    pub(super) fn holders_of_lease(&self, lock: SlabIndex, lease: LeaseId) -> Vec<HolderView> {
        let is_its = |state: &GrantState| match state {
            GrantState::Held(slot) => self.leases.at(*slot).id == lease,
            GrantState::Over(over) => over.lease == lease,
        };
        let grants = self.locks.at(lock).grants.iter::<IN_LOCK, _>(&self.grants);
        let its = grants.filter(|(_, grant)| is_its(&grant.state)).take(HOLDERS_MAX);
        its.map(|(slot, _)| self.holder_view(slot)).collect()
    }

    fn lock_view(&self, slot: SlabIndex) -> LockView {
        let lock = self.locks.at(slot);
        let (mut holders, mut bytes) = (Vec::new(), 0);
        for (slot, _) in lock.grants.iter::<IN_LOCK, _>(&self.grants) {
            if holders.len() == HOLDERS_MAX || bytes >= HOLDERS_BYTES {
                break;
            }
            let view = self.holder_view(slot);
            bytes += HOLDER_BYTES + view.client.as_bytes().len() + view.metadata.len();
            holders.push(view);
        }
        LockView {
            more_holders: u64::from(lock.grants.len) - holders.len() as u64,
            lock: lock.name.clone(),
            slots: lock.slots.map(core::num::NonZeroU32::get),
            sized: lock.sized,
            created: lock.created,
            modified: lock.modified,
            version: lock.version,
            holders,
            waiting: u64::from(lock.queue.len),
        }
    }

    fn holder_view(&self, slot: SlabIndex) -> HolderView {
        let grant = self.grants.at(slot);
        let (lease, lease_created, client, owner) = match &grant.state {
            GrantState::Held(lease) => {
                let lease = self.leases.at(*lease);
                (lease.id, lease.created, lease.client.clone(), lease.owner)
            }
            GrantState::Over(over) => (over.lease, over.created, over.client.clone(), over.owner),
        };
        let owner = owner.and_then(|owner| self.owners.get(owner));
        HolderView {
            lease,
            lease_created,
            client,
            principal: owner.map(|owner| owner.name.clone()),
            token: grant.token,
            mode: grant.asked_mode(self.locks.at(grant.lock).slots),
            slot: grant.mode.slot(),
            place: grant.place,
            held_ms: self.clock_ms.saturating_sub(grant.since_ms),
            state: self.holder_state(slot),
            purpose: grant.options.purpose(),
            metadata: Box::from(grant.options.metadata()),
            lock_delay_ms: grant.options.lock_delay_ms(),
            max_hold_ms: grant.options.max_hold_ms(),
            min_hold_ms: grant.options.min_hold_ms(),
            progress: self.progress_view(grant),
        }
    }

    pub(super) fn waiter_view(
        &self,
        slot: SlabIndex,
        ahead: u64,
        behind: Option<PlaceNumber>,
    ) -> WaiterView {
        let wait = self.waits.at(slot);
        let place = self.places.at(wait.place);
        let lease = self.leases.at(place.lease);
        let owner = lease.owner.and_then(|owner| self.owners.get(owner));
        let locks =
            self.waits_of(wait.place).map(|(_, wait)| self.locks.at(wait.lock).name.clone());
        WaiterView {
            place: place.number,
            lease: lease.id,
            client: lease.client.clone(),
            mode: wait.mode,
            created: place.created,
            ahead,
            behind,
            waiting_ms: self.clock_ms.saturating_sub(place.since_ms),
            left_ms: place.until_ms.map(|until_ms| until_ms.get().saturating_sub(self.clock_ms)),
            purpose: place.options.purpose(),
            priority: place.priority,
            passable_ms: match place.upgrade {
                true => 0,
                false => ranked_ms(place.since_ms, place.priority).saturating_sub(self.clock_ms),
            },
            group: place.group.as_deref().cloned(),
            principal: owner.map(|owner| owner.name.clone()),
            locks: locks.collect(),
            any: place.any,
            pool: place.pool.as_deref().cloned(),
        }
    }

    pub(super) fn lease_view(&self, slot: SlabIndex) -> LeaseView {
        let lease = self.leases.at(slot);
        let mut holds: Vec<_> = lease
            .grants
            .iter::<IN_LEASE, _>(&self.grants)
            .map(|(_, grant)| (self.locks.at(grant.lock).name.clone(), grant.token))
            .collect();
        holds.sort_unstable();
        let mut keys: Vec<Name> =
            lease.keys.iter::<IN_LEASE, _>(&self.keys).map(|(_, key)| key.name.clone()).collect();
        keys.sort_unstable();
        let waits = lease.places.iter::<IN_LEASE, _>(&self.places).flat_map(|(slot, place)| {
            self.waits_of(slot)
                .map(|(_, wait)| (place.number, self.locks.at(wait.lock).name.clone()))
        });
        LeaseView {
            id: lease.id,
            created: lease.created,
            handle: self.handle(slot),
            ttl_ms: u64::from(lease.ttl_ms),
            left_ms: lease.deadline_ms.saturating_sub(self.clock_ms),
            client: lease.client.clone(),
            metadata: Box::from(lease.metadata()),
            changed: lease.changed,
            holds,
            waits: waits.collect(),
            keys,
        }
    }

    fn key_view(&self, slot: SlabIndex) -> KeyView {
        let key = self.keys.at(slot);
        KeyView {
            key: key.name.clone(),
            value: key.value.clone(),
            created: key.created,
            modified: key.modified,
            version: key.version,
            lease: key.lease.map(|lease| self.leases.at(lease).id),
        }
    }
}

/// Where a page begins.
fn start<'a>(prefix: &'a str, after: Option<&'a str>) -> Bound<&'a [u8]> {
    match after {
        Some(after) if after >= prefix => Bound::Excluded(after.as_bytes()),
        _ => Bound::Included(prefix.as_bytes()),
    }
}
