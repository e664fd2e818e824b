//! Counts asks, and takes back an ask whose answer reached no caller.

use tenure_core::event::Cause;
use tenure_core::outcome::{Acquired, Answer, Queued};
use tenure_core::request::{Abandon, AskId};
use tenure_types::PlaceNumber;

use super::event::held_event;
use super::once::RequestRecord;
use super::{HandleOf, LEVEL_COUNTED, Model, Verdict};

impl Model {
    /// The initial count of a new ask.
    pub(super) fn first_ask(&self) -> Option<u64> {
        (self.level >= LEVEL_COUNTED).then_some(1)
    }

    /// Counts one more ask that relies on a place, or on what was granted to it.
    pub(super) fn count_ask(&mut self, number: PlaceNumber) {
        if let Some(place) = self.places.get_mut(&number) {
            place.asks = place.asks.map(|asks| asks + 1);
        }
        for grant in self.locks.values_mut().flat_map(|lock| &mut lock.grants) {
            if grant.place == number && grant.is_held() {
                grant.asks = grant.asks.map(|asks| asks + 1);
            }
        }
    }

    pub(super) fn abandon(
        &mut self,
        principal: &str,
        abandon: &Abandon<'_>,
        handle_of: HandleOf<'_>,
    ) -> Verdict {
        self.abandon_record(principal, abandon, handle_of);
        let Ok(lease) = self.own(abandon.lease, handle_of) else {
            return Ok(Answer::Abandoned { released: false });
        };
        let number = abandon.place;
        let mut released = false;
        let mut touched = Vec::new();
        if self.places.get(&number).is_some_and(|place| place.lease == lease) {
            let place = self.places.get_mut(&number).expect("it was just there");
            place.asks = place.asks.map(|asks| asks - 1);
            if place.asks == Some(0) {
                released = true;
                touched.extend(self.remove_place(number, Cause::Left));
            }
        }
        for (lock, mut grant) in self.held_of_place(lease, number) {
            // A place that was just removed has no grants, so the count is not reduced twice.
            grant.asks = grant.asks.map(|asks| asks - 1);
            if grant.asks == Some(0) {
                released = true;
                self.end_event(&lock, held_event(Cause::Released, &lock, &grant));
                self.end_held(&lock, grant.token);
                self.end_upgrade(&lock, lease);
                touched.push(lock);
            } else if let Some(kept) = self.grant_mut(&lock, grant.token) {
                kept.asks = grant.asks;
            }
        }
        self.grant_pass(touched);
        Ok(Answer::Abandoned { released })
    }

    /// Counts one ask less for the request id. Forgets the request when none is left.
    fn abandon_record(&mut self, principal: &str, abandon: &Abandon<'_>, handle_of: HandleOf<'_>) {
        let place = abandon.place;
        match abandon.ask {
            AskId::None => {}
            AskId::Seq { lease, seq } => {
                let Ok(lease) = self.own(lease, handle_of) else { return };
                let lease = self.leases.get_mut(&lease).expect("a live lease exists");
                if lease.records.get_mut(&seq).is_some_and(|record| is_last(record, place)) {
                    lease.records.remove(&seq);
                }
            }
            AskId::Key(key) => {
                self.key_records.retain_mut(|it| {
                    let named = it.principal == principal && it.key == key;
                    !(named && is_last(&mut it.record, place))
                });
            }
        }
    }
}

/// Takes one ask off a record of this place, and returns whether it was the last.
fn is_last(record: &mut RequestRecord, number: PlaceNumber) -> bool {
    if record.place() != Some(number) {
        return false;
    }
    record.asks = record.asks.map(|asks| asks - 1);
    record.asks == Some(0)
}

impl RequestRecord {
    /// The place of an ask that was granted or queued.
    fn place(&self) -> Option<PlaceNumber> {
        match &self.result {
            Ok(Answer::Acquired(Acquired { place, .. }) | Answer::Queued(Queued { place, .. })) => {
                Some(*place)
            }
            _ => None,
        }
    }
}
