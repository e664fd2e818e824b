//! Detects deadlocks: refuses a wait that would close a cycle of leases that wait for each other.
//!
//! The check is a graph reduction on a copy of the reachable state. Repeatedly, every lease that waits for nothing
//! releases all its holds, and the locks that become free are granted. A place that is never granted this way is
//! deadlocked. The check runs when a place is added and, from level 12 on, when a hold is upgraded at once while other
//! places wait for its lock. A semaphore that is made smaller can close a cycle too; the machine does not search for
//! such a cycle.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use tenure_types::{Mode, PlaceNumber, Refusal, RingLink, Token};

use crate::machine::Machine;
use crate::request::{LEVEL_ACCESS, LEVEL_ANY, LEVEL_HAND_ON};
use crate::state::rank::Rank;
use crate::state::record::{GrantState, IN_LEASE, IN_LOCK, WaitRecord};
use crate::state::slab::SlabIndex;

/// The most places or holders that one search visits. Beyond it the request may wait: a missed deadlock ends when
/// leases expire, while a false one would be a wrong refusal.
const SEARCH_MAX: usize = 10_000;

/// The most places and holders that all searches of one entry visit together, from level 3 on. An entry has up to 1,024
/// commands, and every member must apply all of them.
const SEARCH_ENTRY_MAX: usize = 100_000;

/// The most steps of a cycle that a refusal names.
const RING_MAX: usize = 32;

impl Machine {
    /// Refuses a place, just added, that can never be granted.
    pub(super) fn check_deadlock(&mut self, place: SlabIndex) -> Result<(), Refusal> {
        let record = self.places.at(place);
        if record.upgrade
            && let Some(other) = self.other_upgrade(place)
        {
            return Err(Refusal::Deadlock { ring: self.ring_of_upgrades(place, other) });
        }
        let (lease, passes) = (record.lease, self.passes(place));
        let passes = passes && !mutant!("passed_waiters_not_searched");
        // The places that it passes wait for it, even if it is independent.
        let exempt = record.independent && !passes;
        if exempt || !self.is_awaited(lease) || mutant!("deadlock_missed") {
            return Ok(());
        }
        self.search_deadlock(place, passes)
    }

    #[inline(never)]
    fn search_deadlock(&mut self, place: SlabIndex, passes: bool) -> Result<(), Refusal> {
        let lease = self.places.at(place).lease;
        let mut search_left = self.now.search_left;
        let reached = self.reach(place, &mut search_left);
        self.now.search_left = search_left;
        let Some(reached) = reached else {
            self.deadlock_searches_cut += 1;
            return Ok(());
        };
        let mut supposed = Supposed::new(self, &reached);
        supposed.reduce();
        // Even if a place that passes others is granted, its lease may never release the lock to those others.
        let stuck = match supposed.is_stuck(place) {
            true => Some(place),
            false if passes => supposed.stuck_place_of(lease),
            false => None,
        };
        match stuck {
            Some(stuck) => Err(Refusal::Deadlock { ring: supposed.ring(stuck) }),
            None => Ok(()),
        }
    }

    /// Whether another lease waits for a lock that this lease holds, or behind one of its places. Otherwise this lease
    /// cannot close a cycle.
    fn is_awaited(&self, lease: SlabIndex) -> bool {
        self.is_awaited_beside(lease, None)
    }

    /// The same, but ignores the leases that wait only behind the place `except` of this lease.
    fn is_awaited_beside(&self, lease: SlabIndex, except: Option<SlabIndex>) -> bool {
        let lease = self.leases.at(lease);
        let mut grants = lease.grants.iter::<IN_LEASE, _>(&self.grants);
        let mut places = lease.places.iter::<IN_LEASE, _>(&self.places);
        grants.any(|(_, grant)| self.locks.at(grant.lock).queue.len > 0)
            || places.any(|(slot, _)| {
                let awaited = |wait: &WaitRecord| wait.in_queue.after.is_some();
                Some(slot) != except && self.waits_of(slot).any(|(_, wait)| awaited(wait))
            })
    }

