//! Grants locks to the waiters that are next.

use std::collections::BTreeSet;

use tenure_core::event::{Cause, Event};
use tenure_core::outcome::{self, Grants, Notice};
use tenure_types::{Mode, Name};

use super::event::held_event;
use super::progress::ModelPromise;
use super::state::later;
use super::{Grant, GrantState, LEVEL_REPAIRED, Model, NO_HANDLE, Place};

impl Model {
    /// Whether the present holders of a lock leave room for one more in this mode.
    pub(super) fn admits(&self, lock: &Name, mode: Mode) -> bool {
        let modes: Vec<Mode> = self.grants_of(lock).iter().map(|grant| grant.mode).collect();
        admits_beside(&modes, mode)
    }

    fn is_grantable(&self, place: &Place) -> bool {
        !self.is_quiet()
            && self.is_live(place.lease)
            && if place.any { self.free_one(place).is_some() } else { self.has_all(place) }
    }

    /// Whether the first place of a queue would leave it now, as in a queue that is still to be reopened.
    pub(super) fn may_advance(&self, lock: &Name) -> bool {
        let first = self.queue_of(lock).first().copied();
        first.is_some_and(|first| !self.is_live(first.lease) || self.is_grantable(first))
    }

    fn has_all(&self, place: &Place) -> bool {
        self.tokens_left() >= place.grants()
            && place.locks.iter().all(|(lock, mode)| {
                let first = self.queue_of(lock).first().map(|first| first.number);
                if place.upgrade {
                    // Its own lease is one of the holders, and it stays the only one.
                    return first == Some(place.number) && self.grants_of(lock).len() == 1;
                }
                first == Some(place.number) && self.admits(lock, *mode) && !self.is_drained(lock)
            })
    }

    /// Serves these locks, and those affected by that, until no more place can be granted.
    pub(super) fn grant_pass(&mut self, touched: impl IntoIterator<Item = Name>) {
        let mut set: BTreeSet<Name> = touched.into_iter().collect();
        set.append(&mut self.left_by_upgrades);
        while let Some(lock) = set.pop_first() {
            while let Some(first) = self.queue_of(&lock).first().copied().cloned() {
                if !self.is_live(first.lease) {
                    let revoked = self.is_revoked(first.lease);
                    let cause = if revoked { Cause::Revoked } else { Cause::Expired };
                    set.extend(self.remove_place(first.number, cause));
                } else if self.is_grantable(&first) {
                    self.hand_over(&first);
                    set.extend(first.names());
                } else {
                    break;
                }
            }
        }
    }

    /// Grants a place that waited.
    fn hand_over(&mut self, place: &Place) {
        let grants = match (place.upgrade, place.any) {
            (true, _) => self.make_exclusive(&place.locks[0].0, place.lease, place.number),
            (false, false) => self.grant_locks(place),
            (false, true) => {
                let one = self.narrow(place);
                self.grant_locks(&one)
            }
        };
        self.places.remove(&place.number);
        self.notices.push(Notice::Granted {
            lease: NO_HANDLE,
            place: place.number,
            revision: self.this_revision(),
            grants,
        });
    }

    /// Grants every lock of a place.
    pub(super) fn grant_locks(&mut self, place: &Place) -> Grants {
        self.grant_in_slot(place, None)
    }

    /// Grants every lock of a place, in this slot if one is given.
    pub(super) fn grant_in_slot(&mut self, place: &Place, slot: Option<u32>) -> Grants {
        let lease = self.leases[&place.lease].clone();
        let mut grants = Vec::new();
        let each = place.locks.iter();
        let each = each.flat_map(|(lock, mode)| (0..takes(*mode)).map(move |_| (lock, mode)));
        for (lock, mode) in each {
            self.come_into_being(lock, *mode);
            let due = place
                .max_hold_ms
                .map(|max_hold_ms| later(self.clock_ms, max_hold_ms.saturating_sub(lease.ttl_ms)));
            let grant = Grant {
                token: self.next_token(),
                lease: lease.id,
                lease_created: lease.created,
                client: lease.client.clone(),
                mode: match mode {
                    Mode::Slot { of, .. } => Mode::Slot { of: *of, take: 1 },
                    Mode::Exclusive | Mode::Shared => *mode,
                },
                slot: slot.or_else(|| mode.slots().map(|_| self.lowest_free_slot(lock))),
                place: place.number,
                since_ms: self.clock_ms,
                state: GrantState::Held,
                purpose: place.purpose,
                metadata: place.metadata.clone(),
                lock_delay_ms: place.lock_delay_ms,
                max_hold_ms: place.max_hold_ms,
                max_hold_due_ms: due,
                min_hold_ms: place.min_hold_ms,
                progress: ModelPromise::promised(place.progress_within_ms, self.clock_ms),
                asks: place.asks,
                owner: lease.owner.clone(),
            };
            let told_before = self.level >= LEVEL_REPAIRED
                && grants.last().is_some_and(|last: &outcome::LockGrant| last.lock == *lock);
            let value =
                (!place.metadata.is_empty() && !told_before).then(|| place.metadata.clone().into());
            let event = held_event(Cause::Granted, lock, &grant);
            grants.push(show(lock, &grant));
            self.locks.get_mut(lock).expect("it came into being").grants.push(grant);
            self.grant_event(lock, Event { place: Some(place.number), value, ..event });
        }
        grants.into_iter().collect()
    }

    fn lowest_free_slot(&self, lock: &Name) -> u32 {
        let taken: Vec<u32> = self.grants_of(lock).iter().filter_map(|grant| grant.slot).collect();
        (0..).find(|slot| !taken.contains(slot)).expect("fewer grants than slots")
    }
}

/// Whether a mode is compatible with those of the other grants.
pub(super) fn admits_beside(others: &[Mode], mode: Mode) -> bool {
    match mode {
        Mode::Exclusive => others.is_empty(),
        Mode::Shared => !others.contains(&Mode::Exclusive),
        Mode::Slot { of, take } => {
            let taken: u64 = others.iter().map(|other| u64::from(takes(*other))).sum();
            taken + u64::from(take) <= u64::from(of)
        }
    }
}

/// How many grants an ask in this mode becomes.
pub(super) fn takes(mode: Mode) -> u32 {
    match mode {
        Mode::Slot { take, .. } => take,
        Mode::Exclusive | Mode::Shared => 1,
    }
}

/// A grant in the form of the answer to its holder.
pub(super) fn show(lock: &Name, grant: &Grant) -> outcome::LockGrant {
    outcome::LockGrant { lock: lock.clone(), token: grant.token, slot: grant.slot }
}
