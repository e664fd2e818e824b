//! Chooses one lock for a request that asks for any of several.
//!
//! Such a request waits in the queue of every lock that it names. The machine grants it the first lock that is free
//! for it, and removes it from the queues of the others in the same revision. So each queue is served in its order, and
//! the machine leaves no lock free that such a request could have.

use tenure_types::{Mode, Refusal};

use super::acquire::Located;
use crate::codec::{EventRef, SubjectRef};
use crate::event::Cause;
use crate::machine::Machine;
use crate::request::Acquire;
use crate::state::record::{Place, WaitRecord};
use crate::state::slab::SlabIndex;

/// What keeps a request from being granted at once.
pub(super) enum InTheWay<'b, 'a> {
    /// The prefix of a lock is closed.
    Drained(Refusal),
    /// A lock has other holders, or others wait for it.
    Blocked(&'b Located<'a>),
}

impl Machine {
    /// The locks that a request gets if it is granted now: all of them, or one if one is enough.
    pub(super) fn free_part<'a, 'b>(
        &self,
        acquire: &Acquire<'_>,
        asks: &'b [Located<'a>],
    ) -> Result<&'b [Located<'a>], InTheWay<'b, 'a>> {
        if acquire.is_choice() {
            return self.free_choice(asks);
        }
        let blocked = asks.iter().find(|located| self.is_blocked(located));
        // The drain is reported and not the holder: the lock would not be granted after its release either.
        match (asks.iter().find_map(|located| self.draining(located.ask.lock)), blocked) {
            (Some(drained), _) => Err(InTheWay::Drained(drained)),
            (None, Some(blocked)) => Err(InTheWay::Blocked(blocked)),
            (None, None) => Ok(asks),
        }
    }

    /// The first lock, in the order of names, that a new request for any of them gets now. If there is none, what is in
    /// the way of the first lock that is not drained.
    #[inline(never)]
    fn free_choice<'a, 'b>(
        &self,
        asks: &'b [Located<'a>],
    ) -> Result<&'b [Located<'a>], InTheWay<'b, 'a>> {
        let mut drained = None;
        let mut blocked = None;
        for located in asks {
            if let Some(refusal) = self.draining(located.ask.lock) {
                drained = drained.or(Some(refusal));
            } else if self.is_blocked(located) {
                blocked = blocked.or(Some(located));
            } else {
                return Ok(core::slice::from_ref(located));
            }
        }
        Err(match (blocked, drained) {
            (Some(blocked), _) => InTheWay::Blocked(blocked),
            (None, Some(drained)) => InTheWay::Drained(drained),
            (None, None) => unreachable!("a request names at least one lock"),
        })
    }

    /// The first wait, in the order of names, whose lock a place for any of them can be granted now.
    #[inline(never)]
    pub(crate) fn free_wait(&self, place: &Place) -> Option<SlabIndex> {
        let mut waits = self.waits_from(place.first);
        waits.find(|(slot, wait)| self.is_free_for(place, *slot, wait)).map(|(slot, _)| slot)
    }

    fn is_free_for(&self, place: &Place, slot: SlabIndex, wait: &WaitRecord) -> bool {
        let lock = self.locks.at(wait.lock);
        (lock.queue.first == Some(slot) || mutant!("any_ignores_the_queue"))
            && self.admits_wait(lock, place, wait.mode)
            && (self.drains.is_empty() || !self.is_drained(wait.lock))
            && u64::from(wait.mode.grants()) <= self.tokens_left()
    }

    /// Chooses the lock of a place for any of several, and tells the watchers of the other locks that it leaves their
    /// queues; `None` if the place needs all its locks.
    #[inline(never)]
    pub(super) fn choose(&mut self, place: SlabIndex) -> Option<(SlabIndex, Mode)> {
        let record = self.places.at(place);
        if !record.any || mutant!("any_is_granted_all") {
            return None;
        }
        let chosen = self.free_wait(record).expect("a place that can be granted has a free lock");
        let revision = self.begin_revision();
        let record = self.places.at(place);
        let lease = self.leases.at(record.lease);
        let mut next = Some(record.first);
        while let Some(slot) = next {
            let wait = self.waits.at(slot);
            next = wait.next;
            if slot == chosen || mutant!("choice_is_not_told") {
                continue;
            }
            let lock = &self.locks.at(wait.lock).name;
            self.history.emit(
                revision,
                &EventRef {
                    lease: Some(lease.id),
                    client: Some(lease.client.as_bytes()),
                    mode: Some(wait.mode),
                    place: Some(record.number),
                    ..EventRef::new(Cause::GrantedElsewhere, SubjectRef::Lock(lock.as_bytes()))
                },
            );
        }
        let wait = self.waits.at(chosen);
        Some((wait.lock, wait.mode))
    }
}