    /// How many places and holders the commands of one entry may visit.
    pub(crate) fn searches_per_entry(&self) -> usize {
        if self.level >= LEVEL_ACCESS { SEARCH_ENTRY_MAX } else { usize::MAX }
    }

    /// Every place that could keep this one waiting; `None` if there are too many places or holders to search, or the
    /// searches of the entry have used up its bound. Subtracts the number of places and holders that it visits from
    /// `left`.
    fn reach(&self, place: SlabIndex, left: &mut usize) -> Option<BTreeMap<Rank, SlabIndex>> {
        let start = place;
        let skips = self.skips_ahead(place);
        // The places behind the new one already waited for the places ahead of it.
        let passed_reach = skips && self.level >= LEVEL_HAND_ON;
        // Searched for once, and only if a place that was passed is reached: many places without a live lease may stand
        // before it.
        let mut before_own = None;
        let mut places = BTreeMap::new();
        let mut leases = BTreeSet::new();
        let mut locks = BTreeSet::new();
        let mut holders = 0;
        let mut open = Vec::from([place]);
        while let Some(place) = open.pop() {
            let record = self.places.at(place);
            // A place for any of many locks is reached through each of their queues, and visited once.
            if self.level >= LEVEL_ANY && places.contains_key(&record.rank()) {
                continue;
            }
            *left = left.checked_sub(1)?;
            if !self.is_live(record.lease) || places.insert(record.rank(), place).is_some() {
                continue;
            }
            let mut found = Vec::from([record.lease]);
            for (slot, wait) in self.waits_of(place) {
                // The place directly ahead reaches all places ahead of it.
                if place != start || !skips {
                    let ahead = self.live_before(slot);
                    open.extend(ahead);
                    if passed_reach && ahead == Some(start) {
                        let own = self.places.at(start).first;
                        open.extend(*before_own.get_or_insert_with(|| self.live_before(own)));
                    }
                }
                if locks.insert(wait.lock) {
                    let grants = self.locks.at(wait.lock).grants;
                    holders += grants.len as usize;
                    *left = left.saturating_sub(grants.len as usize);
                    let held = grants.iter::<IN_LOCK, _>(&self.grants);
                    found.extend(held.filter_map(|(slot, _)| self.lease_of(slot)));
                }
            }
            if places.len() > SEARCH_MAX || holders > SEARCH_MAX {
                return None;
            }
            for lease in found {
                if self.is_live(lease) && leases.insert(lease) {
                    let list = self.leases.at(lease).places;
                    let waiting = list.iter::<IN_LEASE, _>(&self.places);
                    open.extend(waiting.filter(|(_, p)| !p.independent).map(|(slot, _)| slot));
                }
            }
        }
        Some(places)
    }

    /// Whether the search leaves out the places ahead of a new place. The new place must pass others in its only queue:
    /// the passed places already waited for the places ahead, so these waits are not new. A new cycle can go through
    /// the places ahead only if the new place is not independent and a place outside those behind it waits for its
    /// lease.
    fn skips_ahead(&self, place: SlabIndex) -> bool {
        let record = self.places.at(place);
        let passes_in_one_queue = self.passes(place) && self.waits_of(place).count() == 1;
        let known = self.level < LEVEL_HAND_ON
            || record.independent
            || !self.is_awaited_beside(record.lease, Some(place));
        passes_in_one_queue && (known || mutant!("places_ahead_not_searched"))
    }

    /// The nearest place ahead of a wait, among the places with a live lease.
    fn live_before(&self, wait: SlabIndex) -> Option<SlabIndex> {
        let before = |slot: &SlabIndex| self.waits.at(*slot).in_queue.before;
        core::iter::successors(before(&wait), before)
            .map(|slot| self.waits.at(slot).place)
            .find(|&place| self.is_live(self.places.at(place).lease))
    }
}

/// A copy of the reachable part of the state, on which grants and releases are simulated.
struct Supposed<'a> {
    machine: &'a Machine,
    locks: BTreeMap<SlabIndex, SupposedLock>,
    /// How many reachable places each lease waits in.
    waiting: BTreeMap<SlabIndex, usize>,
    /// The locks that each lease holds.
    holding: BTreeMap<SlabIndex, BTreeSet<SlabIndex>>,
    /// The granted places that wait for any of several locks. Each is removed from a queue when it reaches the front of
    /// that queue.
    chosen: BTreeSet<SlabIndex>,
}

