//! Keeps asks for any slot of a pool in the queues of its slots.

use tenure_core::event::Cause;
use tenure_core::outcome::Notice;
use tenure_core::request::Ask;
use tenure_types::{Limit, Mode, Name, Refusal};

use super::event::place_event;
use super::pass::takes;
use super::{Model, NO_HANDLE, Place};

impl Model {
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
        self.within(Limit::LocksPerAsk, slots.len() as u64)?;
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
            && (place.locks.len() as u64) < self.limits.get(Limit::LocksPerAsk)
            && (queue.len() as u64) < self.limits.get(Limit::WaitersPerLock)
    }

    /// Takes the asks for a pool out of the queue of a lock that is no slot of it any more. Returns the locks that this
    /// may have freed.
    pub(super) fn leave_slot(&mut self, lock: &Name) -> Vec<Name> {
        let mut touched = vec![lock.clone()];
        let waiting: Vec<Place> = self.queue_of(lock).into_iter().cloned().collect();
        for place in waiting.into_iter().filter(|place| place.pool.is_some()) {
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
        left.any = left.locks.len() > 1 || left.pool.is_some();
    }
}
