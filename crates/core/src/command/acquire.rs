//! Executes `Acquire`: validates the request, then grants it at once, queues it or refuses it.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::num::NonZeroU64;
use tenure_types::{Held, Limit, Mode, PlaceNumber, Quota, Refusal};

use super::any::InTheWay;
use super::owner::Payer;
use super::place::PlaceOptions;
use super::pool::PoolSlot;
use super::queue::Asker;
use super::standing::HeldPart;
use super::{about, name, over_limit};
use crate::event::Cause;
use crate::machine::Machine;
use crate::outcome::{Acquired, Answer, Grants, Notice};
use crate::request::{
    Acquire, Ask, AskLease, AskWait, Asks, LEVEL_RECORDS, LEVEL_REPAIRED_SHARES, NewLease, TAKE_MAX,
};
use crate::state::due::DueKind;
use crate::state::record::{
    AskCount, GrantOptions, GrantState, GrantTimes, IN_LEASE, IN_LOCK, IN_QUEUE, ProgressState,
};
use crate::state::slab::SlabIndex;

/// The lease that acquires, before anything is changed for it.
enum Who<'a> {
    Known(SlabIndex),
    New(NewLease<'a>),
}

/// One lock of an acquire request, with the lock's slot if it exists. The lookup is the most expensive part of the
/// command, so it is done once.
#[derive(Clone, Copy)]
pub(super) struct Located<'a> {
    pub(super) ask: Ask<'a>,
    pub(super) lock: Option<SlabIndex>,
}

