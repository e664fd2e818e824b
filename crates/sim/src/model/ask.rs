//! Decides an ask for locks: grants the locks, queues the ask, or refuses it.

use tenure_core::event::{Cause, Event};
use tenure_core::outcome::{Acquired, Answer, Grants, Notice, Queued};
use tenure_core::request::{Acquire, AskLease, AskWait, LeaseRef};
use tenure_types::{Held, LeaseId, Limit, Mode, Name, PlaceNumber, Quota, Refusal};

use super::access::OwnerKey;
use super::event::place_event;
use super::pass::{show, takes};
use super::state::later;
use super::{Grant, HandleOf, LEVEL_RECORDS, LEVEL_REPAIRED, Model, Place, TAKE_MAX, Verdict};

/// How long an ask is willing to wait, as a deadline.
#[derive(Clone, Copy)]
pub(super) enum WaitDeadline {
    None,
    Endless,
    Until(u64),
}

impl Model {
    pub(super) fn acquire(&mut self, ask: &Acquire<'_>, handle_of: HandleOf<'_>) -> Verdict {
        // Of a pool only its name counts, until it is known that the ask is new.
        let mut locks = match ask.pool() {
            Some(pool) => self.name(pool).map(|_| Vec::new())?,
            None => self.check_asks(ask)?,
        };
        self.check_bounds(ask)?;
        let (lease, ttl_ms, client) = match &ask.lease {
            AskLease::Existing(lease) => self.known(self.own(*lease, handle_of)?),
            AskLease::New(new) => match self.check_new_lease(new)? {
                Some(same) => self.known(same),
                None => (new.id, new.ttl_ms, self.name(new.client)?),
            },
        };
        if ask.max_hold_ms.is_some_and(|max_hold_ms| max_hold_ms <= ttl_ms) {
            return Err(Refusal::MaxHoldTooShort { ttl_ms });
        }
        let wait_deadline = self.wait_deadline(ask.wait);
        let any = ask.pool().is_some() || ask.any && locks.len() > 1;
        let standing = match ask.pool() {
            Some(_) => self.pool_standing(lease, &ask.locks.as_slice()[0], wait_deadline),
            None => self.present_standing(lease, any, &locks, wait_deadline),
        };
        if let Some(standing) = standing {
            return standing;
        }
        if ask.resume {
            return Ok(Answer::Ended);
        }
        if ask.pool().is_some() {
            locks = self.slots_of_pool(&ask.locks.as_slice()[0])?;
            self.no_other_place(lease, &locks)?;
        }
        self.check_room(lease, &locks)?;
        let payer = match self.leases.get(&lease) {
            Some(lease) => lease.owner.clone(),
            None => self.caller(),
        };
        let grants = locks.iter().map(|(_, mode)| u64::from(takes(*mode))).sum();
        self.check_quotas(lease, payer.as_ref(), ask, grants)?;
        self.room()?;
        self.check_tokens(grants)?;

        // Expired places may still be in these queues and must not block others.
        let queued = locks.iter().map(|(lock, _)| lock.clone());
        let queued: Vec<Name> = queued.filter(|lock| self.may_advance(lock)).collect();
        self.grant_pass(queued);

        let place = Place {
            number: PlaceNumber(self.next_place),
            lease,
            client,
            locks,
            metadata: ask.metadata.to_vec(),
            lock_delay_ms: ask.lock_delay_ms,
            max_hold_ms: ask.max_hold_ms,
            min_hold_ms: ask.min_hold_ms,
            progress_within_ms: ask.progress_within_ms,
            group: ask.supersede.map(|group| Name::new(group).expect("it was checked")),
            priority: ask.priority,
            purpose: ask.purpose,
            independent: ask.independent,
            upgrade: false,
            any,
            pool: ask.pool().map(|pool| Name::new(pool).expect("it was checked")),
            wait_until_ms: match wait_deadline {
                WaitDeadline::Until(until_ms) => Some(until_ms),
                WaitDeadline::None | WaitDeadline::Endless => None,
            },
            created: self.this_revision(),
            since_ms: self.clock_ms,
            asks: self.first_ask(),
        };
        let now = self.at_once(&place);
        if let Ok(now) = &now
            && !self.is_quiet()
        {
            // The pass above may have used the last tokens.
            if self.tokens_left() < place.grants() {
                return Err(Refusal::TokensExhausted);
            }
            self.take_number(ask);
            let grants = self.grant_locks(now);
            let lease = self.lease_grant(lease);
            return Ok(Answer::Acquired(Acquired { lease, place: place.number, grants }));
        }
        if matches!(wait_deadline, WaitDeadline::None) {
            let (closed, blocking) = now.err().unwrap_or_default();
            return Err(self.no_wait(closed, blocking));
        }
        self.enqueue(place, ask)
    }

