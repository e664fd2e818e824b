//! Ends what is due, in the order of the rules.

use std::collections::BTreeSet;

use tenure_core::event::Cause;
use tenure_core::outcome::Notice;
use tenure_core::request::Urgency;
use tenure_types::{LeaseId, Limit, Name, PlaceNumber, Token};

use super::lease::End;
use super::{GrantState, Model, NO_HANDLE};

/// Something with a deadline.
#[derive(Clone)]
pub(super) struct Item {
    pub(super) deadline_ms: u64,
    what: What,
}

#[derive(Clone)]
enum What {
    WaitLimit(PlaceNumber),
    Lease(LeaseId),
    MaxHold(Name, Token),
    Cooling(Name, Token),
    LockDelay(Name, Token),
    Quiet,
}

impl Item {
    /// The sort key: deadline, kind, id.
    fn order(&self) -> (u64, u8, u64) {
        let (kind, id) = match &self.what {
            What::WaitLimit(place) => (0, place.0),
            What::Lease(lease) => (1, lease.get()),
            What::MaxHold(_, token) => (2, token.get()),
            What::Cooling(_, token) => (3, token.get()),
            What::LockDelay(_, token) => (4, token.get()),
            What::Quiet => (5, 0),
        };
        (self.deadline_ms, kind, id)
    }
}

impl Model {
    /// Everything that has a deadline, in the order in which it is due.
    pub(super) fn pending(&self) -> Vec<Item> {
        let mut items = Vec::new();
        let mut add = |deadline_ms, what| items.push(Item { deadline_ms, what });
        for place in self.places.values() {
            if let Some(until_ms) = place.wait_until_ms {
                add(until_ms, What::WaitLimit(place.number));
            }
        }
        for lease in self.leases.values() {
            add(lease.deadline_ms, What::Lease(lease.id));
        }
        for (name, lock) in &self.locks {
            for grant in &lock.grants {
                let (name, token) = (name.clone(), grant.token);
                match (grant.state, grant.max_hold_due_ms) {
                    (GrantState::Held, None) => {}
                    (GrantState::Held, Some(due_ms)) => add(due_ms, What::MaxHold(name, token)),
                    (GrantState::Cooling { until_ms }, _) => {
                        add(until_ms, What::Cooling(name, token));
                    }
                    (GrantState::Delayed { until_ms }, _) => {
                        add(until_ms, What::LockDelay(name, token));
                    }
                }
            }
        }
        if let Some(until_ms) = self.quiet_until_ms {
            add(until_ms, What::Quiet);
        }
        items.sort_by_key(Item::order);
        items
    }

    /// Ends what is due, up to the limit for one entry.
    pub(super) fn end_due(&mut self) {
        let taken = self.take_due();
        let mut touched = BTreeSet::new();
        for item in &taken {
            match item.what {
                What::WaitLimit(number) => touched.extend(self.end_wait(number)),
                What::Lease(lease) => {
                    touched.extend(self.remove_places_of(lease, Cause::Expired));
                }
                _ => {}
            }
        }
        for item in taken {
            touched.extend(self.end_item(item.what));
        }
        self.grant_pass(touched);
    }

    fn take_due(&self) -> Vec<Item> {
        let most = self.limits.get(Limit::EndsPerEntry);
        let mut objects = 0;
        let mut taken = Vec::new();
        for item in self.pending() {
            if item.deadline_ms > self.clock_ms || objects >= most {
                break;
            }
            objects += match item.what {
                What::Lease(lease) => {
                    let bound = self.held_by(lease).len()
                        + self.places_of(lease).len()
                        + self.keys_of(lease).len();
                    1 + bound as u64
                }
                _ => 1,
            };
            taken.push(item);
        }
        taken
    }

    fn end_wait(&mut self, number: PlaceNumber) -> Vec<Name> {
        // The place may just have been removed with its lease.
        if !self.places.contains_key(&number) {
            return Vec::new();
        }
        let revision = self.this_revision();
        self.notices.push(Notice::WaitEnded { lease: NO_HANDLE, place: number, revision });
        self.remove_place(number, Cause::WaitTimeout)
    }

    /// Ends anything but a place. Returns the locks that this touched.
    fn end_item(&mut self, what: What) -> BTreeSet<Name> {
        match what {
            What::WaitLimit(_) => BTreeSet::new(),
            What::Lease(lease) => self.end_lease(lease, End::Expired),
            What::MaxHold(lock, token) => {
                // The lease may just have ended, and the grant with it.
                if self.grant(&lock, token).is_none_or(|grant| !grant.is_held()) {
                    return BTreeSet::new();
                }
                self.take_away(&lock, token, Cause::MaxHold, Urgency::Cooling, ("", ""));
                self.if_gone(lock, token)
            }
            What::Cooling(lock, token) => {
                self.cooling_over(&lock, token);
                self.if_gone(lock, token)
            }
            What::LockDelay(lock, token) => {
                self.delay_over(&lock, token);
                BTreeSet::from([lock])
            }
            What::Quiet => {
                self.quiet_until_ms = None;
                self.locks.keys().cloned().collect()
            }
        }
    }
}