/// The locks of an acquire request, in the order of their names.
enum Sorted<'a> {
    One([Located<'a>; 1]),
    Many(Vec<Located<'a>>),
}

impl<'a> Sorted<'a> {
    fn as_slice(&self) -> &[Located<'a>] {
        match self {
            Sorted::One(one) => one,
            Sorted::Many(many) => many,
        }
    }
}

impl Machine {
    pub(super) fn acquire(&mut self, acquire: &Acquire<'_>) -> Result<Answer, Refusal> {
        // Which slots a pool has counts only for a request that is new.
        let named = match &acquire.locks {
            Asks::Pool(ask) => {
                self.check_name(ask.lock)?;
                self.check_options(acquire)?;
                None
            }
            Asks::One(_) | Asks::Many(_) => Some(self.check_asks(acquire)?),
        };
        let who = match acquire.lease {
            AskLease::Existing(lease) => Who::Known(self.own_lease(lease)?),
            AskLease::New(new) => match self.check_new_lease(&new)? {
                Some(slot) => Who::Known(slot),
                None => Who::New(new),
            },
        };
        let ttl_ms = match &who {
            Who::Known(slot) => u64::from(self.leases.at(*slot).ttl_ms),
            Who::New(new) => new.ttl_ms,
        };
        if acquire.max_hold_ms.is_some_and(|max_hold_ms| max_hold_ms <= ttl_ms) {
            return Err(Refusal::MaxHoldTooShort { ttl_ms });
        }
        if let Who::Known(slot) = who {
            let standing = match (&named, &acquire.locks) {
                (Some(asks), _) => self.standing(slot, acquire, asks.as_slice())?,
                (None, asks) => self.pool_standing(slot, &asks.as_slice()[0])?,
            };
            match standing {
                HeldPart::Nothing => {}
                HeldPart::Waits(place) => {
                    self.replace_limit(place, acquire.wait);
                    self.count_ask(slot, self.places.at(place).number);
                    return Ok(self.queued_answer(place));
                }
                HeldPart::Holds(place, grants) => {
                    self.count_ask(slot, place);
                    return Ok(self.acquired_answer(slot, place, grants));
                }
            }
        }
        if acquire.resume {
            return Ok(Answer::Ended);
        }
        let pool;
        let asks = match named {
            Some(asks) => asks,
            None => {
                pool = self.pool_slots(&acquire.locks.as_slice()[0])?;
                Sorted::Many(pool.iter().map(PoolSlot::located).collect())
            }
        };
        let asks = asks.as_slice();
        if let (Who::Known(lease), Some(_)) = (&who, acquire.pool()) {
            self.check_pool_overlap(*lease, asks)?;
        }
        self.check_room(&who, acquire, asks)?;
        self.ask(who, acquire, asks)
    }

    /// Checks the locks and options that the request names, and returns the locks in the order of their names.
    fn check_asks<'a>(&self, acquire: &Acquire<'a>) -> Result<Sorted<'a>, Refusal> {
        let asks = acquire.locks.as_slice();
        let (limit, asked) = (Limit::LocksPerAsk, asks.len() as u64);
        if asks.is_empty() {
            return Err(over_limit(limit, self.limits.get(limit), asked));
        }
        self.check_limit(limit, asked)?;
        let locate = |ask: &Ask<'a>| {
            self.check_name(ask.lock)?;
            let located = self.locate(*ask);
            if self.level < LEVEL_REPAIRED_SHARES {
                self.check_slots(located.ask.mode)?;
            } else if located.ask.mode.slots() == Some(0) {
                let (limit, bound) = (Limit::Slots, self.limits.get(Limit::Slots));
                return Err(over_limit(limit, bound, 0));
            }
            Ok(located)
        };
        let sorted = if let [only] = asks {
            Sorted::One([locate(only)?])
        } else {
            let mut asks =
                asks.iter().map(locate).collect::<Result<Vec<Located<'a>>, Refusal>>()?;
            asks.sort_unstable_by_key(|located| located.ask.lock);
            if let Some(pair) = asks.windows(2).find(|pair| pair[0].ask.lock == pair[1].ask.lock) {
                return Err(Refusal::Duplicate { lock: name(pair[0].ask.lock) });
            }
            Sorted::Many(asks)
        };
        self.check_options(acquire)?;
        Ok(sorted)
    }

    /// Checks what the request asks for beside its locks.
    fn check_options(&self, acquire: &Acquire<'_>) -> Result<(), Refusal> {
        self.check_limit(Limit::MetadataBytes, acquire.metadata.len() as u64)?;
        if let AskWait::Limit { ms } = acquire.wait {
            self.check_limit(Limit::WaitMs, ms)?;
        }
        self.check_limit(Limit::LockDelayMs, acquire.lock_delay_ms)?;
        if let Some(max_hold_ms) = acquire.max_hold_ms {
            self.check_limit(Limit::MaxHoldMs, max_hold_ms)?;
        }
        // The same limit bounds both: how long one grant may keep every other lease out.
        self.check_limit(Limit::MaxHoldMs, acquire.min_hold_ms)?;
        self.check_limit(Limit::MaxHoldMs, acquire.progress_within_ms)?;
        if let Some(group) = acquire.supersede {
            self.check_name(group)?;
        }
        Ok(())
    }

    /// Looks up a requested lock. If an operator set its number of slots, that number replaces the one requested.
    fn locate<'a>(&self, mut ask: Ask<'a>) -> Located<'a> {
        let lock = self.lock_slot(ask.lock);
        if let Some(lock) = lock {
            let record = self.locks.at(lock);
            if record.sized
                && let Some(slots) = record.slots
            {
                ask.mode = ask.mode.resized(slots.get());
            }
        }
        Located { ask, lock }
    }

    /// Refuses a semaphore without slots or with too many, and a request for more slots than it has or than one request
    /// may take.
    fn check_slots(&self, mode: Mode) -> Result<(), Refusal> {
        let Mode::Slot { of, take } = mode else { return Ok(()) };
        let (limit, bound) = (Limit::Slots, self.limits.get(Limit::Slots));
        if of == 0 || u64::from(of) > bound {
            return Err(over_limit(limit, bound, u64::from(of)));
        }
        let bound = of.min(TAKE_MAX);
        if take > bound {
            return Err(too_many_slots(bound, take));
        }
        Ok(())
    }

    /// Checks that the limits and the state have room for the request.
    fn check_room(
        &self,
        who: &Who<'_>,
        acquire: &Acquire<'_>,
        asks: &[Located<'_>],
    ) -> Result<(), Refusal> {
        for Located { ask, lock } in asks {
            // Only now: what the lease has already is its own, however many slots there are by now.
            if self.level >= LEVEL_REPAIRED_SHARES {
                self.check_slots(ask.mode)?;
            }
            if let Some(lock) = lock {
                let slots = self.locks.at(*lock).slots.map(core::num::NonZeroU32::get);
                if slots != ask.mode.slots() {
                    return Err(about(ask.lock, |lock| Refusal::OtherKind { lock, slots }));
                }
            }
        }
        let (has, lease_bytes, payer) = match who {
            Who::Known(slot) => {
                let lease = self.leases.at(*slot);
                let has = u64::from(lease.grants.len) + u64::from(lease.waits);
                (has, 0, self.owner_pays(lease.owner))
            }
            Who::New(new) => (0, new.metadata.len() as u64, self.caller_pays()),
        };
        let locks = grants_asked(asks);
        self.check_limit(Limit::LocksPerLease, has + locks)?;
        let bytes = acquire.metadata.len() as u64 * locks + lease_bytes;
        self.check_quota(payer, Quota::Locks, locks)?;
        self.check_quota(payer, Quota::Bytes, bytes)?;
        self.check_space()?;
        self.check_tokens(asks)
    }

    /// The principal against whose quotas the locks and bytes of a lease count.
    fn payer(&self, who: &Who<'_>) -> Option<Payer<'_>> {
        match who {
            Who::Known(slot) => self.owner_pays(self.leases.at(*slot).owner),
            Who::New(_) => self.caller_pays(),
        }
    }

    fn check_tokens(&self, asks: &[Located<'_>]) -> Result<(), Refusal> {
        if grants_asked(asks) > self.tokens_left() {
            return Err(Refusal::TokensExhausted);
        }
        Ok(())
    }

    fn ask(
        &mut self,
        who: Who<'_>,
        acquire: &Acquire<'_>,
        asks: &[Located<'_>],
    ) -> Result<Answer, Refusal> {
        // Places of leases that are due may still be ahead in the queue. Remove them first.
        for lock in asks.iter().filter_map(|located| located.lock) {
            if self.may_advance(lock) {
                self.touch(lock);
            }
        }
        self.grant_pass();

        let times = GrantTimes {
            lock_delay_ms: acquire.lock_delay_ms,
            max_hold_ms: acquire.max_hold_ms.and_then(NonZeroU64::new),
            min_hold_ms: acquire.min_hold_ms,
        };
        let progress = ProgressState::promised(acquire.progress_within_ms);
        let options = GrantOptions::new(acquire.metadata, times, progress, acquire.purpose);
        let free = self.free_part(acquire, asks);
        if let Ok(free) = &free
            && !self.is_quiet()
        {
            // The places granted in the pass above may have taken the last tokens.
            self.check_tokens(asks)?;
            let lease = self.lease_for(who);
            let asker = Asker { lease, options: &options, asks: AskCount::first(self.level) };
            return Ok(self.grant_at_once(asker, free));
        }
        let until_ms = match acquire.wait {
            AskWait::No | AskWait::Limit { ms: 0 } => return Err(self.not_now(free.err())),
            AskWait::Unlimited => None,
            AskWait::Limit { ms } => NonZeroU64::new(self.deadline(ms)),
        };
        for located in asks {
            let queue = located.lock.map_or(0, |lock| self.locks.at(lock).queue.len);
            self.check_limit(Limit::WaitersPerLock, u64::from(queue) + 1)?;
        }
        self.check_quota(self.payer(&who), Quota::Places, 1)?;
        let new = matches!(who, Who::New(_));
        let lease = match who {
            Who::Known(slot) => slot,
            Who::New(new) => self.add_lease(&new),
        };
        let asker = Asker { lease, options: &options, asks: AskCount::first(self.level) };
        let place = self.add_place(asker, asks, until_ms, &PlaceOptions::of(acquire));
        if let Err(deadlock) = self.check_deadlock(place) {
            if self.level >= LEVEL_RECORDS {
                self.emit_place(place, Cause::Deadlock);
            }
            self.unlink_place(place);
            self.newest_place.0 -= 1;
            if new {
                self.forget_lease(lease);
            }
            return Err(deadlock);
        }
        if new {
            self.emit_lease_granted(lease);
        }
        self.emit_place(place, Cause::Queued);
        if acquire.supersede.is_some() {
            self.supersede(place);
        } else if !self.passes(place) {
            return Ok(self.queued_answer(place));
        }
        Ok(self.answer_after_pass(place))
    }

    /// Whether a request for this lock would have to wait now.
    pub(super) fn is_blocked(&self, located: &Located<'_>) -> bool {
        let Some(lock) = located.lock else { return false };
        let mode = located.ask.mode;
        let overtakes = match mode {
            Mode::Shared => mutant!("writer_overtaken"),
            Mode::Slot { take: 1, .. } => mutant!("small_request_passes_a_large_one"),
            Mode::Exclusive | Mode::Slot { .. } => false,
        };
        self.locks.at(lock).queue.len > 0 && !overtakes || !self.admits(lock, mode)
    }

    fn lease_for(&mut self, who: Who<'_>) -> SlabIndex {
        match who {
            Who::Known(slot) => slot,
            Who::New(new) => self.create_lease(&new),
        }
    }

    /// Grants a request that nothing blocks. It uses up a place number but never enters a queue.
    fn grant_at_once(&mut self, asker: Asker<'_>, asks: &[Located<'_>]) -> Answer {
        self.newest_place.0 += 1;
        let place = self.newest_place;
        let grants = match asks {
            [Located { ask: Ask { mode, .. }, .. }] if mode.grants() == 1 => {
                let lock = self.lock_for(&asks[0]);
                Grants::One(self.grant_lock(lock, *mode, asker, place))
            }
            _ => {
                let mut grants = Vec::new();
                for located in asks {
                    let lock = self.lock_for(located);
                    self.grant_slots(lock, located.ask.mode, asker, place, &mut grants);
                }
                grants.into_iter().collect()
            }
        };
        self.acquired_answer(asker.lease, place, grants)
    }

    /// The refusal of a request that does not wait.
    #[cold]
    #[inline(never)]
    fn not_now(&self, in_the_way: Option<InTheWay<'_, '_>>) -> Refusal {
        match (self.quiet_until_ms, in_the_way) {
            (Some(until_ms), _) => {
                Refusal::Quiet { left_ms: until_ms.saturating_sub(self.clock_ms) }
            }
            (None, Some(InTheWay::Drained(drained))) => drained,
            (None, Some(InTheWay::Blocked(located))) => {
                let lock = located.lock.expect("a lock that blocks exists");
                Refusal::Held(Box::new(Held {
                    lock: name(located.ask.lock),
                    holder: self.first_holder(lock),
                    ahead: u64::from(self.locks.at(lock).queue.len),
                }))
            }
            (None, None) => unreachable!("an ask that nothing blocks is granted"),
        }
    }

    /// The grants of a place that are in force, in the order of the locks' names and of tokens; `None` if there are
    /// none.
    pub(super) fn grants_of_place(&self, lease: SlabIndex, place: PlaceNumber) -> Option<Grants> {
        let mut found = self.find_grants(lease, place);
        found.sort_unstable_by(|a, b| a.0.order().cmp(&b.0.order()));
        (!found.is_empty()).then(|| found.into_iter().map(|(grant, _)| grant).collect())
    }

    pub(super) fn find_grants(
        &self,
        lease: SlabIndex,
        place: PlaceNumber,
    ) -> Vec<(crate::outcome::LockGrant, Mode)> {
        let grants = self.leases.at(lease).grants;
        grants
            .iter::<IN_LEASE, _>(&self.grants)
            .filter(|(_, grant)| grant.place == place)
            .map(|(_, grant)| {
                let lock = self.locks.at(grant.lock);
                let (token, slot) = (grant.token, grant.mode.slot());
                let shown = crate::outcome::LockGrant { lock: lock.name.clone(), token, slot };
                (shown, grant.mode.asked(lock.slots))
            })
            .collect()
    }

    /// A grant by which a lease holds a lock. All of them are of one place. Searches the shorter of the two lists.
    pub(super) fn grant_of(&self, lease: SlabIndex, lock: SlabIndex) -> Option<SlabIndex> {
        let of_lock = self.locks.at(lock).grants;
        let of_lease = self.leases.at(lease).grants;
        if of_lock.len <= of_lease.len {
            let held = |state: &GrantState| matches!(state, GrantState::Held(by) if *by == lease);
            of_lock
                .iter::<IN_LOCK, _>(&self.grants)
                .find(|(_, grant)| held(&grant.state))
                .map(|(slot, _)| slot)
        } else {
            of_lease
                .iter::<IN_LEASE, _>(&self.grants)
                .find(|(_, grant)| grant.lock == lock)
                .map(|(slot, _)| slot)
        }
    }

    /// The place in which a lease waits for a lock. Searches the shorter of the two lists.
    pub(super) fn place_of(&self, lease: SlabIndex, lock: SlabIndex) -> Option<SlabIndex> {
        let of_lock = self.locks.at(lock).queue;
        let of_lease = self.leases.at(lease);
        if of_lock.len <= of_lease.waits {
            of_lock
                .iter::<IN_QUEUE, _>(&self.waits)
                .find(|(_, wait)| self.places.at(wait.place).lease == lease)
                .map(|(_, wait)| wait.place)
        } else {
            of_lease
                .places
                .iter::<IN_LEASE, _>(&self.places)
                .find(|(place, _)| self.waits_of(*place).any(|(_, wait)| wait.lock == lock))
                .map(|(place, _)| place)
        }
    }

    /// Serves the queues of a new place, for which those before it may have left or been passed, and answers its
    /// request.
    fn answer_after_pass(&mut self, place: SlabIndex) -> Answer {
        let record = self.places.at(place);
        let (number, lease) = (record.number, record.lease);
        if self.passes(place) {
            let locks: Vec<SlabIndex> = self.waits_of(place).map(|(_, wait)| wait.lock).collect();
            locks.into_iter().for_each(|lock| self.touch(lock));
        }
        self.grant_pass();
        // The answer tells of the grant, so no notice is needed.
        let told =
            |notice: &Notice| matches!(notice, Notice::Granted { place, .. } if *place == number);
        self.now.notices.retain(|notice| !told(notice));
        if let Some(waiting) = self.find_place(lease, number) {
            return self.queued_answer(waiting);
        }
        match self.grants_of_place(lease, number) {
            Some(grants) => self.acquired_answer(lease, number, grants),
            // At the end of time no lease is live.
            None => Answer::Ended,
        }
    }

    pub(super) fn replace_limit(&mut self, place: SlabIndex, wait: AskWait) {
        let until_ms = match wait {
            AskWait::No | AskWait::Limit { ms: 0 } => return,
            AskWait::Unlimited => None,
            AskWait::Limit { ms } => NonZeroU64::new(self.deadline(ms)),
        };
        let number = self.places.at(place).number.0;
        if let Some(old) = self.places.at(place).until_ms {
            self.due.remove(old.get(), DueKind::WaitLimit, number);
        }
        if let Some(new) = until_ms {
            self.due.insert(new.get(), DueKind::WaitLimit, number, Some(place));
        }
        self.places.at_mut(place).until_ms = until_ms;
    }

    pub(super) fn acquired_answer(
        &self,
        lease: SlabIndex,
        place: PlaceNumber,
        grants: Grants,
    ) -> Answer {
        Answer::Acquired(Acquired { lease: self.lease_grant(lease), place, grants })
    }
}

/// How many grants a request becomes: one for each slot that it takes.
pub(super) fn grants_asked(asks: &[Located<'_>]) -> u64 {
    asks.iter().map(|located| u64::from(located.ask.mode.grants())).sum()
}

/// The refusal of a request for more slots than its semaphore has, or than one request may take.
pub(super) fn too_many_slots(bound: u32, take: u32) -> Refusal {
    over_limit(Limit::Slots, u64::from(bound), u64::from(take))
}
