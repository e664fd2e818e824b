//! Replaces the older waiters of a group by its newest ask.

use tenure_core::event::{Cause, Event};
use tenure_core::outcome::Notice;
use tenure_types::{Name, PlaceNumber, Refusal, SupersededBy};

use super::event::place_event;
use super::{Model, NO_HANDLE, Place};

impl Model {
    /// Ends the older places of the group of a place that has just been queued. Returns the locks they waited for.
    pub(super) fn supersede(&mut self, newer: &Place) -> Vec<Name> {
        let owner = self.leases[&newer.lease].owner.clone();
        let is_older = |place: &Place| {
            place.number != newer.number
                && place.group == newer.group
                && self.leases[&place.lease].owner == owner
                && place.locks.iter().any(|(lock, _)| newer.mode_of(lock).is_some())
        };
        let older: Vec<PlaceNumber> =
            self.places.values().filter(|place| is_older(place)).map(|it| it.number).collect();
        let mut touched = Vec::new();
        for number in older {
            touched.extend(self.end_superseded(number, newer));
        }
        touched
    }

    fn end_superseded(&mut self, number: PlaceNumber, newer: &Place) -> Vec<Name> {
        let Some(place) = self.places.remove(&number) else { return Vec::new() };
        for (lock, mode) in &place.locks {
            self.events.push(Event {
                by: Some(newer.client.clone()),
                reason: place.group.as_ref().map(|group| group.as_str().into()),
                ..place_event(Cause::Superseded, &place, lock, *mode)
            });
        }
        let by = SupersededBy { client: newer.client.clone(), lease: newer.lease };
        self.notices.push(Notice::WaitEnded {
            lease: NO_HANDLE,
            place: number,
            revision: self.this_revision(),
            refusal: Some(Box::new(Refusal::Superseded(Box::new(by)))),
        });
        place.names()
    }
}
