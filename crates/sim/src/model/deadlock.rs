//! Detects whether a wait would never end, even if every lease released its locks once it has what it waits for.

use std::collections::{BTreeMap, BTreeSet};

use tenure_types::{LeaseId, Mode, Name, PlaceNumber, RingLink, Token};

use super::pass::admits_beside;
use super::{LEVEL_HAND_ON, Model, Place};

/// A wait that reaches more places than this is allowed without a search.
const REACH_MAX: usize = 10_000;

/// A lease that has a lock, in the present state or in the supposition.
#[derive(Clone)]
struct SupposedHold {
    lock: Name,
    lease: LeaseId,
    mode: Mode,
    /// Real grants come before supposed ones: real ones by token, supposed ones by place number.
    order: (Option<PlaceNumber>, Option<Token>),
}

/// The supposed state.
struct Supposition {
    waiting: BTreeMap<PlaceNumber, Place>,
    holds: Vec<SupposedHold>,
}

impl Supposition {
    /// The place for whose locks a lease keeps what it has: one that waits and is not independent.
    fn next_of(&self, lease: LeaseId) -> Option<&Place> {
        self.waiting.values().find(|place| place.lease == lease && !place.independent)
    }

    /// The place directly before one in a queue.
    fn before(&self, place: &Place, lock: &Name) -> Option<&Place> {
        let of_lock = self.waiting.values().filter(|other| other.mode_of(lock).is_some());
        let earlier = of_lock.filter(|other| other.rank() < place.rank());
        earlier.max_by_key(|other| other.rank())
    }

    fn blocks(&self, place: &Place, lock: &Name, mode: Mode) -> bool {
        self.before(place, lock).is_some() || !self.holders_admit(place, lock, mode)
    }

    /// Those who have a lock, without the place's own hold if it is to be upgraded.
    fn others_on(&self, place: &Place, lock: &Name) -> Vec<&SupposedHold> {
        let own = |hold: &SupposedHold| place.upgrade && hold.lease == place.lease;
        self.holds.iter().filter(|hold| hold.lock == *lock && !own(hold)).collect()
    }

    fn holders_admit(&self, place: &Place, lock: &Name, mode: Mode) -> bool {
        let on_it = self.others_on(place, lock).into_iter();
        let modes: Vec<Mode> = on_it.map(|hold| hold.mode).collect();
        admits_beside(&modes, mode)
    }

    /// The first lock that keeps a place waiting. An ask for any waits only if all of them do.
    fn first_blocking(&self, place: &Place) -> Option<Name> {
        let locks = place.locks.iter().filter(|(lock, mode)| self.blocks(place, lock, *mode));
        let blocking: Vec<&(Name, Mode)> = locks.collect();
        let waits = !place.any || blocking.len() == place.locks.len();
        blocking.first().filter(|_| waits).map(|(lock, _)| lock.clone())
    }

    /// Makes one round of releases and grants; `false` when nothing changed.
    fn go_on(&mut self) -> bool {
        let before = (self.waiting.len(), self.holds.len());
        let kept = self.holds.clone().into_iter();
        self.holds = kept.filter(|hold| self.next_of(hold.lease).is_some()).collect();
        let gave_back = self.holds.len() < before.1;
        for place in self.waiting.clone().into_values() {
            if self.first_blocking(&place).is_some() {
                continue;
            }
            self.waiting.remove(&place.number);
            if place.upgrade {
                let own =
                    |it: &SupposedHold| it.lease == place.lease && it.lock == place.locks[0].0;
                self.holds.retain(|hold| !own(hold));
            }
            // Which one it gets depends on who gives back first, so it is supposed to have none.
            let certain = if place.any { Vec::new() } else { place.locks };
            for (lock, mode) in certain {
                let (lease, order) = (place.lease, (Some(place.number), None));
                self.holds.push(SupposedHold { lock, lease, mode, order });
            }
        }
        gave_back || self.waiting.len() < before.0
    }
}

