//! Looks things up in the model's state, and changes it one step at a time.

use tenure_core::event::{Cause, Event};
use tenure_core::outcome::Outcome;
use tenure_core::request::LeaseRef;
use tenure_types::{LeaseId, Limit, Mode, Name, PlaceNumber, Refusal, Revision, Token};

use super::event::place_event;
use super::pass::takes;
use super::{
    CLOCK_MAX, Grant, GrantState, HandleOf, LEVEL_RECORDS, LEVEL_WHOLE, Lock, Model,
    PRIORITY_STEP_MS, Place, Verdict,
};

impl Model {
    /// The revision of the present command, if it changes anything.
    pub(super) fn this_revision(&self) -> Revision {
        self.revision.next()
    }

    /// An outcome, with the revision of the first answer if it repeats one.
    pub(super) fn outcome(&mut self, result: Verdict) -> Outcome {
        Outcome { revision: self.repeated.take().unwrap_or(self.revision), result }
    }

    /// How far the clock must advance until a promised time has fully passed.
    pub(super) fn whole(&self, ms: u64) -> u64 {
        let counts_are_cut = self.level >= LEVEL_WHOLE && ms > 0;
        ms.saturating_add(u64::from(counts_are_cut))
    }

    pub(super) fn is_live(&self, lease: LeaseId) -> bool {
        self.leases.get(&lease).is_some_and(|lease| lease.deadline_ms > self.clock_ms)
            && !self.is_revoked(lease)
    }

    /// The live lease that a reference names.
    pub(super) fn live(
        &self,
        lease: LeaseRef,
        handle_of: HandleOf<'_>,
    ) -> Result<LeaseId, Refusal> {
        let id = match lease {
            LeaseRef::Id(id) => id,
            LeaseRef::Handle(handle) => {
                let (id, created) = handle_of(handle).ok_or(Refusal::LeaseNotFound)?;
                let same = self.leases.get(&id).is_some_and(|lease| lease.created == created);
                if !same {
                    return Err(Refusal::LeaseNotFound);
                }
                id
            }
        };
        if self.is_live(id) { Ok(id) } else { Err(Refusal::LeaseNotFound) }
    }

    /// A name, if it is valid for something new.
    pub(super) fn name(&self, text: &str) -> Result<Name, Refusal> {
        self.within(Limit::NameBytes, text.len() as u64)?;
        self.known_name(text)
    }

    /// A name, if it is valid at all.
    pub(super) fn known_name(&self, text: &str) -> Result<Name, Refusal> {
        let (bound, asked) = (self.limits.get(Limit::NameBytes), text.len() as u64);
        if text.len() > Name::LEN_MAX {
            return Err(Refusal::Limit { limit: Limit::NameBytes, bound, asked });
        }
        if text.is_empty() || text.chars().any(char::is_control) {
            return Err(Refusal::InvalidName);
        }
        Ok(Name::new(text).expect("a text of a possible length without control characters"))
    }

    /// Refuses a value above a limit.
    pub(super) fn within(&self, limit: Limit, asked: u64) -> Result<(), Refusal> {
        let bound = self.limits.get(limit);
        if asked > bound { Err(Refusal::Limit { limit, bound, asked }) } else { Ok(()) }
    }

    /// Refuses a command that grows a state which is already too large.
    pub(super) fn room(&self) -> Result<(), Refusal> {
        let bound = self.limits.get(Limit::StateBytes);
        let asked = self.weigh();
        if asked >= bound {
            return Err(Refusal::Limit { limit: Limit::StateBytes, bound, asked });
        }
        Ok(())
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.quiet_until_ms.is_some()
    }

    pub(super) fn tokens_left(&self) -> u64 {
        Token::COUNTER_MAX - self.tokens_used
    }

    pub(super) fn next_token(&mut self) -> Token {
        self.tokens_used += 1;
        Token::new(self.epoch, self.tokens_used).expect("tokens left are counted before granting")
    }

    /// The places that wait for a lock, in order.
    pub(super) fn queue_of(&self, lock: &Name) -> Vec<&Place> {
        let mut queue: Vec<&Place> =
            self.places.values().filter(|place| place.mode_of(lock).is_some()).collect();
        queue.sort_by_key(|place| place.rank());
        queue
    }

    /// Whether a place, already in its queues, stands before another one in some of them. Only a priority does that
    /// for the newest place.
    pub(super) fn is_before_others(&self, place: &Place) -> bool {
        let behind =
            |lock: &Name| self.queue_of(lock).iter().any(|other| other.rank() > place.rank());
        place.names().iter().any(behind)
    }

    /// All grants of a lock, in the order of slots, or of tokens if it has no slots.
    pub(super) fn grants_of(&self, lock: &Name) -> Vec<&Grant> {
        let mut grants: Vec<&Grant> =
            self.locks.get(lock).map(|lock| lock.grants.iter().collect()).unwrap_or_default();
        grants.sort_by_key(|grant| (grant.slot, grant.token));
        grants
    }

    /// The grants of a lock that are held.
    pub(super) fn held_grants(&self, lock: &Name) -> Vec<&Grant> {
        self.grants_of(lock).into_iter().filter(|grant| grant.is_held()).collect()
    }

