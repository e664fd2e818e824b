//! Turns a shared hold into an exclusive one once there is no other holder.

use tenure_core::event::{Cause, Event};
use tenure_core::outcome::{Acquired, Answer, Grants, Notice};
use tenure_core::request::{AskWait, Purpose, Upgrade};
use tenure_types::{Held, LeaseId, Limit, Mode, Name, PlaceNumber, Quota, Refusal, RingLink};

use super::ask::WaitDeadline;
use super::event::{held_event, place_event};
use super::pass::show;
use super::{Grant, HandleOf, LEVEL_REPAIRED, Model, NO_HANDLE, Place, Verdict};

impl Model {
    pub(super) fn upgrade(&mut self, ask: &Upgrade<'_>, handle_of: HandleOf<'_>) -> Verdict {
        let lock = self.known_name(ask.lock)?;
        if let AskWait::Limit { ms } = ask.wait {
            self.within(Limit::WaitMs, ms)?;
        }
        let lease = self.own(ask.lease, handle_of)?;
        let wait_deadline = self.wait_deadline(ask.wait);
        let held = self.held_by(lease).into_iter().find(|(name, _)| *name == lock);
        let held = held.map(|(_, grant)| grant);
        if let Some(grant) = held.as_ref().filter(|grant| grant.mode == Mode::Exclusive) {
            self.count_ask(grant.place);
            return Ok(self.standing(lease, grant.place));
        }
        if let Some(number) = self.upgrade_of(&lock, lease) {
            self.replace_limit(number, wait_deadline);
            self.count_ask(number);
            return Ok(self.standing(lease, number));
        }
        if ask.resume {
            return Ok(Answer::Ended);
        }
        let Some(own) = held.filter(|grant| grant.mode == Mode::Shared) else {
            return Err(Refusal::NotHolder { lock });
        };
        // Expired places may still be in the queue.
        self.grant_pass([lock.clone()]);
        if self.tokens_left() == 0 {
            return Err(Refusal::TokensExhausted);
        }
        let number = PlaceNumber(self.next_place);
        let others: Vec<&Grant> =
            self.grants_of(&lock).into_iter().filter(|grant| grant.token != own.token).collect();
        let Some(other) = others.first() else {
            self.check_upgrade_at_once(ask, &lock, lease)?;
            self.next_place += 1;
            let grants = self.make_exclusive(&lock, lease, number);
            let lease = self.lease_grant(lease);
            return Ok(Answer::Acquired(Acquired { lease, place: number, grants }));
        };
        let wait_until_ms = match wait_deadline {
            WaitDeadline::None => {
                let holder = Some(self.show_holder(other));
                return Err(Refusal::Held(Box::new(Held { lock, holder, ahead: 0 })));
            }
            WaitDeadline::Endless => None,
            WaitDeadline::Until(until_ms) => Some(until_ms),
        };
        let place = Place { wait_until_ms, ..self.place_of_upgrade(ask, lock, lease) };
        self.queue_upgrade(place)
    }

    fn place_of_upgrade(&self, ask: &Upgrade<'_>, lock: Name, lease: LeaseId) -> Place {
        Place {
            number: PlaceNumber(self.next_place),
            lease,
            client: self.leases[&lease].client.clone(),
            locks: vec![(lock, Mode::Exclusive)],
            metadata: Vec::new(),
            lock_delay_ms: 0,
            max_hold_ms: None,
            min_hold_ms: 0,
            progress_within_ms: 0,
            group: None,
            priority: 0,
            purpose: Purpose::Lock,
            independent: ask.independent,
            upgrade: true,
            any: false,
            pool: None,
            wait_until_ms: None,
            created: self.this_revision(),
            since_ms: self.clock_ms,
            asks: self.first_ask(),
        }
    }