impl Model {
    /// The ring that this place, already in its queues, would close; `None` if the place can be granted.
    pub(super) fn deadlock(&self, asker: &Place) -> Option<Vec<RingLink>> {
        if let Some(ring) = self.two_upgrades(asker) {
            return Some(ring);
        }
        let passes = self.is_before_others(asker);
        if asker.independent && !passes || !self.is_awaited(asker.lease) {
            return None;
        }
        let waiting = self.reachable(asker);
        if waiting.len() > REACH_MAX {
            return None;
        }
        let locks: BTreeSet<Name> = waiting.values().flat_map(Place::names).collect();
        let mut holds = Vec::new();
        for lock in locks {
            for grant in self.held_grants(&lock) {
                if self.is_live(grant.lease) {
                    holds.push(SupposedHold {
                        lock: lock.clone(),
                        lease: grant.lease,
                        mode: grant.mode,
                        order: (None, Some(grant.token)),
                    });
                }
            }
        }
        let mut supposed = Supposition { waiting, holds };
        while supposed.go_on() {}
        if supposed.waiting.contains_key(&asker.number) {
            return Some(walk(&supposed, asker));
        }
        // Its lease would keep those waiting whom it passed, for as long as it waits for something else.
        let other = supposed.next_of(asker.lease).filter(|_| passes)?;
        Some(walk(&supposed, other))
    }

    /// Whether any place waits for what a lease holds, or behind one of its places.
    fn is_awaited(&self, lease: LeaseId) -> bool {
        self.is_awaited_for_held(lease)
            || self.places_of(lease).iter().any(|place| self.is_before_others(place))
    }

    fn is_awaited_for_held(&self, lease: LeaseId) -> bool {
        self.held_by(lease).iter().any(|(lock, _)| !self.queue_of(lock).is_empty())
    }

    /// Whether no new cycle can go through the places before the asker. Who is passed in its only queue waited for them
    /// already. So only its own lease newly waits for them, if it does, and that matters if others wait for the lease.
    fn nothing_new_before(&self, asker: &Place) -> bool {
        let in_one_queue = asker.locks.len() == 1 && self.is_before_others(asker);
        if self.level < LEVEL_HAND_ON {
            return in_one_queue;
        }
        let mut others = self.places_of(asker.lease).into_iter();
        let awaited = self.is_awaited_for_held(asker.lease)
            || others.any(|it| it.number != asker.number && self.is_before_others(&it));
        in_one_queue && (asker.independent || !awaited)
    }

    /// Every place that can affect when this one is granted.
    fn reachable(&self, asker: &Place) -> BTreeMap<PlaceNumber, Place> {
        let mut places = BTreeMap::new();
        let nothing_new = self.nothing_new_before(asker);
        let cut = nothing_new && self.level < LEVEL_HAND_ON;
        let mut todo = vec![asker.clone()];
        while let Some(place) = todo.pop() {
            // The lease of the asker may be new, and then it is granted only if the ask is not refused.
            let live = place.number == asker.number || self.is_live(place.lease);
            if !live || places.contains_key(&place.number) {
                continue;
            }
            let of_own_lease = self.places_of(place.lease).into_iter();
            todo.extend(of_own_lease.filter(|other| !other.independent));
            for (lock, _) in &place.locks {
                let queue = self.queue_of(lock).into_iter();
                let before = queue.filter(|other| other.rank() < place.rank()).cloned();
                let passed = asker.mode_of(lock).is_some() && place.rank() > asker.rank();
                if cut && passed {
                    // Below that level the search ends at the asker also for those whom it passes.
                    todo.extend(before.filter(|other| other.rank() >= asker.rank()));
                } else if place.number != asker.number || !nothing_new {
                    todo.extend(before);
                }
                for grant in self.held_grants(lock) {
                    let of_lease = self.places_of(grant.lease).into_iter();
                    todo.extend(of_lease.filter(|other| !other.independent));
                }
            }
            places.insert(place.number, place);
        }
        places
    }
}

/// Follows what blocks each place, from the asker on, until a lease repeats.
fn walk(supposed: &Supposition, asker: &Place) -> Vec<RingLink> {
    let mut ring: Vec<RingLink> = Vec::new();
    let mut place = asker;
    while ring.iter().all(|link| link.lease != place.lease) {
        let lock = supposed.first_blocking(place).expect("what is never granted is blocked");
        let on_it = supposed.others_on(place, &lock).into_iter();
        let holder = on_it.min_by_key(|hold| hold.order);
        ring.push(RingLink {
            lease: place.lease,
            client: place.client.clone(),
            lock: lock.clone(),
        });
        let mode = place.mode_of(&lock).expect("a place blocked by a lock waits for it");
        place = match holder.filter(|_| !supposed.holders_admit(place, &lock, mode)) {
            Some(holder) => supposed.next_of(holder.lease).expect("who keeps a lock waits"),
            None => supposed.before(place, &lock).expect("without a holder it is the queue"),
        };
    }
    ring
}