    /// The grants that a lease holds, in the order of names.
    pub(super) fn held_by(&self, lease: LeaseId) -> Vec<(Name, Grant)> {
        let mut held = Vec::new();
        for (name, lock) in &self.locks {
            for grant in &lock.grants {
                if grant.is_held() && grant.lease == lease {
                    held.push((name.clone(), grant.clone()));
                }
            }
        }
        held
    }

    /// The places of a lease, in the order of their numbers.
    pub(super) fn places_of(&self, lease: LeaseId) -> Vec<Place> {
        self.places.values().filter(|place| place.lease == lease).cloned().collect()
    }

    /// The keys of a lease, in the order of names.
    pub(super) fn keys_of(&self, lease: LeaseId) -> Vec<Name> {
        let bound = self.keys.iter().filter(|(_, key)| key.lease == Some(lease));
        bound.map(|(name, _)| name.clone()).collect()
    }

    pub(super) fn grant_mut(&mut self, lock: &Name, token: Token) -> Option<&mut Grant> {
        self.locks.get_mut(lock)?.grants.iter_mut().find(|grant| grant.token == token)
    }

    pub(super) fn grant(&self, lock: &Name, token: Token) -> Option<&Grant> {
        self.locks.get(lock)?.grants.iter().find(|grant| grant.token == token)
    }

    /// Creates the lock if it does not exist.
    pub(super) fn come_into_being(&mut self, lock: &Name, mode: Mode) {
        let created = self.this_revision();
        self.locks.entry(lock.clone()).or_insert(Lock {
            slots: mode.slots(),
            sized: false,
            created,
            modified: created,
            version: 0,
            grants: Vec::new(),
        });
    }

    /// Removes the locks that have neither a grant nor a place nor a size that was set.
    pub(super) fn drop_unused_locks(&mut self) {
        let unused: Vec<Name> =
            self.locks.keys().filter(|lock| self.is_unused(lock)).cloned().collect();
        for lock in unused {
            self.locks.remove(&lock);
        }
    }

    fn is_unused(&self, lock: &Name) -> bool {
        self.grants_of(lock).is_empty()
            && self.queue_of(lock).is_empty()
            && !self.locks.get(lock).is_some_and(|lock| lock.sized)
    }

    pub(super) fn remove_grant(&mut self, lock: &Name, token: Token) {
        if let Some(found) = self.locks.get_mut(lock) {
            found.grants.retain(|grant| grant.token != token);
        }
    }

    /// Emits an event about a grant, and sets the lock's revision to that of the event.
    pub(super) fn grant_event(&mut self, lock: &Name, event: Event) {
        let revision = self.this_revision();
        if let Some(lock) = self.locks.get_mut(lock) {
            lock.version += 1;
            lock.modified = revision;
        }
        self.events.push(event);
    }

    /// An event that ends a hold or a lease, with the ttl of the lease and its last renewal.
    pub(super) fn told(&self, event: Event, lease: LeaseId) -> Event {
        if self.level < LEVEL_RECORDS {
            return event;
        }
        let lease = &self.leases[&lease];
        let renewed_ms = lease.deadline_ms.saturating_sub(self.whole(lease.ttl_ms));
        Event { ttl_ms: Some(lease.ttl_ms), renewed_ms: Some(renewed_ms), ..event }
    }

    /// Emits the event that ends a hold.
    pub(super) fn end_event(&mut self, lock: &Name, event: Event) {
        let lease = event.lease.expect("a hold has a lease");
        let event = self.told(event, lease);
        self.grant_event(lock, event);
    }

    /// Removes a place from its queues, with one event for each lock. Returns the locks.
    pub(super) fn remove_place(&mut self, number: PlaceNumber, cause: Cause) -> Vec<Name> {
        let Some(place) = self.places.remove(&number) else { return Vec::new() };
        for (lock, mode) in &place.locks {
            self.events.push(place_event(cause, &place, lock, *mode));
        }
        place.names()
    }
}

impl Grant {
    pub(super) fn is_held(&self) -> bool {
        self.state == GrantState::Held
    }
}

impl Place {
    /// Places stand in their queues in this order: as if each had asked a step earlier for each priority.
    pub(super) fn rank(&self) -> (i64, PlaceNumber) {
        if self.upgrade {
            return (i64::MIN, self.number);
        }
        let earlier = i64::from(self.priority) * PRIORITY_STEP_MS.cast_signed();
        (self.since_ms.cast_signed() - earlier, self.number)
    }

    pub(super) fn mode_of(&self, lock: &Name) -> Option<Mode> {
        self.locks.iter().find(|(name, _)| name == lock).map(|(_, mode)| *mode)
    }

    /// How many grants it asks for: one for each slot.
    pub(super) fn grants(&self) -> u64 {
        self.slots() as u64
    }

    pub(super) fn slots(&self) -> usize {
        self.locks.iter().map(|(_, mode)| takes(*mode) as usize).sum()
    }

    pub(super) fn names(&self) -> Vec<Name> {
        self.locks.iter().map(|(name, _)| name.clone()).collect()
    }
}

/// The sum of a time and a duration, on a clock with a maximum.
pub(super) fn later(ms: u64, by_ms: u64) -> u64 {
    ms.saturating_add(by_ms).min(CLOCK_MAX)
}