    /// Refuses an upgrade of the only holder if those who wait for the lock would then wait for each other and for it.
    fn check_upgrade_at_once(
        &mut self,
        ask: &Upgrade<'_>,
        lock: &Name,
        lease: LeaseId,
    ) -> Result<(), Refusal> {
        if self.level < LEVEL_REPAIRED || self.queue_of(lock).is_empty() {
            return Ok(());
        }
        let place = self.place_of_upgrade(ask, lock.clone(), lease);
        self.places.insert(place.number, place.clone());
        let ring = self.deadlock(&place);
        self.places.remove(&place.number);
        match ring {
            None => Ok(()),
            Some(ring) => {
                let event = place_event(Cause::Deadlock, &place, lock, Mode::Exclusive);
                self.events.push(Event { place: None, ..event });
                Err(Refusal::Deadlock { ring })
            }
        }
    }

    fn queue_upgrade(&mut self, place: Place) -> Verdict {
        let (lease, lock) = (place.lease, place.locks[0].0.clone());
        let holds = self.held_by(lease).len();
        let waits: u64 = self.places_of(lease).iter().map(Place::grants).sum();
        self.within(Limit::LocksPerLease, holds as u64 + waits + 1)?;
        let payer = self.leases[&lease].owner.clone();
        self.within_quota(payer.as_ref(), Quota::Locks, 1)?;
        self.room()?;
        self.within(Limit::WaitersPerLock, self.queue_of(&lock).len() as u64 + 1)?;
        self.within_quota(payer.as_ref(), Quota::Places, 1)?;
        self.places.insert(place.number, place.clone());
        if let Some(ring) = self.deadlock(&place) {
            self.places.remove(&place.number);
            let event = place_event(Cause::Deadlock, &place, &lock, Mode::Exclusive);
            self.events.push(Event { place: None, ..event });
            return Err(Refusal::Deadlock { ring });
        }
        self.next_place += 1;
        self.events.push(place_event(Cause::Queued, &place, &lock, Mode::Exclusive));
        Ok(self.standing(lease, place.number))
    }

    /// The place in which a lease waits for the upgrade of its hold.
    fn upgrade_of(&self, lock: &Name, lease: LeaseId) -> Option<PlaceNumber> {
        let mut queue = self.queue_of(lock).into_iter();
        queue.find(|place| place.upgrade && place.lease == lease).map(|place| place.number)
    }

    /// The ring of two holders of one lock that both wait for the other one to release it.
    pub(super) fn two_upgrades(&self, asker: &Place) -> Option<Vec<RingLink>> {
        let (lock, _) = asker.locks.first().filter(|_| asker.upgrade)?;
        let mut queue = self.queue_of(lock).into_iter();
        let other = queue.find(|other| other.upgrade && other.number != asker.number)?;
        let link = |place: &Place| RingLink {
            lease: place.lease,
            client: place.client.clone(),
            lock: lock.clone(),
        };
        Some(vec![link(asker), link(other)])
    }

    /// Makes the shared hold of a lease exclusive, as the grant of this place.
    pub(super) fn make_exclusive(
        &mut self,
        lock: &Name,
        lease: LeaseId,
        number: PlaceNumber,
    ) -> Grants {
        let token = self.next_token();
        let mut grants = self.locks.get_mut(lock).expect("it is held").grants.iter_mut();
        let own = grants.find(|it| it.is_held() && it.lease == lease).expect("it holds the lock");
        own.token = token;
        own.mode = Mode::Exclusive;
        own.place = number;
        // The lease had the lock before, so it is not given back for a caller that was not told.
        own.asks = None;
        let own = own.clone();
        let event = held_event(Cause::Upgraded, lock, &own);
        self.grant_event(lock, Event { place: Some(number), ..event });
        Grants::One(show(lock, &own))
    }

    /// Ends the wait for the upgrade of a hold that has just ended.
    pub(super) fn end_upgrade(&mut self, lock: &Name, lease: LeaseId) {
        let Some(place) = self.upgrade_of(lock, lease) else { return };
        let locks = self.remove_place(place, Cause::Left);
        self.left_by_upgrades.extend(locks);
        let revision = self.this_revision();
        let told = self.level >= LEVEL_REPAIRED;
        let refusal = told.then(|| Box::new(Refusal::NotHolder { lock: lock.clone() }));
        self.notices.push(Notice::WaitEnded { lease: NO_HANDLE, place, revision, refusal });
    }
}
