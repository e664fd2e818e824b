//! Keeps asks for any slot of a pool in the queues of its slots.

use tenure_core::event::Cause;
use tenure_core::outcome::Notice;
use tenure_core::request::Ask;
use tenure_types::{LeaseId, Limit, Mode, Name, Quota, Refusal};

use super::ask::{WaitDeadline, together};
use super::event::place_event;
use super::pass::takes;
use super::{Grant, Model, NO_HANDLE, Place, Verdict};

impl Model {
    /// The answer to an ask for a pool of which the lease has something already, whichever slots the pool has now.
    pub(super) fn pool_standing(
        &mut self,
        lease: LeaseId,
        ask: &Ask<'_>,
        wait_deadline: WaitDeadline,
    ) -> Option<Verdict> {
        let pool = Name::new(ask.lock).expect("it was checked");
        let places = self.places_of(lease);
        let waiting = places.iter().find(|place| place.pool.as_ref() == Some(&pool));
        let held = self.held_by(lease).into_iter();
        let mut below: Vec<(Name, Grant)> = held
            .filter(|(lock, grant)| grant.slot.is_some() && lock.starts_with(ask.lock))
            .collect();
        below.sort_by_key(|(lock, grant)| (lock.clone(), grant.token));
        let (number, same) = match (waiting, below.first()) {
            (Some(place), _) => (place.number, takes(place.locks[0].1) == takes(ask.mode)),
            (None, Some((lock, grant))) => {
                let of_place = together(self.held_of_place(lease, grant.place));
                let one = (of_place.len() == 1).then(|| &of_place[0]);
                let same = one.is_some_and(|it| it.0 == *lock && takes(it.1) == takes(ask.mode));
                (grant.place, same)
            }
            (None, None) => return None,
        };
        if !same {
            return Some(Err(Refusal::Overlap { lock: pool }));
        }
        self.replace_limit(number, wait_deadline);
        self.count_ask(number);
        Some(Ok(self.standing(lease, number)))
    }

    /// Refuses an ask for a pool by a lease that waits for one of its slots in another way.
    pub(super) fn no_other_place(
        &self,
        lease: LeaseId,
        slots: &[(Name, Mode)],
    ) -> Result<(), Refusal> {
        let waits = |lock: &Name| self.queue_of(lock).iter().any(|place| place.lease == lease);
        match slots.iter().find(|(lock, _)| waits(lock)) {
            Some((lock, _)) => Err(Refusal::Overlap { lock: lock.clone() }),
            None => Ok(()),
        }
    }

    /// The slots of a pool that are large enough, in the order of names.
    pub(super) fn slots_of_pool(&self, ask: &Ask<'_>) -> Result<Vec<(Name, Mode)>, Refusal> {
        let pool = self.name(ask.lock)?;
        let take = takes(ask.mode);
        let mut slots = Vec::new();
        for (name, lock) in &self.locks {
            if let Some(of) = lock.slots.filter(|of| lock.sized && take <= *of)
                && name.starts_with(pool.as_str())
            {
                slots.push((name.clone(), Mode::Slot { of, take }));
            }
        }
        if slots.is_empty() || take == 0 {
            return Err(Refusal::PoolEmpty { pool });
        }
        // It is not counted further than that there are too many.
        let bound = self.limits.get(Limit::LocksPerAsk);
        self.within(Limit::LocksPerAsk, (slots.len() as u64).min(bound + 1))?;
        Ok(slots)
    }

    /// Lets the asks for a pool that a lock is a slot of join its queue.
    pub(super) fn join_slot(&mut self, lock: &Name, of: u32) {
        let waiting = self.places.values().filter(|place| {
            place.pool.as_ref().is_some_and(|pool| lock.starts_with(pool.as_str()))
        });
        let mut waiting: Vec<Place> = waiting.cloned().collect();
        waiting.sort_by_key(Place::rank);
        for place in waiting {
            let take = takes(place.locks[0].1);
            if take > of || !self.may_join(&place, lock) {
                continue;
            }
            let mode = Mode::Slot { of, take };
            let joined = self.places.get_mut(&place.number).expect("it waits");
            joined.locks.push((lock.clone(), mode));
            joined.locks.sort();
            self.events.push(place_event(Cause::Queued, &place, lock, mode));
        }
    }

    fn may_join(&self, place: &Place, lock: &Name) -> bool {
        let queue = self.queue_of(lock);
        let owner = |other: &Place| self.leases[&other.lease].owner.clone();
        let grouped = queue.iter().any(|other| {
            place.group.is_some() && other.group == place.group && owner(other) == owner(place)
        });
        let there = queue.iter().any(|other| other.lease == place.lease)
            || self.held_by(place.lease).iter().any(|(name, _)| name == lock);
        !there
            && !grouped
            && self.may_wait_for_more(place)
            && (place.locks.len() as u64) < self.limits.get(Limit::LocksPerAsk)
            && (queue.len() as u64) < self.limits.get(Limit::WaitersPerLock)
    }

    fn may_wait_for_more(&self, place: &Place) -> bool {
        let take = u64::from(takes(place.locks[0].1));
        let waits: u64 = self.places_of(place.lease).iter().map(Place::grants).sum();
        let has = self.held_by(place.lease).len() as u64 + waits;
        let owner = self.leases[&place.lease].owner.clone();
        let bytes = place.metadata.len() as u64 * take;
        self.within(Limit::LocksPerLease, has + take).is_ok()
            && self.within_quota(owner.as_ref(), Quota::Locks, take).is_ok()
            && self.within_quota(owner.as_ref(), Quota::Bytes, bytes).is_ok()
    }

    /// Takes the asks for a pool out of the queue of a lock that is no slot of it any more. Returns the locks that this
    /// may have freed.
    pub(super) fn leave_slot(&mut self, lock: &Name) -> Vec<Name> {
        // A queue that no place leaves is not served: it may be one that was reopened and has yet to be.
        let mut touched = Vec::new();
        let waiting: Vec<Place> = self.queue_of(lock).into_iter().cloned().collect();
        for place in waiting.into_iter().filter(|place| place.pool.is_some()) {
            touched.push(lock.clone());
            if place.locks.len() > 1 {
                self.leave_one_queue(&place, lock, Cause::Left);
                continue;
            }
            let pool = place.pool.clone().expect("only such are looked at");
            touched.extend(self.remove_place(place.number, Cause::Left));
            self.notices.push(Notice::WaitEnded {
                lease: NO_HANDLE,
                place: place.number,
                revision: self.this_revision(),
                refusal: Some(Box::new(Refusal::PoolEmpty { pool })),
            });
        }
        touched
    }

    /// Takes an ask for any of several locks out of one of the queues.
    pub(super) fn leave_one_queue(&mut self, place: &Place, lock: &Name, cause: Cause) {
        let mode = place.mode_of(lock).expect("it waits there");
        self.events.push(place_event(cause, place, lock, mode));
        let left = self.places.get_mut(&place.number).expect("it waits");
        left.locks.retain(|(name, _)| name != lock);
    }
}
