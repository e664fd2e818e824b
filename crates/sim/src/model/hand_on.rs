//! Gives a hold to a lease that waits for it.

use tenure_core::event::{Cause, Event};
use tenure_core::outcome::{Answer, Notice};
use tenure_core::request::Hold;
use tenure_types::{LeaseId, Refusal};

use super::event::held_event;
use super::state::later;
use super::{HandleOf, LEVEL_REPAIRED, Model, NO_HANDLE, Place, Verdict};

impl Model {
    pub(super) fn hand_on(
        &mut self,
        hold: &Hold<'_>,
        to: LeaseId,
        handle_of: HandleOf<'_>,
    ) -> Verdict {
        let (lock, grant) = self.held_under(hold, handle_of)?;
        let places = self.places_of(to);
        let waits = |locks: &[_]| *locks == [(lock.clone(), grant.mode)];
        let plain = |place: &Place| !place.upgrade && !place.any;
        let receiver = places.iter().find(|place| waits(&place.locks) && plain(place));
        let receiver = receiver.filter(|_| self.is_live(to)).filter(|it| {
            // Who has the lock must not wait for those who now wait for it.
            places.iter().all(|other| other.number == it.number || other.independent)
        });
        let Some(receiver) = receiver else { return Err(Refusal::NotWaiting { lock }) };
        if let Some(closed) = self.closed([&lock].into_iter()) {
            if self.level >= LEVEL_REPAIRED {
                self.room()?;
            }
            return Err(closed);
        }
        if self.tokens_left() == 0 {
            return Err(Refusal::TokensExhausted);
        }
        let mut receiver = receiver.clone();
        let rests_until_ms = later(grant.since_ms, self.whole(grant.min_hold_ms));
        let left_ms = rests_until_ms.saturating_sub(self.clock_ms);
        receiver.min_hold_ms = receiver.min_hold_ms.max(left_ms);
        if left_ms > 0 && self.level >= LEVEL_REPAIRED {
            // No abandoned request gives it back before that is over.
            receiver.asks = None;
        }
        let event = held_event(Cause::HandedOn, &lock, &grant);
        self.end_event(&lock, Event { place: Some(receiver.number), ..event });
        self.end_held(&lock, grant.token);
        self.end_upgrade(&lock, grant.lease);
        self.places.remove(&receiver.number);
        let grants = self.grant_in_slot(&receiver, grant.slot);
        let token = grants.as_slice()[0].token;
        self.notices.push(Notice::Granted {
            lease: NO_HANDLE,
            place: receiver.number,
            revision: self.this_revision(),
            grants,
        });
        self.grant_pass([lock]);
        Ok(Answer::HandedOn { token })
    }
}
