//! Chooses one lock for an ask that is for any of several.

use tenure_core::event::Cause;
use tenure_types::{Mode, Name, Refusal};

use super::event::place_event;
use super::pass::takes;
use super::{Model, Place};

impl Model {
    /// The place with those of its locks that it gets if it is granted at once, or what is in the way: a drain, or the
    /// first lock that is held or awaited.
    pub(super) fn at_once(&self, place: &Place) -> Result<Place, (Option<Refusal>, Option<Name>)> {
        let blocks =
            |lock: &Name, mode: Mode| !self.queue_of(lock).is_empty() || !self.admits(lock, mode);
        if !place.any {
            let closed = self.closed(place.locks.iter().map(|(lock, _)| lock));
            let blocking = place.locks.iter().find(|(lock, mode)| blocks(lock, *mode));
            return match (&closed, blocking) {
                (None, None) => Ok(place.clone()),
                _ => Err((closed, blocking.map(|(lock, _)| lock.clone()))),
            };
        }
        let open: Vec<&(Name, Mode)> =
            place.locks.iter().filter(|(lock, _)| !self.is_drained(lock)).collect();
        match open.iter().find(|(lock, mode)| !blocks(lock, *mode)) {
            Some(one) => Ok(Place { locks: vec![(*one).clone()], ..place.clone() }),
            None if open.is_empty() => {
                Err((self.closed(place.locks.iter().map(|(lock, _)| lock)), None))
            }
            None => Err((None, Some(open[0].0.clone()))),
        }
    }

    /// The first lock by name, of those that a waiting ask is for, that it can have now.
    pub(super) fn free_one(&self, place: &Place) -> Option<(Name, Mode)> {
        let free = |lock: &Name, mode: Mode| {
            let first = self.queue_of(lock).first().map(|first| first.number);
            first == Some(place.number)
                && self.admits(lock, mode)
                && !self.is_drained(lock)
                && self.tokens_left() >= u64::from(takes(mode))
        };
        place.locks.iter().find(|(lock, mode)| free(lock, *mode)).cloned()
    }

    /// Leaves the queues of all locks but the one that the ask gets, and returns the ask for that one.
    pub(super) fn narrow(&mut self, place: &Place) -> Place {
        let one = self.free_one(place).expect("it was looked at");
        for (lock, mode) in place.locks.iter().filter(|(lock, _)| *lock != one.0) {
            self.events.push(place_event(Cause::GrantedElsewhere, place, lock, *mode));
        }
        Place { locks: vec![one], ..place.clone() }
    }
}