#[derive(Default)]
struct SupposedLock {
    /// Holders in order of arrival: grants in force by token, then simulated ones by place number.
    holders: BTreeMap<Came, (SlabIndex, Mode)>,
    /// The arrivals of each lease that holds.
    came: BTreeMap<SlabIndex, Vec<Came>>,
    /// How many holders are exclusive.
    exclusive: usize,
    /// How many slots are held.
    slots: u64,
    queue: VecDeque<SlabIndex>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Came {
    Granted(Token),
    Supposed(PlaceNumber),
}

impl SupposedLock {
    fn add(&mut self, came: Came, lease: SlabIndex, mode: Mode) {
        self.holders.insert(came, (lease, mode));
        self.came.entry(lease).or_default().push(came);
        self.exclusive += usize::from(mode == Mode::Exclusive);
        self.slots += u64::from(mode.grants());
    }

    fn remove(&mut self, lease: SlabIndex) {
        for came in self.came.remove(&lease).unwrap_or_default() {
            if let Some((_, mode)) = self.holders.remove(&came) {
                self.exclusive -= usize::from(mode == Mode::Exclusive);
                self.slots -= u64::from(mode.grants());
            }
        }
    }

    fn admits(&self, mode: Mode) -> bool {
        match mode {
            Mode::Exclusive => self.holders.is_empty(),
            Mode::Shared => {
                if mutant!("false_deadlock_for_shared_holders") {
                    return self.holders.is_empty();
                }
                self.exclusive == 0
            }
            Mode::Slot { of, take } => self.slots + u64::from(take) <= u64::from(of),
        }
    }
}

impl<'a> Supposed<'a> {
    fn new(machine: &'a Machine, reached: &BTreeMap<Rank, SlabIndex>) -> Self {
        let mut locks: BTreeMap<SlabIndex, SupposedLock> = BTreeMap::new();
        let mut waiting = BTreeMap::new();
        let mut holding: BTreeMap<SlabIndex, BTreeSet<SlabIndex>> = BTreeMap::new();
        for &place in reached.values() {
            let record = machine.places.at(place);
            if !record.independent {
                *waiting.entry(record.lease).or_insert(0) += 1;
            }
            for (_, wait) in machine.waits_of(place) {
                locks.entry(wait.lock).or_default().queue.push_back(place);
            }
        }
        for (&lock, supposed) in &mut locks {
            let record = machine.locks.at(lock);
            for (_, grant) in record.grants.iter::<IN_LOCK, _>(&machine.grants) {
                if let GrantState::Held(lease) = grant.state
                    && machine.is_live(lease)
                {
                    let mode = grant.asked_mode(record.slots);
                    supposed.add(Came::Granted(grant.token), lease, mode);
                    holding.entry(lease).or_default().insert(lock);
                }
            }
        }
        Self { machine, locks, waiting, holding, chosen: BTreeSet::new() }
    }

    fn reduce(&mut self) {
        let mut open: Vec<SlabIndex> = self.locks.keys().copied().collect();
        let holders: Vec<SlabIndex> = self.holding.keys().copied().collect();
        for lease in holders {
            self.give_back_if_free(lease, &mut open);
        }
        while let Some(lock) = open.pop() {
            let Some(&place) = self.locks[&lock].queue.front() else { continue };
            if self.is_grantable(place) {
                self.grant(place, &mut open);
            }
        }
    }

    fn give_back_if_free(&mut self, lease: SlabIndex, open: &mut Vec<SlabIndex>) {
        if self.waiting.get(&lease).is_some_and(|&waiting| waiting > 0) {
            return;
        }
        for lock in self.holding.remove(&lease).unwrap_or_default() {
            if let Some(supposed) = self.locks.get_mut(&lock) {
                supposed.remove(lease);
                open.push(lock);
            }
        }
    }