    pub(super) fn wait_deadline(&self, wait: AskWait) -> WaitDeadline {
        match wait {
            AskWait::No | AskWait::Limit { ms: 0 } => WaitDeadline::None,
            AskWait::Unlimited => WaitDeadline::Endless,
            AskWait::Limit { ms } => WaitDeadline::Until(later(self.clock_ms, self.whole(ms))),
        }
    }

    /// The requested locks, in the order of names.
    fn check_asks(&self, ask: &Acquire<'_>) -> Result<Vec<(Name, Mode)>, Refusal> {
        let asks = ask.locks.as_slice();
        let asked = asks.len() as u64;
        let bound = self.limits.get(Limit::LocksPerAsk);
        if asked == 0 || asked > bound {
            return Err(Refusal::Limit { limit: Limit::LocksPerAsk, bound, asked });
        }
        let mut locks = Vec::new();
        for one in asks {
            let name = self.name(one.lock)?;
            let mut mode = one.mode;
            // The number that an operator set holds, whatever number the ask has.
            if let (Mode::Slot { take, .. }, Some(lock)) = (mode, self.locks.get(&name))
                && let Some(of) = lock.slots.filter(|_| lock.sized)
            {
                mode = Mode::Slot { of, take };
            }
            if let Mode::Slot { of, take } = mode {
                match self.level < LEVEL_REPAIRED {
                    true => self.check_slots(of, take)?,
                    // The rest is checked only if the lease does not have them already.
                    false if of == 0 => self.check_slots(of, take)?,
                    false => {}
                }
            }
            locks.push((name, mode));
        }
        locks.sort();
        match locks.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            Some(pair) => Err(Refusal::Duplicate { lock: pair[0].0.clone() }),
            None => Ok(locks),
        }
    }

    fn check_slots(&self, of: u32, take: u32) -> Result<(), Refusal> {
        let bound = self.limits.get(Limit::Slots);
        let no = |bound: u64, asked: u32| {
            let asked = u64::from(asked);
            Err(Refusal::Limit { limit: Limit::Slots, bound, asked })
        };
        if of == 0 || u64::from(of) > bound {
            return no(bound, of);
        }
        if take > of || take > TAKE_MAX {
            return no(u64::from(of.min(TAKE_MAX)), take);
        }
        Ok(())
    }

    fn check_bounds(&self, ask: &Acquire<'_>) -> Result<(), Refusal> {
        self.within(Limit::MetadataBytes, ask.metadata.len() as u64)?;
        if let AskWait::Limit { ms } = ask.wait {
            self.within(Limit::WaitMs, ms)?;
        }
        self.within(Limit::LockDelayMs, ask.lock_delay_ms)?;
        self.within(Limit::MaxHoldMs, ask.max_hold_ms.unwrap_or(0))?;
        self.within(Limit::MaxHoldMs, ask.min_hold_ms)?;
        self.within(Limit::MaxHoldMs, ask.progress_within_ms)?;
        if let Some(group) = ask.supersede {
            self.name(group)?;
        }
        Ok(())
    }

    /// The properties of an existing lease that an ask needs.
    fn known(&self, id: LeaseId) -> (LeaseId, u64, Name) {
        let lease = &self.leases[&id];
        (id, lease.ttl_ms, lease.client.clone())
    }

    /// The answer to an ask that repeats an earlier one or overlaps with one.
    fn present_standing(
        &mut self,
        lease: LeaseId,
        any: bool,
        locks: &[(Name, Mode)],
        wait_deadline: WaitDeadline,
    ) -> Option<Verdict> {
        for asked @ (lock, _) in locks {
            let mut queue = self.queue_of(lock).into_iter();
            let waiting = queue.find(|place| place.lease == lease && !place.upgrade);
            let waiting = waiting.cloned();
            let held = self.held_by(lease).into_iter().find(|(name, _)| name == lock);
            let (number, same) = match (waiting, held) {
                // It may have left a queue since, because a semaphore became too small.
                (Some(place), _) if any => {
                    let asked = self.as_now(locks);
                    let part = place.locks.iter().all(|lock| asked.contains(lock));
                    let elsewhere = locks.iter().any(|(lock, _)| {
                        let mut queue = self.queue_of(lock).into_iter();
                        let mut held = self.held_by(lease).into_iter();
                        queue.any(|it| it.lease == lease && it.number != place.number)
                            || held.any(|(name, _)| name == *lock)
                    });
                    (place.number, part && place.any && place.pool.is_none() && !elsewhere)
                }
                (Some(place), _) => {
                    let same = place.locks == self.as_now(locks);
                    (place.number, same && !place.any)
                }
                (None, Some((_, grant))) => {
                    let present = together(self.held_of_place(lease, grant.place));
                    // Of an ask for any, the one that is held is all that it is for.
                    let needed = if any { std::slice::from_ref(asked) } else { locks };
                    (grant.place, present == self.as_now(needed))
                }
                (None, None) => continue,
            };
            if !same {
                return Some(Err(Refusal::Overlap { lock: lock.clone() }));
            }
            self.replace_limit(number, wait_deadline);
            self.count_ask(number);
            return Some(Ok(self.standing(lease, number)));
        }
        None
    }

    /// The locks asked for, each semaphore with the number of slots that it has now.
    fn as_now(&self, locks: &[(Name, Mode)]) -> Vec<(Name, Mode)> {
        let now = |(name, mode): &(Name, Mode)| {
            let of = self.locks.get(name).and_then(|lock| lock.slots);
            match (*mode, of.filter(|_| self.level >= LEVEL_REPAIRED)) {
                (Mode::Slot { take, .. }, Some(of)) => (name.clone(), Mode::Slot { of, take }),
                _ => (name.clone(), *mode),
            }
        };
        locks.iter().map(now).collect()
    }

    /// Gives a place another wait limit, if the ask has one.
    pub(super) fn replace_limit(&mut self, number: PlaceNumber, wait_deadline: WaitDeadline) {
        let Some(place) = self.places.get_mut(&number) else { return };
        match wait_deadline {
            WaitDeadline::None => {}
            WaitDeadline::Endless => place.wait_until_ms = None,
            WaitDeadline::Until(until_ms) => place.wait_until_ms = Some(until_ms),
        }
    }

    /// The held grants of one place, in the order of names.
    pub(super) fn held_of_place(
        &self,
        lease: LeaseId,
        number: PlaceNumber,
    ) -> Vec<(Name, super::Grant)> {
        self.held_by(lease).into_iter().filter(|(_, grant)| grant.place == number).collect()
    }

    /// The present state of an earlier ask of a live lease.
    pub(super) fn standing(&self, lease: LeaseId, number: PlaceNumber) -> Answer {
        if self.places.contains_key(&number) {
            return Answer::Queued(self.queued(number));
        }
        let held = self.held_of_place(lease, number);
        if held.is_empty() {
            return Answer::Ended;
        }
        let grants: Grants = held.iter().map(|(lock, grant)| show(lock, grant)).collect();
        Answer::Acquired(Acquired { lease: self.lease_grant(lease), place: number, grants })
    }

    /// A queued place in the form of the answer to its lease.
    fn queued(&self, number: PlaceNumber) -> Queued {
        let place = &self.places[&number];
        let before = |lock: &Name| {
            self.queue_of(lock).iter().filter(|other| other.rank() < place.rank()).count() as u64
        };
        let ahead = place.locks.iter().map(|(lock, _)| before(lock));
        let ahead = if place.any { ahead.min() } else { ahead.max() };
        let ahead = ahead.unwrap_or(0);
        Queued { lease: self.lease_grant(place.lease), place: number, ahead }
    }

    /// Makes the last checks that do not depend on the present holders and waiters.
    fn check_room(&self, lease: LeaseId, locks: &[(Name, Mode)]) -> Result<(), Refusal> {
        for (name, mode) in locks {
            if let Mode::Slot { of, take } = *mode
                && self.level >= LEVEL_REPAIRED
            {
                self.check_slots(of, take)?;
            }
            if let Some(lock) = self.locks.get(name)
                && lock.slots != mode.slots()
            {
                return Err(Refusal::OtherKind { lock: name.clone(), slots: lock.slots });
            }
        }
        let holds = self.held_by(lease).len();
        let waits: u64 = self.places_of(lease).iter().map(Place::grants).sum();
        let asked: u64 = locks.iter().map(|(_, mode)| u64::from(takes(*mode))).sum();
        self.within(Limit::LocksPerLease, holds as u64 + waits + asked)
    }

    /// Checks what a principal may have. A new lease counts together with what is asked for.
    fn check_quotas(
        &self,
        lease: LeaseId,
        payer: Option<&OwnerKey>,
        ask: &Acquire<'_>,
        locks: u64,
    ) -> Result<(), Refusal> {
        let of_lease = match &ask.lease {
            AskLease::New(new) if !self.leases.contains_key(&lease) => new.metadata.len() as u64,
            _ => 0,
        };
        let bytes = ask.metadata.len() as u64 * locks + of_lease;
        self.within_quota(payer, Quota::Locks, locks)?;
        self.within_quota(payer, Quota::Bytes, bytes)
    }

    fn check_tokens(&self, locks: u64) -> Result<(), Refusal> {
        if self.tokens_left() < locks { Err(Refusal::TokensExhausted) } else { Ok(()) }
    }

    fn no_wait(&self, closed: Option<Refusal>, blocking: Option<Name>) -> Refusal {
        if self.is_quiet() {
            let until_ms = self.quiet_until_ms.expect("a quiet period has an end");
            return Refusal::Quiet { left_ms: until_ms.saturating_sub(self.clock_ms) };
        }
        if let Some(closed) = closed {
            return closed;
        }
        let lock = blocking.expect("outside the quiet period a lock is in the way");
        let holder = self.grants_of(&lock).first().map(|grant| self.show_holder(grant));
        let ahead = self.queue_of(&lock).len() as u64;
        Refusal::Held(Box::new(Held { lock, holder, ahead }))
    }

    /// Queues an ask, unless a queue is full or the wait would never end.
    fn enqueue(&mut self, place: Place, ask: &Acquire<'_>) -> Verdict {
        for (lock, _) in &place.locks {
            let bound = self.limits.get(Limit::WaitersPerLock);
            let length = self.queue_of(lock).len() as u64;
            if length >= bound {
                let limit = Limit::WaitersPerLock;
                return Err(Refusal::Limit { limit, bound, asked: length + 1 });
            }
        }
        let payer = match self.leases.get(&place.lease) {
            Some(lease) => lease.owner.clone(),
            None => self.caller(),
        };
        self.within_quota(payer.as_ref(), Quota::Places, 1)?;
        self.places.insert(place.number, place.clone());
        if let Some(ring) = self.deadlock(&place) {
            self.places.remove(&place.number);
            if self.level >= LEVEL_RECORDS {
                for (lock, mode) in &place.locks {
                    let event = place_event(Cause::Deadlock, &place, lock, *mode);
                    self.events.push(Event { place: None, ..event });
                }
            }
            return Err(Refusal::Deadlock { ring });
        }
        self.take_number(ask);
        for (lock, mode) in &place.locks {
            self.come_into_being(lock, *mode);
            self.events.push(place_event(Cause::Queued, &place, lock, *mode));
        }
        let mut touched = Vec::new();
        if place.group.is_some() {
            touched.extend(self.supersede(&place));
        }
        if self.is_before_others(&place) {
            touched.extend(place.names());
        }
        self.grant_pass(touched);
        // The answer tells of the grant.
        let is_own = |notice: &Notice| matches!(notice, Notice::Granted { place: it, .. } if *it == place.number);
        self.notices.retain(|notice| !is_own(notice));
        Ok(self.standing(place.lease, place.number))
    }

    /// Uses up the place number, now that the ask is not refused, and grants the lease that came with it.
    fn take_number(&mut self, ask: &Acquire<'_>) {
        self.next_place += 1;
        if let AskLease::New(new) = &ask.lease
            && !self.leases.contains_key(&new.id)
        {
            self.add_lease(new);
        }
    }

    pub(super) fn leave(
        &mut self,
        lease: LeaseRef,
        lock: &str,
        handle_of: HandleOf<'_>,
    ) -> Verdict {
        let lock = self.known_name(lock)?;
        let lease = self.own(lease, handle_of)?;
        let waiting = self.queue_of(&lock).into_iter().find(|place| place.lease == lease);
        if let Some(number) = waiting.map(|place| place.number) {
            let touched = self.remove_place(number, Cause::Left);
            self.grant_pass(touched);
            return Ok(Answer::Left);
        }
        let held = self.held_by(lease).into_iter().find(|(name, _)| *name == lock);
        let Some((_, grant)) = held else { return Err(Refusal::NotWaiting { lock }) };
        let of_it = self.held_of_place(lease, grant.place);
        Ok(Answer::AlreadyHeld(of_it.iter().map(|(lock, grant)| show(lock, grant)).collect()))
    }
}

/// The asks that grants, in the order of names, came from: several slots of one semaphore are one.
pub(super) fn together(grants: Vec<(Name, Grant)>) -> Vec<(Name, Mode)> {
    let mut asks: Vec<(Name, Mode)> = Vec::new();
    for (name, grant) in grants {
        match asks.last_mut() {
            Some((last, Mode::Slot { take, .. })) if *last == name => *take += 1,
            _ => asks.push((name, grant.mode)),
        }
    }
    asks
}