    fn is_grantable(&self, place: SlabIndex) -> bool {
        let free = |(_, wait): (SlabIndex, &WaitRecord)| {
            let lock = &self.locks[&wait.lock];
            lock.queue.front() == Some(&place) && self.admits(lock, wait)
        };
        let mut waits = self.machine.waits_of(place);
        let any = self.machine.places.at(place).any && !mutant!("false_deadlock_for_a_choice");
        if any { waits.any(free) } else { waits.all(free) }
    }

    /// Whether the holders of a lock leave room for a place that waits for it.
    fn admits(&self, lock: &SupposedLock, wait: &WaitRecord) -> bool {
        let place = self.machine.places.at(wait.place);
        if place.upgrade {
            return lock.holders.values().all(|(holder, _)| *holder == place.lease);
        }
        lock.admits(wait.mode)
    }

    fn grant(&mut self, place: SlabIndex, open: &mut Vec<SlabIndex>) {
        let machine = self.machine;
        let record = machine.places.at(place);
        if record.any {
            self.chosen.insert(place);
        }
        for (_, wait) in machine.waits_of(place) {
            let lock = self.locks.get_mut(&wait.lock).expect("a reachable place's locks are");
            // Which lock a place for any of several locks gets depends on which holder releases first, so the place
            // counts as holding none of them. The search may therefore miss a deadlock, but it never reports a false
            // one.
            if !record.any {
                lock.queue.pop_front();
                if record.upgrade {
                    lock.remove(record.lease);
                }
                lock.add(Came::Supposed(record.number), record.lease, wait.mode);
                self.holding.entry(record.lease).or_default().insert(wait.lock);
            }
            while lock.queue.front().is_some_and(|first| self.chosen.contains(first)) {
                lock.queue.pop_front();
            }
            open.push(wait.lock);
        }
        if !record.independent
            && let Some(waiting) = self.waiting.get_mut(&record.lease)
        {
            *waiting -= 1;
        }
        self.give_back_if_free(record.lease, open);
    }

    fn is_stuck(&self, place: SlabIndex) -> bool {
        let lock = self.machine.waits.at(self.machine.places.at(place).first).lock;
        !self.chosen.contains(&place)
            && self.locks.get(&lock).is_some_and(|supposed| supposed.queue.contains(&place))
    }

    /// The path of waits from a deadlocked place until a lease repeats.
    fn ring(&self, place: SlabIndex) -> Vec<RingLink> {
        let mut ring = Vec::new();
        let mut seen = BTreeSet::new();
        let mut next = Some(place);
        while let Some(place) = next {
            let lease = self.machine.places.at(place).lease;
            if !seen.insert(lease) || ring.len() == RING_MAX {
                break;
            }
            let Some((lock, after)) = self.step(place) else { break };
            let record = self.machine.leases.at(lease);
            ring.push(RingLink {
                lease: record.id,
                client: record.client.clone(),
                lock: self.machine.locks.at(lock).name.clone(),
            });
            next = after;
        }
        ring
    }

    /// The lock that blocks a deadlocked place, and the deadlocked place that blocks that lock.
    fn step(&self, place: SlabIndex) -> Option<(SlabIndex, Option<SlabIndex>)> {
        for (_, wait) in self.machine.waits_of(place) {
            let lock = &self.locks[&wait.lock];
            if !self.admits(lock, wait) {
                let place = self.machine.places.at(place);
                let in_the_way = |lease| !(place.upgrade && lease == place.lease);
                let mut holders = lock.holders.values().map(|(holder, _)| *holder);
                let holder = holders.find(|holder| in_the_way(*holder))?;
                return Some((wait.lock, self.stuck_place_of(holder)));
            }
            if lock.queue.front() != Some(&place) {
                let at = lock.queue.iter().position(|other| *other == place)?;
                let mut ahead = lock.queue.range(..at).rev();
                return Some((wait.lock, ahead.find(|it| !self.chosen.contains(it)).copied()));
            }
        }
        None
    }

    fn stuck_place_of(&self, lease: SlabIndex) -> Option<SlabIndex> {
        let places = self.machine.leases.at(lease).places;
        let mut places = places.iter::<IN_LEASE, _>(&self.machine.places);
        places
            .find(|(slot, place)| !place.independent && self.is_stuck(*slot))
            .map(|(slot, _)| slot)
    }
}
